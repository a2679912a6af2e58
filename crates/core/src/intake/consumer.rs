//! The consuming channel: prefetch, deliveries put together, and their settlement.
//!
//! A message that crashes each delivery (S10.2) takes the whole prefetch with it, and each of these counts a failed delivery. So after such
//! a crash, or a life of the channel that settled nothing, the prefetch is 1: only the head of the queue is counted, until the broker sheds
//! it. And so it stays until as many are settled as were in the prefetch, for any of them can be the one; or else those behind it, counted
//! again at each attempt to go faster, would be shed with it.
//!
//! A quorum queue whose leader changes may hold messages for a consumer and never deliver them (S10.5). Nobody can ask for that, so a channel on which
//! nothing has come for a while, and nothing is unsettled, is closed and opened anew: the broker puts back what it held, and delivers it.
//!
//! What is held for longer than the broker's `consumer_timeout` it takes back by itself (S9.5). From 4.3 on a consumer of a quorum queue may say how
//! long that is; before, the first refusal tells. So what is held for nearly as long goes back before, by [`Intake::hand_over`].
//!
//! [`Intake::hand_over`]: super::Intake

use std::time::Duration;

use crate::amqp::CONSUMER_TIMEOUT;
use crate::amqp::ids::ShortStr;
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::amqp::reply_code::REPLY_SUCCESS;
use crate::amqp::table::TableBuilder;
use crate::intake::Effects;
use crate::link::Frame;
use crate::machine::{Event, Limit, Mono, Publication};
use crate::mover::{Delivery, Keep, Mover};

use super::CONSUMER;

/// Prefix of consumer tags. Each tag is used once: a broker that cancels a consumer keeps its tag
/// (S9.5).
const TAG: &str = "dlx-proxy";
/// Requested maximum time to hold a message: longer than any alarm should last.
const WANTED: Duration = Duration::from_secs(24 * 60 * 60);
/// Otherwise the broker's default, until it reports another value.
const ASSUMED: Duration = Duration::from_secs(30 * 60);
/// Precedes that time in its text, in milliseconds.
const TOLD: &str = "Timeout value used: ";

/// ```text
/// Shut ──topology ready──▶ Open ──basic.cancel──▶ Cancelled ──topology ready──▶ Open
///   ▲                        │                        │
///   ├──────────── channel closed, link lost ──────────┘
///   └── Renewing ◀── Open, and quiet for too long
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Shut,
    Open,
    /// The channel is open without a consumer.
    Cancelled,
    /// `channel.close` is sent; the channel reopens at its answer.
    Renewing,
}

#[derive(Debug)]
pub(super) struct Consumer {
    queue: ShortStr,
    prefetch: u16,
    state: State,
    /// Consumers begun so far; part of the tag.
    begun: u64,
    /// The broker accepts a consumer timeout for this queue type, ...
    may_say: bool,
    /// ... but the queue has another type.
    other_type: bool,
    /// Otherwise this timeout applies.
    timeout: Duration,
    /// Each message with a spare publication, if one may be needed.
    pub(super) mover: Mover<Option<Box<Publication>>>,
    consuming: bool,
    /// Something was settled on this channel.
    progress: bool,
    /// At prefetch 1: settlements left until the setting applies again.
    until_full_prefetch: u32,
    /// Since when nothing came, with nothing unsettled.
    quiet: Option<Mono>,
    /// Reopened, and nothing has come since.
    renewed: bool,
}

// === impl Consumer ===

impl Consumer {
    pub(super) fn new(queue: ShortStr, prefetch: u16) -> Consumer {
        Consumer {
            queue,
            prefetch,
            state: State::Shut,
            begun: 0,
            may_say: false,
            other_type: false,
            timeout: ASSUMED,
            mover: Mover::new(CONSUMER, 0),
            consuming: false,
            progress: false,
            until_full_prefetch: 0,
            quiet: None,
            renewed: false,
        }
    }

    /// Consumes, unless it already does.
    pub(super) fn begin(&mut self, fx: &mut Effects) {
        match self.state {
            State::Open | State::Renewing => return,
            State::Shut => {
                reply::channel_open(fx.broker.build(&[]), CONSUMER);
                // One that was closed as it was quiet has not failed.
                self.progress &= self.renewed;
            }
            State::Cancelled => {}
        }
        self.consume(fx);
        self.state = State::Open;
    }

    /// Whether the broker accepts a consumer timeout.
    pub(super) fn may_say_how_long(&mut self, may_say: bool) {
        self.may_say = may_say;
    }

    fn says_how_long(&self) -> bool {
        self.may_say && !self.other_type
    }

    /// Latest time to hold messages: some time before the broker takes them back.
    pub(super) fn may_hold_until(&self) -> Option<Mono> {
        let timeout = match self.says_how_long() {
            true => WANTED,
            false => self.timeout,
        };
        Some(self.mover.oldest()?.after(timeout / 4 * 3))
    }

    /// Learns from the reason of a closed channel; false: nothing new.
    pub(super) fn learn(&mut self, words: &str) -> bool {
        let told = words
            .split_once(TOLD)
            .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        if let Some(millis) = told {
            self.timeout = Duration::from_millis(millis);
            // It has not failed, it took too long.
            self.progress = true;
        }
        let named = memchr::memmem::find(words.as_bytes(), CONSUMER_TIMEOUT).is_some();
        let of_other_type = self.says_how_long() && named;
        self.other_type |= of_other_type;
        !of_other_type
    }

    fn tag(&self) -> String {
        format!("{TAG}-{}", self.begun)
    }

