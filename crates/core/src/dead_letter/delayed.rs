//! A publish that is to be delayed: what says so, what it carries while it waits, and what is published when its time has come.
//!
//! It waits in the delay queues, with the private table of a retry ([`retry`]) that names no queue but has the whole delay. So
//! nothing of it acts meanwhile, and the [`proof`](super::proof) shows that the proxy has put it there: a client that writes into a delay
//! queue cannot name an exchange.
//!
//! The delay queues are those of a [`grid`], and a publish may be late by a small part of its delay only. So it takes the longest delay of
//! the grid that is not too long, and then another one for the rest.

use std::time::Duration;

use crate::amqp::content::Content;
use crate::amqp::cursor::Malformed;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Properties, Property};
use crate::amqp::table::{Table, Value};
use crate::machine::{Publication, Purpose, Reason, Wall};

use super::disposal::Disposal;
use super::headers::{BCC, HeaderEdit};
use super::proof::Original;
use super::retries::Attempts;
use super::retry::{self, Away, Retry};
use super::returning::{CameBack, to_delay};
use super::{Lookup, Rules, delivery_time, grid, private};

/// In milliseconds; negative when the message arrives, as with the plugin.
const X_DELAY: &[u8] = b"x-delay";
/// The longest timer of Erlang: the plugin delays nothing for longer (S14.2).
const LONGEST_X_DELAY: i64 = u32::MAX as i64;
/// By how much a publish may be late without a further delay queue: this, or a part of its delay.
const LATE: Duration = Duration::from_millis(100);
const LATE_PART: u32 = 200;

/// What the headers of a publish ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    AtOnce,
    Delay(Duration),
    /// More than 100 years ahead.
    TooFar,
}

/// A publish of a client, which has to wait.
#[derive(Debug)]
pub struct Delayed<'a> {
    pub exchange: &'a ShortStr,
    pub routing_key: &'a ShortStr,
    /// As the client wrote it.
    pub content: &'a Content,
    pub delay: Duration,
}

// === impl Asked ===

impl Asked {
    /// `x_delay`, `delivery_time`: which headers count on its exchange. The longer delay counts.
    pub fn read(properties: &[u8], x_delay: bool, delivery_time: bool, now: Wall) -> Asked {
        let parsed = Properties::parse(properties).ok();
        let Some(headers) = parsed.as_ref().and_then(Properties::headers) else {
            return Asked::AtOnce;
        };
        let value = |name| Table(headers).get(name).ok().flatten();
        let mut longest = Duration::ZERO;
        if x_delay && let Some(delay) = value(X_DELAY).and_then(x_delay_of) {
            longest = delay;
        }
        if delivery_time && let Some(value) = value(delivery_time::NAME) {
            if delivery_time::is_too_far(value, now) {
                return Asked::TooFar;
            }
            longest = longest.max(now.until(delivery_time::read(value)));
        }
        match longest.is_zero() {
            true => Asked::AtOnce,
            false => Asked::Delay(longest),
        }
    }
}

/// `None`: at once. The plugin takes integers, floats and texts (S14.2).
fn x_delay_of(value: Value<'_>) -> Option<Duration> {
    let text = || std::str::from_utf8(value.as_text()?).ok()?.parse().ok();
    let float = || match value.tag {
        b'f' => Some(f32::from_be_bytes(value.data.try_into().ok()?) as i64),
        b'd' => Some(f64::from_be_bytes(value.data.try_into().ok()?) as i64),
        _ => None,
    };
    let millis = value.as_integer().or_else(float).or_else(text)?;
    let is_delay = (1..=LONGEST_X_DELAY).contains(&millis);
    is_delay.then(|| Duration::from_millis(millis.unsigned_abs()))
}

// === impl Delayed ===

