//! What a walk says to the broker, and hears of it.

use crate::amqp::frame::Kind;
use crate::amqp::ids::{ChannelId, DeliveryTag};
use crate::amqp::method::{Close, Deliver, MethodId, QueueDeclare, QueueDeclareOk};
use crate::amqp::reply;
use crate::amqp::reply_code::{ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED};
use crate::amqp::table::TableBuilder;
use crate::amqp::{CONSUMER_TIMEOUT, STREAM_OFFSET};
use crate::letter::Filter;
use crate::link::Frame;
use crate::machine::{Now, Outcome, Ticket};

use super::ended::DISMISSED;
use super::moving::{Fate, Moving};
use super::shelf::HOLDS;
use super::{
    Arriving, Bodies, Effects, Failure, LAST, LONG_PAUSE, PAUSE, QueueType, RETURN_PAUSE, STARVES,
    State, Stopped, Task, Walk,
};

pub(super) const UNREADABLE: &str = "the broker sent what cannot be read";
/// What the refusal of `x-stream-offset` ends with.
const QUORUM: &[u8] = b"rabbit_quorum_queue";

impl Walk {
    /// How many messages are there?
    pub(super) fn count(&mut self, fx: &mut Effects) {
        self.state = State::Counting;
        self.open_channel(fx);
        self.ask_count(fx);
    }

    /// No message came for a while: are there any still?
    pub(super) fn quiet(&mut self, now: Now, fx: &mut Effects) {
        match self.summary.ready {
            Some(_) => self.ask_count(fx),
            // The user may not ask that.
            None => self.stop(Stopped::End, now, fx),
        }
    }

    pub(super) fn ask_count(&self, fx: &mut Effects) {
        let (channel, queue) = (ChannelId(self.channel), &self.settings.queue);
        reply::method(
            fx.broker.build(&[]),
            channel,
            MethodId::QUEUE_DECLARE,
            |a| {
                a.short(0)
                    .shortstr(queue)
                    .octet(QueueDeclare::PASSIVE)
                    .longstr(b"")
                    .end();
            },
        );
    }

    pub(super) fn open_channel(&mut self, fx: &mut Effects) {
        self.channel += 1 + u16::from(self.asks_on(self.channel + 1));
        reply::channel_open(fx.broker.build(&[]), ChannelId(self.channel));
    }

    /// First as if it were a stream: what is none refuses that, and says what it is (S12.4). So nobody else has to be asked.
    pub(super) fn consume(&mut self, as_stream: bool, fx: &mut Effects) {
        self.state = State::Asking { as_stream };
        self.first_window(as_stream);
        self.put_consume(as_stream, fx);
    }

    pub(super) fn put_consume(&mut self, as_stream: bool, fx: &mut Effects) {
        let channel = ChannelId(self.channel);
        let mut arguments = TableBuilder::default();
        if as_stream {
            arguments.longstr(STREAM_OFFSET, b"first");
        } else if self.puts_back_harmlessly() {
            // Such a queue may have a shorter one of its own.
            arguments.long(CONSUMER_TIMEOUT, HOLDS.as_millis() as i64);
        }
        let tag = self.window.tag();
        self.set_prefetch(self.window.prefetch(), fx);
        reply::method(
            fx.broker.build(&[]),
            channel,
            MethodId::BASIC_CONSUME,
            |a| {
                a.short(0)
                    .shortstr(&self.settings.queue)
                    .shortstr(&tag)
                    .octet(0)
                    .longstr(&arguments.finish())
                    .end();
            },
        );
    }

    pub(super) fn set_prefetch(&self, messages: u16, fx: &mut Effects) {
        let (out, channel) = (fx.broker.build(&[]), ChannelId(self.channel));
        reply::method(out, channel, MethodId::BASIC_QOS, |a| {
            a.long(0).short(messages).octet(0).end();
        });
    }

    pub(super) fn put_cancel(&self, fx: &mut Effects) {
        let tag = self.window.tag();
        let out = fx.broker.build(&[]);
        reply::method(out, ChannelId(self.channel), MethodId::BASIC_CANCEL, |a| {
            a.shortstr(&tag).octet(0).end();
        });
    }

