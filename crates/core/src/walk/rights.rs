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
//! The broker is asked once for each exchange and key, as topic permissions are about the key. Answers come in the order of the questions.
//!
//! Who wrote into the queue may have made up what a message says of its past. An exchange that is gone, or internal, the broker names only to those
//! who may write to it by its name: nobody could publish to it now, but the user may have once, or may by a queue's dead letters.

use std::collections::{BTreeMap, VecDeque};

use crate::amqp::content::Content;
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::amqp::reply_code::NOT_FOUND;
use crate::amqp::table::{ArrayBuilder, TableBuilder};
use crate::dead_letter::redrive::Route;
use crate::machine::Mono;

/// For questions. The first channel counts the messages.
pub(super) const QUESTIONS: ChannelId = ChannelId(2);
/// Remembered answers; beyond this number all are dropped.
const MOST_KNOWN: usize = 1_024;
/// A refusal because of the key, not the exchange.
const TOPIC: &str = "access to topic '";
/// An exchange that accepts no publish; write permission was checked before.
const INTERNAL: &str = "cannot publish to internal exchange";
const CC: &[u8] = b"CC";
/// Prevents an `x-recent-history` exchange from storing the empty message.
const NO_STORE: &[u8] = b"x-recent-history-no-store";
/// The property flag of `headers`.
const HEADERS: [u8; 2] = [0x20, 0];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    May,
    /// The broker's code, and its text.
    Not(u16, String),
}

#[derive(Debug, Default)]
pub(super) struct Rights {
    asked: VecDeque<Route>,
    /// How many of them were sent.
    sent: usize,
    known: BTreeMap<Route, Answer>,
    /// Deadline of the next answer.
    until: Option<Mono>,
    is_open: bool,
}

// === impl Answer ===

impl Answer {
    pub(super) fn is_of_topic(&self) -> bool {
        matches!(self, Answer::Not(_, text) if text.contains(TOPIC))
    }

    /// The user may write to it, but it is gone or internal.
    pub(super) fn is_of_no_use(&self) -> bool {
        matches!(self, Answer::Not(code, text) if *code == NOT_FOUND || text.contains(INTERNAL))
    }
}

// === impl Rights ===

impl Rights {
    /// `None`: unknown; asked or to be asked.
    pub(super) fn of(&mut self, route: &Route) -> Option<&Answer> {
        // For the default exchange the broker was asked first of all.
        if route.exchange.is_empty() {
            return Some(&Answer::May);
        }
        if !self.known.contains_key(route) && !self.asked.contains(route) {
            self.want(route.clone());
        }
        self.known.get(route)
    }

    pub(super) fn want(&mut self, route: Route) {
        self.asked.push_back(route);
    }

    /// `until`: deadline of the answer.
    pub(super) fn ask(&mut self, until: Mono, out: &mut Vec<u8>) {
        if self.asked.is_empty() {
            return;
        }
        self.until.get_or_insert(until);
        if !std::mem::replace(&mut self.is_open, true) {
            reply::channel_open(out, QUESTIONS);
            reply::method(out, QUESTIONS, MethodId::TX_SELECT, |_| {});
        }
        let sent = std::mem::replace(&mut self.sent, self.asked.len());
        for route in self.asked.iter().skip(sent) {
            let (exchange, key) = (&route.exchange, &route.routing_key);
            reply::publish(out, QUESTIONS, exchange, key, false);
            question(&route.cc).put(out, QUESTIONS, 0);
            reply::method(out, QUESTIONS, MethodId::TX_ROLLBACK, |_| {});
        }
    }

    /// The answer to the oldest question. A refusal has closed the channel: later questions are
    /// sent again.
    pub(super) fn answered(&mut self, answer: &Answer, refused: bool) -> Option<Route> {
        self.until = None;
        self.is_open = !refused;
        self.sent = match refused {
            true => 0,
            false => self.sent.saturating_sub(1),
        };
        let route = self.asked.pop_front()?;
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        // With several keys it would take much room.
        if route.cc.is_empty() {
            self.known.insert(route.clone(), answer.clone());
        }
        Some(route)
    }

    pub(super) fn has_questions(&self) -> bool {
        self.sent > 0
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.until
    }

    /// True once when the answer is late.
    pub(super) fn is_late(&mut self, now: Mono) -> bool {
        self.until.take_if(|at| *at <= now).is_some()
    }
}

/// Published and rolled back. 4.3 also checks the topics of `CC` (S12.5).
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::ids::name;

    fn key(text: &str) -> Route {
        Route::new(&name("x"), &name(text))
    }

    #[test]
    fn not_more_answers_are_remembered_than_fit() {
        let mut rights = Rights::default();
        for number in 0..=MOST_KNOWN as u64 {
            assert_eq!(rights.of(&key(&number.to_string())), None);
            rights.ask(Mono(5), &mut Vec::new());
            rights.answered(&Answer::May, false);
            assert!(rights.known.len() <= MOST_KNOWN);
        }
        assert_eq!(rights.known.len(), 1);
        assert_eq!(rights.of(&key("0")), None);
    }

    #[test]
    fn an_answer_is_late_once_and_several_keys_are_asked_for_each_time() {
        let mut rights = Rights::default();
        let route = Route {
            cc: vec![name("c")],
            ..key("a")
        };
        for _ in 0..2 {
            assert_eq!(rights.of(&route), None);
            rights.ask(Mono(5), &mut Vec::new());
            assert!(!rights.is_late(Mono(4)) && rights.has_questions());
            assert!(rights.is_late(Mono(5)) && !rights.is_late(Mono(6)));
            assert_eq!(rights.answered(&Answer::May, false), Some(route.clone()));
            assert!(!rights.has_questions());
        }
        assert_eq!(rights.answered(&Answer::May, false), None);
    }
}
