//! The ledger of one channel's deliveries: which tags the broker waits for, which of them the client has rejected, and the copies kept of them.
//!
//! RabbitMQ refuses a `multiple` whose tag is not outstanding, even if lower ones are (S9.1): so each tag counts, and is one bit here.

use std::collections::BTreeMap;

use crate::amqp::content::Content;
use crate::amqp::ids::{DeliveryTag, ShortStr};
use crate::machine::{Mono, Ticket, Wall};

use super::instead::{Asked, Counts};
use super::redelivered::Before;
use super::retries::Retried;

mod bits;
mod uncommitted;

use bits::{Bits, bits, clear, clear_up_to, first, has, set};

/// A delivery of a managed queue, kept until it is settled.
#[derive(Debug)]
pub(crate) struct Retained {
    /// The queue it came from.
    pub queue: ShortStr,
    /// The exchange it was delivered with.
    pub exchange: ShortStr,
    /// The key it was delivered with.
    pub routing_key: ShortStr,
    pub content: Content,
    /// What counts of the deliveries before this one, and how the client rejected it.
    pub before: Before,
    /// The tag of the consumer that it was delivered to; none: it was got.
    pub consumer: Option<ShortStr>,
    pub delivered: Wall,
    /// What it says of its retries.
    pub retried: Retried,
}

/// What a retained delivery costs beside its content and its names: its place in the ledger, and what the allocator adds (measured).
const PLACE: usize = 450;

// === impl Retained ===

impl Retained {
    /// Octets of memory for a content of that length.
    pub(crate) fn cost(exchange: &ShortStr, routing_key: &ShortStr, content: usize) -> usize {
        PLACE
            .saturating_add(exchange.len() + routing_key.len())
            .saturating_add(content)
    }

    /// Octets of memory that count for the budget.
    pub(crate) fn octets(&self) -> usize {
        Retained::cost(&self.exchange, &self.routing_key, self.content.len())
    }
}

/// A reject or a return that the broker has not seen, as something is published in its place.
#[derive(Debug)]
pub(crate) struct Withheld {
    pub ticket: Ticket,
    pub retained: Retained,
}

/// A reject or a return that is not left to the broker, although nothing can be published now. No request waits for it.
#[derive(Debug)]
pub(crate) struct Kept {
    /// While something is on its way all the same.
    pub ticket: Option<Ticket>,
    pub retained: Retained,
    pub since: Mono,
    /// The dead letter is to be published with our own `user-id`.
    pub hide_user: bool,
}

/// Deliveries of one queue of which no copy could be kept, where that matters.
#[derive(Debug)]
pub(crate) struct Uncopied {
    pub queue: ShortStr,
    /// How near they are to a limit on deliveries.
    pub counts: Counts,
    tags: Bits,
    /// Those that are kept, and were returned; the others were rejected.
    returned: Bits,
}

/// Deliveries of one channel that the broker has no word about.
///
/// A tag is *outstanding* (bit set), may be *retained* while it is (or *uncopied*, where that matters), or *withheld* (the client rejected
/// or returned it), or *kept* (the same, and nothing can be published now), then *done* (its dead letter is confirmed, the ack not yet sent). What the
/// client may settle is outstanding and none of the last three.
#[derive(Debug, Default)]
pub(crate) struct Unacked {
    words: Bits,
    retained: BTreeMap<u64, Retained>,
    uncopied: Vec<Uncopied>,
    withheld: BTreeMap<u64, Withheld>,
    kept: BTreeMap<u64, Kept>,
    done: Vec<u64>,
    /// The tags of the last three, and those without a copy that are kept.
    taken: Bits,
    /// In tx mode: what was settled since the last commit.
    uncommitted: Option<Bits>,
}

// === impl Uncopied ===

impl Uncopied {
    /// Whether the client has returned a kept one.
    pub(crate) fn is_returned(&self, tag: DeliveryTag) -> bool {
        has(&self.returned, tag.0)
    }
}

// === impl Unacked ===

impl Unacked {
    /// A delivery that wants to be settled.
    pub(crate) fn deliver(&mut self, tag: DeliveryTag) {
        set(&mut self.words, tag.0);
    }

    /// Keeps the copy of a delivery; false when it has been settled meanwhile.
    pub(crate) fn retain(&mut self, tag: DeliveryTag, retained: Retained) -> bool {
        let open = self.may_settle(tag);
        if open {
            self.retained.insert(tag.0, retained);
        }
        open
    }

    /// Whether the client has rejected or returned this delivery, and the broker has no word of it.
    pub(crate) fn is_taken(&self, tag: DeliveryTag) -> bool {
        has(&self.taken, tag.0)
    }

