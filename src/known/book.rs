//! The book of all vhosts: a value without clocks and locks, which is told what was published and what the broker counts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::published::{Counted, Published};
use super::{DeadLetterQueue, Known, Target};
use crate::amqp::ids::{ShortStr, Vhost};
use crate::machine::Mono;
use crate::routing::Routing;

/// Dead-letter queues of a vhost that are known, and of all vhosts together; dead letters to others are only counted.
pub(super) const MOST_QUEUES: usize = 200;
const MOST_QUEUES_IN_ALL: usize = 1000;
/// Vhosts that are known.
const MOST_VHOSTS: usize = 200;
/// Named exchanges of a vhost that are known as targets.
const MOST_EXCHANGES: usize = 100;
/// Keys of one exchange that are told apart; where each message brings its own, there is no end of them.
const MOST_KEYS: usize = 16;

/// A count that is older than this says nothing any more.
const COUNTS_FOR: Duration = Duration::from_secs(30);
/// From one survey that is asked for because there are new targets to the next.
const SURVEY_FOR_NEW: Duration = Duration::from_secs(60);
/// From one survey to the next where there is nothing new: bindings change.
const SURVEY_AGAIN: Duration = Duration::from_secs(600);

/// What is known, by vhost.
#[derive(Debug, Default)]
pub(super) struct Book(BTreeMap<Vhost, OfVhost>);

/// What is known of one vhost.
#[derive(Debug, Default)]
struct OfVhost {
    queues: BTreeMap<ShortStr, Queue>,
    /// Named exchanges, each with its keys; no key: all further ones.
    targets: BTreeMap<ShortStr, BTreeMap<Option<ShortStr>, Aim>>,
    /// Dead letters to queues and targets that do not fit.
    left_out: u64,
    /// When a survey was asked for.
    surveyed: Option<Mono>,
    /// There are targets that no survey has looked for.
    has_new: bool,
}

/// A queue that dead letters went to.
#[derive(Debug, Default)]
struct Queue {
    /// By the default exchange.
    by_name: bool,
    /// What nothing takes is parked there.
    is_parking: bool,
    /// How many dead letters went there since the process began.
    dead_letters: u64,
    published: Published,
    counted: Option<Counted>,
}

/// A named exchange and a key, and where they lead.
#[derive(Debug, Default)]
struct Aim {
    leads_to: Leads,
    dead_letters: u64,
    /// Until it is known where they went.
    published: Published,
}

/// Where an aim leads.
#[derive(Debug, Default)]
enum Leads {
    /// Nobody has looked.
    #[default]
    New,
    /// It cannot be told: another type of exchange, or too many bindings.
    Unknown,
    /// There, as of the last survey.
    To(BTreeSet<ShortStr>),
}

