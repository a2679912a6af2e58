//! The ledger of one channel's deliveries: which tags the broker waits for, which of them the client has rejected, and the copies kept of them.
//!
//! RabbitMQ refuses a `multiple` whose tag is not outstanding, even if lower ones are (S9.1): so each tag counts, and is one bit here.

use std::collections::BTreeMap;

use crate::amqp::content::Content;
use crate::amqp::ids::{DeliveryTag, ShortStr};
use crate::dead_letter::retries::Attempts;
use crate::dead_letter::verdict::Verdict;
use crate::machine::{Mono, Wall};
use crate::registry::catalogue::Life;

use super::instead::{Asked, Counts};

pub(super) mod bits;
mod kept;
mod taken_back;
mod uncommitted;
mod verdict;

pub(crate) use kept::Idle;

use bits::{Bits, bits, clear, clear_up_to, first, has, set};

/// A delivery of a managed queue, kept until it is settled.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    pub queue: ShortStr,
    /// Which of successive queues of that name. Default: it was not managed.
    pub life: Life,
    pub exchange: ShortStr,
    pub routing_key: ShortStr,
    pub content: Content,
    pub redelivered: bool,
    /// None: from `basic.get`.
    pub consumer: Option<ShortStr>,
    pub delivered: Wall,
    /// Earlier returns by retries.
    pub attempts: Attempts,
    /// End of its TTL, if a retry has fixed it.
    pub deadline: Option<Wall>,
    pub asked: Asked,
    pub nacked: bool,
    pub state: State,
    pub kept: Mono,
    /// Publish its dead letter with our own `user-id`.
    pub hide_user: bool,
    pub verdict: Option<Box<Verdict>>,
    /// End of the ack timeout of its queue.
    pub overdue_at: Option<Mono>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Open,
    /// Rejected or returned; hidden from the broker while something is published instead.
    Withheld,
    /// Like `Withheld`, but not publishable now, and not left to the broker. No request waits for
    /// it.
    Kept,
    /// Like `Kept`, but being published again.
    Again,
}

/// Overhead of a retained delivery: its place in the ledger, and the allocator (measured).
const PLACE: usize = 450;

// === impl Retained ===

impl Retained {
    /// Memory for a content of that length, in bytes.
    pub(crate) fn cost(exchange: &ShortStr, routing_key: &ShortStr, content: usize) -> usize {
        PLACE
            .saturating_add(exchange.len() + routing_key.len())
            .saturating_add(content)
    }

    fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Bytes counted in the budget.
    pub(crate) fn bytes(&self) -> usize {
        let verdict = self.verdict.as_ref().map_or(0, |verdict| verdict.bytes());
        Retained::cost(&self.exchange, &self.routing_key, self.content.len()) + verdict
    }
}

/// Deliveries of one queue without a copy, where that matters.
#[derive(Debug)]
pub(crate) struct Uncopied {
    pub queue: ShortStr,
    /// How near they are to a delivery limit.
    pub counts: Counts,
    tags: Bits,
    /// Kept ones that were returned; others were rejected.
    returned: Bits,
}

/// Deliveries of one channel that are unsettled at the broker.
///
/// A tag is *outstanding* (bit set). Some have a copy with its [`State`], others should have one
/// (*uncopied*). A tag is *taken* once the client has settled it and the broker does not know yet:
/// its copy is withheld or kept, or it is uncopied and kept, or it is *done* (its dead letter is
/// confirmed, the ack unsent).
#[derive(Debug, Default)]
pub(crate) struct Unacked {
    words: Bits,
    taken: Bits,
    /// Boxed: what is in a tree moves often.
    copies: BTreeMap<u64, Box<Retained>>,
    uncopied: Vec<Uncopied>,
    withheld: usize,
    done: Vec<u64>,
    /// In tx mode: tags settled since the last commit.
    uncommitted: Option<Bits>,
    judged: bool,
    /// After an ack timeout: settled by the proxy, and not yet by the client. Independent of what
    /// the broker waits for.
    taken_back: Bits,
}

// === impl Unacked ===

impl Unacked {
    pub(crate) fn deliver(&mut self, tag: DeliveryTag) {
        set(&mut self.words, tag.0);
    }

