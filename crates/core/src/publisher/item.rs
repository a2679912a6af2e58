//! What the publisher holds: each publication once, in a slab; queues and flights hold [`Key`]s.
//!
//! A key names its item for ever: when the item has ended, an old key finds nothing. So a confirm that comes late, for an attempt that
//! was given up, either still ends its item or does nothing, and nobody has to search a queue to take something out.

use crate::amqp::ids::ShortStr;
use crate::amqp::properties::Properties;
use crate::amqp::table::Table;
use crate::machine::{Cause, Owner, Publication, Purpose, Ticket};

use super::clock::{Downtime, Uptime};
use super::edits;
use super::returns::Digest;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    index: u32,
    generation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Target,
    Bridge,
    Parking(Cause),
}

/// Items of one channel share the exchange, and whether they have foreign user-ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Route {
    pub(super) exchange: ShortStr,
    pub(super) foreign: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Queued at a channel, or without one.
    Waiting,
    /// Sent and unconfirmed; its latest attempt.
    InFlight { channel: usize, tag: u64 },
    /// Before the first attempt, or between two.
    BackingOff,
    /// Behind others of its target (see `holds`).
    Held,
    /// Handed to the careful publisher.
    Careful,
}

#[derive(Debug)]
pub(super) struct Item {
    pub(super) owner: Owner,
    pub(super) ticket: Ticket,
    pub(super) publication: Publication,
    pub(super) stage: Stage,
    pub(super) place: Place,
    pub(super) bridge: ShortStr,
    /// Refusals for an internal exchange; for a message coming back, for a missing way to its
    /// queue.
    pub(super) crossings: u32,
    /// A user-id that is not ours: published on a separate channel.
    pub(super) foreign: bool,
    /// Counts in the quota of its target, and takes no room in flight.
    pub(super) late: bool,
    /// Its bytes in the quota, as of its arrival.
    pub(super) weight: usize,
    digest: Option<Digest>,
    pub(super) nacks: u32,
    pub(super) timeouts: u32,
    pub(super) since: Option<Uptime>,
    /// Was sent at least once: may be at its target.
    pub(super) sent: bool,
    /// Since when it waits: its arrival, then its first attempt.
    pub(super) waits: Downtime,
}

#[derive(Debug, Default)]
pub(super) struct Items {
    slots: Vec<(u32, Option<Item>)>,
    free: Vec<u32>,
    bytes: usize,
}

// === impl Item ===

impl Item {
    pub(super) fn new(
        owner: Owner,
        ticket: Ticket,
        publication: Publication,
        came: Downtime,
    ) -> Item {
        Item {
            owner,
            ticket,
            weight: publication.content.len(),
            publication,
            stage: Stage::Target,
            place: Place::BackingOff,
            bridge: ShortStr::EMPTY,
            crossings: 0,
            foreign: false,
            late: false,
            digest: None,
            nacks: 0,
            timeouts: 0,
            since: None,
            sent: false,
            waits: came,
        }
    }

    /// Whether it is useless at its destination without the proof.
    pub(super) fn needs_proof(&self, own_user: &ShortStr) -> bool {
        !self.stage.is_parking()
            && match self.publication.purpose {
                Purpose::Delay(_) | Purpose::Return => true,
                Purpose::Redrive => edits::is_proven(&self.publication.content, own_user),
                Purpose::Death
                | Purpose::Publish
                | Purpose::Unpark
                | Purpose::Tail
                | Purpose::Park(_) => false,
            }
    }

    pub(super) fn has_user_id(&self, own_user: &ShortStr) -> bool {
        self.foreign || edits::is_proven(&self.publication.content, own_user)
    }

    pub(super) fn route(&self, parking: &ShortStr) -> Route {
        Route {
            exchange: self.exchange(self.stage, parking).clone(),
            foreign: self.foreign,
        }
    }

    /// Whether an `x-delayed-message` exchange would delay it; such an exchange returns delayed
    /// messages.
    pub(super) fn may_be_delayed(&self) -> bool {
        let ours = matches!(
            self.publication.purpose,
            Purpose::Delay(_) | Purpose::Return
        );
        if self.stage.is_parking() || ours || self.publication.exchange.is_empty() {
            return false;
        }
        let properties = Properties::parse(&self.publication.content.properties).ok();
        let headers = properties.and_then(|properties| properties.headers());
        let delay = Table(headers.unwrap_or_default()).get(b"x-delay").ok();
        delay.flatten().is_some_and(|delay| {
            let text = || std::str::from_utf8(delay.as_text()?).ok()?.parse().ok();
            delay.as_integer().or_else(text) > Some(0)
        })
    }

    pub(super) fn may_rebuild(&mut self) -> bool {
        std::mem::replace(&mut self.crossings, 1) == 0
    }

    pub(super) fn stays_ours(&self) -> bool {
        self.stage.is_parking() || matches!(self.publication.purpose, Purpose::Delay(_))
    }

    pub(super) fn len(&self) -> usize {
        self.publication.content.len()
    }

    pub(super) fn digest(&mut self) -> Digest {
        let content = &self.publication.content;
        *self.digest.get_or_insert_with(|| Digest::of(content))
    }

    pub(super) fn exchange<'a>(&'a self, stage: Stage, parking: &'a ShortStr) -> &'a ShortStr {
        match stage {
            Stage::Target => &self.publication.exchange,
            Stage::Bridge => &self.bridge,
            Stage::Parking(_) => parking,
        }
    }
}

impl Stage {
    pub(super) fn is_parking(self) -> bool {
        matches!(self, Stage::Parking(_))
    }

    pub(super) fn cause(self) -> Cause {
        match self {
            Stage::Target | Stage::Bridge => Cause::Poison,
            Stage::Parking(cause) => cause,
        }
    }
}

// === impl Items ===

impl Items {
    pub(super) fn insert(&mut self, item: Item) -> Key {
        self.bytes += item.len();
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.1 = Some(item);
        Key {
            index,
            generation: slot.0,
        }
    }

    pub(super) fn get(&self, key: Key) -> Option<&Item> {
        let (generation, item) = self.slots.get(key.index as usize)?;
        item.as_ref().filter(|_| *generation == key.generation)
    }

    /// Change its content only through [`Items::replace`].
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Item> {
        let (generation, item) = self.slots.get_mut(key.index as usize)?;
        item.as_mut().filter(|_| *generation == key.generation)
    }

    pub(super) fn replace(&mut self, key: Key, content: crate::amqp::content::Content) {
        if let Some(item) = self.get_mut(key) {
            let before = item.len();
            item.publication.content = content;
            item.digest = None;
            let after = item.len();
            self.bytes = self.bytes - before + after;
        }
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Item> {
        self.get(key)?;
        let slot = self.slots.get_mut(key.index as usize)?;
        let item = slot.1.take()?;
        slot.0 = slot.0.wrapping_add(1);
        self.free.push(key.index);
        self.bytes -= item.len();
        Some(item)
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        let held = self.slots.iter().zip(0..);
        held.filter(|((_, item), _)| item.is_some())
            .map(|(&(generation, _), index)| Key { index, generation })
            .collect()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