    /// No message comes any more: all go back to their places.
    fn put_back(&mut self, fx: &mut Effects) {
        self.state = State::Closing;
        let quorum = self.summary.queue_type == QueueType::Quorum;
        let harmless = self.puts_back_harmlessly();
        self.summary.counted |= quorum && !harmless && self.held() > 0;
        self.summary.reordered |= quorum && self.leaves_some_behind();
        let (out, channel) = (fx.broker.build(&[]), ChannelId(self.channel));
        if harmless {
            reply::nack(out, channel, DeliveryTag(0), true, true);
        }
        reply::close(out, channel, 200, b"Goodbye", MethodId(0, 0));
    }

    /// A frame of the broker.
    ///
    /// # Errors
    /// What the broker did wrong.
    pub(super) fn frame(
        &mut self,
        frame: Frame<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Result<(), &'static str> {
        let payload = frame.payload;
        match frame.kind {
            Kind::Method => self.method(frame.channel, payload, now, fx)?,
            Kind::Header => {
                let arriving = self.arriving.as_mut().ok_or(UNREADABLE)?;
                arriving.header(payload).map_err(|_| UNREADABLE)?;
                self.octets += payload.len() as u64;
            }
            Kind::Body => {
                let arriving = self.arriving.as_mut().ok_or(UNREADABLE)?;
                let most = match self.settings.task {
                    Task::Look(Bodies::Begin) => Filter::SEARCHED,
                    Task::Look(Bodies::Whole) | Task::Move(_) => usize::MAX,
                };
                let kept = arriving.piece(payload, most);
                kept.map_err(|_| UNREADABLE)?;
                self.octets += payload.len() as u64;
            }
            Kind::Heartbeat | Kind::Other(_) => {}
        }
        if let Some(whole) = self.arriving.take_if(|arriving| arriving.is_whole()) {
            let walks = self.state == State::Walking;
            match &mut self.moving {
                // It was read for the sake of an answer behind it.
                Some(moving) if walks && (self.rests || moving.asking.has_stash()) => {
                    moving.asking.stash(whole);
                }
                _ => self.passed(whole, now, fx),
            }
        }
        Ok(())
    }

    pub(super) fn passed(&mut self, whole: Arriving, now: Now, fx: &mut Effects) {
        // What comes behind the end of a walk was not asked for, and goes back like all others.
        if self.state != State::Walking {
            return;
        }
        self.summary.seen += 1;
        (self.since, self.summary.starves) = (now.mono, false);
        self.is_said_to_be_empty = false;
        let (letter, tag) = whole.finish();
        match &mut self.moving {
            None => fx.out.letters.push(letter),
            Some(moving) => match moving.take(&letter, tag, self.link.dialect(), now) {
                Fate::Stays | Fate::Waits => {}
                Fate::Gone => self.ack_all(vec![tag], fx),
                Fate::Publish(ticket, publication) => fx.out.publish.push((ticket, publication)),
            },
        }
        match self.bound() {
            Some(bound) => self.stop(bound, now, fx),
            None => self.wait(now),
        }
    }

    /// Whatever ends the walk here.
    fn bound(&self) -> Option<Stopped> {
        let (seen, bounds) = (self.summary.seen, self.settings.bounds);
        if self.summary.ready == Some(seen) {
            return Some(Stopped::End);
        }
        let moving = self.moving.as_ref();
        if moving.is_some_and(Moving::is_done) {
            return Some(Stopped::Enough);
        }
        let holds_enough = moving.is_some_and(Moving::holds_enough);
        if seen >= bounds.messages || holds_enough || self.has_no_room() {
            return Some(Stopped::Messages);
        }
        (self.octets >= bounds.octets || self.is_too_heavy()).then_some(Stopped::Octets)
    }

