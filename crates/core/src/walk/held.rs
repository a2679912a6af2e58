//! What a walk holds: how much, for how long, and how it comes back.
//!
//! **The order of a quorum queue** (S12.9): it hands out first what was put back before, and puts what comes back now behind the rest of that. So a
//! walk that holds only some of those passes on until it holds all: the first message that had not come back says so. Up to 4.2 each message that is
//! put back counts as a failed delivery, and may die of that; there the order is given up instead.
//!
//! **No message is held for long**: RabbitMQ cuts a channel that holds one for half an hour (`consumer_timeout`), and nobody else sees it meanwhile.
//! A queue, a policy or the broker's settings may say less. From 4.3 on a walk of a quorum queue asks for the half hour; before, a shorter one ends it.
//!
//! ```text
//! Walking ─ paused for PAUSED, or holds one for HELD ─▶ Settling ─▶ … ─▶ Closing ─▶ Shelved ─ may go on ─▶ Asking ─▶ Walking
//!                                                                                   └─ paused for FORGOTTEN ─▶ Ended
//! ```
//! What lies in front of the messages that are meant has to be held again each time. So a walk that has moved nothing in [`HELD`] ends: it would meet the
//! same messages for ever.

use std::time::Duration;

use crate::amqp::version::Version;
use crate::machine::Now;

use super::window::LARGEST;
use super::{Effects, FACTOR, LAST, PAUSE, QueueType, RETURN, State, Stopped, Walk};

/// From here on a `basic.nack` keeps the order of a quorum queue, and is no failed delivery.
const NACK_IS_HARMLESS: Version = Version(4, 3, 0);
/// Additional holding time for the sake of order, within RabbitMQ's timeout.
const PASSING: Duration = Duration::from_secs(5 * 60);
/// A pause of this length requeues held messages.
const PAUSED: Duration = Duration::from_secs(5 * 60);
/// A pause of this length ends the walk, which occupies a permit and a connection.
const FORGOTTEN: Duration = Duration::from_secs(60 * 60);
/// Held messages are requeued after this time, and met again.
const HELD: Duration = Duration::from_secs(20 * 60);
/// Estimated bytes of a window: a quorum queue sends all to the channel at once, and the broker
/// buffers them.
const WINDOW_BYTES: u64 = 128 << 20;

impl Walk {
    /// Messages at the beginning, without moved ones.
    pub(super) fn left(&self) -> Option<u64> {
        Some(self.summary.ready?.saturating_sub(self.channel.acked))
    }

    // --- how much

    /// At most the number of messages: so none is in flight after the last one.
    pub(super) fn most_held(&self) -> u64 {
        let wanted = match self.state {
            State::Passing => self.settings.bounds.held,
            _ => self.moving.most_held(),
        };
        let there = self.left().unwrap_or(u64::MAX);
        wanted.min(there).max(1)
    }

    /// Opens the next window, if this one is full and more may be taken.
    pub(super) fn widen(&mut self, fx: &mut Effects) {
        let channel = &self.channel;
        let may = match self.state {
            State::Walking => self.paused.is_none(),
            State::Passing => true,
            _ => false,
        };
        let is_full = channel.window.is_full() && !channel.window.opens && !channel.has_next();
        let left = channel.consumers_left();
        if !may || !is_full || left.is_none() || channel.queue_type == QueueType::Stream {
            return;
        }
        let held = channel.held();
        let more = match self.state {
            State::Walking => self.moving.more(held),
            _ => held * (FACTOR - 1),
        };
        let bytes = self.settings.bounds.bytes.saturating_sub(channel.bytes);
        let fits = (bytes.min(WINDOW_BYTES) / channel.usual()).max(1);
        let most = self.most_held().saturating_sub(held).min(LARGEST);
        let room = match left == Some(0) && more > 0 {
            true => fits.min(most),
            false => more.min(fits).min(most),
        };
        if room == 0 {
            return;
        }
        let (long, out) = (self.puts_back_harmlessly(), fx.broker.build(&[]));
        let channel = &mut self.channel;
        if channel.gets {
            channel.window.widen(room, false);
            channel.get(room, out);
        } else {
            channel.cancel(out);
            channel.window.widen(room, true);
            channel.consume(false, long, out);
        }
    }

    // --- how long

    pub(super) fn pause(&mut self, pause: bool, now: Now, fx: &mut Effects) {
        if pause == self.paused.is_some() {
            return;
        }
        self.paused = pause.then(|| now.mono.after(FORGOTTEN));
        match self.state {
            State::Shelved if !pause => self.begin_anew(now, fx),
            State::Walking => {
                self.since = now.mono;
                self.put_back_later(now);
            }
            _ => {}
        }
    }