    /// Keeps a copy; false when it was settled meanwhile.
    pub(crate) fn retain(&mut self, tag: DeliveryTag, retained: Box<Retained>) -> bool {
        let open = self.may_settle(tag);
        if open {
            self.copies.insert(tag.0, retained);
        }
        open
    }

    /// Whether the client has rejected or returned this delivery, unknown to the broker.
    pub(crate) fn is_taken(&self, tag: DeliveryTag) -> bool {
        has(&self.taken, tag.0)
    }

    /// Whether the client may settle this tag.
    pub(crate) fn may_settle(&self, tag: DeliveryTag) -> bool {
        has(&self.words, tag.0) && !has(&self.taken, tag.0)
    }

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

    /// Queue and distance to a delivery limit, for a delivery without a copy.
    pub(crate) fn uncopied(&self, tag: DeliveryTag) -> Option<(&ShortStr, Counts)> {
        let of = self.uncopied.iter().find(|of| has(&of.tags, tag.0))?;
        Some((&of.queue, of.counts))
    }

    /// The queue of an open delivery that has or needs a copy.
    pub(crate) fn queue_of(&self, tag: DeliveryTag) -> Option<&ShortStr> {
        let copied = self.retained(tag).map(|retained| &retained.queue);
        copied.or_else(|| Some(self.uncopied(tag)?.0))
    }

    /// Whether a request must wait for a withheld reject, or its ack.
    pub(crate) fn awaits(&self) -> bool {
        // In tx mode such an ack goes with the next commit.
        let due = !self.done.is_empty() && self.uncommitted.is_none();
        due || self.withheld > 0
    }

    /// Whether any dead letter is in flight, or its ack unsent.
    pub(crate) fn is_publishing(&self) -> bool {
        self.awaits() || self.taken().any(|tag| self.is(tag, State::Again))
    }

    fn is(&self, tag: DeliveryTag, state: State) -> bool {
        self.copy(tag).is_some_and(|of| of.state == state)
    }

    /// Settled by the client, unsettled at the broker.
    fn taken(&self) -> impl Iterator<Item = DeliveryTag> {
        let tags = self.taken.iter().flat_map(|(word, set)| bits(*word, *set));
        tags.map(DeliveryTag)
    }

    /// Whether a settled tag up to this one is unsettled at the broker.
    pub(crate) fn withheld_up_to(&self, tag: DeliveryTag) -> bool {
        self.first_withheld().is_some_and(|first| first <= tag)
    }

    /// The lowest rejected tag that is unsettled at the broker.
    pub(crate) fn first_withheld(&self) -> Option<DeliveryTag> {
        first(&self.taken)
    }

    /// Whether a reject of any delivery up to this tag needs a look: it has, or lacks, a copy.
    pub(crate) fn any_matters(&self, tag: DeliveryTag) -> bool {
        let uncopied = |of: &Uncopied| first(&of.tags).is_some_and(|first| first <= tag);
        let mut copies = self.copies.range(..=tag.0);
        copies.any(|(_, of)| of.is_open()) || self.uncopied.iter().any(uncopied)
    }

    /// The highest open tag up to this one.
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

    /// The lowest open tag from `from` up to `to`.
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

