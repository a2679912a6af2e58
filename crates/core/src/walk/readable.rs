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
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::amqp::reply_code::PRECONDITION_FAILED;
use crate::amqp::table::TableBuilder;
use crate::link::{Frame, Link, Linked, Login, Loss};
use crate::machine::{Flow, Mono, Now, Role};

use super::Failure;
use super::once::Once;

/// Reopened for each question.
const CHANNEL: ChannelId = ChannelId(1);

/// In the order of the queues: `None` if readable, else the reason.
pub type Answers = Vec<Option<Failure>>;

/// Comes once, last.
pub(super) type Output = Option<Result<Answers, Failure>>;

/// Effects of these questions.
type Effects = crate::machine::Effects<Output>;

#[derive(Debug)]
pub struct Readable {
    link: Link,
    left: VecDeque<ShortStr>,
    answers: Answers,
    until: Mono,
    once: Once,
}

// === impl Readable ===

impl Readable {
    /// `within`: limit for all answers.
    pub fn new(login: Login, queues: Vec<ShortStr>, within: Duration, now: Now) -> Readable {
        Readable {
            link: Link::new(Role::Walk, login),
            left: queues.into(),
            answers: Vec::new(),
            until: now.mono.after(within),
            once: Once::default(),
        }
    }

    fn ask(&mut self, now: Now, fx: &mut Effects) {
        let Some(queue) = self.left.front() else {
            return self.once.end(&mut self.link, now, fx);
        };
        let mut arguments = TableBuilder::default();
        arguments.longstr(STREAM_OFFSET, b"first");
        let out = fx.broker.build(&[]);
        reply::channel_open(out, CHANNEL);
        reply::consume(out, CHANNEL, queue, b"", &arguments.finish());
    }

    fn answered(&mut self, answer: Option<Failure>, now: Now, fx: &mut Effects) {
        if self.left.pop_front().is_some() {
            self.answers.push(answer);
        }
        self.ask(now, fx);
    }

    fn fail(&mut self, failure: Failure, now: Now, fx: &mut Effects) {
        self.once.fails(failure);
        self.once.end(&mut self.link, now, fx);
    }
}

impl Linked for Readable {
    type Input = std::convert::Infallible;
    type Output = Output;

    fn link(&self) -> &Link {
        &self.link
    }

    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    fn up(&mut self, now: Now, fx: &mut Effects) {
        self.ask(now, fx);
    }

    fn frame(&mut self, frame: Frame<'_>, now: Now, fx: &mut Effects) -> Result<(), &'static str> {
        match frame.method() {
            Some(MethodId::CHANNEL_CLOSE) => {
                let (code, text) = frame.closed(fx);
                let refused = Failure::Refused { code, text };
                self.answered((code != PRECONDITION_FAILED).then_some(refused), now, fx);
            }
            // It may, and what comes of it is put back.
            Some(MethodId::BASIC_CONSUME_OK) => {
                let out = fx.broker.build(&[]);
                reply::close(out, CHANNEL, 200, b"Goodbye", MethodId(0, 0));
            }
            Some(MethodId::CHANNEL_CLOSE_OK) => self.answered(None, now, fx),
            _ => {}
        }
        Ok(())
    }

    fn lost(&mut self, _: Loss, _: Now, _: &mut Effects) {}

    fn on_input(&mut self, input: Self::Input, _: Now, _: &mut Effects) {
        match input {}
    }

    fn ends(&mut self, now: Now, fx: &mut Effects) {
        let ends = Failure::Connection("the proxy ends".to_owned());
        self.fail(ends, now, fx);
    }

    fn due(&mut self, now: Now, fx: &mut Effects) {
        if self.wake().is_some_and(|until| until <= now.mono) {
            self.fail(Failure::Silent, now, fx);
        }
    }

    fn wake(&self) -> Option<Mono> {
        (!self.once.has_ended()).then_some(self.until)
    }

    fn after(&mut self, _: Now, fx: &mut Effects) {
        if let Some(over) = self.once.over(fx) {
            fx.out = Some(over.map(|()| std::mem::take(&mut self.answers)));
        }
    }

    fn course(&self) -> Flow {
        self.once.course(&self.link)
    }
}
