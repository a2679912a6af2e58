//! The book of all vhosts: a value without clocks and locks, which is told what was published and what the broker counts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::queue::Queue;
use super::published::Published;
use super::{Queues, Standing, Target};
use crate::amqp::ids::{ShortStr, Vhost};
use crate::machine::Mono;

mod queue;

/// Known dead-letter queues, per vhost and in all. Dead letters to others are only counted.
pub(super) const MOST_QUEUES: usize = 2_000;
const MOST_QUEUES_IN_ALL: usize = 5_000;
const MOST_VHOSTS: usize = 200;
const MOST_EXCHANGES: usize = 100;
/// Keys per exchange. Bounded, because each message may have its own.
const MOST_KEYS: usize = 16;

/// How long a user who looked is taken to look on: the numbers of all queues are renewed.
const WATCHED_FOR: Duration = Duration::from_secs(60);
const TARGETS_AGAIN: Duration = Duration::from_secs(10);
/// Minimum interval of surveys for new targets.
const SURVEY_FOR_NEW: Duration = Duration::from_secs(60);
/// Interval of surveys without new targets: bindings change.
const SURVEY_AGAIN: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(crate) struct Book(BTreeMap<Vhost, OfVhost>);

#[derive(Debug, Default)]
struct OfVhost {
    queues: BTreeMap<ShortStr, Queue>,
    /// Named exchanges with their keys. `None`: all further keys.
    targets: BTreeMap<ShortStr, BTreeMap<Option<ShortStr>, Aim>>,
    /// Dead letters to queues and targets beyond the limit.
    left_out: u64,
    /// Expected queues and targets beyond the limit.
    uncounted: usize,
    expected: Option<Mono>,
    watched: Option<Mono>,
    parked: Vec<(ShortStr, usize)>,
    surveyed: Option<Mono>,
    /// Some targets are newer than the last survey.
    has_new: bool,
}

#[derive(Debug, Default)]
struct Aim {
    /// The target of a known queue.
    is_expected: bool,
    leads_to: Leads,
    dead_letters: u64,
    published: Published,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Leads {
    #[default]
    New,
    Nowhere,
    /// Unknown exchange type, or too many bindings.
    Unknown,
    To(BTreeSet<ShortStr>),
}

// === impl Book ===

impl Book {
    /// A dead letter went to this exchange with this key, or was parked with this cause.
    pub(super) fn sent(
        &mut self,
        vhost: &Vhost,
        to: [&ShortStr; 2],
        parked: Option<&str>,
        now: Mono,
    ) {
        let room = self.room();
        if let Some(of) = self.of(vhost) {
            let fits = match to {
                [exchange, queue] if exchange.is_empty() => {
                    of.named(queue, parked.is_some(), room, now)
                }
                [exchange, key] => of.aimed(exchange, key, now),
            };
            of.left_out += u64::from(fits.is_none());
            if let Some(cause) = parked {
                of.parks(cause);
            }
        }
    }

    /// As of a try of all that is parked; `sent` adds to it until the next one.
    pub(crate) fn parked(&mut self, vhost: &Vhost, causes: &[(ShortStr, usize)]) {
        if let Some(of) = self.of(vhost) {
            of.parked = causes.to_vec();
        }
    }

    pub(super) fn wants_targets(&mut self, vhost: &Vhost, now: Mono) -> bool {
        let Some(of) = self.of(vhost) else {
            return false;
        };
        let is_due = of
            .expected
            .is_none_or(|last| last.after(TARGETS_AGAIN) <= now);
        if is_due {
            of.expected = Some(now);
        }
        is_due
    }

    /// Adds the targets of known queues, and the parking queue: they may hold dead letters from
    /// before this process, or from elsewhere.
    pub(super) fn expect(&mut self, vhost: &Vhost, parking: &ShortStr, targets: &BTreeSet<Target>) {
        let room = self.room();
        if let Some(of) = self.of(vhost) {
            of.expect(parking, targets, room);
        }
    }

    fn of(&mut self, vhost: &Vhost) -> Option<&mut OfVhost> {
        if !self.0.contains_key(vhost) && self.0.len() < MOST_VHOSTS {
            self.0.insert(own(vhost), OfVhost::default());
        }
        self.0.get_mut(vhost)
    }

