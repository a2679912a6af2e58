//! Which channel a publication takes. Two are always there, for the default exchange and for parking; each other exchange has one of its own, as
//! a missing exchange closes the channel, and with it the confirms of its neighbours (S8.2). User-ids of others, which the broker may refuse in the
//! same way, have channels apart.
//!
//! When there are more exchanges than channels, the one that was unused the longest is vacated: its exchange loses the right to it, and
//! when it is idle the next exchange in `unassigned` gets it. So each exchange has its turn, and its order is kept.

use std::collections::{BTreeMap, VecDeque};

use crate::amqp::ids::{ChannelId, ShortStr};

use super::channel::{Channel, State};
use super::clock::Uptime;
use super::item::{Items, Key, Route};

const NAMED: usize = 2;
const MOST_NAMED: usize = 64;

/// The channel at index `i` has the number `i + 1`.
#[derive(Debug)]
pub(super) struct Channels {
    all: Vec<Channel>,
    by_route: BTreeMap<Route, usize>,
    unassigned: VecDeque<Key>,
    parking: ShortStr,
    uses: u64,
    most: usize,
}

// === impl Channels ===

impl Channels {
    pub(super) fn new(parking: ShortStr) -> Channels {
        Channels {
            all: (0..NAMED).map(|at| Channel::new(id(at))).collect(),
            by_route: BTreeMap::new(),
            unassigned: VecDeque::new(),
            parking,
            uses: 0,
            most: NAMED + MOST_NAMED,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&mut self, at: usize) -> &mut Channel {
        &mut self.all[at]
    }

    pub(super) fn look(&self, at: usize) -> &Channel {
        &self.all[at]
    }

    pub(super) fn of(&self, id: ChannelId) -> Option<usize> {
        let at = usize::from(id.0).checked_sub(1)?;
        (at < self.all.len()).then_some(at)
    }

    pub(super) fn limit(&mut self, channels: usize) {
        self.most = channels.clamp(NAMED + 1, NAMED + MOST_NAMED);
    }

    pub(super) fn open(&self) -> usize {
        let open = self.all.iter().filter(|of| of.state == State::Ready);
        open.count()
    }

    /// Asks on each channel whether the broker works: a single channel may be stalled.
    pub(super) fn ask_all(&mut self, out: &mut Vec<u8>) {
        for channel in &mut self.all {
            channel.void_questions();
            if channel.state == State::Ready {
                channel.ask(out);
            }
        }
    }

    pub(super) fn begin_later(&mut self, drained: Uptime, now: Uptime) {
        for channel in &mut self.all {
            channel.begin_later(drained, now);
        }
    }

    pub(super) fn enqueue(&mut self, key: Key, items: &Items) {
        let Some(route) = self.route(key, items) else {
            return;
        };
        let fixed = self.fixed(&route);
        let turn = self.unassigned.is_empty();
        match fixed.or_else(|| turn.then(|| self.named(route)).flatten()) {
            Some(at) => self.all[at].waiting.push_back(key),
            None => self.unassigned.push_back(key),
        }
    }

    pub(super) fn enqueue_in_front(&mut self, key: Key, items: &Items) {
        let Some(route) = self.route(key, items) else {
            return;
        };
        match self.fixed(&route).or_else(|| self.named(route)) {
            Some(at) => self.all[at].waiting.push_front(key),
            None => self.unassigned.push_front(key),
        }
    }

    pub(super) fn assign(&mut self, items: &Items) {
        let idle = || self.all[NAMED..].iter().any(Channel::is_idle);
        if self.unassigned.is_empty() || !(self.all.len() < self.most || idle()) {
            return;
        }
        for key in std::mem::take(&mut self.unassigned) {
            let Some(route) = self.route(key, items) else {
                continue;
            };
            match self.named(route) {
                Some(at) => self.all[at].waiting.push_back(key),
                None => self.unassigned.push_back(key),
            }
        }
    }

    /// Drops keys of ended items instead of waiting for the next link.
    pub(super) fn forget_ended(&mut self, items: &Items) {
        let waiting = self.all.iter_mut().map(|channel| &mut channel.waiting);
        for keys in waiting.chain([&mut self.unassigned]) {
            keys.retain(|&key| items.get(key).is_some());
        }
    }

    pub(super) fn dissolve(&mut self) {
        self.by_route.clear();
        let waiting = self.all.drain(NAMED..).flat_map(|channel| channel.waiting);
        let mut waiting: VecDeque<Key> = waiting.collect();
        waiting.append(&mut self.unassigned);
        self.unassigned = waiting;
    }

    fn route(&self, key: Key, items: &Items) -> Option<Route> {
        Some(items.get(key)?.route(&self.parking))
    }

    fn fixed(&self, route: &Route) -> Option<usize> {
        match route.foreign {
            true => None,
            false if route.exchange.is_empty() => Some(0),
            false => (route.exchange == self.parking).then_some(1),
        }
    }

    /// `None`: it must wait for a channel.
    fn named(&mut self, route: Route) -> Option<usize> {
        self.uses += 1;
        let at = match self.by_route.get(&route) {
            Some(&at) => at,
            None => {
                let at = self.vacancy()?;
                let channel = &mut self.all[at];
                channel.built = false;
                let before = std::mem::replace(&mut channel.route, route.clone());
                if self.by_route.get(&before) == Some(&at) {
                    self.by_route.remove(&before);
                }
                self.by_route.insert(route, at);
                at
            }
        };
        self.all[at].used = self.uses;
        Some(at)
    }

    /// A new channel, or the least recently used idle one. If none is idle, asks one to become
    /// idle.
    fn vacancy(&mut self) -> Option<usize> {
        if self.all.len() < self.most {
            self.all.push(Channel::new(id(self.all.len())));
            return Some(self.all.len() - 1);
        }
        let oldest = |idle: bool| {
            let named = (NAMED..self.all.len()).filter(|&at| !idle || self.all[at].is_idle());
            named.min_by_key(|&at| self.all[at].used)
        };
        if let Some(at) = oldest(true) {
            return Some(at);
        }
        if self.by_route.len() == self.all.len() - NAMED {
            let route = self.all[oldest(false)?].route.clone();
            self.by_route.remove(&route);
        }
        None
    }
}

fn id(at: usize) -> ChannelId {
    ChannelId(at as u16 + 1)
}
