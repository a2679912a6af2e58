//! A message that waits aside while its queue is made anew, and comes back to it as a message does after a retry: clients of the proxy see what it was.

use crate::amqp::content::Content;
use crate::amqp::cursor::Malformed;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::Properties;
use crate::amqp::table::Table;
use crate::machine::{Reason, Wall};

use super::disposal::Disposal;
use super::retries::{Attempts, Returned};
use super::returning::{Return, come_back, content_away};
use super::{Death, Lookup, Rules, retry};

/// A message of a queue, as the broker delivers it.
#[derive(Clone, Copy, Debug)]
pub struct Delivered<'a> {
    pub queue: &'a ShortStr,
    pub exchange: &'a ShortStr,
    pub routing_key: &'a ShortStr,
    pub content: &'a Content,
    /// The queue counts acquisitions besides failures (4.3).
    pub acquired: bool,
    /// It has counted this one: else a number in its headers is its publisher's.
    pub counted: bool,
}

/// What it is meanwhile. A time to live of its own begins anew; its returns go on being counted.
///
/// # Errors
/// When properties or headers are malformed.
pub fn aside(
    of: Delivered<'_>,
    rules: &Rules,
    own_user: &[u8],
    now: Wall,
) -> Result<Content, Malformed> {
    let properties = Properties::parse(&of.content.properties)?;
    let table = Table(properties.headers().unwrap_or_default());
    let by_the_queue = match of.counted {
        true => retry::native_attempts(table, of.acquired)?,
        false => Attempts::default(),
    };
    let came_back = retry::back_in(of.queue, &properties, own_user);
    let before = match &came_back {
        Some((retry, original)) => retry.before(of.content, *original)?,
        None => of.content.clone(),
    };
    let retry = came_back.map(|(retry, _)| retry);
    let of_retry = retry.as_ref().map(|of| (&of.exchange, &of.routing_key));
    let (exchange, routing_key) = of_retry.unwrap_or((of.exchange, of.routing_key));
    let attempts = retry.as_ref().map(|retry| retry.attempts);
    let returned = Return {
        death: Death {
            queue: of.queue,
            reason: Reason::DeliveryLimit,
            exchange,
            routing_key,
            content: &before,
            recorded: false,
            by: None,
        },
        returned: Returned::ByNack,
        attempts: attempts.unwrap_or_default().plus(by_the_queue),
        deadline: retry.as_ref().and_then(|retry| retry.deadline),
        queue_ttl: None,
        delivered: now,
        knows_all: false,
        dies_when_full: false,
        fits: true,
        by_exchange: None,
        draw: 0,
        verdict: None,
    };
    let (delay, attempts) = (Default::default(), returned.attempts);
    content_away(
        &returned,
        delay,
        attempts,
        &Lookup::Unknown,
        rules,
        own_user,
        now,
    )
}

/// For its queue, through the default exchange.
///
/// # Errors
/// It is not what [`aside`] has made.
pub fn back(
    content: &Content,
    rules: &Rules,
    own_user: &[u8],
    now: Wall,
) -> Result<Content, Malformed> {
    let unknown = |_: &[u8]| Lookup::Unknown;
    let came = come_back(content, rules, own_user, |_| false, |_| None, unknown, now);
    match came.map(|came| came.disposal) {
        Some(Disposal::Retry(publication)) => Ok(publication.content),
        _ => Err(Malformed),
    }
}