impl Delayed<'_> {
    /// For a delay queue.
    ///
    /// # Errors
    /// When properties or headers are malformed.
    pub fn publication(
        &self,
        rules: &Rules,
        own_user: &[u8],
        now: Wall,
    ) -> Result<Publication, Malformed> {
        let properties = private::stripped(&self.content.properties, rules);
        let content = match properties {
            Some(properties) => &self.content.with_properties(properties),
            None => self.content,
        };
        let properties = Properties::parse(&content.properties)?;
        let headers = Table(properties.headers().unwrap_or_default());
        let acts = |name: &[u8]| name == BCC || retry::is_the_brokers(name);
        let deaths = HeaderEdit::default().apply(headers, acts)?;
        let retry = Retry {
            queue: ShortStr::EMPTY,
            exchange: self.exchange.clone(),
            routing_key: self.routing_key.clone(),
            attempts: Attempts::default(),
            cc_counts: true,
            dies_when_full: false,
            delay: Some(self.delay),
            expiration: properties.get(Property::Expiration),
            deadline: None,
            away: Some(Away {
                due: now.after(self.delay),
                priority: retry::priority(&properties),
                deaths: Table(&deaths),
                by_exchange: false,
                forgotten: false,
                target: Lookup::Unknown,
            }),
        };
        let content = retry.content(content, own_user)?;
        let first = hop(self.delay, self.delay);
        Ok(to_delay(&ShortStr::EMPTY, content, first))
    }
}

/// For a publish that comes out of a delay queue. `rest`: of its delay.
pub(super) fn came_out(
    content: &Content,
    retry: &Retry<'_>,
    original: Original<'_>,
    (delay, rest): (Duration, Duration),
    rules: &Rules,
) -> Result<CameBack, Malformed> {
    let queue = ShortStr::EMPTY;
    if !rest.is_zero() {
        let again = to_delay(&queue, retry::again(content)?, hop(delay, rest));
        let disposal = Disposal::Retry(again);
        return Ok(CameBack { queue, disposal });
    }
    let before = retry.before(content, original)?;
    // Else its private name would go with those that clients must not use.
    let timed = delivery_time::shown(&before.properties);
    let mut properties = negated(timed.as_ref().unwrap_or(&before.properties))?;
    // As the session does with what is published at once. The proxy's own id stays.
    let rules = Rules {
        stamp: false,
        ..*rules
    };
    if let Some(edited) = private::on_publish(&properties, &retry.routing_key, &rules) {
        properties = edited;
    }
    let disposal = Disposal::Publish(Publication {
        exchange: retry.exchange.clone(),
        routing_key: retry.routing_key.clone(),
        content: before.with_properties(properties),
        queue: queue.clone(),
        reason: Reason::Rejected,
        at_least_once: false,
        history_cut: false,
        purpose: Purpose::Publish,
        by: None,
    });
    Ok(CameBack { queue, disposal })
}

/// The delay queue for the rest of a delay: the next longer one, or if that is much too long the next shorter one.
fn hop(delay: Duration, rest: Duration) -> Duration {
    let next = Duration::from_millis(grid::next(rest));
    let most = LATE.max(delay / LATE_PART);
    match next.saturating_sub(rest) <= most {
        true => next,
        false => Duration::from_millis(grid::before(rest)),
    }
}

/// With the header `x-delay` of a message that was delayed.
fn negated(properties: &[u8]) -> Result<bytes::Bytes, Malformed> {
    let parsed = Properties::parse(properties)?;
    let table = Table(parsed.headers().unwrap_or_default());
    let delay = table.get(X_DELAY)?.and_then(x_delay_of);
    let Some(delay) = delay.and_then(|delay| i64::try_from(delay.as_millis()).ok()) else {
        return Ok(bytes::Bytes::copy_from_slice(properties));
    };
    let mut edit = HeaderEdit::default();
    match i32::try_from(-delay) {
        Ok(delay) => edit.value(
            X_DELAY,
            &Value {
                tag: b'I',
                data: &delay.to_be_bytes(),
            },
        ),
        Err(_) => edit.long(X_DELAY, -delay),
    }
    Ok(parsed.with_headers(edit.apply(table, |_| true)?))
}

#[cfg(test)]
mod tests;
