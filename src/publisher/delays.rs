//! The delay queues: which there are, and which one a message has to take.
//!
//! Each holds messages for one delay, so that the first that came is the first whose time is over, and none hides another. They are made when the
//! first message wants them, on the channel on which it is published, and never deleted: a quorum queue that expires takes its messages with it
//! (S11.7). There are `max-delay-queues`, counting those of other proxies as far as the management API tells of them; one that exists is always
//! used. Any client can ask for any delay, and must not spoil those of others by that. So the last queues are for round delays alone, each twice
//! as long as the one before: to these a delay is rounded up when there is no room for its own. It never becomes longer than twice what it was.
//! Where the bound leaves no room for a round one either, a message takes the next shorter queue, and comes back to be sent there again, as often
//! as it has to. If there is none, it goes back to its own queue at once.
//!
//! A message can come back too soon also where two proxies have clocks that differ, or one was set back. What is left of its delay then is any
//! number of milliseconds. There are no queues for these but the round ones, and it takes several, one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{Close, MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::amqp::reply_code::RESOURCE_LOCKED;
use crate::amqp::table::TableBuilder;
use crate::dead_letter::Dialect;
use crate::dead_letter::retries::LONGEST_DELAY;
use crate::machine::{Cause, Publication, Purpose};
use crate::objects::{Names, OwnObject};
use crate::registry::existing_delays::ExistingDelays;

use super::item::Item;

/// The class of `queue.declare` and `queue.bind`.
const QUEUE: u16 = MethodId::QUEUE_DECLARE.0;
/// Bit of `queue.bind`.
const BIND_NO_WAIT: u8 = 1;
/// The argument by which those that were made on 3.x differ: there -1 would drop a message at its first return.
const DELIVERY_LIMIT: &[u8] = b"x-delivery-limit";
/// None: what waits there is delivered to nobody (S1.4).
const NO_DELIVERY_LIMIT: i64 = -1;
/// Milliseconds, a power of two: the shortest round delay. So long does it take whatever is left, however little that is.
const SHORTEST_ROUND: u64 = 64;
/// The round delays up to the longest of all: 64, 128, … milliseconds, and seven days.
const ROUND: usize = 25;
/// So many queues are for any delay before some are for round ones alone.
const FOR_ANY: usize = 32;

/// The delay queues of a vhost.
#[derive(Debug)]
pub(super) struct Delays {
    names: Names,
    /// What others have made, too.
    existing: ExistingDelays,
    /// What this link has used, by milliseconds. True: it is there, or on its way.
    known: BTreeMap<u64, bool>,
    /// Those that were made on 3.x, before the broker was upgraded: no declare of today fits, so they are only looked for.
    older: BTreeSet<u64>,
}

/// What the broker means by closing a channel over a queue of ours.
pub(super) fn blame(close: &Close<'_>) -> Option<Cause> {
    (close.class == QUEUE).then_some(match close.code {
        404 => Cause::NoExchange,
        _ => Cause::Forbidden,
    })
}

/// Why nothing leads to the queue of such a message. Nothing can be bound to a queue that is another connection's alone; whoever sends a message back
/// has another way there.
pub(super) fn no_way(close: &Close<'_>, cause: Cause, item: Option<&Item>) -> Cause {
    let is_redriven = item.is_some_and(|item| item.publication.purpose == Purpose::Redrive);
    match close.code {
        RESOURCE_LOCKED if is_redriven => Cause::NoExchange,
        _ => cause,
    }
}

/// The queue to which a message comes back by an exchange that leads there alone.
pub(super) fn leads_to<'a>(names: &Names, publication: &'a Publication) -> Option<&'a [u8]> {
    match publication.purpose {
        Purpose::Return | Purpose::Unpark | Purpose::Redrive => {
            match names.parse(&publication.exchange) {
                Some(OwnObject::ReturnExchange(queue)) => Some(queue),
                Some(_) | None => None,
            }
        }
        Purpose::Death | Purpose::Delay(_) | Purpose::Tail | Purpose::Park(_) => None,
    }
}

/// Makes the exchange that leads to one queue alone, or finds it there; it goes with its queue.
pub(super) fn lead_to(out: &mut Vec<u8>, channel: ChannelId, exchange: &ShortStr, queue: &[u8]) {
    super::bridges::declare(out, channel, exchange);
    bind(out, channel, queue, exchange, b"");
}

fn bind(out: &mut Vec<u8>, channel: ChannelId, queue: &[u8], exchange: &[u8], key: &[u8]) {
    let binding = (exchange, key, queue);
    reply::bind(out, channel, MethodId::QUEUE_BIND, binding, BIND_NO_WAIT);
}

// === impl Delays ===

impl Delays {
    /// None used.
    pub(super) fn new(names: Names, existing: ExistingDelays) -> Delays {
        Delays {
            names,
            existing,
            known: BTreeMap::new(),
            older: BTreeSet::new(),
        }
    }

    /// The exchange that leads to all of them.
    pub(super) fn exchange(&self) -> &ShortStr {
        self.names.delay()
    }

