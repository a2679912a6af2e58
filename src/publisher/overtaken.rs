//! Which publishes the broker does not answer although it answers others. They hold up nobody: they count as late (`window`), take no room
//! among those in flight, and what is too much of them is parked.
//!
//! A publish is overtaken when another that left a quarter of `confirm-timeout` after it has its answer. So it is not enough that an answer takes long:
//! a broker that stands still, or a target that is slow but the only one, answers in order, and there nobody waits for somebody else.
//!
//! If all that is in flight goes to such a target, nothing leaves any more that could overtake it. Then one of them is parked, and its confirm tells.

use crate::machine::{Cause, Effects, Now};

use super::Publisher;
use super::item::{Key, Place};
use super::lanes::ALONE;
use super::window::Load;

impl Publisher {
    /// Looks for them.
    pub(super) fn overtaken(&mut self, now: Now, fx: &mut Effects) {
        let uptime = self.clock.at(now.mono);
        let patience = self.settings.limits.now().confirm_timeout / 4;
        let mut excess: Vec<Key> = Vec::new();
        let mut unanswered = Load::default();
        let mut probe = None;
        for at in (0..self.lanes.len()).filter(|at| *at != ALONE) {
            let mut late = 0;
            let lane = self.lanes.get(at);
            for (tag, attempt) in lane.sent_before(|sent| uptime.since(sent) >= patience) {
                let Some(item) = self.items.get_mut(attempt.key) else {
                    continue;
                };
                if item.late || item.place != (Place::Flying { lane: at, tag }) {
                    continue;
                }
                if self.answered.since(attempt.at) < patience {
                    if self.window.is_signal(item) {
                        unanswered.add(item.weight);
                    }
                    if !item.stage.is_parking() {
                        probe.get_or_insert(attempt.key);
                    }
                } else if self.window.is_full(item) {
                    excess.push(attempt.key);
                } else {
                    item.late = true;
                    self.window.enter(item);
                    self.flying_bytes -= item.len();
                    late += 1;
                }
            }
            self.lanes.get(at).late += late;
        }
        let held_up = self.waiting > 0 || self.window.is_much(unanswered);
        let asked = self.probe.is_some_and(|key| self.items.get(key).is_some());
        if held_up && !asked && uptime.since(self.sent) >= patience {
            self.probe = probe;
            excess.extend(probe);
        }
        for key in excess {
            self.give_up(key, Cause::TargetBusy, fx);
        }
    }
}
