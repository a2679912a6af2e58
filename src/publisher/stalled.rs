//! Which publishes have stalled: the broker does not answer them although it answers others. They hold up nobody: they count as late (`quota`),
//! take no room among those in flight, and what is too much of them is parked.
//!
//! A publish has stalled when another that left a quarter of `confirm-timeout` after it has its answer. So it is not enough that an answer takes long:
//! a broker that stands still, or a target that is slow but the only one, answers in order, and there nobody waits for somebody else.
//!
//! If all that is in flight goes to such a target, nothing leaves any more that could overtake it. Then the broker is asked, once (`Lane`): a channel handles
//! its methods in order, so the answer to one that left so much later tells that the publish is routed, and only its queue is silent. It has stalled,
//! too, but nobody knows whether other queues answer. If they do not, the parking queue does not either; so of what is too much, one is parked first.

use std::collections::BTreeSet;

use crate::machine::{Cause, Now};
use crate::publisher::Effects;

use super::Publisher;
use super::item::{Key, Place};
use super::lanes::SUSPECTS;
use super::quota::Load;

impl Publisher {
    /// Looks for those that have stalled.
    pub(super) fn find_stalled(&mut self, now: Now, fx: &mut Effects) {
        let uptime = self.clock.at(now.mono);
        let patience = self.settings.limits.now().confirm_timeout / 4;
        let mut excess: Vec<Key> = Vec::new();
        let mut unanswered = Load::default();
        let mut unknown = BTreeSet::new();
        let mut witness = None;
        for at in (0..self.lanes.len()).filter(|at| *at != SUSPECTS) {
            let lane = self.lanes.get(at);
            let told = lane.told;
            let sent = lane.sent_before(|sent| uptime.since(sent) >= patience);
            for (tag, attempt) in sent.collect::<Vec<_>>() {
                let Some(item) = self.items.get(attempt.key) else {
                    continue;
                };
                if item.late || item.place != (Place::InFlight { lane: at, tag }) {
                    continue;
                }
                let others_answer = self.answered.since(attempt.at) >= patience;
                let is_routed = told.since(attempt.at) >= patience;
                if (others_answer || is_routed) && !self.quota.is_full(item) {
                    self.set_late(attempt.key, true);
                    continue;
                }
                if others_answer {
                    excess.push(attempt.key);
                    continue;
                }
                if self.quota.is_signal(item) {
                    unanswered.add(item.weight);
                }
                if !is_routed {
                    unknown.insert(at);
                } else if !item.stage.is_parking() {
                    witness.get_or_insert(attempt.key);
                }
            }
        }
        let held_up = self.books.waiting > 0 || self.quota.exceeds_share(unanswered);
        if held_up && uptime.since(self.sent) >= patience {
            for at in unknown {
                let out = fx.broker.build(&[]);
                self.lanes.get(at).ask_who_is_stalled(out, uptime);
            }
            if self.witness.is_none_or(|key| self.items.get(key).is_none()) {
                self.witness = witness;
                excess.extend(witness);
            }
        }
        for key in excess {
            self.give_up(key, Cause::TargetBusy, now, fx);
        }
    }
}