    /// What became of messages that the publisher was handed.
    pub(super) fn settled(&mut self, outcomes: Vec<(Ticket, Outcome)>, now: Now, fx: &mut Effects) {
        let mut gone = Vec::new();
        if let Some(moving) = &mut self.moving {
            let dialect = self.link.dialect();
            let tags = outcomes.into_iter();
            gone.extend(
                tags.filter_map(|(ticket, outcome)| moving.settled(ticket, outcome, dialect, now)),
            );
        }
        if self.state != State::Ended {
            self.ack_all(gone, fx);
        }
        self.end_at_bound(now, fx);
    }

    pub(super) fn end_at_bound(&mut self, now: Now, fx: &mut Effects) {
        if self.state == State::Walking
            && let Some(bound) = self.bound()
        {
            self.stop(bound, now, fx);
        }
    }

    /// Those before which nothing is left are acked in one frame: the broker pays for each.
    fn ack_all(&mut self, mut tags: Vec<DeliveryTag>, fx: &mut Effects) {
        let first = self.moving.as_ref().and_then(Moving::first_unacked);
        tags.sort_unstable();
        let together = tags.partition_point(|tag| first.is_none_or(|first| *tag < first));
        if self.has_questions() {
            self.summary.unread += tags.len() as u64;
        }
        let mut room = 0;
        for (i, tag) in tags.into_iter().enumerate() {
            self.acked += 1;
            room += u64::from(self.window.acked(tag));
            if i + 1 >= together {
                let multiple = i > 0 && i + 1 == together;
                self.ack(tag, multiple, fx);
            }
        }
        if self.gets {
            self.get_on(room, fx);
        }
    }

    fn ack(&mut self, tag: DeliveryTag, multiple: bool, fx: &mut Effects) {
        reply::ack(fx.broker.build(&[]), ChannelId(self.channel), tag, multiple);
    }

    pub(super) fn wait(&mut self, now: Now) {
        let pause = match self.summary.ready {
            Some(_) => PAUSE,
            None => LONG_PAUSE,
        };
        self.quiet = Some(now.mono.after(pause));
    }

