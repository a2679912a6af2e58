//! An `x-delayed-message` exchange (of a RabbitMQ plugin) returns a message that it delays, as if no queue were bound, although it delivers the
//! message later. If the proxy parked such a message, there would be two of it.
//!
//! The exchange delays messages with a positive `x-delay`. So when such a dead letter is returned, the proxy asks the broker for the type of the
//! exchange: it declares the exchange as a fanout, with an alternate exchange that is no valid name. If the exchange exists, the broker's refusal
//! names its type; if not, the broker refuses to make it. In both cases the broker closes the channel, so this happens on the channel of
//! suspects. Where the type stays unknown, as the proxy may not configure the exchange, the dead letter is parked.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::amqp::method::Close;
use crate::amqp::properties::Properties;
use crate::amqp::reply;
use crate::amqp::table::{Table, TableBuilder, Value};
use crate::machine::{Cause, Mono, Now, Outcome, Purpose};
use crate::publisher::Effects;

use super::Publisher;
use super::item::{Item, Key, Place};
use super::lane::State;
use super::lanes::SUSPECTS;

/// How long the answer is believed. It cannot be long, as somebody may make the exchange anew.
const BELIEVED: Duration = Duration::from_secs(1);
/// The longest delay of the plugin: milliseconds.
const LONGEST: i64 = 4_294_967_295;

/// Returned dead letters whose exchange may delay them.
#[derive(Debug, Default)]
pub(super) struct Delayed {
    /// By exchange, in the order in which they are asked for.
    waiting: VecDeque<(ShortStr, Vec<Key>)>,
    /// Since when the broker is asked for the first of them.
    asked: Option<Mono>,
    /// Which of them delay, and until when that is believed.
    known: BTreeMap<ShortStr, (bool, Mono)>,
}

/// Whether its exchange may delay it.
fn can_be_delayed(item: &Item) -> bool {
    let publication = &item.publication;
    let properties = Properties::parse(&publication.content.properties).ok();
    let headers = properties.and_then(|properties| properties.headers());
    let delay = Table(headers.unwrap_or_default())
        .get(b"x-delay")
        .ok()
        .flatten();
    let is_ours = matches!(publication.purpose, Purpose::Delay(_) | Purpose::Return);
    !item.stage.is_parking()
        && !is_ours
        && !publication.exchange.is_empty()
        && delay
            .and_then(number)
            .is_some_and(|delay| (1..=LONGEST).contains(&delay))
}

/// As the plugin takes it: any integer, or one that is written out.
fn number(value: Value<'_>) -> Option<i64> {
    let signed = |data: &[u8]| {
        let negative = data.first().is_some_and(|first| first & 0x80 != 0);
        let mut octets = if negative { [0xff; 8] } else { [0; 8] };
        octets.get_mut(8 - data.len()..)?.copy_from_slice(data);
        Some(i64::from_be_bytes(octets))
    };
    match value.tag {
        b'b' | b's' | b'I' | b'l' | b'L' => signed(value.data),
        b'B' | b'u' | b'i' => Some(
            value
                .data
                .iter()
                .fold(0, |sum, octet| sum << 8 | i64::from(*octet)),
        ),
        b'S' | b'x' => std::str::from_utf8(value.data).ok()?.parse().ok(),
        _ => None,
    }
}

/// Whether the broker says that the exchange is one that delays. The name of the exchange stands before, and may be anything.
fn says_so(close: &Close<'_>) -> bool {
    let after = |words: &[u8]| memchr::memmem::rfind(close.text, words).map(|at| at + words.len());
    close.code == 406
        && memchr::memmem::find(close.text, b"inequivalent arg 'type'").is_some()
        && after(b"but current is ")
            .and_then(|at| close.text.get(at..))
            .is_some_and(|current| memchr::memmem::find(current, b"x-delayed-message").is_some())
}

impl Publisher {
    /// It came back and was confirmed: true if its exchange may delay it. Then somebody asks, or knows.
    pub(super) fn may_be_delayed(&mut self, key: Key, now: Now, fx: &mut Effects) -> bool {
        let Some(item) = self.items.get(key).filter(|item| can_be_delayed(item)) else {
            return false;
        };
        let exchange = item.publication.exchange.clone();
        match self.delayed.known.get(&exchange) {
            Some(&(delays, until)) if until > now.mono => {
                if delays {
                    self.finish(key, Outcome::Confirmed, fx);
                }
                return delays;
            }
            _ => {}
        }
        self.move_to(key, Place::Held);
        let waiting = &mut self.delayed.waiting;
        match waiting.iter_mut().find(|(of, _)| *of == exchange) {
            Some((_, keys)) => keys.push(key),
            None => waiting.push_back((exchange, vec![key])),
        }
        true
    }

    /// Asks for the next exchange, when nothing else is on the channel of the suspects.
    pub(super) fn ask_for_types(&mut self, now: Now, fx: &mut Effects) {
        if self.delayed.waiting.is_empty() || self.is_asking() || !self.is_processed(SUSPECTS) {
            return;
        }
        let lane = self.lanes.get(SUSPECTS);
        if lane.state == State::Shut {
            lane.open(fx.broker.build(&[]));
        }
        if lane.state != State::Ready {
            return;
        }
        if let Some((exchange, _)) = self.delayed.waiting.front() {
            let mut arguments = TableBuilder::default();
            arguments.long(b"alternate-exchange", 0);
            let (out, of_type) = (fx.broker.build(&[]), (&**exchange, &b"fanout"[..]));
            reply::declare_exchange(out, lane.channel(), of_type, 0, &arguments.finish());
            self.delayed.asked = Some(now.mono);
        }
    }

    /// Nothing else may be published there meanwhile.
    pub(super) fn is_asking(&self) -> bool {
        self.delayed.asked.is_some()
    }

    /// When the answer takes too long.
    pub(super) fn asked_until(&self) -> Option<Mono> {
        let since = self.delayed.asked?;
        let (_, keys) = self.delayed.waiting.front()?;
        let patience = self.settings.limits.now().confirm_timeout;
        (!keys.is_empty()).then(|| since.after(patience))
    }

    /// Nobody waits for it any longer.
    pub(super) fn stop_asking(&mut self, now: Now, fx: &mut Effects) {
        if self.asked_until().is_some_and(|until| until <= now.mono)
            && let Some((_, keys)) = self.delayed.waiting.front_mut()
        {
            for key in std::mem::take(keys) {
                self.unroutable(key, Cause::Unroutable, now, fx);
            }
        }
    }

    /// The connection is lost: it has to be asked again.
    pub(super) fn unasked(&mut self) {
        self.delayed.asked = None;
    }

    /// The answer, if it was one. (A declare-ok cannot be: no exchange has such an argument.)
    pub(super) fn told_type(&mut self, close: &Close<'_>, now: Now, fx: &mut Effects) -> bool {
        if self.delayed.asked.take().is_none() {
            return false;
        }
        let delays = says_so(close);
        if let Some((exchange, keys)) = self.delayed.waiting.pop_front() {
            self.delayed.known.retain(|_, (_, until)| *until > now.mono);
            self.delayed
                .known
                .insert(exchange, (delays, now.mono.after(BELIEVED)));
            for key in keys {
                match delays {
                    true => self.finish(key, Outcome::Confirmed, fx),
                    false => self.unroutable(key, Cause::Unroutable, now, fx),
                }
            }
        }
        true
    }
}
