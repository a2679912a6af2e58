//! What a consumer holds for longer than its queue's ack timeout, and settles late.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::client::Client;
use super::load::Ledger;
use super::retries::Which;

/// The shortest that the proxy takes.
pub(crate) const ACK_TIMEOUT: Duration = Duration::from_secs(1);
/// What was at its limit is dead by then, as a rule.
const LATE: Duration = Duration::from_millis(2500);

/// Of one connection.
pub(crate) struct Held<'a> {
    ledger: &'a Ledger,
    limit: u64,
    /// Delivery tags, and since when.
    all: Vec<(u64, Which, Instant)>,
}

impl Held<'_> {
    pub(crate) fn new(ledger: &Ledger, limit: u64) -> Held<'_> {
        Held {
            ledger,
            limit,
            all: Vec::new(),
        }
    }

    pub(crate) fn hold(&mut self, tag: u64, which: Which) {
        self.ledger.held.fetch_add(1, Relaxed);
        self.all.push((tag, which, Instant::now()));
    }

    /// Acks what has come once more: whether this is the message or a double of it, the ack loses nothing. What is never taken back is held
    /// for ever, and the round does not end well. A message at its limit does not come again. It is rejected, as the proxy may have been
    /// stopped all the time, and have taken nothing back.
    pub(crate) fn settle(&mut self, out: &mut Vec<u8>) {
        let (deliveries, before) = (self.ledger.deliveries(), self.all.len());
        self.all.retain(|(tag, which, since)| {
            let is_back = deliveries.is_back(*which);
            let is_dead = deliveries.count(*which) >= self.limit && since.elapsed() > LATE;
            match is_back {
                true => Client::ack(out, *tag),
                false if is_dead => Client::reject(out, *tag),
                false => {}
            }
            !is_back && !is_dead
        });
        let settled = before - self.all.len();
        self.ledger.held.fetch_sub(settled, Relaxed);
    }
}

impl Drop for Held<'_> {
    /// The connection has ended, and the broker has them again.
    fn drop(&mut self) {
        self.ledger.held.fetch_sub(self.all.len(), Relaxed);
    }
}
