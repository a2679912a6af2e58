//! May this user publish there? The publisher's link moves the messages, so the broker is asked in the user's own name before.
//!
//! AMQP has no such question, so an empty message is published in a transaction that is rolled back (S12.5): the broker looks at all that the
//! user needs, topic permissions too, but no queue gets it. That takes a channel of its own, since acks on it would be rolled back, too.
//!
//! ```text
//! before the first message: the exchange, with the key that all get, else with an empty one ─ refused ─▶ the walk fails
//! each key of the messages' own, when the first message with it has come ─ refused ─▶ all with that key stay
//! each exchange and key of a message that goes back, as its consumer will read them ─ refused ─▶ the same
//! ```
//! Who wrote into the queue may have made up what a message says of its past. An exchange that is gone, or internal, the broker names only to those
//! who may write to it by its name: nobody could publish to it now, but the user may have once, or may by a queue's dead letters.

use crate::amqp::content::Content;
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{Close, MethodId};
use crate::amqp::reply;
use crate::amqp::reply_code::NOT_FOUND;
use crate::amqp::table::{ArrayBuilder, TableBuilder};
use crate::dead_letter::redrive::{Destination, Route};
use crate::machine::Now;

use super::asking::Answer;
use super::channels::UNREADABLE;
use super::{BEGINNING, Effects, Failure, QueueType, State, Walk};

/// The channel of the questions. The first channel counts the messages.
const CHANNEL: u16 = 2;
/// What a refusal says that is about the key, and not about the exchange.
const TOPIC: &[u8] = b"access to topic '";
/// What it says of an exchange to which nobody can publish; the right to write to it was looked at before.
const INTERNAL: &[u8] = b"cannot publish to internal exchange";
const CC: &[u8] = b"CC";
/// Without it an exchange of the type `x-recent-history` would remember the empty message.
const NO_STORE: &[u8] = b"x-recent-history-no-store";
/// The property flag of `headers`.
const HEADERS: [u8; 2] = [0x20, 0];

impl Walk {
    /// Asks, if messages are to be published. False: there is nothing to ask.
    pub(super) fn test_rights(&mut self, fx: &mut Effects) -> bool {
        let key = match self.moving.as_ref().and_then(|moving| moving.to()) {
            None => return false,
            Some(Destination::Source | Destination::Queue(_)) => ShortStr::EMPTY,
            Some(Destination::Exchange { routing_key, .. }) => {
                routing_key.clone().unwrap_or(ShortStr::EMPTY)
            }
        };
        let exchange = self.exchange().unwrap_or(ShortStr::EMPTY);
        self.put_questions(&[Route::new(&exchange, &key)], fx);
        self.state = State::Testing;
        true
    }

    /// The questions have that channel.
    pub(super) fn asks_on(&self, channel: u16) -> bool {
        channel == CHANNEL && self.moving.as_ref().is_some_and(|it| it.to().is_some())
    }

    /// Asks for the keys of messages that have come.
    pub(super) fn ask(&mut self, now: Now, fx: &mut Effects) {
        if let Some(moving) = &mut self.moving
            && let State::Walking | State::Settling = self.state
        {
            let routes = moving.asking.questions(now.mono.after(BEGINNING));
            self.put_questions(&routes, fx);
        }
    }

    /// The exchange that all messages go to, if they do.
    fn exchange(&self) -> Option<ShortStr> {
        match self.moving.as_ref()?.to()? {
            Destination::Exchange { exchange, .. } => Some(exchange.clone()),
            Destination::Source | Destination::Queue(_) => None,
        }
    }

    fn put_questions(&mut self, routes: &[Route], fx: &mut Effects) {
        let Some(moving) = self.moving.as_mut().filter(|_| !routes.is_empty()) else {
            return;
        };
        let was_open = std::mem::replace(&mut moving.asking.is_open, true);
        let (out, channel) = (fx.broker.build(&[]), ChannelId(CHANNEL));
        if !was_open {
            reply::channel_open(out, channel);
            reply::method(out, channel, MethodId::TX_SELECT, |_| {});
        }
        for route in routes {
            reply::method(out, channel, MethodId::BASIC_PUBLISH, |a| {
                a.short(0)
                    .shortstr(&route.exchange)
                    .shortstr(&route.routing_key)
                    .octet(0)
                    .end();
            });
            question(&route.cc).put(out, channel, 0);
            reply::method(out, channel, MethodId::TX_ROLLBACK, |_| {});
        }
    }

