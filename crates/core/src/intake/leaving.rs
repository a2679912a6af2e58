//! What the intake holds goes back to its queue: nobody publishes, it is held for too long, or the broker has it again already.

use std::mem;

use crate::machine::{Event, Limit, Mono, Now};

use super::{Effects, Intake};

impl Intake {
    /// Leaves the queue to other proxies; held signals are requeued in front.
    pub(super) fn leave_queue(&mut self, fx: &mut Effects) {
        if !mem::replace(&mut self.handed_over, true) {
            fx.events.push(Event::HandedOver);
        }
        self.consumer.end(fx);
        self.consumer.give_back(fx);
        self.parked.forgotten();
    }

    /// Makes the publisher forget its items, and accepts nothing new until then. Later confirms
    /// still settle signals, and only the rest is requeued: requeueing at once would publish
    /// duplicates.
    pub(super) fn hand_over(&mut self, fx: &mut Effects) {
        if !mem::replace(&mut self.handed_over, true) {
            fx.out.hand_over = true;
            self.consumer.end(fx);
            self.parked.forgotten();
        }
    }

    /// The broker has requeued the channel's messages.
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

    /// Until when it may hold its signals.
    pub(super) fn may_hold_until(&self) -> Option<Mono> {
        let until = self.consumer.may_hold_until();
        until.filter(|_| !self.handed_over)
    }

    /// Acts before the broker takes back old deliveries: it would not tell the publisher.
    pub(super) fn hand_over_due(&mut self, now: Mono, fx: &mut Effects) {
        if self.may_hold_until().is_some_and(|until| until <= now) {
            fx.events.push(Event::LimitMet(Limit::IntakeHeld));
            self.hand_over(fx);
        }
    }

    /// Returns overdue signals. Those of a lost channel are requeued already.
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