    /// Whether the client may settle this tag.
    pub(crate) fn may_settle(&self, tag: DeliveryTag) -> bool {
        has(&self.words, tag.0) && !has(&self.taken, tag.0)
    }

    /// No copy could be kept of this delivery.
    pub(crate) fn lacks_copy(&mut self, tag: DeliveryTag, queue: &ShortStr, counts: Counts) {
        if !self.may_settle(tag) {
            return;
        }
        let same = |of: &&mut Uncopied| of.queue == *queue && of.counts == counts;
        match self.uncopied.iter_mut().find(same) {
            Some(of) => set(&mut of.tags, tag.0),
            None => self.uncopied.push(Uncopied {
                queue: queue.clone(),
                counts,
                tags: Bits::from([(tag.0 >> 6, 1 << (tag.0 & 63))]),
                returned: Bits::new(),
            }),
        }
    }

    /// The queue of a delivery without a copy, and how near it is to a limit on deliveries.
    pub(crate) fn uncopied(&self, tag: DeliveryTag) -> Option<(&ShortStr, Counts)> {
        let of = self.uncopied.iter().find(|of| has(&of.tags, tag.0))?;
        Some((&of.queue, of.counts))
    }

    /// Whether a request of the client has to wait for a withheld reject, or for its ack.
    pub(crate) fn awaits(&self) -> bool {
        // In tx mode such an ack goes with the next commit.
        let due = !self.done.is_empty() && self.uncommitted.is_none();
        due || !self.withheld.is_empty()
    }

    /// Whether any dead letter is on its way, or its ack not yet sent.
    pub(crate) fn is_publishing(&self) -> bool {
        self.awaits() || self.kept.values().any(|kept| kept.ticket.is_some())
    }

    /// Whether the broker still waits for a reject up to this tag that the client has sent already.
    pub(crate) fn withheld_up_to(&self, tag: DeliveryTag) -> bool {
        self.first_withheld().is_some_and(|first| first <= tag)
    }

    /// The lowest tag that the client has rejected and the broker waits for.
    pub(crate) fn first_withheld(&self) -> Option<DeliveryTag> {
        first(&self.taken)
    }

    /// Whether a reject of this delivery needs a look: a copy is kept of it, or is missing.
    pub(crate) fn matters(&self, tag: DeliveryTag) -> bool {
        self.retained.contains_key(&tag.0) || self.uncopied(tag).is_some()
    }

    /// The same of any up to this tag.
    pub(crate) fn any_matters(&self, tag: DeliveryTag) -> bool {
        let uncopied = |of: &Uncopied| first(&of.tags).is_some_and(|first| first <= tag);
        self.retained.range(..=tag.0).next().is_some() || self.uncopied.iter().any(uncopied)
    }

    /// The highest tag up to this one that the client may settle.
    pub(crate) fn last_open(&self, to: DeliveryTag) -> Option<DeliveryTag> {
        let mut words = self.words.range(..=to.0 >> 6).rev();
        words.find_map(|(&word, &set)| {
            let open = set & !self.taken.get(&word).copied().unwrap_or(0);
            let below = if word == to.0 >> 6 {
                u64::MAX >> (63 - (to.0 & 63))
            } else {
                u64::MAX
            };
            let last = (open & below).checked_ilog2()?;
            Some(DeliveryTag(word << 6 | u64::from(last)))
        })
    }

    /// The lowest tag from `from` up to `to` that the client may settle.
    pub(crate) fn next_open(&self, from: DeliveryTag, to: DeliveryTag) -> Option<DeliveryTag> {
        if from > to {
            return None;
        }
        for (&word, &set) in self.words.range(from.0 >> 6..=to.0 >> 6) {
            let open = set & !self.taken.get(&word).copied().unwrap_or(0);
            if let Some(tag) = bits(word, open).find(|tag| *tag >= from.0) {
                return (tag <= to.0).then_some(DeliveryTag(tag));
            }
        }
        None
    }

    /// How many tags up to this one the broker would have to be told of one by one, since a reject below them is withheld. Those that
    /// would be withheld themselves, as all retained ones are when the client lets them die, do not count.
    pub(crate) fn pieces(
        &self,
        tag: DeliveryTag,
        is_withheld: impl Fn(&Retained) -> bool,
    ) -> usize {
        let Some(hole) = self.first_withheld() else {
            return 0;
        };
        let next = |from: DeliveryTag| self.next_open(DeliveryTag(from.0.saturating_add(1)), tag);
        std::iter::successors(next(hole), |tag| next(*tag))
            .filter(|tag| !self.retained.get(&tag.0).is_some_and(&is_withheld))
            .count()
    }

