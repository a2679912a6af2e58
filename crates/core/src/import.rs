//! Messages into a queue, in the name of a user, without IO: each is published through the default exchange, mandatory, and counts when it is
//! confirmed.
//!
//! ```text
//! link up ─▶ channel, confirms ─▶ publish, so many at a time ─▶ all are confirmed ─▶ close
//! ```
//! The connection is the user's, so the broker says what that user may write; and it is its own, and does not come back.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use crate::amqp::content::Content;
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{MethodId, Settle};
use crate::amqp::reply;
use crate::dead_letter::imported::imported;
use crate::dead_letter::{RuleSettings, Rules, delivery_time};
use crate::link::{Frame, Link, Linked, Login, Loss};
use crate::machine::{Flow, Mono, Now, Role};
use crate::walk::{Failure, Once};

#[cfg(test)]
mod tests;

const CHANNEL: ChannelId = ChannelId(1);
const MOST_AWAY: usize = 256;
/// Their bytes; a single message may exceed this.
const MOST_BYTES: usize = 1 << 20;
/// How long the broker may be silent: an alarm may end in this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// The broker reported the reason of its silence.
const ALARM: &str = "the broker has an alarm (memory or disk) and takes no messages";
const UNREADABLE: &str = "the broker sent what cannot be read";

#[derive(Clone, Debug)]
pub struct Settings {
    pub login: Login,
    pub queue: ShortStr,
    /// In order, with exported properties.
    pub messages: VecDeque<Content>,
    pub rules: RuleSettings,
    pub max_history: usize,
}

/// The counts add up to the number of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    pub imported: u64,
    /// Line numbers from 0: refused by the queue, or too large for a frame.
    pub refused: Vec<u64>,
    /// In flight at the end: may be in the queue.
    pub unsure: u64,
    /// Not sent, or returned because the queue is missing.
    pub left: u64,
    /// Sent without their `x-opt-delivery-time`, which was too far ahead.
    pub without_time: u64,
    pub failure: Option<Failure>,
}

pub type Output = Option<Imported>;

pub type Effects = crate::machine::Effects<Output>;

#[derive(Debug)]
struct Away {
    place: u64,
    bytes: usize,
}

#[derive(Debug)]
pub struct Import {
    settings: Settings,
    link: Link,
    /// Unconfirmed, by publish number.
    away: BTreeMap<u64, Away>,
    /// Messages taken up; and those published.
    taken: u64,
    sent: u64,
    confirmed: u64,
    returned: u64,
    refused: Vec<u64>,
    without_time: u64,
    /// Limit of the broker's silence.
    until: Mono,
    once: Once,
}

// === impl Import ===

impl Import {
    pub fn new(settings: Settings, now: Now) -> Import {
        Import {
            link: Link::new(Role::Walk, settings.login.clone()),
            settings,
            away: BTreeMap::new(),
            taken: 0,
            sent: 0,
            confirmed: 0,
            returned: 0,
            refused: Vec::new(),
            without_time: 0,
            until: now.mono.after(PATIENCE),
            once: Once::default(),
        }
    }

    /// Publishes up to the limits.
    fn publish(&mut self, now: Now, fx: &mut Effects) {
        if !self.once.has_failed() && self.link.is_up() && !self.once.has_ended() {
            let rules =
                self.settings
                    .rules
                    .at(self.link.dialect(), self.settings.max_history, false);
            while self.has_room()
                && let Some(message) = self.settings.messages.pop_front()
            {
                self.send(message, &rules, now, fx);
            }
        }
        let is_done = self.settings.messages.is_empty() || self.once.has_failed();
        if is_done && self.away.is_empty() && self.link.is_up() && !self.once.has_ended() {
            self.once.end(&mut self.link, now, fx);
        }
    }

    fn has_room(&self) -> bool {
        let bytes: usize = self.away.values().map(|away| away.bytes).sum();
        self.away.len() < MOST_AWAY && bytes < MOST_BYTES
    }

