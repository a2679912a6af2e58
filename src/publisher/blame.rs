//! Who is to blame when the broker has closed the connection: all that was in flight, or, in a turn, one target.

use std::collections::BTreeSet;

use crate::machine::{Event, Now};
use crate::publisher::Effects;

use super::Publisher;
use super::item::Key;
use super::quarantine::{Turn, TurnStage};
use super::quota::Target;

/// Why the broker closed the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// What was said, which will be as wrong the next time.
    Words,
    /// Something that may pass by itself.
    State,
}

impl Publisher {
    /// The connection is lost. Those of a turn are judged, or get another one; all others that were in flight are suspects if there was a fault.
    /// `open`: what the broker may not have dealt with, in order.
    pub(super) fn judge(
        &mut self,
        fault: Option<Fault>,
        open: Vec<Key>,
        now: Now,
        fx: &mut Effects,
    ) -> Vec<Key> {
        let turn = self.quarantine.turn.take();
        let Some(turn) = turn else {
            return match fault {
                Some(_) => self.accuse(open, now),
                None => open,
            };
        };
        let mut ours: BTreeSet<Key> = turn.flown.iter().copied().collect();
        let (flown, others): (Vec<Key>, Vec<Key>) =
            open.into_iter().partition(|key| ours.remove(key));
        let unsent = self.with_targets(turn.waiting.iter().copied());
        match (fault, turn.stage) {
            (Some(fault), TurnStage::InFlight { certain }) if !flown.is_empty() => {
                self.blame(turn, flown, unsent, (fault, certain), now, fx);
                others
            }
            (Some(_), _) => {
                self.quarantine.interrupted(turn.targets, unsent);
                self.accuse(others, now)
            }
            (None, _) => {
                let mut keys = self.hold_all(flown);
                keys.extend(unsent);
                self.quarantine.interrupted(turn.targets, keys);
                others
            }
        }
    }

    /// What was in flight is suspected.
    fn accuse(&mut self, open: Vec<Key>, now: Now) -> Vec<Key> {
        self.quarantine.pause_after_fault(now.mono);
        let accused = self.hold_all(open);
        self.quarantine.accuse(accused);
        Vec::new()
    }

    /// A turn closed the connection.
    fn blame(
        &mut self,
        turn: Turn,
        flown: Vec<Key>,
        unsent: Vec<(Target, Key)>,
        (fault, certain): (Fault, bool),
        now: Now,
        fx: &mut Effects,
    ) {
        self.quarantine.pause_after_fault(now.mono);
        let held = self.hold_all(flown);
        let blamed: BTreeSet<Target> = held.iter().map(|(target, _)| target.clone()).collect();
        let (_, cleared): (Vec<Target>, Vec<Target>) = turn
            .targets
            .into_iter()
            .partition(|target| blamed.contains(target));
        self.quarantine.interrupted(cleared, unsent);
        let words = fault == Fault::Words && certain;
        match &held[..] {
            [(target, key)] if words => {
                let (target, key) = (target.clone(), *key);
                self.quarantine.watch(target, now.mono);
                if self.poisoned(key, fx) {
                    let held = self.hold_all(vec![key]);
                    self.quarantine.accuse(held);
                }
            }
            [(target, _), ..] if blamed.len() == 1 && !words => {
                let target = target.clone();
                let keys = held.into_iter().map(|(_, key)| key).collect();
                self.convict(target, keys, now, fx);
            }
            _ => self.quarantine.halved(held),
        }
    }

    /// Its target closes the connection: what goes there is late.
    fn convict(&mut self, target: Target, keys: Vec<Key>, now: Now, fx: &mut Effects) {
        if self.quarantine.convict(target.clone(), keys, now.mono) {
            let (exchange, routing_key) = target.clone();
            fx.events.push(Event::TargetConvicted {
                exchange,
                routing_key,
            });
        }
        for key in self.quarantine.waiting_for(&target) {
            self.be_late(key, now, fx);
        }
    }
}
