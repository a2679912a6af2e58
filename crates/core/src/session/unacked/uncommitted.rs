//! The ledger of a channel in tx mode: the broker is told at once what the client settles, which takes effect at commit, or not at all (S9.2).

use std::collections::BTreeMap;

use crate::amqp::ids::DeliveryTag;

use super::{Retained, Unacked};

// === impl Unacked ===

impl Unacked {
    /// Enters tx mode. Returns the copies of open deliveries.
    pub(crate) fn begin_tx(
        &mut self,
    ) -> impl Iterator<Item = (DeliveryTag, Box<Retained>)> + use<> {
        self.uncommitted.get_or_insert_default();
        let copies = std::mem::take(&mut self.copies).into_iter();
        let (open, kept): (BTreeMap<_, _>, _) = copies.partition(|(_, of)| of.is_open());
        self.copies = kept;
        open.into_iter().map(|(tag, of)| (DeliveryTag(tag), of))
    }

    pub(crate) fn committed(&mut self) {
        let Some(told) = &mut self.uncommitted else {
            return;
        };
        told.clear();
        for of in &mut self.uncopied {
            of.tags.retain(|word, tags| {
                *tags &= self.words.get(word).copied().unwrap_or(0);
                *tags != 0
            });
        }
        self.uncopied.retain(|of| !of.tags.is_empty());
    }

    /// `tx.rollback`: settled tags are outstanding again.
    pub(crate) fn rolled_back(&mut self) {
        let told = self.uncommitted.as_mut().map(std::mem::take);
        for (word, told) in told.unwrap_or_default() {
            *self.words.entry(word).or_default() |= told;
        }
    }

    pub(super) fn tell(&mut self, word: u64, tags: u64) {
        if let Some(told) = self.uncommitted.as_mut().filter(|_| tags != 0) {
            *told.entry(word).or_default() |= tags;
        }
    }

    /// `basic.recover`: all are requeued, except those that a rollback may bring back. What the
    /// client settles late is swallowed all the same.
    pub(crate) fn take_all(&mut self) -> Unacked {
        let mut left = Unacked {
            taken_back: std::mem::take(&mut self.taken_back),
            ..Unacked::default()
        };
        if let Some(told) = self.uncommitted.take() {
            left.uncommitted = Some(told);
            left.uncopied = std::mem::take(&mut self.uncopied);
        }
        std::mem::replace(self, left)
    }
}
