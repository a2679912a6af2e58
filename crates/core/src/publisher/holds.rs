//! Targets whose dead letters wait, in order, as publishing to them may close the connection.
//!
//! ```text
//!  publisher          in flight when the connection was closed ──▶ handed to the careful publisher ── none left there ──▶ free
//!                     what comes later for the same target ──▶ waiting ──────────────────────────────────────────────────┘
//!
//!  careful publisher  in flight alone when its connection was closed ──▶ waiting, with what comes behind it ── a pause ──▶ tried again
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::machine::{Mono, Owner, Purpose, Ticket};

use super::clock::Uptime;
use super::item::{Item, Key, Place, Stage};
use super::output::Input;
use super::quota::{self, Target};
use super::store::Store;

/// First pause of a target that closed the connection; doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(32);

#[derive(Debug)]
pub(super) struct Holds {
    parking: ShortStr,
    targets: BTreeMap<Target, Hold>,
    handed: BTreeMap<(Owner, Ticket), (Target, Key)>,
}

#[derive(Debug, Default)]
struct Hold {
    waiting: VecDeque<Key>,
    since: Uptime,
    handed: usize,
    /// Items in front that it has given back.
    back: usize,
    /// The last one handed over. If it is confirmed, the target is healthy, and an item left there
    /// is itself at fault.
    newest: Option<Key>,
    is_well: bool,
    /// In the careful publisher: end and length of the target's pause.
    until: Mono,
    pause: Duration,
    /// The item that closed the connection. Another one goes first next time, in case the target is
    /// healthy.
    last: Option<Key>,
}

// === impl Holds ===

impl Holds {
    pub(super) fn new(parking: ShortStr) -> Holds {
        Holds {
            parking,
            targets: BTreeMap::new(),
            handed: BTreeMap::new(),
        }
    }

    pub(super) fn target(&self, item: &Item) -> Target {
        match item.stage {
            Stage::Target => quota::target(&item.publication),
            Stage::Bridge => (item.bridge.clone(), ShortStr::EMPTY),
            Stage::Parking(_) => (self.parking.clone(), ShortStr::EMPTY),
        }
    }

    pub(super) fn knows(&self, item: &Item) -> bool {
        self.targets.contains_key(&self.target(item))
    }

    pub(super) fn any_handed(&self) -> bool {
        !self.handed.is_empty()
    }

    pub(super) fn hold(&mut self, store: &mut Store, key: Key, now: Uptime) -> bool {
        if self.targets.is_empty() {
            return false;
        }
        let Some(item) = store.items.get_mut(key) else {
            return false;
        };
        let target = self.target(item);
        let waits = |hold: &&mut Hold| hold.handed > 0 && !hold.is_well || hold.until > Mono(0);
        let Some(hold) = self.targets.get_mut(&target).filter(waits) else {
            return false;
        };
        item.since.get_or_insert(now);
        hold.waiting.push_back(key);
        store.move_to(key, Place::Held);
        true
    }

    pub(super) fn any_waiting(&self) -> bool {
        let mut holds = self.targets.values();
        holds.any(|hold| !hold.waiting.is_empty() || hold.last.is_some())
    }

    /// Hands over an item that was in flight when the connection closed, or whose target is
    /// suspected. `None`: it has ended.
    pub(super) fn hand(&mut self, store: &mut Store, key: Key, now: Uptime) -> Option<Input> {
        store.move_to(key, Place::Careful);
        store.set_late(key, false);
        let item = store.items.get(key)?;
        let (target, id) = (self.target(item), (item.owner, item.ticket));
        let mut publication = item.publication.clone();
        if let Stage::Parking(cause) = item.stage
            && publication.purpose != Purpose::Tail
        {
            publication.purpose = Purpose::Park(cause);
        }
        let hold = self.targets.entry(target.clone()).or_default();
        if hold.handed == 0 || hold.is_well {
            hold.since = now;
        }
        hold.handed += 1;
        (hold.newest, hold.is_well) = (Some(key), false);
        self.handed.insert(id, (target, key));
        Some(Input::Publish(id.0, vec![(id.1, publication)]))
    }

    pub(super) fn taken(&mut self, id: (Owner, Ticket)) -> Option<(Target, Key)> {
        let (target, key) = self.handed.remove(&id)?;
        if let Some(hold) = self.targets.get_mut(&target) {
            hold.handed -= 1;
        }
        Some((target, key))
    }

    pub(super) fn passed(&mut self, target: &Target, key: Key) {
        if let Some(hold) = self.targets.get_mut(target) {
            hold.is_well |= hold.newest == Some(key);
        }
    }

    /// Given back without an answer: waits here, in front.
    pub(super) fn put_back(&mut self, target: &Target, key: Key) {
        if let Some(hold) = self.targets.get_mut(target) {
            hold.waiting.insert(hold.back.min(hold.waiting.len()), key);
            hold.back += 1;
        }
    }

    /// The first waiting item, unless the careful publisher has another of this target.
    pub(super) fn next(&mut self, target: &Target) -> Option<Key> {
        let hold = self.targets.get_mut(target)?;
        hold.back = 0;
        (hold.handed == 0)
            .then(|| hold.waiting.pop_front())
            .flatten()
    }

    /// Items released for normal publishing: the target is healthy, or the careful publisher has
    /// none of it.
    pub(super) fn free(&mut self, target: &Target) -> Vec<Key> {
        let Some(hold) = self.targets.get_mut(target) else {
            return Vec::new();
        };
        if hold.handed > 0 && !hold.is_well {
            return Vec::new();
        }
        let free = std::mem::take(&mut hold.waiting).into();
        if hold.handed == 0 {
            self.targets.remove(target);
        }
        free
    }

    /// The first waiting item of each target held that long, as a probe, unless the careful
    /// publisher already has an extra one.
    pub(super) fn probes(&mut self, is_old: impl Fn(Uptime) -> bool) -> Vec<Key> {
        let held = self.targets.values_mut();
        let old = held.filter(|hold| hold.handed == 1 && !hold.is_well && is_old(hold.since));
        old.filter_map(|hold| hold.waiting.pop_front()).collect()
    }

    /// This item alone closed the connection: pauses its target. True for the first time.
    pub(super) fn pause(&mut self, target: Target, key: Key, now: Mono, uptime: Uptime) -> bool {
        let hold = self.targets.entry(target).or_default();
        let is_first = hold.pause == Duration::ZERO;
        if is_first {
            hold.since = uptime;
        }
        hold.pause = (hold.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        hold.until = now.after(hold.pause);
        hold.waiting.extend(hold.last.replace(key));
        is_first
    }

    pub(super) fn due(&mut self, now: Mono) -> Vec<Key> {
        let mut keys = Vec::new();
        for hold in self.targets.values_mut() {
            if hold.until > Mono(0) && hold.until <= now {
                hold.until = Mono(0);
                keys.extend(std::mem::take(&mut hold.waiting));
                keys.extend(hold.last.take());
            }
        }
        keys
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        let until = self.targets.values().map(|hold| hold.until);
        until.filter(|until| *until > Mono(0)).min()
    }

    pub(super) fn waiting(&self) -> Vec<(Uptime, Key)> {
        let all = self.targets.values();
        all.flat_map(|hold| {
            let keys = hold.waiting.iter().chain(&hold.last);
            keys.map(|key| (hold.since, *key))
        })
        .collect()
    }

    pub(super) fn retain(&mut self, stays: impl Fn(Key) -> bool) {
        for hold in self.targets.values_mut() {
            hold.waiting.retain(|key| stays(*key));
            hold.last = hold.last.filter(|key| stays(*key));
        }
    }
}
