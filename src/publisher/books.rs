//! Where items are, and what is counted by that. Items are moved here and nowhere else, so that no count can differ from where they are.

use super::Publisher;
use super::item::{Item, Key, Place};
use super::lanes::Lanes;

/// The counts of all lanes together.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// Items that wait for their lane.
    pub(super) waiting: usize,
    pub(super) in_flight: usize,
    /// Octets of those in flight, but for those that take no room.
    pub(super) in_flight_bytes: usize,
}

impl Books {
    fn enter(&mut self, item: &Item, lanes: &mut Lanes) {
        match item.place {
            Place::Waiting => self.waiting += 1,
            Place::InFlight { lane: at, .. } => {
                let lane = lanes.get(at);
                self.in_flight += 1;
                lane.in_flight += 1;
                match item.takes_room(at) {
                    true => self.in_flight_bytes += item.len(),
                    false => lane.late += 1,
                }
            }
            Place::BackingOff | Place::Held => {}
        }
    }

    fn leave(&mut self, item: &Item, lanes: &mut Lanes) {
        match item.place {
            Place::Waiting => self.waiting -= 1,
            Place::InFlight { lane: at, .. } => {
                let lane = lanes.get(at);
                self.in_flight -= 1;
                lane.in_flight -= 1;
                match item.takes_room(at) {
                    true => self.in_flight_bytes -= item.len(),
                    false => lane.late -= 1,
                }
            }
            Place::BackingOff | Place::Held => {}
        }
    }
}

impl Publisher {
    /// Moves an item. Its attempt, if it was in flight, stays in the books of its lane: a late confirm still counts.
    pub(super) fn move_to(&mut self, key: Key, place: Place) {
        if let Some(item) = self.items.get_mut(key) {
            self.books.leave(item, &mut self.lanes);
            item.place = place;
            self.books.enter(item, &mut self.lanes);
        }
    }

    /// What is late counts in the quota of its target, and takes no room in flight.
    pub(super) fn set_late(&mut self, key: Key, late: bool) {
        if let Some(item) = self.items.get_mut(key).filter(|item| item.late != late) {
            self.books.leave(item, &mut self.lanes);
            item.late = late;
            self.books.enter(item, &mut self.lanes);
            match late {
                true => self.quota.enter(item),
                false => self.quota.leave(item),
            }
        }
    }

    /// Takes an item out, wherever it is.
    pub(super) fn remove(&mut self, key: Key) -> Option<Item> {
        self.set_late(key, false);
        self.move_to(key, Place::BackingOff);
        self.items.remove(key)
    }
}