    fn send(&mut self, message: Content, rules: &Rules, now: Now, fx: &mut Effects) {
        let place = self.taken;
        self.taken += 1;
        let frame_max = self.link.frame_max();
        let properties = imported(&message.properties, &self.settings.login.user, rules);
        let properties = properties.map(|properties| {
            let edited = delivery_time::for_target(&properties, now.wall);
            self.without_time += u64::from(edited.as_ref().is_some_and(|it| it.too_far));
            edited.map_or(properties, |it| it.properties)
        });
        let content = properties.map(|properties| Content {
            properties,
            ..message
        });
        let Some(content) = content.ok().filter(|it| it.header_frame() <= frame_max) else {
            return self.refused.push(place);
        };
        let out = fx.broker.build(&[]);
        reply::publish(out, CHANNEL, b"", &self.settings.queue, true);
        content.put(out, CHANNEL, frame_max);
        self.sent += 1;
        let bytes = content.len();
        self.away.insert(self.sent, Away { place, bytes });
    }

    fn settled(&mut self, settle: Settle, acked: bool) {
        let tag = settle.delivery_tag.0;
        let first = if settle.multiple { 0 } else { tag };
        let tags: Vec<u64> = self.away.range(first..=tag).map(|(tag, _)| *tag).collect();
        for away in tags.into_iter().filter_map(|tag| self.away.remove(&tag)) {
            match acked {
                true => self.confirmed += 1,
                false => self.refused.push(away.place),
            }
        }
    }

    fn fail(&mut self, failure: Failure, now: Now, fx: &mut Effects) {
        self.once.fails(failure);
        self.once.end(&mut self.link, now, fx);
    }
}

impl Linked for Import {
    type Input = Infallible;
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
        reply::method(out, CHANNEL, MethodId::CONFIRM_SELECT, |a| {
            a.octet(0).end();
        });
    }

    fn frame(&mut self, frame: Frame<'_>, now: Now, fx: &mut Effects) -> Result<(), &'static str> {
        match frame.method() {
            Some(id @ (MethodId::BASIC_ACK | MethodId::BASIC_NACK)) => {
                let settle = Settle::parse(frame.payload).map_err(|_| UNREADABLE)?;
                self.settled(settle, id == MethodId::BASIC_ACK);
            }
            Some(MethodId::BASIC_RETURN) => {
                self.returned += 1;
                let queue = self.settings.queue.to_string();
                self.once.fails(Failure::Refused {
                    code: 404,
                    text: format!("NOT_FOUND - no queue '{queue}'"),
                });
            }
            Some(MethodId::CHANNEL_CLOSE) => {
                let (code, text) = frame.closed(fx);
                self.fail(Failure::Refused { code, text }, now, fx);
            }
            // What came back is known by its method; there is no need to read it again.
            _ => {}
        }
        self.until = now.mono.after(PATIENCE);
        Ok(())
    }

    fn lost(&mut self, _: Loss, _: Now, _: &mut Effects) {}

    fn on_input(&mut self, input: Infallible, _: Now, _: &mut Effects) {
        match input {}
    }

    /// Ends without waiting for unconfirmed messages.
    fn ends(&mut self, now: Now, fx: &mut Effects) {
        let ends = Failure::Connection("the proxy ends".to_owned());
        self.fail(ends, now, fx);
    }

    fn due(&mut self, now: Now, fx: &mut Effects) {
        if self.wake().is_some_and(|until| until <= now.mono) {
            let failure = match self.link.is_blocked() {
                true => Failure::Connection(ALARM.to_owned()),
                false => Failure::Silent,
            };
            self.fail(failure, now, fx);
        }
    }

    fn wake(&self) -> Option<Mono> {
        (!self.once.has_ended()).then_some(self.until)
    }

    fn after(&mut self, now: Now, fx: &mut Effects) {
        self.publish(now, fx);
        if let Some(over) = self.once.over(fx) {
            let mut refused = std::mem::take(&mut self.refused);
            refused.sort_unstable();
            fx.out = Some(Imported {
                imported: self.confirmed.saturating_sub(self.returned),
                refused,
                unsure: self.away.len() as u64,
                left: self.settings.messages.len() as u64 + self.returned,
                without_time: self.without_time,
                failure: over.err(),
            });
        }
    }

    fn course(&self) -> Flow {
        self.once.course(&self.link)
    }
}