    /// The client settled this tag and the broker is told: it is forgotten. Returns the octets that were kept of it.
    pub(crate) fn settle(&mut self, tag: DeliveryTag) -> usize {
        self.forget(tag);
        self.retained
            .remove(&tag.0)
            .map_or(0, |retained| retained.octets())
    }

    /// The client settled all up to this tag and the broker is told; none of them is withheld. Returns the octets that were kept of them.
    pub(crate) fn settle_up_to(&mut self, tag: DeliveryTag) -> usize {
        let mut words = std::mem::take(&mut self.words);
        clear_up_to(&mut words, tag.0, |word, set| self.tell(word, set));
        self.words = words;
        if self.uncommitted.is_none() {
            for of in &mut self.uncopied {
                clear_up_to(&mut of.tags, tag.0, |_, _| ());
            }
            self.uncopied.retain(|of| !of.tags.is_empty());
        }
        if self.retained.is_empty() {
            return 0;
        }
        let kept = if tag.0 == u64::MAX {
            BTreeMap::new()
        } else {
            self.retained.split_off(&(tag.0 + 1))
        };
        std::mem::replace(&mut self.retained, kept)
            .values()
            .map(Retained::octets)
            .sum()
    }

    /// Whether a copy is kept of any delivery, or a reject is withheld.
    pub(crate) fn retains_any(&self) -> bool {
        !self.retained.is_empty() || !self.taken.is_empty()
    }

    /// Whether a copy is kept of a delivery of that queue.
    pub(crate) fn retains_of(&self, queue: &[u8]) -> bool {
        let mut all = self.retained.values();
        all.any(|retained| &*retained.queue == queue)
    }

    /// Keeps no copy any more of those deliveries: their rejects are the broker's. Returns the octets that were kept of them.
    pub(crate) fn release(&mut self, of: impl Fn(&Retained) -> bool) -> usize {
        let mut octets = 0;
        self.retained.retain(|_, retained| {
            let goes = of(retained);
            octets += if goes { retained.octets() } else { 0 };
            !goes
        });
        octets
    }

    /// The broker is told of this delivery; no copy is kept of it.
    pub(crate) fn forget(&mut self, tag: DeliveryTag) {
        if has(&self.words, tag.0) {
            self.tell(tag.0 >> 6, 1 << (tag.0 & 63));
        }
        clear(&mut self.words, tag.0);
        clear(&mut self.taken, tag.0);
        if !self.uncopied.is_empty() && self.uncommitted.is_none() {
            for of in &mut self.uncopied {
                clear(&mut of.tags, tag.0);
                clear(&mut of.returned, tag.0);
            }
            self.uncopied.retain(|of| !of.tags.is_empty());
        }
    }

    /// The copy of a delivery.
    pub(crate) fn retained(&self, tag: DeliveryTag) -> Option<&Retained> {
        self.retained.get(&tag.0)
    }

    /// The copy of a delivery, whatever its client has said of it.
    pub(crate) fn copy(&self, tag: DeliveryTag) -> Option<&Retained> {
        let withheld = || Some(&self.withheld.get(&tag.0)?.retained);
        let kept = || Some(&self.kept.get(&tag.0)?.retained);
        self.retained.get(&tag.0).or_else(withheld).or_else(kept)
    }

    /// The client rejects or returns a retained delivery, by `basic.nack` or not.
    pub(crate) fn rejected_by(&mut self, tag: DeliveryTag, asked: Asked, nack: bool) {
        if let Some(retained) = self.retained.get_mut(&tag.0) {
            (retained.retried.asked, retained.before.nacked) = (asked, nack);
        }
    }

    /// The client rejected a retained delivery: from now on it is withheld.
    pub(crate) fn withhold(&mut self, tag: DeliveryTag, ticket: Ticket) {
        if let Some(retained) = self.retained.remove(&tag.0) {
            set(&mut self.taken, tag.0);
            self.withheld.insert(tag.0, Withheld { ticket, retained });
        }
    }

    /// The deliveries of which a copy is kept, the oldest first, and their queues.
    pub(crate) fn retained_queues(&self) -> impl Iterator<Item = (DeliveryTag, &ShortStr)> {
        let all = self.retained.iter();
        all.map(|(tag, retained)| (DeliveryTag(*tag), &retained.queue))
    }

    /// The dead letter of a withheld or kept reject is safe: it is to be acked.
    pub(crate) fn done(&mut self, tag: DeliveryTag) -> Option<Retained> {
        let retained = self.take_rejected(tag)?;
        self.done.push(tag.0);
        Some(retained)
    }

    /// A withheld or kept reject goes to the broker after all; or its message returns to its queue.
    pub(crate) fn give_up(&mut self, tag: DeliveryTag) -> Option<Retained> {
        let retained = self.take_rejected(tag)?;
        self.forget(tag);
        Some(retained)
    }

