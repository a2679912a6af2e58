//! To which exchanges this user may write, as far as a probe told: each refusal that we provoke is an error line in the broker's log, so an
//! answer is believed for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::machine::Mono;

/// How long an answer is believed.
const BELIEVED: Duration = Duration::from_secs(60);
/// How many are remembered; beyond, all are forgotten.
const MOST: usize = 1000;

/// The exchanges, and until when that is believed.
#[derive(Debug, Default)]
pub(super) struct Permitted(BTreeMap<ShortStr, Mono>);

impl Permitted {
    /// The broker has just said yes.
    pub(super) fn learn(&mut self, exchange: ShortStr, now: Mono) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(exchange, now.after(BELIEVED));
    }

    /// Whether it said yes not long ago.
    pub(super) fn knows(&self, exchange: &[u8], now: Mono) -> bool {
        self.0.get(exchange).is_some_and(|until| *until > now)
    }
}
