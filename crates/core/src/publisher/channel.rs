//! One channel in confirm mode: what waits for it, and what is in flight on it.
//!
//! The broker numbers the publishes of a channel from 1 (S8.5), so the flight is a queue whose front has the number `first`: a confirm
//! finds its attempt by subtraction.

use std::collections::{BTreeSet, VecDeque};

use crate::amqp::ids::ChannelId;
use crate::amqp::incoming::Incoming;
use crate::amqp::method::{MethodId, Settle};
use crate::amqp::reply;

use super::clock::Uptime;
use super::item::{Key, Route, Stage};
use super::returns::Returning;

/// ```text
/// Shut ──something waits──▶ Opening ──confirm.select-ok──▶ Ready
///   ▲                          │                             │
///   └───── the channel is closed, the connection is lost ────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Shut,
    Opening,
    Ready,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) key: Key,
    pub(super) at: Uptime,
    /// The time for its confirm begins here: until then it may have waited for the socket.
    left: Uptime,
    /// The item's stage at that time.
    pub(super) stage: Stage,
    /// `basic.return` came for it: its confirm does not count.
    pub(super) returned: bool,
    /// Confirmed, or no longer of interest.
    over: bool,
}

#[derive(Debug)]
pub(super) struct Channel {
    id: ChannelId,
    pub(super) state: State,
    pub(super) route: Route,
    /// The route leads to a bridge, which was built on this channel.
    pub(super) built: bool,
    /// Time of the last use, counted in uses.
    pub(super) used: u64,
    pub(super) waiting: VecDeque<Key>,
    pub(super) in_flight: usize,
    /// Late items whose latest attempt is here: they take no room.
    pub(super) late: usize,
    flight: VecDeque<Attempt>,
    first: u64,
    /// Number of the next attempt to check for `confirm-timeout`.
    due: u64,
    /// The last publish before each unanswered `confirm.select`, and its time if the question is to
    /// find what has stalled.
    asked: VecDeque<(u64, Option<Uptime>)>,
    /// When the newest answered attempt was sent.
    pub(super) told: Uptime,
    /// The broker has processed publishes up to this one, so they cannot have caused a later close.
    /// A channel handles methods in order: the answer to a later one proves it.
    pub(super) processed: u64,
    returns: u64,
    pub(super) returning: Option<Incoming<Returning>>,
}

// === impl Attempt ===

impl Attempt {
    pub(super) fn new(key: Key, at: Uptime, stage: Stage) -> Attempt {
        Attempt {
            key,
            at,
            left: at,
            stage,
            returned: false,
            over: false,
        }
    }
}

// === impl Channel ===

impl Channel {
    pub(super) fn new(id: ChannelId) -> Channel {
        Channel {
            id,
            state: State::Shut,
            route: Route::default(),
            built: false,
            used: 0,
            waiting: VecDeque::new(),
            in_flight: 0,
            late: 0,
            flight: VecDeque::new(),
            first: 1,
            due: 1,
            returns: 1,
            returning: None,
            asked: VecDeque::new(),
            told: Uptime::default(),
            processed: 0,
        }
    }

    pub(super) fn id(&self) -> ChannelId {
        self.id
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight == 0
    }

    pub(super) fn span(&self) -> usize {
        self.flight.len()
    }

    pub(super) fn open(&mut self, out: &mut Vec<u8>) {
        reply::channel_open(out, self.id);
        self.ask(out);
        self.state = State::Opening;
    }

    /// Sends `confirm.select` again: on a channel in confirm mode it changes nothing and is
    /// answered (spec, `confirm.select`).
    pub(super) fn ask(&mut self, out: &mut Vec<u8>) {
        self.ask_at(None, out);
    }

    /// The same, to find stalled items; one question at a time.
    pub(super) fn ask_who_is_stalled(&mut self, out: &mut Vec<u8>, now: Uptime) {
        if self.asked.iter().all(|(_, asks)| asks.is_none()) {
            self.ask_at(Some(now), out);
        }
    }

    fn ask_at(&mut self, now: Option<Uptime>, out: &mut Vec<u8>) {
        reply::method(out, self.id, MethodId::CONFIRM_SELECT, |a| a.octet(0).end());
        self.asked.push_back((self.last(), now));
    }

    /// The broker is stalled: a later answer shows that it works again, not which item has stalled.
    pub(super) fn void_questions(&mut self) {
        for (_, asks) in &mut self.asked {
            *asks = None;
        }
    }

    pub(super) fn answered(&mut self) {
        self.state = State::Ready;
        let (processed, asked) = self.asked.pop_front().unwrap_or_default();
        self.processed = self.processed.max(processed);
        self.told = self.told.max(asked.unwrap_or_default());
    }