/// What a publication went to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Went<'a> {
    /// Into the queue of that name, by the default exchange.
    Queue(&'a ShortStr),
    /// Into the parking queue, which is called so.
    Parking(&'a ShortStr),
    /// To a named exchange, with that key.
    Exchange(&'a ShortStr, &'a ShortStr),
}

// === impl Book ===

impl Book {
    /// A dead letter was confirmed there.
    pub(super) fn sent(&mut self, vhost: &Vhost, went: Went<'_>, now: Mono) {
        let room = self.room();
        if !self.0.contains_key(vhost) {
            if self.0.len() >= MOST_VHOSTS {
                return;
            }
            self.0.insert(own(vhost), OfVhost::default());
        }
        if let Some(of) = self.0.get_mut(vhost) {
            of.sent(went, room, now);
        }
    }

    /// The queues of a vhost, in their order.
    pub(super) fn queues(&self, vhost: &Vhost) -> Vec<ShortStr> {
        let of = self.0.get(vhost).into_iter();
        of.flat_map(|of| of.queues.keys().cloned()).collect()
    }

    /// The broker says that a queue has so many messages.
    pub(super) fn counted(&mut self, vhost: &Vhost, queue: &ShortStr, messages: u64, now: Mono) {
        let of = self.0.get_mut(vhost);
        if let Some(queue) = of.and_then(|of| of.queues.get_mut(queue)) {
            let Queue {
                published,
                dead_letters,
                counted,
                ..
            } = queue;
            *counted = Some(published.counted(messages, *dead_letters, *counted, now));
        }
    }

    /// There is no such queue any more.
    pub(super) fn gone(&mut self, vhost: &Vhost, queue: &ShortStr) {
        if let Some(of) = self.0.get_mut(vhost) {
            of.queues.remove(queue);
            let aims = of.targets.values_mut().flat_map(BTreeMap::values_mut);
            for aim in aims {
                // If it is declared and bound once more, the next survey tells.
                if let Leads::To(queues) = &mut aim.leads_to {
                    of.has_new |= queues.remove(queue);
                }
            }
        }
    }

    /// Whether bindings have to be looked at now; if so, it counts as begun.
    pub(super) fn wants_survey(&mut self, vhost: &Vhost, now: Mono) -> bool {
        let Some(of) = self.0.get_mut(vhost) else {
            return false;
        };
        let rest = match (of.has_new, of.targets.is_empty()) {
            (_, true) => return false,
            (true, _) => SURVEY_FOR_NEW,
            (false, _) => SURVEY_AGAIN,
        };
        let is_due = of.surveyed.is_none_or(|last| last.after(rest) <= now);
        if is_due {
            of.surveyed = Some(now);
        }
        is_due
    }

    /// The named targets of a vhost.
    pub(super) fn targets(&self, vhost: &Vhost) -> Vec<Target> {
        let of = self.0.get(vhost).into_iter();
        let targets = of.flat_map(|of| &of.targets).flat_map(|(exchange, keys)| {
            keys.keys().map(|routing_key| Target {
                exchange: exchange.clone(),
                routing_key: routing_key.clone(),
            })
        });
        targets.collect()
    }

    /// A survey says where these lead.
    pub(super) fn surveyed(
        &mut self,
        vhost: &Vhost,
        found: Vec<(Target, Option<BTreeSet<ShortStr>>)>,
    ) {
        let mut room = self.room();
        let Some(of) = self.0.get_mut(vhost) else {
            return;
        };
        for (target, queues) in found {
            let keys = of.targets.get_mut(&target.exchange);
            let Some(aim) = keys.and_then(|keys| keys.get_mut(&target.routing_key)) else {
                continue;
            };
            let Some(queues) = queues else {
                aim.leads_to = Leads::Unknown;
                continue;
            };
            let before = std::mem::replace(&mut aim.leads_to, Leads::To(queues.clone()));
            let is_first = !matches!(before, Leads::To(_));
            let until_now = std::mem::take(&mut aim.published);
            let letters = match is_first {
                true => aim.dead_letters,
                false => 0,
            };
            for name in &queues {
                let before = of.queues.len();
                match entry(&mut of.queues, name, room) {
                    Some(queue) => {
                        queue.dead_letters += letters;
                        queue.published.merge(&until_now);
                    }
                    None => of.left_out += letters,
                }
                room = room.saturating_sub(of.queues.len() - before);
            }
        }
        let mut aims = of.targets.values().flat_map(BTreeMap::values);
        of.has_new = aims.any(|aim| matches!(aim.leads_to, Leads::New));
    }

    /// All of a vhost, as of now.
    pub(super) fn known(&self, vhost: &Vhost, now: Mono) -> Known {
        let Some(of) = self.0.get(vhost) else {
            return Known::default();
        };
        let queues = of
            .queues
            .iter()
            .map(|(name, queue)| queue.shown(name, of, now));
        let unknown = of.aims().filter(|(_, aim)| !aim.leads_to.is_known());
        Known {
            queues: queues.collect(),
            unknown: unknown
                .map(|(target, aim)| (target, aim.dead_letters))
                .collect(),
            left_out: of.left_out,
        }
    }

    fn room(&self) -> usize {
        let queues: usize = self.0.values().map(|of| of.queues.len()).sum();
        MOST_QUEUES_IN_ALL.saturating_sub(queues)
    }
}

/// Where targets lead, as of a survey.
pub(super) fn resolve(
    routing: &Routing,
    targets: Vec<Target>,
) -> Vec<(Target, Option<BTreeSet<ShortStr>>)> {
    let resolved = targets.into_iter().map(|target| {
        let key = target.routing_key.as_ref().map(|key| key.as_bytes());
        let queues = routing.leads_to(&target.exchange, key);
        (target, queues)
    });
    resolved.collect()
}

/// A copy: a name may be a slice of the buffer that it was read in, which must not live as long as the process.
fn own(name: &ShortStr) -> ShortStr {
    ShortStr::copy(name.as_bytes()).unwrap_or_default()
}

/// The queue of that name; a new one if there is room.
fn entry<'a>(
    queues: &'a mut BTreeMap<ShortStr, Queue>,
    name: &ShortStr,
    room: usize,
) -> Option<&'a mut Queue> {
    if !queues.contains_key(name) {
        if queues.len() >= MOST_QUEUES || room == 0 {
            return None;
        }
        queues.insert(own(name), Queue::default());
    }
    queues.get_mut(name)
}

