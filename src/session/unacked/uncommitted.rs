//! The ledger of a channel in tx mode: what the client settles takes effect at commit, or not at all (S9.2).
//!
//! The broker is told at once, as the client wrote it. But of deliveries that *matter* it hears nothing before the commit: a reject of one
//! must not be carried out, and a copy is needed as long as a rollback may bring the delivery back.

use std::collections::BTreeMap;

use crate::amqp::ids::DeliveryTag;

use super::{Bits, Unacked, clear, set};

/// What a client says of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ack,
    Requeue,
    Reject,
}

/// What was settled since the last commit.
#[derive(Debug, Default)]
pub(super) struct Uncommitted {
    /// The broker was told.
    pub(super) told: Bits,
    /// It was not.
    pub(super) aside: BTreeMap<u64, Verdict>,
}

// === impl Unacked ===

impl Unacked {
    /// The channel is in tx mode from now on.
    pub(crate) fn begin_tx(&mut self) {
        self.uncommitted.get_or_insert_default();
    }

    /// Of a delivery that matters the broker is told at the commit.
    pub(crate) fn set_aside(&mut self, tag: DeliveryTag, verdict: Verdict) {
        if let Some(uncommitted) = &mut self.uncommitted {
            uncommitted.aside.insert(tag.0, verdict);
            set(&mut self.taken, tag.0);
        }
    }

    /// What was set aside: now it counts.
    pub(crate) fn take_aside(&mut self) -> BTreeMap<u64, Verdict> {
        let uncommitted = self.uncommitted.as_mut();
        let aside = uncommitted.map_or(BTreeMap::new(), |of| std::mem::take(&mut of.aside));
        for tag in aside.keys() {
            clear(&mut self.taken, *tag);
        }
        aside
    }

    /// `tx.commit` goes to the broker: what it was told is settled.
    pub(crate) fn committed(&mut self) {
        if let Some(uncommitted) = &mut self.uncommitted {
            uncommitted.told.clear();
        }
    }

    /// `tx.rollback` goes to the broker: what was settled is outstanding again.
    pub(crate) fn rolled_back(&mut self) {
        self.take_aside();
        if let Some(uncommitted) = &mut self.uncommitted {
            for (word, told) in std::mem::take(&mut uncommitted.told) {
                *self.words.entry(word).or_default() |= told;
            }
        }
    }

    /// The broker is told of these.
    pub(super) fn tell(&mut self, word: u64, tags: u64) {
        if let Some(uncommitted) = self.uncommitted.as_mut().filter(|_| tags != 0) {
            *uncommitted.told.entry(word).or_default() |= tags;
        }
    }

    /// Everything is in its queue again (`basic.recover`), but what a rollback may still bring back.
    pub(crate) fn take_all(&mut self) -> Unacked {
        let uncommitted = self.uncommitted.take().map(|of| Uncommitted {
            told: of.told,
            aside: BTreeMap::new(),
        });
        std::mem::replace(
            self,
            Unacked {
                uncommitted,
                ..Unacked::default()
            },
        )
    }

    /// Gives up the copies that are not wanted. Returns their octets.
    pub(crate) fn drop_copies(&mut self, wanted: impl Fn(&[u8]) -> bool) -> usize {
        let mut freed = 0;
        self.retained.retain(|_, of| {
            let keep = wanted(&of.queue);
            freed += if keep { 0 } else { of.octets() };
            keep
        });
        freed
    }
}
