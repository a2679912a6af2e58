//! May this user read these queues? One connection asks for all of them, some at a time, and takes no message.
//!
//! ```text
//! link up ─▶ channels ─▶ consume, as if it were a stream, without a prefetch ─▶ refused, which closes the channel ─▶ the same for the next queue
//! ```
//! A stream refuses to be consumed without a prefetch, all other queues refuse the argument (S12.4); the broker looks at the rights first. So the
//! code of the refusal is the answer.

use std::collections::BTreeMap;
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

/// Questions at a time, each on a channel that is reopened for the next one: the broker answers them side by side.
pub const AT_ONCE: u16 = 16;

/// In the order of the queues: `None` if readable, else the reason.
pub type Answers = Vec<Option<Failure>>;

/// Comes once, last.
pub(super) type Output = Option<Result<Answers, Failure>>;

/// Effects of these questions.
type Effects = crate::machine::Effects<Output>;

#[derive(Debug)]
pub struct Readable {
    link: Link,
    queues: Vec<ShortStr>,
    /// The first queue that was not asked for.
    next: usize,
    /// Of which queue each channel asks.
    open: BTreeMap<ChannelId, usize>,
    at_once: u16,
    answers: Answers,
    until: Mono,
    once: Once,
}

// === impl Readable ===

impl Readable {
    /// `within`: limit for all answers.
    pub fn new(
        login: Login,
        queues: Vec<ShortStr>,
        (at_once, within): (u16, Duration),
        now: Now,
    ) -> Readable {
        Readable {
            link: Link::new(Role::Walk, login),
            answers: vec![None; queues.len()],
            queues,
            next: 0,
            open: BTreeMap::new(),
            at_once,
            until: now.mono.after(within),
            once: Once::default(),
        }
    }

    /// The next question on this channel. After the last answer it ends.
    fn ask(&mut self, channel: ChannelId, now: Now, fx: &mut Effects) {
        let Some(queue) = self.queues.get(self.next) else {
            if self.open.is_empty() {
                self.once.end(&mut self.link, now, fx);
            }
            return;
        };
        self.open.insert(channel, self.next);
        self.next += 1;
        let mut arguments = TableBuilder::default();
        arguments.longstr(STREAM_OFFSET, b"first");
        let out = fx.broker.build(&[]);
        reply::channel_open(out, channel);
        reply::consume(out, channel, queue, b"", &arguments.finish());
    }

    fn answered(
        &mut self,
        channel: ChannelId,
        answer: Option<Failure>,
        now: Now,
        fx: &mut Effects,
    ) {
        let queue = self.open.remove(&channel);
        if let Some(slot) = queue.and_then(|queue| self.answers.get_mut(queue)) {
            *slot = answer;
        }
        self.ask(channel, now, fx);
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
        let most = self.at_once.min(self.link.channel_max());
        let questions = self.queues.len().clamp(1, most.max(1).into());
        for channel in 1..=questions as u16 {
            self.ask(ChannelId(channel), now, fx);
        }
    }

    fn frame(&mut self, frame: Frame<'_>, now: Now, fx: &mut Effects) -> Result<(), &'static str> {
        let channel = frame.channel;
        match frame.method() {
            Some(MethodId::CHANNEL_CLOSE) => {
                let (code, text) = frame.closed(fx);
                let refused = Failure::Refused { code, text };
                self.answered(
                    channel,
                    (code != PRECONDITION_FAILED).then_some(refused),
                    now,
                    fx,
                );
            }
            // It may, and what comes of it is put back.
            Some(MethodId::BASIC_CONSUME_OK) => {
                let out = fx.broker.build(&[]);
                reply::close(out, channel, 200, b"Goodbye", MethodId(0, 0));
            }
            Some(MethodId::CHANNEL_CLOSE_OK) => self.answered(channel, None, now, fx),
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