    fn consume(&mut self, fx: &mut Effects) {
        self.begun += 1;
        let mut arguments = TableBuilder::default();
        if self.says_how_long() {
            arguments.long(CONSUMER_TIMEOUT, WANTED.as_millis() as i64);
        }
        let prefetch = if self.until_full_prefetch > 0 {
            1
        } else {
            self.prefetch
        };
        let out = fx.broker.build(&[]);
        reply::qos(out, CONSUMER, prefetch);
        let (tag, arguments) = (self.tag(), arguments.finish());
        reply::consume(out, CONSUMER, &self.queue, tag.as_bytes(), &arguments);
    }

    /// The channel is gone; `fault`: because of a delivery.
    pub(super) fn lost(&mut self, fault: bool, fx: &mut Effects) {
        if self.consuming && (fault || !self.progress) {
            self.until_full_prefetch = self.prefetch.into();
        }
        self.state = State::Shut;
        self.renewed = false;
        self.mover.forget(CONSUMER);
        self.stopped(fx);
    }

    pub(super) fn is_consuming(&self) -> bool {
        self.consuming
    }

    fn is_idle(&self) -> bool {
        self.consuming && self.state == State::Open && self.mover.is_idle()
    }

    /// Updates the quiet period; call it after deliveries and settlements.
    pub(super) fn listen(&mut self, now: Mono) {
        self.quiet = self.is_idle().then(|| self.quiet.unwrap_or(now));
    }

    /// `most`: allowed quiet period; zero means forever.
    pub(super) fn quiet_until(&self, most: Duration) -> Option<Mono> {
        let may_end = self.is_idle() && !most.is_zero();
        Some(self.quiet.filter(|_| may_end)?.after(most))
    }

    /// Closes the channel to reopen it. The broker requeues deliveries in between.
    pub(super) fn renew(&mut self, fx: &mut Effects) {
        let out = fx.broker.build(&[]);
        reply::close(out, CONSUMER, REPLY_SUCCESS, b"", MethodId(0, 0));
        (self.state, self.renewed) = (State::Renewing, true);
        self.mover.forget(CONSUMER);
    }

    /// The broker answered the close. False: do not reopen, because the broker had closed it
    /// meanwhile.
    pub(super) fn close_answered(&mut self) -> bool {
        let renews = self.state == State::Renewing;
        if renews {
            self.state = State::Shut;
        }
        renews
    }

    /// The broker cancelled the consumer; its deliveries can still be settled.
    pub(super) fn cancelled(&mut self, fx: &mut Effects) {
        if self.state == State::Open {
            self.state = State::Cancelled;
        }
        self.stopped(fx);
    }

    pub(super) fn end(&mut self, fx: &mut Effects) {
        if self.state == State::Open {
            self.cancel(fx);
            self.state = State::Cancelled;
        }
        self.stopped(fx);
    }

    fn cancel(&self, fx: &mut Effects) {
        reply::cancel(fx.broker.build(&[]), CONSUMER, self.tag().as_bytes());
    }

    fn started(&mut self, fx: &mut Effects) {
        if self.state == State::Open && !std::mem::replace(&mut self.consuming, true) {
            fx.events.push(Event::Consuming(true));
        }
    }

    fn stopped(&mut self, fx: &mut Effects) {
        if std::mem::take(&mut self.consuming) {
            fx.events.push(Event::Consuming(false));
        }
    }

    /// A frame of the channel; returns a complete message.
    ///
    /// # Errors
    /// When the broker violates the protocol.
    pub(super) fn frame(
        &mut self,
        frame: Frame<'_>,
        id: Option<MethodId>,
        fx: &mut Effects,
    ) -> Result<Option<Delivery>, &'static str> {
        if self.state == State::Renewing {
            return Ok(None);
        }
        if id == Some(MethodId::BASIC_CONSUME_OK) {
            self.started(fx);
        }
        let whole = self.mover.frame(frame, Keep::Whole)?;
        if let Some(delivery) = &whole {
            self.quiet = None;
            if std::mem::take(&mut self.renewed) && delivery.redelivered {
                fx.events.push(Event::LimitMet(Limit::IntakeQuiet));
            }
        }
        Ok(whole)
    }

    /// To the parking queue.
    pub(super) fn reject(&mut self, tag: u64, fx: &mut Effects) {
        self.mover.reject(tag, fx);
        self.settled(1, fx);
    }

    /// Requeues in front, while the channel goes on: a failed delivery for every version. Closing
    /// the channel is none from 4.3 on.
    pub(super) fn return_one(&mut self, tag: u64, fx: &mut Effects) {
        self.mover.give_back(tag, fx);
        self.settled(0, fx);
    }

    /// The same for all that it holds.
    pub(super) fn give_back(&mut self, fx: &mut Effects) {
        self.flush(fx);
        if self.mover.count() > 0 {
            self.mover.give_all_back(fx);
            self.settled(0, fx);
        }
    }

    pub(super) fn flush(&mut self, fx: &mut Effects) {
        let acked = self.mover.flush(fx);
        if acked > 0 {
            self.settled(acked, fx);
        }
    }

    /// Raises the prefetch after enough settlements.
    fn settled(&mut self, count: u32, fx: &mut Effects) {
        self.progress = true;
        if self.until_full_prefetch == 0 {
            return;
        }
        self.until_full_prefetch = self.until_full_prefetch.saturating_sub(count);
        if self.until_full_prefetch == 0 && self.state == State::Open {
            // A prefetch counts for consumers that begin after it.
            self.cancel(fx);
            self.consume(fx);
        }
    }
}
