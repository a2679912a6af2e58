//! Which deliveries of the consuming channel are unsettled, in the order of their tags; and which acks can be said with `multiple`.

use std::collections::VecDeque;

use crate::amqp::ids::DeliveryTag;
use crate::amqp::reply;
use crate::machine::{Mono, Publication, Ticket};

use super::CONSUMER;

/// What became of one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The delivery has no outcome yet.
    Held,
    /// To be acked at the next flush.
    Done,
    Settled,
}

#[derive(Debug)]
struct Slot {
    state: State,
    came: Mono,
    bytes: usize,
    spare: Option<Box<Publication>>,
}

/// The deliveries of one life of the channel. Tickets count on through all lives, so those of an earlier one find nothing.
#[derive(Debug)]
pub(super) struct Ledger {
    /// The ticket of tag 0 of this life: all tickets of earlier lives are up to it.
    base: u64,
    /// The tag of the front slot.
    first: u64,
    slots: VecDeque<Slot>,
    held: usize,
    bytes: usize,
    /// Tags that became `Done` since the last flush.
    done: Vec<u64>,
}

// === impl Ledger ===

impl Ledger {
    /// A ledger without deliveries.
    pub(super) fn new() -> Ledger {
        Ledger {
            base: 0,
            first: 1,
            slots: VecDeque::new(),
            held: 0,
            bytes: 0,
            done: Vec::new(),
        }
    }

    /// The channel is gone: the broker has all unsettled ones again.
    pub(super) fn forget(&mut self) {
        self.base += self.first - 1 + self.slots.len() as u64;
        self.first = 1;
        self.slots.clear();
        self.held = 0;
        self.bytes = 0;
        self.done.clear();
    }

    /// Deliveries without an outcome.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The tag that the next delivery must have.
    pub(super) fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// When the oldest delivery without an outcome has come. Of one that is not flushed yet, the broker has not heard.
    pub(super) fn oldest(&self) -> Option<Mono> {
        let front = self.slots.front().filter(|_| self.held > 0);
        front.map(|slot| slot.came)
    }

    /// The next delivery has begun.
    pub(super) fn deliver(&mut self, now: Mono) {
        self.slots.push_back(Slot {
            state: State::Held,
            came: now,
            bytes: 0,
            spare: None,
        });
        self.held += 1;
    }

    /// It holds so many octets.
    pub(super) fn weigh(&mut self, tag: u64, bytes: usize) {
        if let Some(slot) = self.slot(tag) {
            slot.bytes = bytes;
            self.bytes += bytes;
        }
    }

    /// The ticket of a delivery.
    pub(super) fn ticket(&self, tag: u64) -> Ticket {
        Ticket(self.base + tag)
    }

    /// The delivery of a ticket, if it still waits for its outcome.
    pub(super) fn tag(&mut self, ticket: Ticket) -> Option<u64> {
        let tag = ticket.0.checked_sub(self.base)?;
        let held = self.slot(tag)?.state == State::Held;
        held.then_some(tag)
    }

    /// Keeps a publication in case that it has to be made again.
    pub(super) fn spare(&mut self, tag: u64, publication: Publication) {
        if let Some(slot) = self.slot(tag) {
            slot.spare = Some(Box::new(publication));
        }
    }

    pub(super) fn take_spare(&mut self, tag: u64) -> Option<Publication> {
        Some(*self.slot(tag)?.spare.take()?)
    }

    /// It has an outcome: to be acked at the next flush.
    pub(super) fn ack(&mut self, tag: u64) {
        self.release(tag, State::Done);
        self.done.push(tag);
    }

    /// Rejects it, into the parking queue.
    pub(super) fn reject(&mut self, tag: u64, out: &mut Vec<u8>) {
        self.release(tag, State::Settled);
        reply::reject(out, CONSUMER, DeliveryTag(tag), false);
    }

    /// The newest delivery without an outcome of those before `end`.
    pub(super) fn last_held(&self, end: u64) -> Option<u64> {
        let slots = (self.first..end).zip(&self.slots);
        let held = slots.filter(|(_, slot)| slot.state == State::Held);
        held.map(|(tag, _)| tag).last()
    }

    /// Returns it to the queue that it came from; `multiple`: with all before it that have no outcome.
    pub(super) fn give_back(&mut self, tag: u64, multiple: bool, out: &mut Vec<u8>) {
        let from = if multiple { self.first } else { tag };
        for tag in from..=tag {
            if self.slot(tag).is_some_and(|slot| slot.state == State::Held) {
                self.release(tag, State::Settled);
            }
        }
        reply::nack(out, CONSUMER, DeliveryTag(tag), multiple, true);
    }

    /// Acks what is done: with one `multiple` where no hole is below, else singly in the order of the tags. How many.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) -> u32 {
        let (mut last, mut count) = (0, 0);
        while let Some(slot) = self.slots.front()
            && slot.state != State::Held
        {
            if slot.state == State::Done {
                last = self.first;
                count += 1;
            }
            self.slots.pop_front();
            self.first += 1;
        }
        if count > 0 {
            reply::ack(out, CONSUMER, DeliveryTag(last), count > 1);
        }
        let mut done = std::mem::take(&mut self.done);
        done.retain(|tag| *tag >= self.first);
        done.sort_unstable();
        for &tag in &done {
            reply::ack(out, CONSUMER, DeliveryTag(tag), false);
            if let Some(slot) = self.slot(tag) {
                slot.state = State::Settled;
            }
        }
        let acked = count + done.len() as u32;
        done.clear();
        self.done = done;
        acked
    }

    /// True when nothing has to be acked, nor forgotten.
    pub(super) fn is_flushed(&self) -> bool {
        let front = self.slots.front();
        self.done.is_empty() && front.is_none_or(|slot| slot.state == State::Held)
    }

    fn release(&mut self, tag: u64, state: State) {
        if let Some(slot) = self.slot(tag) {
            slot.state = state;
            slot.spare = None;
            let bytes = std::mem::take(&mut slot.bytes);
            self.bytes -= bytes;
            self.held -= 1;
        }
    }

    fn slot(&mut self, tag: u64) -> Option<&mut Slot> {
        let at = usize::try_from(tag.checked_sub(self.first)?).ok()?;
        self.slots.get_mut(at)
    }
}
