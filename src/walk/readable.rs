//! May this user read these queues? One connection asks for all of them, one after another, and takes no message.
//!
//! ```text
//! link up ─▶ channel ─▶ consume, as if it were a stream, without a prefetch ─▶ refused, which closes the channel ─▶ the same for the next queue
//! ```
//! A stream refuses to be consumed without a prefetch, all other queues refuse the argument (S12.4); the broker looks at the rights first. So the
//! code of the refusal is the answer.

use std::collections::VecDeque;
use std::time::Duration;

use crate::amqp::STREAM_OFFSET;
use crate::amqp::frame::Kind;
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{Close, MethodId};
use crate::amqp::reply;
use crate::amqp::reply_code::PRECONDITION_FAILED;
use crate::amqp::table::TableBuilder;
use crate::link::{Frame, Link, Login, Step};
use crate::machine::{Event, Flow, Leg, Machine, Mono, Now, Role};

use super::Failure;
use super::channels::UNREADABLE;

/// The only channel: opened for each question.
const CHANNEL: ChannelId = ChannelId(1);

/// For each queue, in their order: nothing if it may be read, else why not.
pub type Answers = Vec<Option<Failure>>;

/// How it ended: comes once, last.
pub(super) type Output = Option<Result<Answers, Failure>>;

/// All that it wants done.
type Effects = crate::machine::Effects<Output>;

#[derive(Debug)]
pub struct Readable {
    link: Link,
    left: VecDeque<ShortStr>,
    answers: Answers,
    failure: Option<Failure>,
    /// When the broker has to have answered all of them.
    until: Mono,
    has_ended: bool,
    told: bool,
}

// === impl Readable ===

impl Readable {
    /// Questions that want their connection, and may take so long.
    pub fn new(login: Login, queues: Vec<ShortStr>, within: Duration, now: Now) -> Readable {
        Readable {
            link: Link::new(Role::Walk, login),
            left: queues.into(),
            answers: Vec::new(),
            failure: None,
            until: now.mono.after(within),
            has_ended: false,
            told: false,
        }
    }

    /// Asks for the first of those that are left.
    fn ask(&mut self, now: Now, fx: &mut Effects) {
        let Some(queue) = self.left.front() else {
            return self.end(now, fx);
        };
        let mut arguments = TableBuilder::default();
        arguments.longstr(STREAM_OFFSET, b"first");
        let out = fx.broker.build(&[]);
        reply::channel_open(out, CHANNEL);
        reply::method(out, CHANNEL, MethodId::BASIC_CONSUME, |a| {
            a.short(0)
                .shortstr(queue)
                .shortstr(b"")
                .octet(0)
                .longstr(&arguments.finish())
                .end();
        });
    }

    fn frame(&mut self, frame: Frame<'_>, now: Now, fx: &mut Effects) -> Result<(), &'static str> {
        if frame.kind != Kind::Method {
            return Ok(());
        }
        match MethodId::peek(frame.payload).ok_or(UNREADABLE)? {
            MethodId::CHANNEL_CLOSE => {
                let close = Close::parse(frame.payload).map_err(|_| UNREADABLE)?;
                reply::close_ok(fx.broker.build(&[]), CHANNEL);
                let code = close.code;
                let text = String::from_utf8_lossy(close.text).into_owned();
                let refused = Failure::Refused { code, text };
                self.answered((code != PRECONDITION_FAILED).then_some(refused), now, fx);
            }
            // It may, and what comes of it is put back.
            MethodId::BASIC_CONSUME_OK => {
                let out = fx.broker.build(&[]);
                reply::close(out, CHANNEL, 200, b"Goodbye", MethodId(0, 0));
            }
            MethodId::CHANNEL_CLOSE_OK => self.answered(None, now, fx),
            _ => {}
        }
        Ok(())
    }

    fn answered(&mut self, answer: Option<Failure>, now: Now, fx: &mut Effects) {
        if self.left.pop_front().is_some() {
            self.answers.push(answer);
        }
        self.ask(now, fx);
    }

    fn fail(&mut self, failure: Failure, now: Now, fx: &mut Effects) {
        self.failure.get_or_insert(failure);
        self.end(now, fx);
    }

    fn end(&mut self, now: Now, fx: &mut Effects) {
        self.has_ended = true;
        self.link.goodbye(now, fx);
    }

    /// What every call ends with.
    fn after(&mut self, fx: &mut Effects) {
        for event in std::mem::take(&mut fx.events) {
            if let Event::LinkDown { cause, .. } | Event::VhostNative { cause } = event
                && !self.has_ended
            {
                self.failure.get_or_insert(Failure::of_connection(cause));
                self.has_ended = true;
            }
        }
        if self.has_ended && !std::mem::replace(&mut self.told, true) {
            fx.out = Some(match self.failure.take() {
                Some(failure) => Err(failure),
                None => Ok(std::mem::take(&mut self.answers)),
            });
        }
    }
}

impl Machine for Readable {
    type Input = std::convert::Infallible;
    type Output = Output;

    fn connected(&mut self, _: Leg, now: Now, fx: &mut Effects) {
        self.link.connected(now, fx);
    }

    fn read(&mut self, _: Leg, bytes: &[u8], now: Now, fx: &mut Effects) -> usize {
        self.link.heard(now);
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..) {
            match self.link.step(rest, now, fx) {
                Step::More => break,
                Step::Took(n) | Step::Blocked(n) => taken += n,
                Step::Up(n) => {
                    taken += n;
                    self.ask(now, fx);
                }
                Step::Frame(n, frame) => {
                    taken += n;
                    if let Err(what) = self.frame(frame, now, fx) {
                        self.fail(Failure::Connection(what.to_owned()), now, fx);
                    }
                }
                Step::Down(_) => taken = bytes.len(),
            }
        }
        self.after(fx);
        taken
    }

    fn closed(&mut self, _: Leg, now: Now, fx: &mut Effects) {
        self.link.closed(now, fx);
        self.after(fx);
    }

    fn input(&mut self, input: Self::Input, _: Now, _: &mut Effects) {
        match input {}
    }

    fn drain(&mut self, now: Now, fx: &mut Effects) {
        let ends = Failure::Connection("the proxy ends".to_owned());
        self.fail(ends, now, fx);
        self.after(fx);
    }

    fn timeout(&mut self, now: Now, fx: &mut Effects) {
        self.link.timeout(now, fx);
        if self.until <= now.mono && !self.has_ended {
            self.fail(Failure::Silent, now, fx);
        }
        self.after(fx);
    }

    fn deadline(&self) -> Option<Mono> {
        let silent = (!self.has_ended).then_some(self.until);
        [self.link.deadline(), silent].into_iter().flatten().min()
    }

    fn wants_read(&self, _: Leg, _: usize) -> bool {
        true
    }

    fn flow(&self) -> Flow {
        match self.link.flow() {
            Flow::Reconnect(_) if self.told => Flow::Finish,
            flow => flow,
        }
    }
}
