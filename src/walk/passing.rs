//! A walk that puts messages back takes more of them than it was to look at, so that the order stays.
//!
//! A quorum queue hands out first what was put back before, and puts what comes back now behind the rest of that (S12.9). So a walk that holds
//! only some of those passes on until it holds all: the first message that had not come back says so. Up to 4.2 each message that is put back counts
//! as a failed delivery, and may die of that; there the order is given up instead.

use std::time::Duration;

use crate::amqp::version::Version;
use crate::machine::Now;

use super::shelf::HELD;
use super::{Effects, LAST, PAUSE, QueueType, State, Walk};

/// From here on a `basic.nack` keeps the order of a quorum queue, and does not count as a failed delivery.
const NACK_IS_HARMLESS: Version = Version(4, 3, 0);
/// For the sake of the order it holds messages so much longer than it would, and puts them back before RabbitMQ wants them.
const PASSING: Duration = Duration::from_secs(5 * 60);

impl Walk {
    /// Each publication has an outcome: what was taken and has not gone is put back.
    pub(super) fn settle(&mut self, now: Now, fx: &mut Effects) {
        let is_settled = self.moving.as_ref().is_none_or(|it| it.is_settled());
        if self.state == State::Settling && is_settled {
            self.state = State::Passing;
            let until = self.ends.min(self.began.after(HELD + PASSING));
            (self.until, self.quiet) = (Some(until), Some(now.mono.after(PAUSE)));
        }
        if self.state == State::Passing && !self.passes_on() {
            self.empty(now);
        }
        if self.state == State::Emptying && self.window.is_full() && !self.window.opens {
            self.take_leave(now, fx);
        }
    }

    /// Nothing is taken any more.
    pub(super) fn empty(&mut self, now: Now) {
        self.state = State::Emptying;
        self.until = Some(now.mono.after(LAST));
        self.quiet = Some(now.mono.after(PAUSE));
    }

    /// More have to be taken, and may be.
    fn passes_on(&self) -> bool {
        let bounds = self.settings.bounds;
        let may = self.held() < bounds.held && self.octets < bounds.octets;
        may && !self.has_no_room() && self.puts_back_harmlessly() && self.leaves_some_behind()
    }

    /// It holds some of the messages that had come back to a quorum queue, and there are more of them, as far as it knows.
    pub(super) fn leaves_some_behind(&self) -> bool {
        let held = self.held();
        let there = self.left().is_none_or(|left| held < left);
        held > 0 && there && self.last_had_come_back
    }

    /// What it puts back does not count as a failed delivery, and comes back in its order.
    pub(super) fn puts_back_harmlessly(&self) -> bool {
        let harmless = self.link.version().is_some_and(|it| it >= NACK_IS_HARMLESS);
        self.summary.queue_type == QueueType::Quorum && harmless
    }
}
