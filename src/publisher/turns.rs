//! The turns of the quarantine: for a moment nothing is published but what may close the connection.
//!
//! Two questions have to be answered without waiting for any target: has the broker dealt with what was published before, and with what is
//! published now? A channel handles its methods in order, and closes the connection when it handles a publish; so the answer to a `confirm.select` behind
//! that publish clears it (`lane`), confirmed or not. A turn that closes nothing takes some round trips.
//!
//! Why not a connection of its own? It may not be to be had (limits on connections), and who waits for it would need one more inbox. The price: others
//! wait while a turn lasts, for SETTLE and TURN at most, and as long as it takes to be back when it closed the connection.

use std::time::Duration;

use crate::machine::{Cause, Mono, Now};
use crate::publisher::Effects;

use super::Publisher;
use super::item::{Key, Place};
use super::lane::State;
use super::lanes::SUSPECTS;
use super::quarantine::{self, TurnStage};
use super::quota::Target;

/// How long the broker may take to confirm what was published before a turn, so that it need not be published twice; or to deal with it at least.
const SETTLE: Duration = Duration::from_millis(300);
/// How long with what is published in it. Who takes longer has closed nothing, and goes on as usual.
const TURN: Duration = Duration::from_secs(1);

impl Publisher {
    /// Begins, goes on with, and ends turns.
    pub(super) fn take_turns(&mut self, now: Now, fx: &mut Effects) {
        if self.quarantine.is_empty() {
            return;
        }
        let free = self.quarantine.parole(now.mono);
        self.release(free);
        self.expire(now, fx);
        while self.step_turn(now, fx) {}
    }

    /// True if there may be more to do.
    fn step_turn(&mut self, now: Now, fx: &mut Effects) -> bool {
        let Some(turn) = &self.quarantine.turn else {
            return self.quarantine.begin(now.mono, SETTLE);
        };
        let over = turn.until <= now.mono;
        match turn.stage {
            TurnStage::Settling => {
                self.ask_all(fx);
                let quiet = (0..self.lanes.len()).all(|at| self.lanes.look(at).is_quiet());
                let certain = quiet || (0..self.lanes.len()).all(|at| self.is_processed(at));
                if (quiet || over)
                    && let Some(turn) = &mut self.quarantine.turn
                {
                    turn.stage = TurnStage::InFlight { certain };
                    turn.until = now.mono.after(TURN);
                }
                quiet || over
            }
            TurnStage::InFlight { .. } => {
                self.publish_next(now, fx);
                let Some(turn) = &self.quarantine.turn else {
                    return false;
                };
                let left = !turn.waiting.is_empty();
                if !over && (left || turn.flown.iter().any(|&key| self.is_open(key))) {
                    return false;
                }
                self.end_turn(now);
                true
            }
        }
    }

    /// Publishes those of the turn, and asks for an answer behind them.
    fn publish_next(&mut self, now: Now, fx: &mut Effects) {
        let Some(turn) = &mut self.quarantine.turn else {
            return;
        };
        let mut waiting = std::mem::take(&mut turn.waiting);
        let mut left = std::collections::VecDeque::new();
        while let Some(key) = waiting.pop_front() {
            let Some(item) = self.items.get(key).filter(|item| item.place == Place::Held) else {
                continue;
            };
            let at = self.lanes.lane_for(item);
            if at.is_some_and(|at| self.has_room(at, fx) && self.is_open_lane(at, fx)) {
                self.publish_one(at.unwrap_or(SUSPECTS), key, now, fx);
            } else {
                left.push_back(key);
            }
        }
        if let Some(turn) = &mut self.quarantine.turn {
            turn.waiting = left;
        }
        self.ask_all(fx);
    }

    fn publish_one(&mut self, at: usize, key: Key, now: Now, fx: &mut Effects) {
        if let Some(turn) = &mut self.quarantine.turn {
            turn.flown.push(key);
        }
        self.send(at, key, now, fx);
    }

    /// Opens a lane that is not.
    pub(super) fn is_open_lane(&mut self, at: usize, fx: &mut Effects) -> bool {
        let lane = self.lanes.get(at);
        if lane.state == State::Shut {
            lane.open(fx.broker.build(&[]));
        }
        lane.state == State::Ready
    }

    /// Asks on each lane that has something to be asked for.
    fn ask_all(&mut self, fx: &mut Effects) {
        for at in 0..self.lanes.len() {
            let lane = self.lanes.get(at);
            if lane.state == State::Ready && !lane.has_asked() && !self.is_processed(at) {
                self.lanes.get(at).ask(fx.broker.build(&[]));
            }
        }
    }

