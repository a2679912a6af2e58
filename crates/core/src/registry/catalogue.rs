//! What is known of the queues of all vhosts, whoever told it: one catalogue for all sessions of the process.
//!
//! Each fact has its source and its age ([`fact`]); which of two counts is shown in `catalogue/testdata`. What nobody told is unknown, and whoever
//! asks says what that means there. Nothing is forgotten because a question could not be asked: knowledge ends when the broker says that a queue
//! is gone, or is another one ([`Catalogue::end`]). Where only the chance of that was seen, what is known is to be verified first
//! ([`Catalogue::doubt`]).
//!
//! Thousands of sessions read it without a lock: each shard is a snapshot that a writer replaces as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::machine::Mono;
use crate::objects::QueueType;

use super::Declared;
use super::arguments::{ALTERED, DeclareArguments};

pub mod fact;
#[cfg(test)]
mod tests;

use fact::{Fact, Source};

/// A power of two.
const SHARDS: usize = 1024;
pub const MOST: usize = 100_000;
/// Names are spread evenly, so all shards fill at about the same time.
const MOST_IN_SHARD: usize = MOST / SHARDS;

#[derive(Clone, Debug)]
pub struct Catalogue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shards: Box<[ArcSwap<Shard>]>,
    last_life: AtomicU32,
    /// Counts answers to questions that had failed before.
    news: AtomicU32,
    /// By vhost. `None`: the question failed.
    default_types: ArcSwap<BTreeMap<Vhost, Fact<Option<QueueType>>>>,
}

#[derive(Clone, Debug, Default)]
struct Shard {
    queues: BTreeMap<Vhost, BTreeMap<ShortStr, Arc<Queue>>>,
}

/// Distinguishes successive queues of one name, as far as their ends were seen. Default: nothing is
/// known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life(u32);

#[derive(Clone, Debug, Default)]
pub struct Queue {
    life: Life,
    /// When the broker last reported the queue as gone or replaced. Earlier facts are void.
    ended: Option<Mono>,
    queue_type: Option<Fact<QueueType>>,
    /// Its dead-letter exchange, if that is an intake exchange.
    intake: Option<Fact<Option<ShortStr>>>,
    declared: Option<Fact<Arc<Declared>>>,
    /// Arguments that it had otherwise, before it was made anew ([`ALTERED`]).
    altered: Option<Fact<Option<Arc<[ShortStr]>>>>,
    asked: Option<Mono>,
    in_vain: Option<(Mono, Option<ShortStr>)>,
    is_said: bool,
}

#[derive(Clone, Debug)]
pub enum Report {
    Type(QueueType),
    /// Its dead-letter exchange, if that is an intake exchange. `None`: a client's exchange, or
    /// none.
    Intake(Option<ShortStr>),
    /// A declare that the broker accepted, or would accept.
    Declared(Arc<Declared>),
    /// It may have these arguments otherwise.
    Altered(Arc<[ShortStr]>),
    Asked,
    /// This user's question was refused or not answered.
    InVain(Option<ShortStr>),
    Said,
}

/// A hash that is the same in each run. Collisions are easy to find.
pub fn fnv1a<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Default for Catalogue {
    fn default() -> Catalogue {
        Catalogue(Arc::new(Inner {
            shards: (0..SHARDS).map(|_| ArcSwap::default()).collect(),
            last_life: AtomicU32::new(0),
            news: AtomicU32::new(0),
            default_types: ArcSwap::default(),
        }))
    }
}

// === impl Catalogue ===

impl Catalogue {
    pub fn get(&self, vhost: &[u8], queue: &[u8]) -> Option<Arc<Queue>> {
        self.shard(queue)?.load().get(vhost, queue).cloned()
    }

    pub fn life(&self, vhost: &[u8], queue: &[u8]) -> Life {
        let life = |shard: &ArcSwap<Shard>| Some(shard.load().get(vhost, queue)?.life);
        self.shard(queue).and_then(life).unwrap_or_default()
    }