    pub(super) fn standing(&self, vhost: &Vhost, target: &Target) -> Standing {
        let Some(of) = self.0.get(vhost) else {
            return Standing::Unknown;
        };
        let Target {
            exchange,
            routing_key,
        } = target;
        if exchange.is_empty() {
            let queue = routing_key.as_ref().and_then(|key| of.queues.get(key));
            return match queue.and_then(|queue| queue.asked) {
                Some((_, true)) => Standing::Queue,
                Some((_, false)) => Standing::NoQueue,
                None => Standing::Unknown,
            };
        }
        let keys = of.targets.get(exchange);
        let aim = keys.and_then(|keys| keys.get(routing_key).or_else(|| keys.get(&None)));
        match aim.map(|aim| &aim.leads_to) {
            Some(Leads::Nowhere) => Standing::NoExchange,
            Some(Leads::To(queues)) if queues.is_empty() => Standing::NoQueue,
            Some(Leads::To(_)) => Standing::Queue,
            Some(Leads::New | Leads::Unknown) | None => Standing::Unknown,
        }
    }

    pub(crate) fn due(&self, vhost: &Vhost, now: Mono) -> Vec<ShortStr> {
        let Some(of) = self.0.get(vhost) else {
            return Vec::new();
        };
        let is_watched = of.watched.is_some_and(|last| last.after(WATCHED_FOR) > now);
        let due = of.queues.iter();
        let due = due.filter(|(_, queue)| is_watched || queue.is_due(now));
        due.map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn counted(&mut self, vhost: &Vhost, queue: &ShortStr, messages: u64, now: Mono) {
        let of = self.0.get_mut(vhost);
        if let Some(queue) = of.and_then(|of| of.queues.get_mut(queue)) {
            queue.counted(messages, now);
        }
    }

    pub(crate) fn gone(&mut self, vhost: &Vhost, queue: &ShortStr, now: Mono) {
        if let Some(of) = self.0.get_mut(vhost) {
            if let Some(gone) = of.queues.remove(queue)
                && gone.is_expected
            {
                of.queues.insert(queue.clone(), gone.missing(now));
            }
            let aims = of.targets.values_mut().flat_map(BTreeMap::values_mut);
            for aim in aims {
                // If it is declared and bound once more, the next survey tells.
                if let Leads::To(queues) = &mut aim.leads_to {
                    of.has_new |= queues.remove(queue);
                }
            }
        }
    }

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

    pub(crate) fn targets(&self, vhost: &Vhost) -> Vec<Target> {
        let of = self.0.get(vhost).into_iter();
        let targets = of.flat_map(|of| &of.targets).flat_map(|(exchange, keys)| {
            keys.keys().map(|routing_key| Target {
                exchange: exchange.clone(),
                routing_key: routing_key.clone(),
            })
        });
        targets.collect()
    }

    pub(crate) fn surveyed(&mut self, vhost: &Vhost, found: Vec<(Target, Leads)>) {
        let mut room = self.room();
        let Some(of) = self.0.get_mut(vhost) else {
            return;
        };
        for (target, leads_to) in found {
            let keys = of.targets.get_mut(&target.exchange);
            let Some(aim) = keys.and_then(|keys| keys.get_mut(&target.routing_key)) else {
                continue;
            };
            let before = std::mem::replace(&mut aim.leads_to, leads_to);
            let Leads::To(queues) = &aim.leads_to else {
                continue;
            };
            let is_first = !matches!(before, Leads::To(_));
            let until_now = std::mem::take(&mut aim.published);
            let letters = match is_first {
                true => aim.dead_letters,
                false => 0,
            };
            for name in queues {
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

    pub(super) fn watched(&mut self, vhost: &Vhost, now: Mono) {
        if let Some(of) = self.of(vhost) {
            of.watched = Some(now);
        }
    }

    pub(super) fn known(&self, vhost: &Vhost, now: Mono) -> Queues {
        let Some(of) = self.0.get(vhost) else {
            return Queues::default();
        };
        let mut leads_to: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (target, aim) in of.aims() {
            if let Leads::To(queues) = &aim.leads_to {
                for name in queues {
                    leads_to.entry(name).or_default().push(target.clone());
                }
            }
        }
        let queues = of.queues.iter();
        let queues = queues.filter(|(_, queue)| !queue.is_missing());
        let queues = queues
            .map(|(name, queue)| queue.shown(name, leads_to.remove(name).unwrap_or_default(), now));
        let unknown = of
            .aims()
            .filter(|(_, aim)| aim.dead_letters > 0 && !aim.leads_to.is_known());
        Queues {
            queues: queues.collect(),
            unknown: unknown
                .map(|(target, aim)| (target, aim.dead_letters))
                .collect(),
            left_out: of.left_out,
            uncounted: of.uncounted,
            parked: of.parked.clone(),
        }
    }

    fn room(&self) -> usize {
        let queues: usize = self.0.values().map(|of| of.queues.len()).sum();
        MOST_QUEUES_IN_ALL.saturating_sub(queues)
    }
}

/// A copy: a slice of a read buffer must not live as long as the process.
fn own(name: &ShortStr) -> ShortStr {
    ShortStr::copy(name.as_bytes()).unwrap_or_default()
}

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

/// The aim for this key, or for all further keys. `None`: over the limit.
fn aim<'a>(
    targets: &'a mut BTreeMap<ShortStr, BTreeMap<Option<ShortStr>, Aim>>,
    exchange: &ShortStr,
    key: Option<&ShortStr>,
) -> Option<&'a mut Aim> {
    if !targets.contains_key(exchange) {
        if targets.len() >= MOST_EXCHANGES {
            return None;
        }
        targets.insert(own(exchange), BTreeMap::new());
    }
    let keys = targets.get_mut(exchange)?;
    let key = key.map(own);
    let fits = keys.contains_key(&key) || keys.len() < MOST_KEYS;
    Some(keys.entry(key.filter(|_| fits)).or_default())
}

// === impl OfVhost ===

impl OfVhost {
    fn parks(&mut self, cause: &str) {
        let mut all = self.parked.iter_mut();
        match all.find(|(of, _)| **of == *cause.as_bytes()) {
            Some((_, messages)) => *messages += 1,
            None => self
                .parked
                .extend(ShortStr::copy(cause.as_bytes()).map(|of| (of, 1))),
        }
    }

    fn expect(&mut self, parking: &ShortStr, targets: &BTreeSet<Target>, mut room: usize) {
        let queues = self.queues.values_mut();
        queues.for_each(|queue| queue.is_expected = false);
        let aims = self.targets.values_mut().flat_map(BTreeMap::values_mut);
        aims.for_each(|aim| aim.is_expected = false);
        self.uncounted = 0;
        let parking = [(parking, true)].into_iter();
        let by_name = targets.iter().filter(|target| target.exchange.is_empty());
        let by_name = by_name.filter_map(|target| Some((target.routing_key.as_ref()?, false)));
        for (name, is_parking) in parking.chain(by_name) {
            let before = self.queues.len();
            match entry(&mut self.queues, name, room) {
                Some(queue) => {
                    queue.is_expected = true;
                    queue.is_parking |= is_parking;
                    queue.by_name |= !is_parking;
                }
                None => self.uncounted += 1,
            }
            room -= self.queues.len() - before;
        }
        for target in targets.iter().filter(|target| !target.exchange.is_empty()) {
            match aim(
                &mut self.targets,
                &target.exchange,
                target.routing_key.as_ref(),
            ) {
                Some(aim) => aim.is_expected = true,
                None => self.uncounted += 1,
            }
        }
        for aims in self.targets.values_mut() {
            aims.retain(|_, aim| aim.is_expected || aim.dead_letters > 0);
        }
        self.targets.retain(|_, aims| !aims.is_empty());
        let mut aims = self.targets.values().flat_map(BTreeMap::values);
        self.has_new |= aims.any(|aim| matches!(aim.leads_to, Leads::New));
        let targets = &self.targets;
        self.queues.retain(|name, queue| {
            let mut aims = targets.values().flat_map(BTreeMap::values);
            queue.is_expected || !queue.is_quiet() || aims.any(|aim| aim.leads_to.has(name))
        });
    }

    fn make_room(&mut self) -> Option<()> {
        let mut queues = self.queues.iter();
        let name = queues.find(|(_, queue)| queue.may_go())?.0.clone();
        self.queues.remove(&name).map(drop)
    }

    fn named(
        &mut self,
        name: &ShortStr,
        is_parking: bool,
        mut room: usize,
        now: Mono,
    ) -> Option<()> {
        if !self.queues.contains_key(name)
            && (room == 0 || self.queues.len() >= MOST_QUEUES)
            && self.make_room().is_some()
        {
            room += 1;
        }
        let queue = entry(&mut self.queues, name, room)?;
        queue.is_parking |= is_parking;
        queue.by_name |= !is_parking;
        queue.sent(now);
        Some(())
    }

    fn aimed(&mut self, exchange: &ShortStr, key: &ShortStr, now: Mono) -> Option<()> {
        let aim = aim(&mut self.targets, exchange, Some(key))?;
        aim.dead_letters += 1;
        match &aim.leads_to {
            Leads::New => {
                self.has_new = true;
                aim.published.add(now);
            }
            Leads::Unknown | Leads::Nowhere => {}
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

// === impl Leads ===

impl Leads {
    fn is_known(&self) -> bool {
        matches!(self, Leads::To(queues) if !queues.is_empty())
    }

    fn has(&self, queue: &ShortStr) -> bool {
        matches!(self, Leads::To(queues) if queues.contains(queue))
    }
}

#[cfg(test)]
mod tests;
