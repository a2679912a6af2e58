//! What becomes of a delivery that its client has rejected or returned, and that cannot be published now. [`instead`](super::instead) says whether
//! the broker deals with it. If not, it stays unsettled, and so returns to its queue by itself when its channel closes. No request of the client
//! waits for it (after `close-wait`, of those that did), and no later `multiple` settles it.

use crate::amqp::ids::{ChannelId, DeliveryTag};
use crate::dead_letter::{Disposal, proof};
use crate::machine::{Event, Fallback};

use super::again::LAST_PAUSE;
use super::instead::{Asked, Counts, Instead};
use super::ledger::{Books, Decision, Page};
use super::unacked::Idle;

// === impl Books ===

impl Books<'_, '_> {
    /// Publishes kept deliveries again, as far as there are tickets.
    pub(super) fn publish_again(&mut self) {
        self.ledger.again.fired(self.turn.now.mono);
        for (channel, tag) in self.idle(|_| true) {
            if let Some(mut page) = self.page(channel)
                && !page.publish_again(tag)
            {
                break;
            }
        }
    }

    /// Returns kept deliveries without a copy, where that is harmless.
    pub(super) fn return_uncopied(&mut self) {
        self.ledger.back.fired(self.turn.now.mono);
        let harmless = |of: &Idle<'_>| of.uncopied.is_some_and(|counts| counts != Counts::Near);
        for (channel, tag) in self.idle(harmless) {
            if let Some(mut page) = self.page(channel) {
                page.return_kept(tag);
            }
        }
    }

    /// Kept and not in flight. In tx mode a settlement would join the client's transaction, so
    /// messages stay until the channel ends.
    fn idle(&self, is_meant: impl Fn(&Idle<'_>) -> bool) -> Vec<(ChannelId, DeliveryTag)> {
        let open = self.channels.values();
        let open = open.filter(|state| !state.closing && state.tx.is_none());
        let idle = open.flat_map(|state| state.unacked.idle().map(|idle| (state.id, idle)));
        let meant = idle.filter(|(_, idle)| is_meant(idle));
        meant.map(|(channel, idle)| (channel, idle.tag)).collect()
    }
}

// === impl Page ===

impl Page<'_, '_> {
    /// A delivery cannot be published. `Forward`: the broker must handle it; else it stays
    /// unsettled.
    pub(super) fn leave_unsettled(
        &mut self,
        tag: DeliveryTag,
        asked: Asked,
        cause: Fallback,
    ) -> Decision {
        let (facts, now) = (self.facts, self.turn.now.mono);
        let Some((queue, instead)) = facts.instead(self.state, tag, asked, cause) else {
            return Decision::Forward;
        };
        let returned = asked != Asked::Reject;
        let (ledger, unacked) = (&mut *self.ledger, &mut self.state.unacked);
        let is_new = match instead {
            Instead::Forward => {
                // Of a full budget that was told at its delivery.
                if cause != Fallback::Budget {
                    self.turn.event(match returned {
                        true => Event::ReturnForwarded { queue, cause },
                        false => Event::RejectForwarded { queue, cause },
                    });
                }
                return Decision::Forward;
            }
            Instead::Keep => {
                ledger.again.arm(now, facts.kept_for(&queue));
                unacked.keep(tag, now)
            }
            Instead::ReturnLater => {
                if let Some(of) = unacked.drop_copy(tag) {
                    let counts = facts.counts(&of.queue, &of.content.properties);
                    unacked.lacks_copy(tag, &of.queue, counts);
                    ledger.give_back(of.bytes());
                }
                unacked.keep_uncopied(tag, returned);
                ledger.back.arm(now, LAST_PAUSE);
                ledger.again.arm(now, LAST_PAUSE);
                true
            }
        };
        if is_new {
            self.turn.event(Event::Kept {
                queue,
                returned,
                cause,
            });
        }
        Decision::Withheld
    }

    /// Publishes a kept delivery again. False: no ticket is left.
    fn publish_again(&mut self, tag: DeliveryTag) -> bool {
        let (facts, now) = (self.facts, self.turn.now);
        let unacked = &self.state.unacked;
        let Some(Idle {
            queue, rejected, ..
        }) = unacked.kept(tag)
        else {
            return true;
        };
        if rejected && !facts.loses(queue) {
            // Nothing names a target any more, or the broker knows one by now.
            let (queue, cause) = (queue.clone(), Fallback::TargetUnknown);
            self.let_go(tag, false);
            self.turn.event(Event::RejectForwarded { queue, cause });
            return true;
        }
        self.ledger.again.arm(now.mono, LAST_PAUSE);
        if self.ledger.is_full() {
            return false;
        }
        if let Some(of) = unacked.copy(tag)
            && !self.state.may_fail(facts.registry)
        {
            let (waits, hide_user) = (of.kept.until(now.mono), of.hide_user);
            let held = of.delivered.until(now.wall).saturating_sub(waits);
            let long = waits >= facts.kept_for(queue)
                && facts.counts(queue, &of.content.properties) != Counts::Near;
            let asked = of.asked;
            match facts.decide((tag, of), held, now).filter(|_| !long) {
                // Of a client's reject no cycle is made.
                None | Some(Disposal::Drop(_)) => self.return_kept(tag),
                // A wait is over, and what was found out says that it never was the proxy's.
                Some(Disposal::LeaveToBroker(cause)) => {
                    if let Decision::Forward = self.leave_unsettled(tag, asked, cause) {
                        self.let_go(tag, !rejected);
                    }
                }
                Some(
                    Disposal::Publish(mut publication)
                    | Disposal::Park(mut publication, _)
                    | Disposal::Retry(mut publication),
                ) => {
                    let properties = &mut publication.content.properties;
                    let own_user = &facts.settings.user;
                    if hide_user && let Some(hidden) = proof::prove(properties, own_user, None) {
                        *properties = hidden;
                    }
                    self.publish(tag, publication);
                    self.state.unacked.kept_goes(tag);
                }
            }
        }
        true
    }

    fn return_kept(&mut self, tag: DeliveryTag) {
        if let Some(kept) = self.state.unacked.kept(tag) {
            let queue = kept.queue.clone();
            self.let_go(tag, true);
            self.turn.event(Event::KeptReturned { queue });
        }
    }
}