    /// What the broker says on the channel of the questions.
    ///
    /// # Errors
    /// What the broker did wrong.
    pub(super) fn told(
        &mut self,
        id: MethodId,
        payload: &[u8],
        now: Now,
        fx: &mut Effects,
    ) -> Result<(), &'static str> {
        match id {
            MethodId::TX_ROLLBACK_OK if self.state == State::Testing => {
                self.learn_first();
                self.consume(true, fx);
            }
            MethodId::TX_ROLLBACK_OK => self.answered(Answer::May, now, fx),
            MethodId::CHANNEL_CLOSE => {
                let close = Close::parse(payload).map_err(|_| UNREADABLE)?;
                reply::close_ok(fx.broker.build(&[]), ChannelId(CHANNEL));
                if let Some(moving) = &mut self.moving {
                    moving.asking.is_open = false;
                }
                let text = String::from_utf8_lossy(close.text).into_owned();
                match self.state {
                    // Each message has a key of its own, and that is asked for later.
                    State::Testing if self.has_own_keys() && is_of_topic(&close) => {
                        self.consume(true, fx);
                    }
                    State::Testing => {
                        let code = close.code;
                        self.fail(Failure::Refused { code, text }, now, fx);
                    }
                    _ if self.exchange().is_none() && is_of_no_use(&close) => {
                        self.answered(Answer::May, now, fx);
                    }
                    _ => self.answered(Answer::Not(text), now, fx),
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The user may publish to the exchange with the key that all get: that is not asked again.
    fn learn_first(&mut self) {
        if let Some(moving) = &mut self.moving
            && let Some(Destination::Exchange {
                exchange,
                routing_key: Some(key),
            }) = moving.to()
        {
            let route = Route::new(exchange, key);
            moving.asking.learn(route, Answer::May);
        }
    }

    fn answered(&mut self, answer: Answer, now: Now, fx: &mut Effects) {
        if let Some(moving) = &mut self.moving {
            fx.out.publish.extend(moving.answered(answer));
        }
        if !self.has_questions() {
            // The broker has read all that stood before its last answer.
            self.summary.unread = 0;
        }
        self.end_at_bound(now, fx);
    }

    /// An answer that does not come ends the walk; but an alarm is waited for, as the publisher does.
    pub(super) fn miss_answers(&mut self, now: Now, fx: &mut Effects) {
        let Some(moving) = &mut self.moving else {
            return;
        };
        let asking = &mut moving.asking;
        if !asking.is_late(now.mono) || !asking.waits() {
            return;
        }
        match (self.link.is_blocked(), asking.hears()) {
            (true, true) => {}
            (true, false) => self.fail(Failure::Blocked, now, fx),
            (false, _) => self.fail(Failure::Silent, now, fx),
        }
    }

    /// The broker is read on for the sake of an answer.
    pub(super) fn hears(&self) -> bool {
        self.moving.as_ref().is_some_and(|it| it.asking.hears())
    }

    /// Takes what had to be read before an answer, as far as it may be taken now.
    pub(super) fn take_stashed(&mut self, now: Now, fx: &mut Effects) {
        while let Some(moving) = &mut self.moving
            && moving.asking.has_stash()
        {
            if self.state != State::Walking {
                return moving.asking.drop_stash();
            }
            if self.rest(now) {
                return;
            }
            let moving = self.moving.as_mut();
            if let Some(whole) = moving.and_then(|moving| moving.asking.unstash()) {
                self.passed(whole, now, fx);
            }
        }
    }

    /// Some messages were read, and not looked at yet.
    pub(super) fn has_stash(&self) -> bool {
        self.moving.as_ref().is_some_and(|it| it.asking.has_stash())
    }

    /// The broker was sent questions that it has not answered.
    pub(super) fn has_questions(&self) -> bool {
        self.moving
            .as_ref()
            .is_some_and(|it| it.asking.has_questions())
    }

    /// The broker has an alarm, and reads nothing of this connection until that is over: it has been asked something in it.
    pub fn is_blocked(&self) -> bool {
        self.link.is_blocked() && (self.has_questions() || self.state == State::Testing)
    }

    /// In an alarm the broker cannot be told to put anything back. It does when it notices that the connection has ended.
    pub(super) fn cut(&mut self, now: Now, fx: &mut Effects) {
        self.summary.counted |= self.summary.queue_type == QueueType::Quorum && self.held() > 0;
        self.leave(now, fx);
    }

    fn has_own_keys(&self) -> bool {
        self.moving.as_ref().is_some_and(|it| it.has_own_keys())
    }
}

fn is_of_topic(close: &Close<'_>) -> bool {
    memchr::memmem::find(close.text, TOPIC).is_some()
}

/// The user may write to that exchange, which is gone or internal.
fn is_of_no_use(close: &Close<'_>) -> bool {
    close.code == NOT_FOUND || memchr::memmem::find(close.text, INTERNAL).is_some()
}

/// What is published, and rolled back. 4.3 looks at the topics of `CC`, too (S12.5).
fn question(cc: &[ShortStr]) -> Content {
    let mut headers = TableBuilder::default();
    headers.boolean(NO_STORE, true);
    if !cc.is_empty() {
        let mut keys = ArrayBuilder::default();
        for key in cc {
            keys.longstr(key);
        }
        headers.array(CC, &keys);
    }
    let headers = headers.finish();
    let size = (headers.len() as u32).to_be_bytes();
    Content {
        properties: [&HEADERS[..], &size, &headers].concat().into(),
        body: Default::default(),
    }
}
