//! What a walk makes of what the broker says.
//!
//! ```text
//! a classic queue without consumers ─▶ declare it as what would not be deleted ─ it is so ───────────▶ consume
//!                                                                              ├─ 406: it would be ──▶ get
//!                                                                              └─ the user may not ──▶ get
//! ```

use crate::amqp::method::{MethodId, QueueDeclareOk};
use crate::amqp::reply_code::{ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED};
use crate::link::Frame;
use crate::machine::Now;

use super::channel::UNREADABLE;
use super::ended::DISMISSED;
use super::rights::{Answer, QUESTIONS};
use super::window::{LARGEST, Window};
use super::{
    BEGINNING, Effects, Failure, LAST, LONG_PAUSE, PAUSE, QueueType, RETURN_PAUSE, STARVES, State,
    Stopped, Walk,
};

/// End of the refusal of `x-stream-offset`.
const QUORUM: &str = "rabbit_quorum_queue";
/// Begin of a refusal that names a difference.
const INEQUIVALENT: &str = "PRECONDITION_FAILED - inequivalent arg '";
const DURABLE: &str = "durable'";
const AUTO_DELETE: &str = "auto_delete'";
/// Maximum memory of the broker for held messages.
const HEAVIEST: u64 = 1 << 30;

impl Walk {
    /// First as if it were a stream: other types refuse that, and reveal their type. Needs no other
    /// source.
    fn begin(&mut self, as_stream: bool, now: Now, fx: &mut Effects) {
        let first = match as_stream {
            // It counts nothing, and would begin anew with each consumer.
            true => LARGEST,
            false => self.moving.first_window(),
        };
        self.channel.window = Window::of(first.min(self.most_held()).min(LARGEST));
        let out = fx.broker.build(&[]);
        if self.channel.gets {
            self.channel.get(self.channel.window.awaited(), out);
            return self.begun(now);
        }
        self.state = State::Asking { as_stream };
        let long = self.puts_back_harmlessly();
        self.channel.consume(as_stream, long, out);
    }

    /// On a new channel, with the known type.
    pub(super) fn begin_anew(&mut self, now: Now, fx: &mut Effects) {
        self.until = Some(now.mono.after(BEGINNING));
        self.open(fx);
        self.begin(false, now, fx);
    }

    fn begun(&mut self, now: Now) {
        self.state = State::Walking;
        self.until = Some(self.ends);
        (self.began, self.since) = (now.mono, now.mono);
        self.put_back_later(now);
        self.wait(now);
    }

    pub(super) fn method(
        &mut self,
        frame: Frame<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Result<(), &'static str> {
        let id = frame.method().ok_or(UNREADABLE)?;
        match (id, self.state) {
            _ if frame.channel == QUESTIONS => self.answered(id, frame, now, fx),
            (MethodId::QUEUE_DECLARE_OK, _) => self.counted(frame.payload, now, fx)?,
            // Of the next window: what it says comes in order, so no answer is taken for that of the last consumer.
            (MethodId::BASIC_CONSUME_OK, _) if self.channel.window.opens => {
                self.channel.window.opens = false;
            }
            (MethodId::BASIC_CANCEL_OK | MethodId::BASIC_QOS_OK, _)
                if self.channel.window.opens => {}
            (MethodId::BASIC_CONSUME_OK, State::Asking { as_stream: true }) => {
                self.channel.queue_type = QueueType::Stream;
                match self.moving.wanted() {
                    Some(_) => self.fail(Failure::Stream, now, fx),
                    None => self.begun(now),
                }
            }
            (MethodId::BASIC_CONSUME_OK, State::Asking { as_stream: false }) => self.begun(now),
            // There is no message any more.
            (MethodId::BASIC_GET_EMPTY, _) => {
                self.channel.window.shrink(1);
                if self.state == State::Walking && !self.channel.has_next() {
                    self.stop(Stopped::End, now, fx);
                }
            }
            (MethodId::BASIC_CANCEL_OK, State::Cancelling) => {
                self.channel.ask_for_acks(fx.broker.build(&[]));
            }
            // The acks are with the queue now.
            (MethodId::BASIC_QOS_OK, State::Cancelling) => self.put_back(fx),
            // The queue is gone; or messages were held for too long, from 4.3 on. Whether it is there tells which.
            (MethodId::BASIC_CANCEL, _) => {
                self.state = State::Dismissed;
                self.quiet = None;
                self.until = Some(now.mono.after(LAST));
                self.channel.count(fx.broker.build(&[]));
            }
            (MethodId::CHANNEL_CLOSE_OK, State::Closing) if frame.channel == self.channel.id() => {
                self.is_back(now, fx);
            }
            (MethodId::CHANNEL_CLOSE, _) => {
                let (code, text) = frame.closed(fx);
                self.refused(code, text, now, fx);
            }
            _ => {}
        }
        Ok(())
    }