    fn last(&self) -> u64 {
        self.first + self.flight.len() as u64 - 1
    }

    /// The channel is gone: its attempts in order, with their numbers. The next channel counts from
    /// 1 again.
    pub(super) fn shut(&mut self) -> impl Iterator<Item = (u64, Attempt)> + use<> {
        let attempts = (self.first..).zip(std::mem::take(&mut self.flight));
        self.state = State::Shut;
        self.built = false;
        (self.first, self.due, self.returns) = (1, 1, 1);
        self.returning = None;
        self.asked.clear();
        self.processed = 0;
        attempts
    }

    pub(super) fn book(&mut self, attempt: Attempt) -> u64 {
        self.flight.push_back(attempt);
        self.last()
    }

    /// The next confirmed attempt: one, or all up to a number (0: all).
    pub(super) fn confirm(&mut self, confirm: Settle) -> Option<(u64, Attempt)> {
        let tag = confirm.delivery_tag.0;
        if !confirm.multiple {
            let at = usize::try_from(tag.checked_sub(self.first)?).ok()?;
            let attempt = self.flight.get_mut(at)?;
            let taken = (!attempt.over).then_some((tag, *attempt));
            attempt.over = true;
            self.forget(|attempt| attempt.over);
            return taken;
        }
        while tag == 0 || self.first <= tag {
            let attempt = self.flight.pop_front()?;
            self.first += 1;
            if !attempt.over {
                return Some((self.first - 1, attempt));
            }
        }
        None
    }

    pub(super) fn forget(&mut self, over: impl Fn(&Attempt) -> bool) {
        while self.flight.front().is_some_and(&over) {
            self.flight.pop_front();
            self.first += 1;
        }
    }

    pub(super) fn sent_before(
        &self,
        before: impl Fn(Uptime) -> bool,
    ) -> impl Iterator<Item = (u64, Attempt)> {
        let old = self
            .flight
            .iter()
            .take_while(move |attempt| before(attempt.at));
        (self.first..)
            .zip(old.copied())
            .filter(|(_, attempt)| !attempt.over)
    }

    /// Drops the oldest attempt: a confirm for it will be ignored.
    pub(super) fn drop_oldest(&mut self) -> Option<(u64, Attempt)> {
        let attempt = self.flight.pop_front()?;
        self.first += 1;
        Some((self.first - 1, attempt))
    }

    /// What was sent since `drained` may still wait for the socket: the broker cannot confirm it yet.
    pub(super) fn begin_later(&mut self, drained: Uptime, now: Uptime) {
        let flight = self.flight.iter_mut().rev();
        for attempt in flight.take_while(|attempt| attempt.at >= drained) {
            attempt.left = now;
        }
    }

    pub(super) fn next_due(&mut self, before: impl Fn(Uptime) -> bool) -> Option<(u64, Attempt)> {
        self.due = self.due.max(self.first);
        loop {
            let attempt = *self.flight.get((self.due - self.first) as usize)?;
            if !before(attempt.left) {
                return None;
            }
            self.due += 1;
            if !attempt.over {
                return Some((self.due - 1, attempt));
            }
        }
    }

    /// Marks the oldest matching attempt as returned. Returns come in the order of publishes, so
    /// the search continues where the last one ended, then wraps to the front.
    pub(super) fn mark_returned(&mut self, mut fits: impl FnMut(&Attempt) -> bool) -> bool {
        let start = self.returns.saturating_sub(self.first) as usize;
        let mut fits = |attempt: &Attempt| !attempt.over && !attempt.returned && fits(attempt);
        let behind = (start..self.flight.len()).find(|&at| fits(&self.flight[at]));
        let found =
            behind.or_else(|| (0..start.min(self.flight.len())).find(|&at| fits(&self.flight[at])));
        let Some(at) = found else {
            return false;
        };
        let key = self.flight[at].key;
        self.returns = self.first + at as u64 + 1;
        self.mark_items(&BTreeSet::from([key]));
        true
    }

    /// Marks all matching attempts, even marked ones; false if there is none.
    pub(super) fn mark_all_returned(&mut self, fits: impl Fn(&Attempt) -> bool) -> bool {
        let fit = self
            .flight
            .iter()
            .filter(|attempt| !attempt.over && fits(attempt));
        let keys: BTreeSet<Key> = fit.map(|attempt| attempt.key).collect();
        self.mark_items(&keys);
        !keys.is_empty()
    }

    /// Two attempts at one item are indistinguishable: if one was returned, neither counts as
    /// routed.
    fn mark_items(&mut self, keys: &BTreeSet<Key>) {
        for attempt in &mut self.flight {
            attempt.returned |= keys.contains(&attempt.key);
        }
    }
}
