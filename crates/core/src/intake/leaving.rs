//! What the intake holds goes back to its queue: nobody publishes, it is held for too long, or the broker has it again already.

use std::mem;

use crate::machine::{Event, Limit, Mono, Now};

use super::{Effects, Intake};

impl Intake {
    /// Leaves the queue to other proxies: what it held goes back, in front.
    pub(super) fn leave_queue(&mut self, fx: &mut Effects) {
        if !mem::replace(&mut self.handed_over, true) {
            fx.events.push(Event::HandedOver);
        }
        self.consumer.end(fx);
        self.consumer.give_back(fx);
        self.parked.forgotten();
    }

    /// Lets the publisher forget what it was handed, and takes nothing new until it has: what it still confirms meanwhile is settled, and only the rest
    /// goes back. What came back while the publisher had it would be published twice.
    pub(super) fn hand_over(&mut self, fx: &mut Effects) {
        if !mem::replace(&mut self.handed_over, true) {
            fx.out.hand_over = true;
            self.consumer.end(fx);
            self.parked.forgotten();
        }
    }

    /// The broker has again what was held on the channel.
    pub(super) fn consumer_lost(&mut self, by_broker: bool, fx: &mut Effects) {
        let held = self.consumer.mover.count();
        self.consumer.lost(by_broker, fx);
        if held > 0 {
            self.hand_over(fx);
        }
    }

    /// The same for parked messages.
    pub(super) fn parked_lost(&mut self, now: Now, fx: &mut Effects) {
        let held = self.parked.held();
        self.parked.closed(now);
        if held > 0 {
            self.hand_over(fx);
        }
    }

    /// Until when what it holds need not go back.
    pub(super) fn may_hold_until(&self) -> Option<Mono> {
        let until = self.consumer.may_hold_until();
        until.filter(|_| !self.handed_over)
    }

    /// Before the broker takes back what is held for too long: it would not say so to the publisher.
    pub(super) fn hand_over_due(&mut self, now: Mono, fx: &mut Effects) {
        if self.may_hold_until().is_some_and(|until| until <= now) {
            fx.events.push(Event::LimitMet(Limit::IntakeHeld));
            self.hand_over(fx);
        }
    }

    /// Returns what has waited for long enough. What the channel has lost meanwhile is in the queue again.
    pub(super) fn return_due(&mut self, now: Mono, fx: &mut Effects) {
        while let Some(&(due, ticket)) = self.returning.front()
            && due <= now
        {
            self.returning.pop_front();
            if let Some((tag, _)) = self.consumer.mover.of(ticket) {
                self.consumer.return_one(tag, fx);
            }
        }
    }
}