// === impl OfVhost ===

impl OfVhost {
    fn sent(&mut self, went: Went<'_>, room: usize, now: Mono) {
        let fits = match went {
            Went::Queue(name) => entry(&mut self.queues, name, room).map(|queue| {
                queue.by_name = true;
                queue.sent(now);
            }),
            Went::Parking(name) => entry(&mut self.queues, name, room).map(|queue| {
                queue.is_parking = true;
                queue.sent(now);
            }),
            Went::Exchange(exchange, key) => self.aimed(exchange, key, now),
        };
        if fits.is_none() {
            self.left_out += 1;
        }
    }

    /// `None`: it does not fit.
    fn aimed(&mut self, exchange: &ShortStr, key: &ShortStr, now: Mono) -> Option<()> {
        if !self.targets.contains_key(exchange) {
            if self.targets.len() >= MOST_EXCHANGES {
                return None;
            }
            self.targets.insert(own(exchange), BTreeMap::new());
        }
        let keys = self.targets.get_mut(exchange)?;
        let key = Some(key.clone());
        let key = match keys.contains_key(&key) || keys.len() < MOST_KEYS {
            true => key.map(|key| own(&key)),
            false => None,
        };
        let aim = keys.entry(key).or_default();
        aim.dead_letters += 1;
        match &aim.leads_to {
            Leads::New => {
                self.has_new = true;
                aim.published.add(now);
            }
            Leads::Unknown => {}
            Leads::To(queues) => {
                for queue in queues {
                    // One that did not fit is told by those that do.
                    if let Some(queue) = self.queues.get_mut(queue) {
                        queue.sent(now);
                    }
                }
            }
        }
        Some(())
    }

    fn aims(&self) -> impl Iterator<Item = (Target, &Aim)> {
        self.targets.iter().flat_map(|(exchange, keys)| {
            keys.iter().map(move |(routing_key, aim)| {
                let target = Target {
                    exchange: exchange.clone(),
                    routing_key: routing_key.clone(),
                };
                (target, aim)
            })
        })
    }
}

// === impl Queue ===

impl Queue {
    fn sent(&mut self, now: Mono) {
        self.dead_letters += 1;
        self.published.add(now);
    }

    fn shown(&self, name: &ShortStr, of: &OfVhost, now: Mono) -> DeadLetterQueue {
        let counted = self.counted.filter(|it| it.at.after(COUNTS_FOR) >= now);
        let by_name = self.by_name.then(|| Target {
            exchange: ShortStr::EMPTY,
            routing_key: Some(name.clone()),
        });
        let leads_here = of.aims().filter(|(_, aim)| match &aim.leads_to {
            Leads::To(queues) => queues.contains(name),
            Leads::New | Leads::Unknown => false,
        });
        DeadLetterQueue {
            queue: name.clone(),
            is_parking: self.is_parking,
            targets: by_name
                .into_iter()
                .chain(leads_here.map(|(target, _)| target))
                .collect(),
            dead_letters: self.dead_letters,
            messages: counted.map(|it| it.messages),
            oldest: counted.and_then(|it| Some(it.oldest?.until(now))),
        }
    }
}

// === impl Leads ===

impl Leads {
    fn is_known(&self) -> bool {
        match self {
            Leads::To(queues) => !queues.is_empty(),
            Leads::New | Leads::Unknown => false,
        }
    }
}

#[cfg(test)]
mod tests;
