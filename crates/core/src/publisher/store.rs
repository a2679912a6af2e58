//! What the publisher holds, and where each of it is. Items are moved here and nowhere else, so that no count can differ from where they are.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::machine::{LiveLimits, Mono, Now};

use super::channels::Channels;
use super::item::{Item, Items, Key, Place, Stage};
use super::quota::Quota;

/// Above this number the inbox is not read.
pub(super) const MOST_HELD: usize = 65_536;

#[derive(Debug)]
pub(super) struct Store {
    pub(super) items: Items,
    pub(super) channels: Channels,
    pub(super) quota: Quota,
    pub(super) backing_off: BTreeSet<(Mono, Key)>,
    pub(super) waiting: usize,
    pub(super) in_flight: usize,
    /// Without late items.
    pub(super) in_flight_bytes: usize,
}

// === impl Store ===

impl Store {
    pub(super) fn new(parking: ShortStr, quota: Quota) -> Store {
        Store {
            items: Items::default(),
            channels: Channels::new(parking),
            quota,
            backing_off: BTreeSet::new(),
            waiting: 0,
            in_flight: 0,
            in_flight_bytes: 0,
        }
    }

    pub(super) fn is_full(&self, limits: &LiveLimits) -> bool {
        let most = limits.now().publisher_bytes;
        self.items.len() >= MOST_HELD || self.items.bytes() >= most
    }

    /// Changes an item's state or lateness, and the counts. An attempt in flight stays in its
    /// channel's books: a late confirm still counts.
    fn change(&mut self, key: Key, change: impl FnOnce(&mut Item)) {
        let Some(item) = self.items.get_mut(key) else {
            return;
        };
        let before = (item.place, item.late);
        change(item);
        let (len, late) = (item.len(), item.late);
        for (place, late, enters) in [(before.0, before.1, false), (item.place, late, true)] {
            let count = |of: &mut usize, by: usize| match enters {
                true => *of += by,
                false => *of -= by,
            };
            match place {
                Place::Waiting => count(&mut self.waiting, 1),
                Place::InFlight { channel, .. } => {
                    let channel = self.channels.get(channel);
                    count(&mut self.in_flight, 1);
                    count(&mut channel.in_flight, 1);
                    match late {
                        true => count(&mut channel.late, 1),
                        false => count(&mut self.in_flight_bytes, len),
                    }
                }
                Place::BackingOff | Place::Held | Place::Careful => {}
            }
        }
    }

    pub(super) fn move_to(&mut self, key: Key, place: Place) {
        self.change(key, |item| item.place = place);
    }

    /// Late items count in the quota of their target, and take no room in flight.
    pub(super) fn set_late(&mut self, key: Key, late: bool) {
        let Some(item) = self.items.get(key).filter(|item| item.late != late) else {
            return;
        };
        match late {
            true => self.quota.enter(item),
            false => self.quota.leave(item),
        }
        self.change(key, |item| item.late = late);
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Item> {
        self.set_late(key, false);
        self.move_to(key, Place::BackingOff);
        self.items.remove(key)
    }

    pub(super) fn is_at(&self, key: Key, place: Place) -> bool {
        let item = self.items.get(key);
        item.is_some_and(|item| item.place == place)
    }

    pub(super) fn is_in_flight(&self, key: Key, channel: usize, tag: u64) -> bool {
        self.is_at(key, Place::InFlight { channel, tag })
    }

    /// Shuts a channel. Returns items whose latest attempt was in flight there, in order; first
    /// those that the broker has processed.
    pub(super) fn shut(&mut self, at: usize) -> (Vec<Key>, Vec<Key>) {
        let channel = self.channels.get(at);
        let processed = channel.processed;
        let mut flight: Vec<(u64, Key)> = Vec::new();
        for (tag, attempt) in channel.shut() {
            if self.is_in_flight(attempt.key, at, tag) {
                flight.push((tag, attempt.key));
            }
        }
        let (done, open): (Vec<_>, Vec<_>) =
            flight.into_iter().partition(|(tag, _)| *tag <= processed);
        let keys = |of: Vec<(u64, Key)>| of.into_iter().map(|(_, key)| key).collect();
        (keys(done), keys(open))
    }

    pub(super) fn unqueue(&mut self, at: usize) -> Vec<Key> {
        let mut keys: Vec<Key> = std::mem::take(&mut self.channels.get(at).waiting).into();
        keys.retain(|&key| self.items.get(key).is_some());
        for &key in &keys {
            self.move_to(key, Place::BackingOff);
        }
        keys
    }

    pub(super) fn enqueue(&mut self, key: Key) {
        self.move_to(key, Place::Waiting);
        self.channels.enqueue(key, &self.items);
    }

    pub(super) fn enqueue_in_front(&mut self, keys: &[Key]) {
        for &key in keys.iter().rev() {
            self.move_to(key, Place::Waiting);
            self.channels.enqueue_in_front(key, &self.items);
        }
    }

    pub(super) fn back_off(&mut self, key: Key, wait: Duration, now: Now) {
        self.move_to(key, Place::BackingOff);
        self.set_late(key, true);
        self.backing_off.insert((now.mono.after(wait), key));
    }

    pub(super) fn next_try(&self) -> Option<Mono> {
        self.backing_off.first().map(|(until, _)| *until)
    }

    pub(super) fn try_again(&mut self, now: Mono) {
        while let Some(&(until, key)) = self.backing_off.first()
            && until <= now
        {
            self.backing_off.pop_first();
            if self.is_at(key, Place::BackingOff) {
                self.enqueue(key);
            }
        }
    }

    pub(super) fn restage(&mut self, key: Key, stage: Stage) {
        self.set_late(key, false);
        if let Some(item) = self.items.get_mut(key) {
            item.stage = stage;
            item.nacks = 0;
            item.timeouts = 0;
            item.since = None;
        }
        self.enqueue(key);
    }

    /// The intake's in the order of their tickets, or all others.
    pub(super) fn of_intake(&self, intake: bool) -> Vec<Key> {
        let of = |key| Some((self.items.get(key)?, key));
        let all = self.items.keys().into_iter().filter_map(of);
        let mut keys: Vec<_> = all
            .filter(|(item, _)| self.quota.is_signal(item) == intake)
            .map(|(item, key)| (item.ticket, key))
            .collect();
        keys.sort_unstable();
        keys.into_iter().map(|(_, key)| key).collect()
    }
}