    /// Whether the broker may still have to deal with that publish.
    fn is_open(&self, key: Key) -> bool {
        let place = self.items.get(key).map(|item| item.place);
        matches!(place, Some(Place::InFlight { lane, tag }) if tag > self.lanes.look(lane).processed)
    }

    /// Whether the broker has dealt with all that was published on that lane.
    pub(super) fn is_processed(&self, at: usize) -> bool {
        let mut open = self.lanes.look(at).unprocessed();
        open.all(|(tag, attempt)| {
            let item = self.items.get(attempt.key);
            item.is_none_or(|item| item.place != (Place::InFlight { lane: at, tag }))
        })
    }

    fn end_turn(&mut self, now: Now) {
        let Some(turn) = self.quarantine.turn.take() else {
            return;
        };
        let unsent = self.with_targets(turn.waiting);
        let (sent, others): (Vec<_>, Vec<_>) = turn
            .targets
            .into_iter()
            .partition(|target| !unsent.iter().any(|(of, _)| of == target));
        let free = self.quarantine.passed(&sent, turn.began, now.mono);
        self.quarantine.interrupted(others, unsent);
        self.release(free);
    }

    /// It counts in the quota of its target, as all that has to be tried again, and what is too much is parked.
    pub(super) fn be_late(&mut self, key: Key, now: Now, fx: &mut Effects) {
        let Some(item) = self.items.get(key).filter(|item| !item.late) else {
            return;
        };
        if self.quota.is_full(item) && !item.stage.is_parking() {
            return self.give_up(key, Cause::TargetBusy, now, fx);
        }
        self.set_late(key, true);
    }

    /// Whether it has to wait in the quarantine, and does so now.
    pub(super) fn is_held(&mut self, key: Key, now: Now, fx: &mut Effects) -> bool {
        if self.quarantine.is_empty() {
            return false;
        }
        let Some(item) = self.items.get_mut(key) else {
            return false;
        };
        let target = quarantine::target(item, self.settings.names.parking());
        if !self.quarantine.holds(&target) {
            return false;
        }
        item.since.get_or_insert(self.clock.at(now.mono));
        self.move_to(key, Place::Held);
        let convicted = self.quarantine.is_convicted(&target);
        self.quarantine.join(target, key);
        if convicted {
            self.be_late(key, now, fx);
        }
        true
    }

    /// Out of the flight, into the quarantine.
    pub(super) fn hold_all(&mut self, keys: Vec<Key>) -> Vec<(Target, Key)> {
        for &key in &keys {
            self.move_to(key, Place::Held);
            if let Some(item) = self.items.get_mut(key) {
                item.suspect = false;
            }
        }
        self.with_targets(keys)
    }

    pub(super) fn with_targets(&self, keys: impl IntoIterator<Item = Key>) -> Vec<(Target, Key)> {
        let of = |key: Key| {
            Some(quarantine::target(
                self.items.get(key)?,
                self.settings.names.parking(),
            ))
        };
        let both = |key: Key| Some((of(key)?, key));
        keys.into_iter().filter_map(both).collect()
    }

    /// Out of the quarantine, as usual.
    fn release(&mut self, mut keys: Vec<Key>) {
        keys.retain(|&key| {
            self.items
                .get(key)
                .is_some_and(|item| item.place == Place::Held)
        });
        self.enqueue_in_front(&keys);
    }

    /// Gives up what was tried for long enough.
    fn expire(&mut self, now: Now, fx: &mut Effects) {
        let uptime = self.clock.at(now.mono);
        let retry_for = match self.draining {
            true => {
                self.quarantine.hurry(now.mono);
                Duration::ZERO
            }
            false => self.settings.limits.now().retry_for,
        };
        let items = &self.items;
        let over = self.quarantine.expired(now.mono, |key| {
            let item = items.get(key).filter(|item| item.place == Place::Held)?;
            Some(
                retry_for.saturating_sub(
                    item.since
                        .map_or(Duration::ZERO, |since| uptime.since(since)),
                ),
            )
        });
        for key in over {
            self.give_up(key, Cause::Poison, now, fx);
        }
    }

    /// The broker reads again what we publish: the turn has all of its time.
    pub(super) fn resume_turn(&mut self, now: Mono) {
        if let Some(turn) = &mut self.quarantine.turn {
            turn.until = now.after(TURN);
        }
    }
}