    /// How many tags up to this one would need separate settlements because of withheld rejects
    /// below. Excludes tags that would be withheld themselves, like all retained ones when the
    /// client lets them die.
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
            .filter(|tag| !self.retained(*tag).is_some_and(&is_withheld))
            .count()
    }

    /// The broker is told: forgets the tag. Returns the bytes of its copy.
    pub(crate) fn settle(&mut self, tag: DeliveryTag) -> usize {
        self.give_up(tag).map_or(0, |retained| retained.bytes())
    }

    /// The broker is told about all tags up to this one, of which none is withheld. Returns the
    /// bytes of their copies.
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
        if self.copies.is_empty() {
            return 0;
        }
        let later = match tag.0.checked_add(1) {
            Some(next) => self.copies.split_off(&next),
            None => BTreeMap::new(),
        };
        std::mem::replace(&mut self.copies, later)
            .values()
            .map(|of| of.bytes())
            .sum()
    }

    pub(crate) fn retains_any(&self) -> bool {
        !self.copies.is_empty() || !self.taken.is_empty()
    }

    /// Whether the broker waits for a delivery of that queue, or of one that is not known.
    pub(crate) fn may_have_of(&self, queue: &ShortStr) -> bool {
        let mut tags = self.words.iter().flat_map(|(word, set)| bits(*word, *set));
        tags.any(|tag| {
            let tag = DeliveryTag(tag);
            let copied = self.copy(tag).map(|of| &of.queue);
            let known = copied.or_else(|| Some(self.uncopied(tag)?.0));
            known.is_none_or(|known| known == queue)
        })
    }

    /// Whether it has copies of an earlier queue of that name, before this life.
    pub(crate) fn retains_before(&self, queue: &[u8], life: Life) -> bool {
        let mut open = self.copies.values().filter(|of| of.is_open());
        open.any(|of| *of.queue == *queue && of.life != Life::default() && of.life != life)
    }

    /// Drops the copies of those deliveries: their rejects go to the broker. Returns their bytes.
    pub(crate) fn release(&mut self, of: impl Fn(&Retained) -> bool) -> usize {
        let mut bytes = 0;
        self.copies.retain(|_, retained| {
            let goes = retained.is_open() && of(retained);
            bytes += if goes { retained.bytes() } else { 0 };
            !goes
        });
        bytes
    }

    /// The broker is told of this delivery; it has no copy.
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

    pub(crate) fn retained(&self, tag: DeliveryTag) -> Option<&Retained> {
        self.copy(tag).filter(|of| of.is_open())
    }

    /// The copy of a delivery, in any state.
    pub(crate) fn copy(&self, tag: DeliveryTag) -> Option<&Retained> {
        self.copies.get(&tag.0).map(AsRef::as_ref)
    }

    /// Records the request of the client.
    pub(crate) fn rejected_by(&mut self, tag: DeliveryTag, asked: Asked, nack: bool) {
        if let Some(retained) = self.copies.get_mut(&tag.0) {
            (retained.asked, retained.nacked) = (asked, nack);
        }
    }

    /// The delivery is withheld from now on.
    pub(crate) fn withhold(&mut self, tag: DeliveryTag) {
        self.enter(tag, State::Withheld);
    }

    fn enter(&mut self, tag: DeliveryTag, state: State) {
        if let Some(retained) = self.copies.get_mut(&tag.0) {
            let before = std::mem::replace(&mut retained.state, state);
            self.withheld -= usize::from(before == State::Withheld);
            self.withheld += usize::from(state == State::Withheld);
            set(&mut self.taken, tag.0);
        }
    }

    /// Oldest first.
    pub(crate) fn retained_queues(&self) -> impl Iterator<Item = (DeliveryTag, &ShortStr)> {
        let open = self.copies.iter().filter(|(_, of)| of.is_open());
        open.map(|(tag, retained)| (DeliveryTag(*tag), &retained.queue))
    }

    /// The dead letter is safe: the reject is to be acked.
    pub(crate) fn done(&mut self, tag: DeliveryTag) -> Option<Box<Retained>> {
        let retained = self.take(tag)?;
        self.done.push(tag.0);
        Some(retained)
    }

    /// The broker is told: settled or requeued.
    pub(crate) fn give_up(&mut self, tag: DeliveryTag) -> Option<Box<Retained>> {
        self.forget(tag);
        self.take(tag)
    }

    fn take(&mut self, tag: DeliveryTag) -> Option<Box<Retained>> {
        let retained = self.copies.remove(&tag.0)?;
        self.withheld -= usize::from(retained.state == State::Withheld);
        Some(retained)
    }

    /// Drops a useless copy, as if the client had not settled it.
    pub(crate) fn drop_copy(&mut self, tag: DeliveryTag) -> Option<Box<Retained>> {
        let retained = self.take(tag)?;
        clear(&mut self.taken, tag.0);
        Some(retained)
    }

    /// Due acks as `(tag, multiple)`: a `multiple` without a hole below, then singles in tag order.
    /// They count as sent.
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

    pub(crate) fn bytes(&self) -> usize {
        self.copies.values().map(|of| of.bytes()).sum()
    }
}
