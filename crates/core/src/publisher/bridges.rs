//! Internal exchanges take no publish of a client's (S2.4), so their dead letters go over a bridge: a fanout exchange of ours that they are
//! bound to. A bridge has a channel of its own, as any named exchange; so one that cannot be made closes nobody else's channel.
//!
//! It is made anew in each life of its channel, and deletes itself when it loses its binding (`auto_delete`). So it goes with its internal
//! exchange, and the next publish is told so by a 404; a durable one would stay behind, and return what it is given as if no queue were
//! bound. A bridge need not be durable, either: when the broker restarts, the link and its channels end, and their successors make it anew.

use std::collections::BTreeMap;

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{Close, MethodId};
use crate::amqp::reply;
use crate::machine::Cause;
use crate::objects::{Names, OwnObject};

/// Known internal exchanges. Beyond this number all are forgotten and learned anew.
const MOST_KNOWN: usize = 1_024;
/// Bound on refusals of one dead letter as internal: the exchange or bridge may be deleted again
/// and again.
pub(super) const MOST_CROSSINGS: u32 = 3;
const EXCHANGE: u16 = MethodId::EXCHANGE_DECLARE.0;
const AUTO_DELETE: u8 = 4;
const DECLARE_NO_WAIT: u8 = 16;
const BIND_NO_WAIT: u8 = 1;

/// Bridges by internal exchange, learned from the first refused dead letter.
#[derive(Debug)]
pub(super) struct Known {
    names: Names,
    bridges: BTreeMap<ShortStr, ShortStr>,
}

/// Makes the bridge, or finds it there. On failure the broker closes the channel, so the caller
/// need not wait.
pub(super) fn build(out: &mut Vec<u8>, channel: ChannelId, bridge: &ShortStr, internal: &ShortStr) {
    declare(out, channel, bridge);
    let binding = (&**bridge, &b""[..], &**internal);
    reply::bind(out, channel, MethodId::EXCHANGE_BIND, binding, BIND_NO_WAIT);
}

/// Declares a fanout exchange that is deleted with its last binding.
pub(super) fn declare(out: &mut Vec<u8>, channel: ChannelId, exchange: &ShortStr) {
    let bits = AUTO_DELETE | DECLARE_NO_WAIT;
    reply::declare_exchange(out, channel, (exchange, b"fanout"), bits, b"");
}

/// Why a bridge failed: the internal exchange is missing, or we lack permission.
pub(super) fn blame(close: &Close<'_>) -> Option<Cause> {
    (close.class == EXCHANGE).then_some(match close.code {
        404 => Cause::NoExchange,
        _ => Cause::Forbidden,
    })
}

// === impl Known ===

impl Known {
    pub(super) fn new(names: Names) -> Known {
        Known {
            names,
            bridges: BTreeMap::new(),
        }
    }

    pub(super) fn bridge(&self, exchange: &ShortStr) -> Option<&ShortStr> {
        self.bridges.get(exchange)
    }

    /// Records an internal exchange. `None`: the bridge's name would be too long.
    pub(super) fn learn(&mut self, exchange: &ShortStr) -> Option<ShortStr> {
        if let Some(bridge) = self.bridges.get(exchange) {
            return Some(bridge.clone());
        }
        let bridge = self.names.name(&OwnObject::Bridge(exchange))?;
        if self.bridges.len() >= MOST_KNOWN {
            self.bridges.clear();
        }
        self.bridges.insert(exchange.clone(), bridge.clone());
        Some(bridge)
    }

    /// The bridge failed. The exchange may be gone or replaced: the next publish goes directly.
    pub(super) fn forget(&mut self, exchange: &ShortStr) {
        self.bridges.remove(exchange);
    }
}
