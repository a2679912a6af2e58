//! Which publishes have stalled: the broker does not answer them although it answers others. They hold up nobody: they count as late (`quota`),
//! take no room among those in flight, and what is too much of them is parked.
//!
//! A publish has stalled when another that left a quarter of `confirm-timeout` after it has its answer. So it is not enough that an answer takes long:
//! a broker that stands still, or a target that is slow but the only one, answers in order, and there nobody waits for somebody else.
//!
//! If all that is in flight goes to such a target, nothing leaves any more that could overtake it. Then the broker is asked, once (`Channel`): a channel handles
//! its methods in order, so the answer to one that left so much later tells that the publish is routed, and only its queue is silent. It has stalled,
//! too, but nobody knows whether other queues answer. If they do not, the parking queue does not either; so of what is too much, one is parked first.

use std::collections::BTreeSet;
use std::time::Duration;

use super::clock::Uptime;
use super::item::Key;
use super::quota::Load;
use super::store::Store;

#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) sent: Uptime,
    pub(super) answered: Uptime,
    /// When the socket had last taken all that was sent.
    pub(super) drained: Uptime,
    /// The first item parked because its target was over quota. Its confirm shows that queues
    /// answer.
    witness: Option<Key>,
}

// === impl Answers ===

impl Answers {
    /// Marks attempts without an answer as late, and returns those over the quota of their target.
    pub(super) fn find_stalled(
        &mut self,
        store: &mut Store,
        uptime: Uptime,
        patience: Duration,
        out: &mut Vec<u8>,
    ) -> Vec<Key> {
        let mut excess: Vec<Key> = Vec::new();
        let mut unanswered = Load::default();
        let mut unknown = BTreeSet::new();
        let mut witness = None;
        for at in 0..store.channels.len() {
            let channel = store.channels.look(at);
            let told = channel.told;
            let sent = channel.sent_before(|sent| uptime.since(sent) >= patience);
            for (tag, attempt) in sent.collect::<Vec<_>>() {
                let Some(item) = store.items.get(attempt.key).filter(|item| !item.late) else {
                    continue;
                };
                if !store.is_in_flight(attempt.key, at, tag) {
                    continue;
                }
                let others_answer = self.answered.since(attempt.at) >= patience;
                let is_routed = told.since(attempt.at) >= patience;
                if (others_answer || is_routed) && !store.quota.is_full(item) {
                    store.set_late(attempt.key, true);
                    continue;
                }
                if others_answer {
                    excess.push(attempt.key);
                    continue;
                }
                if store.quota.is_signal(item) {
                    unanswered.add(item.weight);
                }
                if !is_routed {
                    unknown.insert(at);
                } else if !item.stage.is_parking() {
                    witness.get_or_insert(attempt.key);
                }
            }
        }
        let held_up = store.waiting > 0 || store.quota.exceeds_share(unanswered);
        if held_up && uptime.since(self.sent) >= patience {
            for at in unknown {
                store.channels.get(at).ask_who_is_stalled(out, uptime);
            }
            let is_over = |key| store.items.get(key).is_none();
            if self.witness.is_none_or(is_over) {
                self.witness = witness;
                excess.extend(witness);
            }
        }
        excess
    }
}