    /// Sets when held messages must be requeued, if messages move.
    pub(super) fn put_back_later(&mut self, now: Now) {
        let at = self.began.after(HELD);
        let at = match self.paused.is_some() {
            true => at.min(now.mono.after(PAUSED)),
            false => at,
        };
        self.put_back_at = self.moving.wanted().map(|_| at);
    }

    /// Requeues messages held for too long, and goes on.
    pub(super) fn put_back_due(&mut self, now: Now, fx: &mut Effects) {
        let moving = &mut self.moving;
        let goes_on = self.paused.is_some() || moving.gets_on() || self.summary.starves;
        match self.paused.is_some() || moving.holds_any() {
            true if goes_on && self.state == State::Walking => {
                moving.put_down();
                self.state = State::Settling;
                self.restarts = true;
                (self.until, self.quiet) = (None, None);
            }
            true if goes_on => {}
            true => self.stop(Stopped::Time, now, fx),
            // All that it has comes and goes.
            false => {
                self.began = now.mono;
                self.put_back_later(now);
            }
        }
    }

    // --- how it comes back

    /// All outcomes are known: requeues the rest when nothing is in flight.
    pub(super) fn settle(&mut self, now: Now, fx: &mut Effects) {
        let is_settled = self.moving.is_settled();
        if self.state == State::Settling && is_settled {
            self.state = State::Passing;
            let until = self.ends.min(self.began.after(HELD + PASSING));
            (self.until, self.quiet) = (Some(until), Some(now.mono.after(PAUSE)));
        }
        let bounds = self.settings.bounds;
        let may = self.channel.held() < bounds.held && self.channel.bytes < bounds.bytes;
        let passes_on = may
            && !(self.channel.has_no_room() && is_settled)
            && self.puts_back_harmlessly()
            && self.leaves_some_behind();
        if self.state == State::Passing && !passes_on {
            self.take_no_more(now);
        }
        if self.state == State::Emptying && self.may_leave_at_once() {
            self.take_leave(now, fx);
        }
    }

    /// Nothing is in flight, or it does not matter: a classic queue keeps its order (S12.6), and
    /// counts no failed deliveries.
    fn may_leave_at_once(&self) -> bool {
        let window = &self.channel.window;
        let is_classic = self.channel.queue_type == QueueType::Classic && !self.channel.gets;
        is_classic || window.is_full() && !window.opens
    }

    pub(super) fn take_no_more(&mut self, now: Now) {
        self.state = State::Emptying;
        self.until = Some(now.mono.after(LAST));
        self.quiet = Some(now.mono.after(PAUSE));
    }

    /// It holds some of the requeued messages of a quorum queue, and more of them remain, as far as
    /// it knows.
    fn leaves_some_behind(&self) -> bool {
        let held = self.channel.held();
        let there = self.left().is_none_or(|left| held < left);
        held > 0 && there && self.channel.last_had_come_back
    }

    /// Requeueing is no failed delivery, and keeps the order.
    pub(super) fn puts_back_harmlessly(&self) -> bool {
        let harmless = self.link.version().is_some_and(|it| it >= NACK_IS_HARMLESS);
        self.channel.queue_type == QueueType::Quorum && harmless
    }

    pub(super) fn take_leave(&mut self, now: Now, fx: &mut Effects) {
        self.state = State::Cancelling;
        self.flush(fx);
        self.quiet = None;
        self.until = Some(now.mono.after(self.channel.patience()));
        let out = fx.broker.build(&[]);
        match self.channel.gets {
            // There is no consumer.
            true => self.channel.ask_for_acks(out),
            false => self.channel.cancel(out),
        }
    }

    pub(super) fn put_back(&mut self, fx: &mut Effects) {
        self.state = State::Closing;
        let quorum = self.channel.queue_type == QueueType::Quorum;
        let harmless = self.puts_back_harmlessly();
        self.summary.counted |= quorum && !harmless && self.channel.held() > 0;
        self.summary.reordered |= quorum && self.leaves_some_behind();
        self.channel.put_back(harmless, fx.broker.build(&[]));
    }

    /// The broker closed the channel, and requeues its messages. Without other consumers the queue
    /// soon counts all of them.
    pub(super) fn is_back(&mut self, now: Now, fx: &mut Effects) {
        if std::mem::take(&mut self.restarts) {
            self.state = State::Shelved;
            (self.until, self.quiet) = (None, None);
            // What has gone was met; what was put back is met again.
            self.channel.delivered = self.channel.acked;
            self.summary.seen = self.channel.acked;
            self.moving.begin_anew();
            if self.paused.is_none() {
                self.begin_anew(now, fx);
            }
            return;
        }
        let waits = self.left().is_some() && self.summary.consumers == Some(0);
        if self.channel.held() == 0 || !waits || self.channel.queue_type == QueueType::Stream {
            return self.leave(now, fx);
        }
        self.state = State::Returning;
        self.until = Some(now.mono.after(RETURN));
        self.open(fx);
        self.channel.count(fx.broker.build(&[]));
    }
}
