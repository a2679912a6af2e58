//! The last dead letters of each vhost, with who rejected them, for people who watch: a plain value, with a ring per vhost, and counts per minute.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::amqp::ids::Vhost;
use crate::machine::{DeadLetter, Wall};

mod rates;

pub use rates::{MINUTES, MOST_SERIES, Rate};

use rates::Rates;

/// Per vhost; a new one replaces the oldest.
pub const MOST_DEATHS: usize = 1000;
/// A new vhost replaces the one without deaths for longest.
pub const MOST_VHOSTS: usize = 50;

/// Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentDeath {
    /// Increases over all vhosts, and over earlier processes as far as the wall clock allows.
    pub number: u64,
    pub at: Wall,
    pub dead: Arc<DeadLetter>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    pub deaths: Vec<RecentDeath>,
    pub next: u64,
    /// Some between the requested number and the first of these are, or may be, missing.
    pub missed: bool,
}

#[derive(Debug)]
pub struct Recent {
    last: u64,
    /// Up to this number, deaths of forgotten vhosts are unknown.
    forgotten: u64,
    vhosts: BTreeMap<Vhost, OfVhost>,
}

#[derive(Debug)]
struct OfVhost {
    deaths: VecDeque<RecentDeath>,
    lost: u64,
    rates: Rates,
}

// === impl Recent ===

impl Recent {
    /// Numbers start from this time, so they exceed those of earlier processes.
    pub fn new(began: Wall) -> Recent {
        let first = began.0.saturating_mul(1000).max(1);
        Recent {
            last: first,
            forgotten: first,
            vhosts: BTreeMap::new(),
        }
    }

    pub fn add(&mut self, vhost: &Vhost, at: Wall, dead: Arc<DeadLetter>) {
        self.last += 1;
        if !self.vhosts.contains_key(vhost) && self.vhosts.len() >= MOST_VHOSTS {
            self.forget_the_quietest();
        }
        let lost = self.forgotten;
        let of = self.vhosts.entry(vhost.clone()).or_insert_with(|| OfVhost {
            deaths: VecDeque::new(),
            lost,
            rates: Rates::default(),
        });
        of.rates.count(&dead.queue, dead.reason, at);
        let death = RecentDeath {
            number: self.last,
            at,
            dead,
        };
        if of.deaths.len() >= MOST_DEATHS
            && let Some(oldest) = of.deaths.pop_front()
        {
            of.lost = oldest.number;
        }
        of.deaths.push_back(death);
    }

    fn forget_the_quietest(&mut self) {
        let newest = |of: &OfVhost| of.deaths.back().map_or(0, |death| death.number);
        let quietest = self.vhosts.iter().min_by_key(|(_, of)| newest(of));
        if let Some((vhost, of)) = quietest.map(|(vhost, of)| (vhost.clone(), newest(of))) {
            self.vhosts.remove(&vhost);
            self.forgotten = self.forgotten.max(of);
        }
    }

    /// Deaths after that number (0: from the beginning), the oldest first.
    pub fn list(&self, vhost: &[u8], after: u64, most: usize) -> Listed {
        let (from, known) = self.from(after);
        let of = self.vhosts.get(vhost);
        let lost = of.map_or(self.forgotten, |of| of.lost);
        let behind = of.map(|of| of.behind(from).take(most).cloned());
        let deaths: Vec<RecentDeath> = behind.into_iter().flatten().collect();
        let last = deaths.last().map(|death| death.number);
        let next = match last {
            Some(last) if deaths.len() >= most => last,
            _ => self.last,
        };
        Listed {
            deaths,
            next,
            missed: !known || from > 0 && from < lost,
        }
    }

    /// The last deaths, the oldest of them first.
    pub fn newest(&self, vhost: &[u8], most: usize) -> Listed {
        let of = self.vhosts.get(vhost).map(|of| {
            let before = of.deaths.len().saturating_sub(most);
            of.deaths.range(before..).cloned()
        });
        Listed {
            deaths: of.into_iter().flatten().collect(),
            next: self.last,
            missed: false,
        }
    }

    pub(super) fn has_more(&self, vhost: &[u8], after: u64) -> bool {
        let (from, _) = self.from(after);
        let of = self.vhosts.get(vhost);
        of.is_some_and(|of| of.behind(from).next().is_some())
    }

    pub fn rates(&self, vhost: &[u8], now: Wall) -> Vec<Rate> {
        let of = self.vhosts.get(vhost);
        of.map(|of| of.rates.list(now)).unwrap_or_default()
    }

    /// Where to continue, and whether this process can have assigned the number. If not, earlier
    /// deaths are unknown.
    fn from(&self, after: u64) -> (u64, bool) {
        match after <= self.last {
            true => (after, true),
            false => (0, false),
        }
    }
}

// === impl OfVhost ===

impl OfVhost {
    fn behind(&self, number: u64) -> impl Iterator<Item = &RecentDeath> {
        let before = self.deaths.partition_point(|death| death.number <= number);
        self.deaths.range(before..)
    }
}

#[cfg(test)]
mod tests;
