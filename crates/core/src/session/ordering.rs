//! What has to wait for withheld rejects: commands that end something, and whatever could make the broker close the channel. If such a command
//! overtook a withheld reject, the broker would return that message to its queue, although its dead letter is on its way.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::amqp::method::{MethodId, Publish};
use crate::machine::Mono;
use crate::registry::Registry;
use crate::registry::catalogue::fnv1a;

use super::channel::Channel;
use super::frames::Method;
use super::replies::Expected;

/// How long an exchange is assumed to exist.
const BELIEVED: Duration = Duration::from_secs(60);
/// Remembered exchanges. Above this number all are forgotten.
const MOST: usize = 1000;
const IMMEDIATE: u8 = 2;

/// Exchanges that this client has published to or declared, assumed to exist for a while; and the
/// default exchange. Stores hashes only: a client that provokes a collision delays only its own
/// rejects.
#[derive(Debug, Default)]
pub(super) struct Exchanges(BTreeMap<u64, Mono>);

// === impl Exchanges ===

impl Exchanges {
    pub(super) fn learn(&mut self, exchange: &[u8], now: Mono) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(fnv1a(exchange), now.after(BELIEVED));
    }

    pub(super) fn forget(&mut self, exchange: &[u8]) {
        self.0.remove(&fnv1a(exchange));
    }

    fn knows(&self, exchange: &[u8], now: Mono) -> bool {
        let until = || self.0.get(&fnv1a(exchange));
        exchange.is_empty() || until().is_some_and(|until| *until > now)
    }

    /// Whether a request ends nothing, and cannot make the broker close the channel. Of the
    /// frequent ones: `basic.get` of a known queue, and `basic.publish` to a known exchange.
    pub(super) fn cannot_fail(
        &self,
        state: &Channel,
        method: Method<'_>,
        registry: &Registry,
        now: Mono,
    ) -> bool {
        match method.id {
            MethodId::BASIC_GET => state
                .begins_to_read(method)
                .is_some_and(|queue| registry.get(&queue).is_some()),
            MethodId::BASIC_PUBLISH => Publish::parse(method.payload).is_ok_and(|publish| {
                publish.bits & IMMEDIATE == 0 && self.knows(publish.exchange, now)
            }),
            _ => false,
        }
    }

    /// After a publish to a possibly missing exchange, on a channel that may reject: asks the
    /// broker once to confirm its execution, so that later publishes to it need not wait for
    /// rejects.
    pub(super) fn proof(
        &self,
        state: &Channel,
        method: Method<'_>,
        registry: &Registry,
        now: Mono,
    ) -> Option<Expected> {
        let is_publish = method.id == MethodId::BASIC_PUBLISH && state.unacked.retains_any();
        if !is_publish || self.cannot_fail(state, method, registry, now) {
            return None;
        }
        let publish = Publish::parse(method.payload).ok()?;
        let proof = Expected::Published(ShortStr::copy(publish.exchange)?);
        let is_new = !state.due.iter().any(|due| due.what == proof);
        is_new.then_some(proof)
    }
}