    /// Number of messages: at the beginning, or after silence.
    fn counted(&mut self, payload: &[u8], now: Now, fx: &mut Effects) -> Result<(), &'static str> {
        let counted = QueueDeclareOk::parse(payload).map_err(|_| UNREADABLE)?;
        let ready = u64::from(counted.message_count);
        match self.state {
            State::Counting => {
                self.summary.ready = Some(ready);
                self.summary.consumers = Some(counted.consumer_count.into());
                match self.moving.first_question() {
                    _ if ready == 0 || self.settings.bounds.only_count() => {
                        self.stop(Stopped::End, now, fx)
                    }
                    Some(first) => {
                        self.state = State::Testing;
                        self.moving.rights.want(first);
                        let until = now.mono.after(BEGINNING);
                        self.moving.rights.ask(until, fx.broker.build(&[]));
                    }
                    None => self.begin(true, now, fx),
                }
            }
            State::Returning if self.left().is_none_or(|left| ready >= left) => self.leave(now, fx),
            State::Returning => self.quiet = Some(now.mono.after(RETURN_PAUSE)),
            // What was on its way when the broker answered comes before its next answer.
            State::Walking
                if ready == 0 && self.is_said_to_be_empty && !self.channel.has_next() =>
            {
                self.stop(Stopped::End, now, fx);
            }
            State::Walking => {
                self.is_said_to_be_empty = ready == 0;
                self.summary.starves = self.since.after(STARVES) <= now.mono;
                self.wait(now);
            }
            State::Dismissed => self.fail(Failure::Connection(DISMISSED.to_owned()), now, fx),
            // It is as it was declared, and stays without consumers.
            State::Comparing { .. } => self.begin(false, now, fx),
            _ => {}
        }
        Ok(())
    }

    fn refused(&mut self, code: u16, text: String, now: Now, fx: &mut Effects) {
        match (self.state, code) {
            // From 4.3 on this takes the right to configure the queue; to read it is enough to look at it.
            (State::Counting, ACCESS_REFUSED)
                if self.moving.wanted().is_none() && !self.settings.bounds.only_count() =>
            {
                self.open(fx);
                self.begin(true, now, fx);
            }
            (State::Asking { as_stream: true }, PRECONDITION_FAILED) => {
                let is_quorum = text.ends_with(QUORUM);
                if is_quorum {
                    self.channel.queue_type = QueueType::Quorum;
                }
                // Its consumer would be the only one.
                let is_alone = self.summary.consumers.is_none_or(|others| others == 0);
                self.open(fx);
                if is_quorum || !is_alone {
                    return self.begin(false, now, fx);
                }
                self.state = State::Comparing { durable: true };
                self.channel.compare(true, fx.broker.build(&[]));
            }
            (State::Comparing { durable }, _) => {
                let differs = text
                    .strip_prefix(INEQUIVALENT)
                    .filter(|_| code == PRECONDITION_FAILED);
                self.open(fx);
                self.channel.gets = match differs {
                    Some(what) if what.starts_with(DURABLE) && durable => {
                        self.state = State::Comparing { durable: false };
                        return self.channel.compare(false, fx.broker.build(&[]));
                    }
                    // What the broker compares behind these is the same.
                    Some(what) => what.starts_with(AUTO_DELETE) || what.starts_with(DURABLE),
                    None => true,
                };
                self.begin(false, now, fx);
            }
            (State::Dismissed, code) => {
                let what = match code {
                    NOT_FOUND => "the queue is gone",
                    _ => DISMISSED,
                };
                self.fail(Failure::Connection(what.to_owned()), now, fx);
            }
            // It is gone, or somebody has begun to consume it alone.
            (State::Returning, _) => self.leave(now, fx),
            (_, code) => self.fail(Failure::Refused { code, text }, now, fx),
        }
    }

    fn answered(&mut self, id: MethodId, frame: Frame<'_>, now: Now, fx: &mut Effects) {
        let answer = match id {
            MethodId::TX_ROLLBACK_OK => Answer::May,
            MethodId::CHANNEL_CLOSE => {
                let (code, text) = frame.closed(fx);
                Answer::Not(code, text)
            }
            _ => return,
        };
        let is_first = self.state == State::Testing;
        if let Answer::Not(code, text) = &answer
            && is_first
            && self.moving.is_barred(&answer)
        {
            let (code, text) = (*code, text.clone());
            return self.fail(Failure::Refused { code, text }, now, fx);
        }
        self.moving.answered(answer, &mut fx.out);
        if is_first {
            return self.begin(true, now, fx);
        }
        if !self.moving.rights.has_questions() {
            // The broker has read all that stood before its last answer.
            self.summary.unread = 0;
        }
        self.end_at_bound(now, fx);
    }

    /// Processes received messages as far as possible now. Messages behind the end of a walk are
    /// requeued like all others.
    pub(super) fn take(&mut self, now: Now, fx: &mut Effects) {
        loop {
            if self.state != State::Walking {
                self.channel.forget_waiting();
            }
            if self.rest(now) {
                return;
            }
            let Some(delivery) = self.channel.next() else {
                return;
            };
            self.summary.seen += 1;
            (self.since, self.summary.starves) = (now.mono, false);
            self.is_said_to_be_empty = false;
            let (tag, letter) = (delivery.tag, delivery.letter(self.summary.seen));
            let dialect = self.link.dialect();
            if self.moving.take(letter, tag, dialect, now, &mut fx.out) {
                if self.moving.wanted().is_some_and(|wanted| wanted.rejects) {
                    self.moving.mover.reject(tag, fx);
                    self.channel.acked(tag);
                } else {
                    self.ack(tag);
                }
            }
            self.wait(now);
            self.end_at_bound(now, fx);
        }
    }

    pub(super) fn ack(&mut self, tag: u64) {
        self.moving.mover.ack(tag);
        self.channel.acked(tag);
        self.summary.unread += u64::from(self.moving.rights.has_questions());
    }

    /// Sends acks. With `basic.get`, fetches as many again.
    pub(super) fn flush(&mut self, fx: &mut Effects) {
        self.moving.mover.flush(fx);
        let there = match self.state {
            State::Walking => self.summary.ready.unwrap_or(u64::MAX),
            _ => 0,
        };
        self.channel.get_more(there, fx.broker.build(&[]));
    }

    pub(super) fn end_at_bound(&mut self, now: Now, fx: &mut Effects) {
        if self.state != State::Walking {
            return;
        }
        let (seen, bounds, moving) = (self.summary.seen, self.settings.bounds, &self.moving);
        let has_no_room = self.channel.has_no_room() && moving.is_settled();
        let is_too_heavy = moving.wanted().is_some() && self.channel.weight() >= HEAVIEST;
        if self.summary.ready == Some(seen) {
            self.stop(Stopped::End, now, fx);
        } else if moving.is_done() {
            self.stop(Stopped::Enough, now, fx);
        } else if seen >= bounds.messages || moving.holds_enough() || has_no_room {
            self.stop(Stopped::Messages, now, fx);
        } else if self.channel.bytes >= bounds.bytes || is_too_heavy {
            self.stop(Stopped::Bytes, now, fx);
        }
    }

    pub(super) fn wait(&mut self, now: Now) {
        let pause = match self.summary.ready {
            Some(_) => PAUSE,
            // The user may not ask for the number.
            None => LONG_PAUSE,
        };
        self.quiet = Some(now.mono.after(pause));
    }
}