    /// The milliseconds of the queue that a message takes; `most`: how many queues there may be. True: it is another delay than it wants. `None`:
    /// all there are would make it wait for far too long.
    pub(super) fn choose(&mut self, delay: Duration, most: usize) -> Option<(u64, bool)> {
        let wanted = whole_millis(delay);
        if self.known.contains_key(&wanted) {
            return Some((wanted, false));
        }
        let all = self.all();
        let round = all.iter().filter(|millis| **millis == rounded(**millis));
        let others = all.len() - round.count();
        let kept_free = ROUND.min(most.saturating_sub(FOR_ANY));
        let is_new = all.len() < most && others < most - kept_free;
        if is_new || all.contains(&wanted) {
            self.known.insert(wanted, false);
            return Some((wanted, false));
        }
        self.nearest(wanted, &all, most)
    }

    /// The same for what is left of a delay: mostly it will not be over then, and comes back.
    pub(super) fn choose_rest(&mut self, rest: Duration, most: usize) -> (u64, bool) {
        let rest = whole_millis(rest).max(SHORTEST_ROUND);
        let wanted = 1 << rest.ilog2();
        if self.known.contains_key(&wanted) {
            return (wanted, false);
        }
        let all = self.all();
        let nearest = self.nearest(wanted, &all, most);
        // The shortest one is no longer than that in which it was.
        let shortest = all.first().map(|millis| (*millis, true));
        nearest.or(shortest).unwrap_or((wanted, false))
    }

    /// A queue that is at most twice as long, or the longest that is shorter.
    fn nearest(&mut self, wanted: u64, all: &BTreeSet<u64>, most: usize) -> Option<(u64, bool)> {
        let rounded = rounded(wanted);
        let up_to = |longest| all.range(wanted..=longest).next().copied();
        let chosen = match up_to(rounded) {
            Some(chosen) => chosen,
            None if all.len() < most => {
                self.known.insert(rounded, false);
                rounded
            }
            None => {
                let longer = up_to(wanted.saturating_mul(2).max(rounded));
                longer.or_else(|| all.range(..wanted).next_back().copied())?
            }
        };
        Some((chosen, chosen != wanted))
    }

    /// All that exist, as far as anybody here knows.
    fn all(&self) -> BTreeSet<u64> {
        let existing = self.existing.now();
        let used = self.known.keys();
        used.chain(existing.iter()).copied().collect()
    }

    /// The key of that queue at the exchange.
    pub(super) fn key(millis: u64) -> ShortStr {
        ShortStr::new(millis.to_string()).expect("a number is short")
    }

    /// Makes the queue behind that key, or finds it there, if that is not known. If the broker refuses that, it closes the channel.
    pub(super) fn build(
        &mut self,
        key: &ShortStr,
        dialect: Dialect,
        out: &mut Vec<u8>,
        channel: ChannelId,
    ) {
        let Some(millis) = millis(key) else { return };
        if self.known.insert(millis, true) == Some(true) {
            return;
        }
        self.existing.used(millis);
        let queue = self.names.delay_queue(millis);
        let passive = match self.older.contains(&millis) {
            true => QueueDeclare::PASSIVE,
            false => 0,
        };
        let mut arguments = TableBuilder::default();
        arguments
            .longstr(b"x-queue-type", b"quorum")
            .long(b"x-message-ttl", i64::try_from(millis).unwrap_or(i64::MAX))
            .longstr(b"x-dead-letter-exchange", self.names.due())
            .longstr(b"x-dead-letter-strategy", b"at-least-once")
            .longstr(b"x-overflow", b"reject-publish");
        if dialect == Dialect::V4 {
            arguments.long(DELIVERY_LIMIT, NO_DELIVERY_LIMIT);
        }
        let bits = QueueDeclare::DURABLE | QueueDeclare::NO_WAIT | passive;
        reply::declare_queue(out, channel, &queue, bits, &arguments.finish());
        bind(out, channel, &queue, self.names.delay(), key);
    }

    /// What the broker says by closing a channel. True: a queue was found to be older, and what was published behind its declare may go once more.
    pub(super) fn learn(&mut self, close: &Close<'_>) -> bool {
        let says = |words: &[u8]| memchr::memmem::find(close.text, words).is_some();
        match (close.class, close.code) {
            (QUEUE, 404) => {
                self.older.clear();
                false
            }
            (QUEUE, 406) if says(DELIVERY_LIMIT) => {
                let quoted = |millis: &u64| format!("'{}'", self.names.delay_queue(*millis));
                let mut known = self.known.keys().copied();
                let meant = known.find(|millis| says(quoted(millis).as_bytes()));
                meant.is_some_and(|millis| self.older.insert(millis))
            }
            _ => false,
        }
    }

    /// It is not there: somebody has deleted it.
    pub(super) fn forget(&mut self, key: &ShortStr) {
        if let Some(built) = millis(key).and_then(|millis| self.known.get_mut(&millis)) {
            *built = false;
        }
    }

    /// The link, or the channel, is lost: what was on its way may not be there.
    pub(super) fn doubt(&mut self) {
        for built in self.known.values_mut() {
            *built = false;
        }
    }
}

fn whole_millis(delay: Duration) -> u64 {
    u64::try_from(delay.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// The next round delay: at most twice as long, but for the shortest.
fn rounded(wanted: u64) -> u64 {
    let longest = whole_millis(LONGEST_DELAY);
    match wanted {
        0..=SHORTEST_ROUND => SHORTEST_ROUND,
        // A number that is larger than any delay may be is no delay of ours.
        _ if wanted > longest => wanted,
        _ => wanted.next_power_of_two().min(longest),
    }
}

fn millis(key: &ShortStr) -> Option<u64> {
    std::str::from_utf8(key).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
