//! Which queues a dead letter must not enter: `rabbit_dead_letter:detect_cycles` (S6.1).

use std::collections::BTreeSet;

use crate::amqp::ids::ShortStr;
use crate::machine::Reason;

use super::history::Entry;

/// The queues that a message went through since somebody last rejected it.
///
/// RabbitMQ looks from the newest entry to the first of the target queue and drops the copy when none of those has reason `rejected`:
/// that is so exactly for the queues in front of the newest rejected entry.
#[derive(Debug)]
pub(super) struct Automatic<'a> {
    queues: BTreeSet<&'a [u8]>,
    lap: Vec<&'a [u8]>,
}

impl<'a> Automatic<'a> {
    /// `entries`: newest first, with the death that is being handled.
    pub(super) fn of(reason: Reason, entries: &[Entry<'a>]) -> Automatic<'a> {
        let lap: Vec<&[u8]> = match reason {
            Reason::Rejected => Vec::new(),
            Reason::Expired | Reason::Maxlen | Reason::DeliveryLimit => entries
                .iter()
                .take_while(|entry| entry.reason != Some(Reason::Rejected.as_str().as_bytes()))
                .filter_map(|entry| entry.queue)
                .collect(),
        };
        Automatic {
            queues: lap.iter().copied().collect(),
            lap,
        }
    }

    /// Whether the copy for this queue is dropped.
    pub(super) fn has(&self, queue: &[u8]) -> bool {
        self.queues.contains(queue)
    }

    /// For the log: the queue, and the way back to it.
    pub(super) fn lap(&self, queue: &[u8]) -> Vec<ShortStr> {
        let back = self
            .lap
            .iter()
            .position(|q| *q == queue)
            .map_or(0, |at| at + 1);
        std::iter::once(queue)
            .chain(self.lap.iter().copied().take(back))
            .filter_map(ShortStr::copy)
            .collect()
    }
}