    pub fn learn(&self, vhost: &Vhost, queue: &ShortStr, told: &Report, source: Source, at: Mono) {
        let next_life = self.next_life();
        self.change(vhost, queue, |known| {
            let known = known.map(|known| Queue::clone(known));
            let mut queue = known.unwrap_or_else(|| Queue::new(next_life));
            queue.learn(told, source, at, next_life);
            Some(queue)
        });
        if let Report::Declared(_) = told
            && self
                .get(vhost, queue)
                .is_some_and(|known| known.asked.is_some())
        {
            self.0.news.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn news(&self) -> u32 {
        self.0.news.load(Ordering::Relaxed)
    }

    pub fn each(&self, mut see: impl FnMut(&Vhost, &ShortStr, &Queue)) {
        for shard in &self.0.shards {
            for (vhost, queues) in &shard.load().queues {
                for (queue, known) in queues {
                    see(vhost, queue, known);
                }
            }
        }
    }

    pub fn default_type(&self, vhost: &[u8]) -> Option<Fact<Option<QueueType>>> {
        self.0.default_types.load().get(vhost).cloned()
    }

    /// Records the broker's answer. A failed question keeps the previous answer.
    pub fn learn_default_type(
        &self,
        vhost: &Vhost,
        value: Option<QueueType>,
        source: Source,
        at: Mono,
    ) {
        self.0.default_types.rcu(|known| {
            let mut known = BTreeMap::clone(known);
            let told = known.get(vhost).filter(|_| value.is_none());
            let (value, source) = told.map_or((value, source), |told| (told.value, told.source));
            known.insert(vhost.clone(), Fact { value, source, at });
            known
        });
    }

    /// The queue may have been replaced: facts must be verified before use.
    pub fn doubt(&self, vhost: &Vhost, queue: &ShortStr) {
        let life = self.next_life();
        self.change(vhost, queue, |known| {
            let known = Queue::clone(known?);
            Some(Queue { life, ..known })
        });
    }

    pub fn end(&self, vhost: &Vhost, queue: &ShortStr, at: Mono) {
        let life = self.next_life();
        self.change(vhost, queue, |known| {
            known.is_some().then(|| Queue {
                ended: Some(at),
                ..Queue::new(life)
            })
        });
    }

    /// Another queue is there. What declares may say of an altered one they may say until it is listed.
    pub fn replace(&self, vhost: &Vhost, queue: &ShortStr, at: Mono) {
        let life = self.next_life();
        self.change(vhost, queue, |known| {
            let altered = known?.altered.clone();
            Some(Queue {
                ended: Some(at),
                altered,
                ..Queue::new(life)
            })
        });
    }

    /// The queue was exclusive to a connection that has ended.
    pub fn forget(&self, vhost: &[u8], queue: &[u8]) {
        if let Some(shard) = self.shard(queue) {
            shard.rcu(|shard| Arc::new(shard.without(vhost, queue)));
        }
    }

    fn next_life(&self) -> Life {
        Life(
            self.0
                .last_life
                .fetch_add(1, Ordering::Relaxed)
                .wrapping_add(1),
        )
    }

    fn change(
        &self,
        vhost: &Vhost,
        queue: &ShortStr,
        change: impl Fn(Option<&Arc<Queue>>) -> Option<Queue>,
    ) {
        let Some(shard) = self.shard(queue) else {
            return;
        };
        shard.rcu(|shard| match change(shard.get(vhost, queue)) {
            Some(known) => Arc::new(shard.with(vhost, queue, known)),
            None => Arc::clone(shard),
        });
    }

    fn shard(&self, queue: &[u8]) -> Option<&ArcSwap<Shard>> {
        let hash = fnv1a(queue);
        self.0
            .shards
            .get((hash ^ hash >> 32) as usize & (SHARDS - 1))
    }
}

// === impl Shard ===

impl Shard {
    fn get(&self, vhost: &[u8], queue: &[u8]) -> Option<&Arc<Queue>> {
        self.queues.get(vhost)?.get(queue)
    }

    /// A full shard drops the queue with the oldest news.
    fn with(&self, vhost: &Vhost, queue: &ShortStr, known: Queue) -> Shard {
        let mut shard = self.clone();
        let is_new = shard.get(vhost, queue).is_none();
        if is_new && shard.queues.values().map(BTreeMap::len).sum::<usize>() >= MOST_IN_SHARD {
            shard.forget_the_oldest();
        }
        let queues = shard.queues.entry(vhost.clone()).or_default();
        queues.insert(queue.clone(), Arc::new(known));
        shard
    }

    fn without(&self, vhost: &[u8], queue: &[u8]) -> Shard {
        let mut shard = self.clone();
        if let Some(queues) = shard.queues.get_mut(vhost) {
            queues.remove(queue);
        }
        shard
    }

    fn forget_the_oldest(&mut self) {
        let all = self.queues.iter().flat_map(|(vhost, queues)| {
            let named = move |(queue, known): (&ShortStr, &Arc<Queue>)| {
                (known.last_reported(), vhost.clone(), queue.clone())
            };
            queues.iter().map(named)
        });
        if let Some((_, vhost, queue)) = all.min_by_key(|(told, ..)| *told) {
            *self = self.without(&vhost, &queue);
        }
    }
}

// === impl Queue ===

impl Queue {
    fn new(life: Life) -> Queue {
        Queue {
            life,
            ..Queue::default()
        }
    }

    pub fn queue_type(&self) -> Option<QueueType> {
        self.queue_type.as_ref().map(|fact| fact.value)
    }

    pub fn intake(&self) -> Option<&Fact<Option<ShortStr>>> {
        self.intake.as_ref()
    }

    pub fn declared(&self) -> Option<&Fact<Arc<Declared>>> {
        self.declared.as_ref()
    }

    pub fn altered(&self) -> Option<&Arc<[ShortStr]>> {
        self.altered.as_ref()?.value.as_ref()
    }

    fn learn(&mut self, told: &Report, source: Source, at: Mono, next_life: Life) {
        if self.ended.is_some_and(|ended| at < ended) {
            return;
        }
        match told {
            Report::Type(value) => learn_type(&mut self.queue_type, *value, source, at),
            Report::Intake(value) => {
                let differs = |declared: &Fact<Arc<Declared>>| {
                    declared.at < at && declared.value.intake() != *value
                };
                // Then it is another queue than the one that was declared.
                if self.declared.as_ref().is_some_and(differs) {
                    (self.declared, self.life) = (None, next_life);
                }
                learn(&mut self.intake, value.clone(), source, at);
            }
            Report::Declared(value) => {
                learn_type(&mut self.queue_type, value.queue_type, source, at);
                learn(&mut self.intake, value.intake(), source, at);
                if source == Source::Management {
                    learn(&mut self.altered, altered(value), source, at);
                }
                match &mut self.declared {
                    // What a declare said beyond what the broker keeps is known from that alone.
                    Some(known)
                        if source != Source::Declare && known.value.form.is_like(&value.form) =>
                    {
                        known.at = known.at.max(at);
                        // A list does not know what a declare wanted.
                        if source == Source::Refusal && known.value.kept != value.kept {
                            Arc::make_mut(&mut known.value).kept = value.kept.clone();
                        }
                    }
                    Some(known) if source != Source::Declare && known.at < at => {
                        self.life = next_life;
                        learn(&mut self.declared, value.clone(), source, at);
                    }
                    _ => learn(&mut self.declared, value.clone(), source, at),
                }
            }
            Report::Altered(names) => learn(&mut self.altered, Some(names.clone()), source, at),
            Report::Asked => self.asked = self.asked.max(Some(at)),
            Report::InVain(user) => {
                self.asked = self.asked.max(Some(at));
                self.in_vain = Some((at, user.clone()));
            }
            Report::Said => self.is_said = true,
        }
    }

    pub fn asked(&self) -> Option<Mono> {
        self.asked
    }

    pub fn is_said(&self) -> bool {
        self.is_said
    }

    /// When the last question failed, if this user had asked it: another one may be allowed to.
    pub fn in_vain(&self, user: Option<&ShortStr>) -> Option<Mono> {
        let (at, asked) = self.in_vain.as_ref()?;
        (asked.as_ref() == user).then_some(*at)
    }

    fn last_reported(&self) -> Option<Mono> {
        let told = [
            self.ended,
            self.queue_type.as_ref().map(|fact| fact.at),
            self.intake.as_ref().map(|fact| fact.at),
            self.declared.as_ref().map(|fact| fact.at),
            self.asked,
        ];
        told.into_iter().flatten().max()
    }
}

/// Only the broker has it.
pub fn altered(declared: &Declared) -> Option<Arc<[ShortStr]>> {
    let arguments = DeclareArguments::read(&declared.form.arguments);
    let names = arguments.value(ALTERED)?.as_longstr()?;
    Some(names_in(names))
}

/// The names in the value of [`ALTERED`].
fn names_in(altered: &[u8]) -> Arc<[ShortStr]> {
    let names = altered.split(|byte| *byte == b',');
    names.filter_map(ShortStr::copy).collect()
}

/// A declare without a type says nothing about the type.
fn learn_type(known: &mut Option<Fact<QueueType>>, value: QueueType, source: Source, at: Mono) {
    if value != QueueType::Default || known.is_none() {
        learn(known, value, source, at);
    }
}

fn learn<T>(known: &mut Option<Fact<T>>, value: T, source: Source, at: Mono) {
    Fact::learn(known, Fact { value, source, at });
}
