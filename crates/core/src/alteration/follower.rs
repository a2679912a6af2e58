//! Takes part where another proxy makes a queue anew: the clients of this one wait, too.
//!
//! ```text
//! link up ─▶ an exclusive queue ─▶ read it ─▶ "I take part" ─▶ told: hold, settle, cancel ─▶ "they are so far" ─▶ over ─▶ "I take part"
//!                                                                                                                  ended ─▶ Ended
//! ```
//! Silence ends it. The queue is deleted only when this proxy has said that its clients read no more from it: before that they go on at once. Behind
//! that they wait, and the shell finds out whether the order still stands: it finishes it, or takes part once more.

use std::time::Duration;

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{Consume, MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::link::{Frame, Link, Linked, Loss};
use crate::machine::{Flow, Mono, Now, Role};
use crate::mover::{Keep, Mover};
use crate::objects::OwnObject;
use crate::session::Ready;
use crate::walk::{Failure as LinkFailure, Once};

use super::awaited::Awaited;
use super::others::{self, Numbered, Reply, Word};
use super::steps::{TAG, consume};
use super::{Altered, Effects, Input, Made, Output, PATIENCE, Settings, Told, plan};

const CHANNEL: ChannelId = ChannelId(1);
/// While clients go on the one at work says something ten times a second. While they wait it ends an attempt within 0.7 s.
const SILENT: Duration = Duration::from_secs(3);
const SILENT_MEANWHILE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Follower {
    settings: Settings,
    link: Link,
    mover: Mover<()>,
    queue: ShortStr,
    attempt: u32,
    awaited: Awaited,
    /// Clients wait from an earlier part in it, whose end was not heard.
    holds: bool,
    said: Option<Ready>,
    until: Mono,
    once: Once,
}

// === impl Follower ===

impl Follower {
    pub fn new(settings: Settings, holds: bool, now: Now) -> Follower {
        let proxy = format!("{:x}", settings.login.seed);
        let queue = OwnObject::Follower(proxy.as_bytes());
        Follower {
            queue: settings.names.name(&queue).unwrap_or_default(),
            link: Link::new(Role::Walk, settings.login.clone()),
            settings,
            mover: Mover::new(CHANNEL, 0),
            attempt: 0,
            awaited: Awaited::default(),
            holds,
            said: None,
            until: now.mono.after(PATIENCE),
            once: Once::default(),
        }
    }

    fn hear(&mut self, told: Numbered, now: Now, fx: &mut Effects) {
        let silent = match told.word {
            Word::Told(Told::Hold | Told::Settle | Told::Cancel) => SILENT_MEANWHILE,
            Word::Told(Told::Moving | Told::Over(_)) | Word::Waits | Word::Ended => SILENT,
        };
        self.until = now.mono.after(silent);
        self.attempt = told.attempt;
        let holds = std::mem::take(&mut self.holds);
        match told.word {
            Word::Waits if holds => fx.out.swap.push(Told::Over(Made::Stays)),
            Word::Waits => {}
            Word::Ended => self.once.end(&mut self.link, now, fx),
            Word::Told(Told::Hold | Told::Moving) if holds => {
                self.holds = true;
                fx.out.swap.push(Told::Moving); // the publisher's pause goes on
            }
            Word::Told(told) => {
                self.said = None;
                self.awaited.begin(told);
                fx.out.swap.push(told);
                if let Told::Over(_) = told {
                    self.reply(None, fx);
                }
            }
        }
    }

    fn reply(&self, ready: Option<Ready>, fx: &mut Effects) {
        let Settings { names, order, .. } = &self.settings;
        let claim = plan::claim(names, &order.queue).unwrap_or_default();
        let reply = Reply {
            queue: String::from_utf8_lossy(&self.queue).into_owned(),
            order: order.mark(),
            ready,
            attempt: self.attempt,
        };
        others::send(CHANNEL, &self.link, &claim, &reply, fx);
    }
}

impl Linked for Follower {
    type Input = Input;
    type Output = Output;

    fn link(&self) -> &Link {
        &self.link
    }

    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    fn up(&mut self, _: Now, fx: &mut Effects) {
        let out = fx.broker.build(&[]);
        reply::channel_open(out, CHANNEL);
        reply::declare_queue(out, CHANNEL, &self.queue, QueueDeclare::EXCLUSIVE, &[]);
    }

    fn frame(&mut self, frame: Frame<'_>, now: Now, fx: &mut Effects) -> Result<(), &'static str> {
        match frame.method() {
            Some(MethodId::QUEUE_DECLARE_OK) => {
                consume(CHANNEL, &self.queue, TAG, Consume::NO_ACK, &[], fx);
            }
            Some(MethodId::BASIC_CONSUME_OK) => {
                self.until = now.mono.after(SILENT);
                self.reply(None, fx);
            }
            Some(MethodId::CHANNEL_CLOSE) => {
                let (code, text) = frame.closed(fx);
                self.once.fails(LinkFailure::Refused { code, text });
                self.once.end(&mut self.link, now, fx);
            }
            _ => {}
        }
        if let Some(mut delivery) = self.mover.frame(frame, Keep::Whole)?
            && let Some(told) = others::read(&mut delivery, &self.link)
        {
            self.hear(told, now, fx);
        }
        Ok(())
    }

    fn lost(&mut self, _: Loss, _: Now, _: &mut Effects) {}

    fn on_input(&mut self, input: Input, _: Now, fx: &mut Effects) {
        self.awaited.hear(input);
        let done = self.awaited.done();
        if done.is_some() && self.said != done {
            self.said = done;
            self.reply(done, fx);
        }
    }

    fn ends(&mut self, now: Now, fx: &mut Effects) {
        // Clients that wait do so until the queue is there again: that, or silence, is told soon.
        if self.awaited.wanted.is_none() {
            self.once.end(&mut self.link, now, fx);
        }
    }

    fn due(&mut self, now: Now, fx: &mut Effects) {
        if self.until <= now.mono && !self.once.has_ended() {
            self.once.fails(LinkFailure::Silent);
            self.once.end(&mut self.link, now, fx);
        }
    }

    fn wake(&self) -> Option<Mono> {
        (!self.once.has_ended()).then_some(self.until)
    }

    fn after(&mut self, _: Now, fx: &mut Effects) {
        if let Some(over) = self.once.over(fx) {
            if self.awaited.wanted.is_some() && self.said != Some(Ready::Cancelled) {
                fx.out.swap.push(Told::Over(Made::Stays));
            }
            fx.out.ended = Some(over.map(|()| Altered::default()).map_err(Into::into));
        }
    }

    fn course(&self) -> Flow {
        self.once.course(&self.link)
    }
}
