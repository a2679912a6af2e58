//! The ledger of one channel's deliveries: which tags the broker waits for, which of them the client has rejected, and the copies kept of them.
//!
//! RabbitMQ refuses a `multiple` whose tag is not outstanding, even if lower ones are (S9.1): so each tag counts, and is one bit here.

use std::collections::BTreeMap;

use crate::amqp::content::Content;
use crate::amqp::ids::{DeliveryTag, ShortStr};
use crate::machine::Ticket;

/// A delivery of a managed queue, kept until it is settled.
#[derive(Debug)]
pub(crate) struct Retained {
    /// The queue it came from.
    pub queue: ShortStr,
    /// The exchange it was delivered with.
    pub exchange: ShortStr,
    /// The key it was delivered with.
    pub routing_key: ShortStr,
    /// As the broker sent it.
    pub content: Content,
}

/// What a retained delivery costs beside its content and its names: its place in the ledger, and what the allocator adds (measured).
const PLACE: usize = 400;

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

/// A reject that the broker has not seen.
#[derive(Clone, Debug)]
pub(crate) struct Withheld {
    /// Its dead letter's.
    pub ticket: Ticket,
    /// The queue, for events.
    pub queue: ShortStr,
    /// Octets to give back to the budget.
    pub octets: usize,
}

/// Deliveries of one channel that the broker has no word about.
///
/// A tag is *outstanding* (bit set), may be *retained* while it is, or *withheld* (the client rejected it), then *done* (its dead letter
/// is confirmed, the ack not yet sent). What the client may settle is outstanding and neither withheld nor done.
#[derive(Debug, Default)]
pub(crate) struct Unacked {
    words: BTreeMap<u64, u64>,
    retained: BTreeMap<u64, Retained>,
    withheld: BTreeMap<u64, Withheld>,
    done: Vec<u64>,
    /// The same tags as bits, for looking them up.
    taken: BTreeMap<u64, u64>,
}

fn set(words: &mut BTreeMap<u64, u64>, tag: u64) {
    *words.entry(tag >> 6).or_default() |= 1 << (tag & 63);
}

fn clear(words: &mut BTreeMap<u64, u64>, tag: u64) {
    if let Some(word) = words.get_mut(&(tag >> 6)) {
        *word &= !(1 << (tag & 63));
        if *word == 0 {
            words.remove(&(tag >> 6));
        }
    }
}

fn has(words: &BTreeMap<u64, u64>, tag: u64) -> bool {
    words
        .get(&(tag >> 6))
        .is_some_and(|word| word & 1 << (tag & 63) != 0)
}

fn bits(word: u64, mut set: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (bit < 64).then_some(word << 6 | u64::from(bit))
    })
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

    /// Whether the client may settle this tag.
    pub(crate) fn may_settle(&self, tag: DeliveryTag) -> bool {
        has(&self.words, tag.0) && !has(&self.taken, tag.0)
    }

    /// Whether a reject is withheld, or its ack not yet sent.
    pub(crate) fn any_withheld(&self) -> bool {
        !self.taken.is_empty()
    }

    /// Whether the broker still waits for a reject up to this tag that the client has sent already.
    pub(crate) fn withheld_up_to(&self, tag: DeliveryTag) -> bool {
        self.first_withheld().is_some_and(|first| first <= tag)
    }

    /// The lowest tag that the client has rejected and the broker waits for.
    pub(crate) fn first_withheld(&self) -> Option<DeliveryTag> {
        let (word, set) = self.taken.first_key_value()?;
        bits(*word, *set).next().map(DeliveryTag)
    }

    /// Whether a copy is kept of any delivery up to this tag.
    pub(crate) fn retained_up_to(&self, tag: DeliveryTag) -> bool {
        self.retained.range(..=tag.0).next().is_some()
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
    pub(crate) fn pieces(&self, tag: DeliveryTag, dies: bool) -> usize {
        let Some(hole) = self.first_withheld() else {
            return 0;
        };
        let next = |from: DeliveryTag| self.next_open(DeliveryTag(from.0.saturating_add(1)), tag);
        std::iter::successors(next(hole), |tag| next(*tag))
            .filter(|tag| !(dies && self.retained.contains_key(&tag.0)))
            .count()
    }

    /// The client settled this tag and the broker is told: it is forgotten. Returns the octets that were kept of it.
    pub(crate) fn settle(&mut self, tag: DeliveryTag) -> usize {
        clear(&mut self.words, tag.0);
        self.retained
            .remove(&tag.0)
            .map_or(0, |retained| retained.octets())
    }

    /// The client settled all up to this tag and the broker is told; none of them is withheld. Returns the octets that were kept of them.
    pub(crate) fn settle_up_to(&mut self, tag: DeliveryTag) -> usize {
        let last = tag.0 >> 6;
        while let Some((word, _)) = self
            .words
            .first_key_value()
            .filter(|(word, _)| **word < last)
        {
            let word = *word;
            self.words.remove(&word);
        }
        if let Some(word) = self.words.get_mut(&last) {
            *word &= !(u64::MAX >> (63 - (tag.0 & 63)));
            if *word == 0 {
                self.words.remove(&last);
            }
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
        !self.retained.is_empty() || self.any_withheld()
    }

    /// Whether a copy is kept of a delivery of that queue.
    pub(crate) fn retains_of(&self, queue: &[u8]) -> bool {
        self.retained
            .values()
            .any(|retained| &*retained.queue == queue)
    }

    /// The copy of a delivery.
    pub(crate) fn retained(&self, tag: DeliveryTag) -> Option<&Retained> {
        self.retained.get(&tag.0)
    }

    /// The client rejected a retained delivery: from now on it is withheld.
    pub(crate) fn withhold(&mut self, tag: DeliveryTag, ticket: Ticket) {
        if let Some(retained) = self.retained.remove(&tag.0) {
            set(&mut self.taken, tag.0);
            self.withheld.insert(
                tag.0,
                Withheld {
                    ticket,
                    octets: retained.octets(),
                    queue: retained.queue,
                },
            );
        }
    }

    /// The dead letter of a withheld reject is safe: it is to be acked.
    pub(crate) fn done(&mut self, tag: DeliveryTag) -> Option<Withheld> {
        let withheld = self.withheld.remove(&tag.0)?;
        self.done.push(tag.0);
        Some(withheld)
    }

    /// A withheld reject goes to the broker after all.
    pub(crate) fn give_up(&mut self, tag: DeliveryTag) -> Option<Withheld> {
        let withheld = self.withheld.remove(&tag.0)?;
        clear(&mut self.taken, tag.0);
        clear(&mut self.words, tag.0);
        Some(withheld)
    }

    /// All withheld rejects whose outcome is open, in tag order.
    pub(crate) fn withheld(&self) -> impl Iterator<Item = (DeliveryTag, &Withheld)> {
        self.withheld
            .iter()
            .map(|(tag, withheld)| (DeliveryTag(*tag), withheld))
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
            clear(&mut self.words, *tag);
            clear(&mut self.taken, *tag);
        }
        done.clear();
        self.done = done;
    }

    /// Octets kept of deliveries and withheld rejects.
    pub(crate) fn octets(&self) -> usize {
        let retained: usize = self.retained.values().map(Retained::octets).sum();
        let withheld: usize = self.withheld.values().map(|withheld| withheld.octets).sum();
        retained + withheld
    }
}