    fn method(
        &mut self,
        channel: ChannelId,
        payload: &[u8],
        now: Now,
        fx: &mut Effects,
    ) -> Result<(), &'static str> {
        let id = MethodId::peek(payload).ok_or(UNREADABLE)?;
        match (id, self.state) {
            _ if self.asks_on(channel.0) => self.told(id, payload, now, fx)?,
            (MethodId::QUEUE_DECLARE_OK, _) => {
                let counted = QueueDeclareOk::parse(payload).map_err(|_| UNREADABLE)?;
                self.counted(&counted, now, fx);
            }
            // Of the next window: what it says comes in order, so no answer is taken for that of the last consumer.
            (MethodId::BASIC_CONSUME_OK, _) if self.window.opens => self.window.opens = false,
            (MethodId::BASIC_CANCEL_OK | MethodId::BASIC_QOS_OK, _) if self.window.opens => {}
            (MethodId::BASIC_CONSUME_OK, State::Asking { as_stream: true })
                if self.moving.is_some() =>
            {
                self.fail(Failure::Stream, now, fx);
            }
            (MethodId::BASIC_CONSUME_OK, State::Asking { as_stream }) => {
                if as_stream {
                    self.summary.queue_type = QueueType::Stream;
                }
                self.begun(now);
            }
            (MethodId::BASIC_GET_EMPTY, _) => self.got_none(now, fx),
            (MethodId::BASIC_DELIVER | MethodId::BASIC_GET_OK, _) => {
                let deliver = match self.gets {
                    true => Walk::got(payload)?,
                    false => Deliver::parse(payload).map_err(|_| UNREADABLE)?,
                };
                self.arriving = Some(Arriving::begin(&deliver, self.summary.seen + 1));
                self.delivered += 1;
                self.window.came(deliver.delivery_tag);
                self.summary.taken += 1;
                self.last_had_come_back = deliver.redelivered;
                if matches!(self.state, State::Passing | State::Emptying) {
                    self.quiet = Some(now.mono.after(PAUSE));
                }
            }
            // The acks are with the queue now, but the channel may hold some of them back (S9.1); behind this question it does not.
            (MethodId::BASIC_CANCEL_OK, State::Cancelling) => self.set_prefetch(1, fx),
            (MethodId::BASIC_QOS_OK, State::Cancelling) => self.put_back(fx),
            // The queue is gone; or messages were held for too long, from 4.3 on. Whether it is there tells which.
            (MethodId::BASIC_CANCEL, _) => {
                self.state = State::Dismissed;
                self.quiet = None;
                self.until = Some(now.mono.after(LAST));
                self.ask_count(fx);
            }
            (MethodId::CHANNEL_CLOSE_OK, State::Closing) if channel == ChannelId(self.channel) => {
                match self.restarts {
                    true => self.shelve(now, fx),
                    false => self.returning(now, fx),
                }
            }
            (MethodId::CHANNEL_CLOSE, _) => {
                reply::close_ok(fx.broker.build(&[]), channel);
                self.refused(payload, now, fx)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Messages come from now on.
    pub(super) fn begun(&mut self, now: Now) {
        self.state = State::Walking;
        self.until = Some(self.ends);
        (self.began, self.since) = (now.mono, now.mono);
        self.shelf_later(now);
        self.wait(now);
    }

    /// How many messages there are: at the beginning, or when none came for a while.
    fn counted(&mut self, counted: &QueueDeclareOk<'_>, now: Now, fx: &mut Effects) {
        let ready = u64::from(counted.message_count);
        match self.state {
            State::Counting => {
                self.summary.ready = Some(ready);
                self.summary.consumers = Some(counted.consumer_count.into());
                match ready {
                    0 => self.stop(Stopped::End, now, fx),
                    _ if self.test_rights(fx) => {}
                    _ => self.consume(true, fx),
                }
            }
            State::Returning if self.left().is_none_or(|left| ready >= left) => self.leave(now, fx),
            State::Returning => self.quiet = Some(now.mono.after(RETURN_PAUSE)),
            // What was on its way when the broker answered comes before its next answer.
            State::Walking if ready == 0 && self.is_said_to_be_empty && !self.has_stash() => {
                self.stop(Stopped::End, now, fx);
            }
            State::Walking => {
                self.is_said_to_be_empty = ready == 0;
                self.summary.starves = self.since.after(STARVES) <= now.mono;
                self.wait(now);
            }
            State::Dismissed => self.fail(Failure::Connection(DISMISSED.to_owned()), now, fx),
            // It is as it was declared, and stays without consumers.
            State::Comparing { .. } => self.begin(now, fx),
            _ => {}
        }
    }

    /// The broker has closed the channel.
    fn refused(&mut self, payload: &[u8], now: Now, fx: &mut Effects) -> Result<(), &'static str> {
        let close = Close::parse(payload).map_err(|_| UNREADABLE)?;
        match (self.state, close.code) {
            // From 4.3 on this takes the right to configure the queue; to read it is enough to look at it.
            (State::Counting, ACCESS_REFUSED) if self.moving.is_none() => {
                self.open_channel(fx);
                self.consume(true, fx);
            }
            (State::Asking { as_stream: true }, PRECONDITION_FAILED) => {
                if close.text.ends_with(QUORUM) {
                    self.summary.queue_type = QueueType::Quorum;
                }
                match self.would_be_alone() {
                    true => self.ask_fate(true, fx),
                    false => {
                        self.open_channel(fx);
                        self.consume(false, fx);
                    }
                }
            }
            (State::Comparing { durable }, _) => self.learn_fate(durable, &close, now, fx),
            (State::Dismissed, code) => {
                let what = match code {
                    NOT_FOUND => "the queue is gone",
                    _ => DISMISSED,
                };
                self.fail(Failure::Connection(what.to_owned()), now, fx);
            }
            // It is gone, or somebody has begun to consume it alone.
            (State::Returning, _) => self.leave(now, fx),
            (_, code) => {
                let text = String::from_utf8_lossy(close.text).into_owned();
                self.fail(Failure::Refused { code, text }, now, fx);
            }
        }
        Ok(())
    }
}