    fn take_rejected(&mut self, tag: DeliveryTag) -> Option<Retained> {
        match self.withheld.remove(&tag.0) {
            Some(withheld) => Some(withheld.retained),
            None => Some(self.kept.remove(&tag.0)?.retained),
        }
    }

    /// What the client said of a delivery is kept from the broker from now on. What is on its way stays so. `None`: it was kept before.
    pub(crate) fn keep(&mut self, tag: DeliveryTag, since: Mono) -> Option<&Retained> {
        let (ticket, retained) = match self.withheld.remove(&tag.0) {
            Some(withheld) => (Some(withheld.ticket), withheld.retained),
            None => (None, self.retained.remove(&tag.0)?),
        };
        set(&mut self.taken, tag.0);
        let kept = Kept {
            ticket,
            retained,
            since,
            hide_user: false,
        };
        self.kept.insert(tag.0, kept);
        Some(&self.kept.get(&tag.0)?.retained)
    }

    /// The same of a delivery without a copy, which the client has returned or rejected.
    pub(crate) fn keep_uncopied(&mut self, tag: DeliveryTag, returned: bool) {
        set(&mut self.taken, tag.0);
        let of = self.uncopied.iter_mut().find(|of| has(&of.tags, tag.0));
        if let Some(of) = of.filter(|_| returned) {
            set(&mut of.returned, tag.0);
        }
    }

    pub(crate) fn kept(&self, tag: DeliveryTag) -> Option<&Kept> {
        self.kept.get(&tag.0)
    }

    /// The same, to be changed.
    pub(crate) fn kept_mut(&mut self, tag: DeliveryTag) -> Option<&mut Kept> {
        self.kept.get_mut(&tag.0)
    }

    /// The copy of a delivery is of no use: the client might as well not have settled it.
    pub(crate) fn drop_copy(&mut self, tag: DeliveryTag) -> Option<Retained> {
        let retained = self.retained.remove(&tag.0);
        let retained = retained.or_else(|| self.take_rejected(tag))?;
        clear(&mut self.taken, tag.0);
        Some(retained)
    }

    /// How many are kept and not on their way.
    pub(crate) fn idle(&self) -> usize {
        self.kept_idle().count() + self.kept_uncopied().count()
    }

    /// Those that are kept and not on their way, in tag order.
    pub(crate) fn kept_idle(&self) -> impl Iterator<Item = (DeliveryTag, &Kept)> {
        let idle = self.kept.iter().filter(|(_, kept)| kept.ticket.is_none());
        idle.map(|(tag, kept)| (DeliveryTag(*tag), kept))
    }

    /// The kept ones without a copy.
    pub(crate) fn kept_uncopied(&self) -> impl Iterator<Item = (DeliveryTag, &Uncopied)> {
        self.uncopied.iter().flat_map(|of| {
            let kept = of.tags.iter().flat_map(|(word, set)| {
                bits(*word, set & self.taken.get(word).copied().unwrap_or(0))
            });
            kept.map(move |tag| (DeliveryTag(tag), of))
        })
    }

    /// The tickets of all dead letters that are on their way.
    pub(crate) fn tickets(&self) -> impl Iterator<Item = Ticket> {
        let withheld = self.withheld.values().map(|withheld| withheld.ticket);
        withheld.chain(self.kept.values().filter_map(|kept| kept.ticket))
    }

    /// The acks that are due: `(tag, multiple)`, a `multiple` where no hole is below, else singles in tag order. They count as sent.
    pub(crate) fn take_acks(&mut self, mut ack: impl FnMut(DeliveryTag, bool)) {
        let mut done = std::mem::take(&mut self.done);
        done.sort_unstable();
        let outstanding = self.words.iter().flat_map(|(word, set)| bits(*word, *set));
        let prefix = done
            .iter()
            .zip(outstanding)
            .take_while(|(done, tag)| *done == tag)
            .count();
        let (together, singles) = done.split_at(prefix);
        if let Some(last) = together.last() {
            ack(DeliveryTag(*last), together.len() > 1);
        }
        for tag in singles {
            ack(DeliveryTag(*tag), false);
        }
        for tag in &done {
            self.forget(DeliveryTag(*tag));
        }
        done.clear();
        self.done = done;
    }

    /// Octets kept of deliveries and withheld rejects.
    pub(crate) fn octets(&self) -> usize {
        let retained: usize = self.retained.values().map(Retained::octets).sum();
        let withheld = self.withheld.values().map(|of| of.retained.octets());
        let kept = self.kept.values().map(|of| of.retained.octets());
        retained + withheld.chain(kept).sum::<usize>()
    }
}
