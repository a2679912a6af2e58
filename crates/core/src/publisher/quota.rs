//! How much of one target may be late, and how much of all together: beyond that, dead letters are parked at once.
//!
//! Late is what waits for a retry or was tried again, and what has stalled in flight (`answers`). The intake consumes with one prefetch for
//! all targets: those that answer nothing would otherwise hold all of it. The rule is here, and not in the intake, because only the publisher
//! knows who is late. What sessions hand over is counted apart, against what the publisher itself can hold, and is seldom so much: a stuck target
//! holds their own consumers, as it should.

use std::collections::BTreeMap;

use crate::amqp::ids::ShortStr;
use crate::machine::{LiveLimits, Owner, Publication};

use super::Settings;
use super::item::Item;
use super::store::MOST_HELD;

/// Behind the default exchange each key is its own target; behind others, the exchange is the
/// target.
pub(super) type Target = (ShortStr, ShortStr);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub items: usize,
    pub bytes: usize,
}

#[derive(Debug)]
pub(super) struct Quota {
    intake: Option<Owner>,
    prefetch: usize,
    /// Each of the two publishers has half.
    careful: bool,
    limits: LiveLimits,
    signals: Share,
    rejects: Share,
}

/// Late items that share one limit.
#[derive(Debug, Default)]
struct Share {
    late: BTreeMap<Target, Load>,
    all: Load,
}

// === impl Load ===

impl Load {
    pub(crate) fn quarter(self) -> Load {
        Load {
            items: (self.items / 4).max(1),
            bytes: (self.bytes / 4).max(1),
        }
    }

    fn half(self) -> Load {
        Load {
            items: (self.items / 2).max(1),
            bytes: (self.bytes / 2).max(1),
        }
    }

    fn double(self) -> Load {
        Load {
            items: self.items * 2,
            bytes: self.bytes * 2,
        }
    }

    fn reaches(self, bound: Load) -> bool {
        self.items >= bound.items || self.bytes >= bound.bytes
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.items += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: usize) {
        self.items -= 1;
        self.bytes -= bytes;
    }
}

// === impl Quota ===

impl Quota {
    pub(super) fn new(settings: &Settings) -> Quota {
        Quota {
            intake: settings.intake,
            prefetch: settings.prefetch,
            careful: settings.careful,
            limits: settings.limits.clone(),
            signals: Share::default(),
            rejects: Share::default(),
        }
    }

    /// Limit of late items for one target (twice as much for all): a quarter of what the intake can
    /// hold, or of the publisher.
    fn quarter(&self, signals: bool) -> Load {
        let limits = self.limits.now();
        let (items, bytes) = match signals {
            true => (self.prefetch, limits.intake_bytes),
            false => (MOST_HELD, limits.publisher_bytes),
        };
        let quarter = Load { items, bytes }.quarter();
        match self.careful {
            true => quarter.half(),
            false => quarter,
        }
    }

    pub(super) fn is_full(&self, item: &Item) -> bool {
        let (late, quarter) = self.look(item);
        self.share(item).all.reaches(quarter.double())
            || late.is_some_and(|late| late.reaches(quarter))
    }

    /// Whether a new item would join late ones of its target over the limit. Unproven targets are
    /// tried.
    pub(super) fn is_busy(&self, item: &Item) -> bool {
        let (late, quarter) = self.look(item);
        late.is_some_and(|late| {
            late.reaches(quarter) || self.share(item).all.reaches(quarter.double())
        })
    }

    fn look(&self, item: &Item) -> (Option<Load>, Load) {
        let share = self.share(item);
        // Mostly nobody is late: then not even a name is copied.
        let late = (share.all.items > 0)
            .then(|| share.late.get(&target(&item.publication)).copied())
            .flatten();
        (late, self.quarter(self.is_signal(item)))
    }

    pub(super) fn exceeds_share(&self, signals: Load) -> bool {
        signals.reaches(self.quarter(true))
    }

    pub(super) fn is_signal(&self, item: &Item) -> bool {
        self.intake == Some(item.owner)
    }

    pub(super) fn enter(&mut self, item: &Item) {
        let share = self.share_mut(item);
        share.all.add(item.weight);
        let late = share.late.entry(target(&item.publication)).or_default();
        late.add(item.weight);
    }

    pub(super) fn leave(&mut self, item: &Item) {
        let share = self.share_mut(item);
        share.all.remove(item.weight);
        let target = target(&item.publication);
        if let Some(late) = share.late.get_mut(&target) {
            late.remove(item.weight);
            if late.items == 0 {
                share.late.remove(&target);
            }
        }
    }

    fn share(&self, item: &Item) -> &Share {
        match self.is_signal(item) {
            true => &self.signals,
            false => &self.rejects,
        }
    }

    fn share_mut(&mut self, item: &Item) -> &mut Share {
        match self.is_signal(item) {
            true => &mut self.signals,
            false => &mut self.rejects,
        }
    }
}

pub(super) fn target(publication: &Publication) -> Target {
    let key = if publication.exchange.is_empty() {
        publication.routing_key.clone()
    } else {
        ShortStr::EMPTY
    };
    (publication.exchange.clone(), key)
}
