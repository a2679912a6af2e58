//! Which channel a publication takes: one for the default exchange, one for parking, one for foreign user-ids, one for suspects, and
//! one for each of the named exchanges that were used last.
//!
//! A named exchange, also a bridge, has a channel of its own because a missing exchange closes the channel, and with it the confirms of its
//! neighbours (S8.2). When there are more exchanges than channels, the one that was unused the longest is vacated: its exchange loses the right to it, and
//! when it is idle the next exchange in `unassigned` gets it. So each exchange has its turn, and its order is kept.

use std::collections::{BTreeMap, VecDeque};

use crate::amqp::ids::{ChannelId, ShortStr};

use super::item::{Item, Items, Key, Stage};
use super::lane::{Lane, State};

pub(super) const DEFAULT: usize = 0;
pub(super) const PARKING: usize = 1;
/// Publications whose user-id is another's.
pub(super) const FOREIGN: usize = 2;
/// Suspects of a channel's end, one at a time.
pub(super) const SUSPECTS: usize = 3;
/// The first of the named lanes.
const NAMED: usize = 4;
/// How many named lanes at most.
const MOST_NAMED: usize = 64;

/// All channels. Lane `i` is channel `i + 1`.
#[derive(Debug)]
pub(super) struct Lanes {
    all: Vec<Lane>,
    by_exchange: BTreeMap<ShortStr, usize>,
    /// Waiting for a named lane.
    unassigned: VecDeque<Key>,
    uses: u64,
    most: usize,
}

// === impl Lanes ===

impl Lanes {
    /// The fixed lanes, none of which is open.
    pub(super) fn new() -> Lanes {
        Lanes {
            all: (0..NAMED).map(|at| Lane::new(channel(at))).collect(),
            by_exchange: BTreeMap::new(),
            unassigned: VecDeque::new(),
            uses: 0,
            most: NAMED + MOST_NAMED,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The lane at this place.
    pub(super) fn get(&mut self, at: usize) -> &mut Lane {
        &mut self.all[at]
    }

    /// The lane at this place, to be looked at only.
    pub(super) fn look(&self, at: usize) -> &Lane {
        &self.all[at]
    }

    pub(super) fn of_channel(&self, channel: ChannelId) -> Option<usize> {
        let at = usize::from(channel.0).checked_sub(1)?;
        (at < self.all.len()).then_some(at)
    }

    /// Whether all that a lane carries goes to one exchange.
    pub(super) fn has_one_exchange(at: usize) -> bool {
        at != FOREIGN && at != SUSPECTS
    }

    /// The broker allows so many channels.
    pub(super) fn limit(&mut self, channels: usize) {
        self.most = channels.clamp(NAMED + 1, NAMED + MOST_NAMED);
    }

    /// How many channels are open.
    pub(super) fn open(&self) -> usize {
        let open = self.all.iter().filter(|lane| lane.state == State::Ready);
        open.count()
    }

    /// Puts an item behind all that waits for the same exchange.
    pub(super) fn enqueue(&mut self, key: Key, items: &Items) {
        let Some(item) = items.get(key) else { return };
        let fixed = Lanes::fixed(item);
        match fixed.or_else(|| {
            self.unassigned
                .is_empty()
                .then(|| self.named(item))
                .flatten()
        }) {
            Some(at) => self.all[at].waiting.push_back(key),
            None => self.unassigned.push_back(key),
        }
    }

    /// Puts an item in front of them.
    pub(super) fn enqueue_in_front(&mut self, key: Key, items: &Items) {
        let Some(item) = items.get(key) else { return };
        match self.lane_for(item) {
            Some(at) => self.all[at].waiting.push_front(key),
            None => self.unassigned.push_front(key),
        }
    }

    /// The lane that an item has to take; `None`: one that may not be vacant yet.
    pub(super) fn lane_for(&mut self, item: &Item) -> Option<usize> {
        Lanes::fixed(item).or_else(|| self.named(item))
    }

    fn fixed(item: &Item) -> Option<usize> {
        // A bridge that cannot be built would close the channel of all foreign user-ids.
        let foreign_bridge = item.foreign && item.stage == Stage::Bridge;
        if item.suspect || item.stage == Stage::Apart || foreign_bridge {
            Some(SUSPECTS)
        } else if item.foreign {
            Some(FOREIGN)
        } else if item.stage.is_parking() {
            Some(PARKING)
        } else if item.publication.exchange.is_empty() {
            Some(DEFAULT)
        } else {
            None
        }
    }

    /// Gives vacated lanes to those who wait for one.
    pub(super) fn assign(&mut self, items: &Items) {
        if self.unassigned.is_empty() || !(self.all.len() < self.most || self.any_idle()) {
            return;
        }
        for key in std::mem::take(&mut self.unassigned) {
            let Some(item) = items.get(key) else { continue };
            match self.named(item) {
                Some(at) => self.all[at].waiting.push_back(key),
                None => self.unassigned.push_back(key),
            }
        }
    }

    /// Many items have ended: their keys need not wait for the next link.
    pub(super) fn forget_ended(&mut self, items: &Items) {
        let waiting = self.all.iter_mut().map(|lane| &mut lane.waiting);
        for keys in waiting.chain([&mut self.unassigned]) {
            keys.retain(|&key| items.get(key).is_some());
        }
    }

    /// The connection is lost: named lanes are dissolved, and what waited for them waits for the next connection's.
    pub(super) fn dissolve(&mut self) {
        self.by_exchange.clear();
        let waiting = self.all.drain(NAMED..).flat_map(|lane| lane.waiting);
        let mut waiting: VecDeque<Key> = waiting.collect();
        waiting.append(&mut self.unassigned);
        self.unassigned = waiting;
    }

    fn any_idle(&self) -> bool {
        self.all[NAMED..].iter().any(Lane::is_idle)
    }

    /// The lane of the exchange that an item goes to; `None` when it must wait for one.
    fn named(&mut self, item: &Item) -> Option<usize> {
        let exchange = match item.stage {
            Stage::Bridge => &item.bridge,
            _ => &item.publication.exchange,
        };
        self.uses += 1;
        let at = match self.by_exchange.get(exchange) {
            Some(&at) => at,
            None => {
                let at = self.vacancy()?;
                let lane = &mut self.all[at];
                lane.built = false;
                let before = std::mem::replace(&mut lane.exchange, exchange.clone());
                if self.by_exchange.get(&before) == Some(&at) {
                    self.by_exchange.remove(&before);
                }
                self.by_exchange.insert(exchange.clone(), at);
                at
            }
        };
        self.all[at].used = self.uses;
        Some(at)
    }

    /// A new lane, or the idle one that was unused the longest. If none is idle, one is asked to become so.
    fn vacancy(&mut self) -> Option<usize> {
        if self.all.len() < self.most {
            self.all.push(Lane::new(channel(self.all.len())));
            return Some(self.all.len() - 1);
        }
        let oldest = |idle: bool| {
            let named = (NAMED..self.all.len()).filter(|&at| !idle || self.all[at].is_idle());
            named.min_by_key(|&at| self.all[at].used)
        };
        if let Some(at) = oldest(true) {
            return Some(at);
        }
        if self.by_exchange.len() == self.all.len() - NAMED {
            let exchange = self.all[oldest(false)?].exchange.clone();
            self.by_exchange.remove(&exchange);
        }
        None
    }
}

fn channel(at: usize) -> ChannelId {
    ChannelId(at as u16 + 1)
}
