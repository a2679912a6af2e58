//! A dead letter that is sent back.
//!
//! Back in the queue that it died in, it must be what it was before that death: for clients of the proxy, and for its next death. So it goes there as
//! a message does that comes back after a retry, with the same private table ([`retry`]): it has the exchange, the key, the `CC` and the user-id of
//! before, and has come back no times. Through the default exchange, or through one that leads to that queue alone: then the broker knows its own key
//! too. Everywhere else it is a message of its own, published with the exchange and the key that are asked for and with no other key.
//!
//! It does not get its old TTL back, or it would die at once. An `expiration` that it has all the same is kept.
//!
//! What became of it before ends here, as with a message that a client publishes: its lap, its failed deliveries, the numbers of its queue, and what
//! the parking queue added. Its history goes on or begins anew, as the operator likes.
//!
//! Each redrive counts in a private header: see `mark`.

use std::fmt::{self, Formatter};

use bytes::Bytes;

use crate::amqp::cursor::Malformed;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Properties, Property};
use crate::amqp::table::{Table, Value};
use crate::machine::{Publication, Purpose, Reason, Wall};

use super::edited::Edited;
use super::headers::{self, HeaderEdit, OF_THE_QUEUE, X_DEATH, X_FIRST_DEATH};
use super::history::{self, Entry};
use super::mark;
use super::private::{self, REDRIVEN};
use super::proof::{self, PARKED_CAUSE, PARKED_EXCHANGE};
use super::retries::Attempts;
use super::retry::{self, Retry};
use super::standing::Itself;
use super::{Bridges, Dialect, HistoryForm, remembered};

pub use super::mark::Mark;
pub use super::standing::Standing;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The queue of its newest death, or the queue that a parked message was returning to.
    Source,
    Queue(ShortStr),
    Exchange {
        exchange: ShortStr,
        /// `None`: the message's first key.
        routing_key: Option<ShortStr>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redrive {
    pub to: Destination,
    pub keep_history: bool,
    pub by: ShortStr,
    pub edit: Option<Edited>,
}

#[derive(Clone, Copy)]
pub struct Here<'a> {
    pub own_user: &'a [u8],
    pub dialect: Dialect,
    pub history_form: HistoryForm,
    /// Bridges are replaced by their exchanges.
    pub bridges: &'a Bridges,
    /// Own queues are never destinations, whatever x-death says.
    pub is_own_queue: &'a dyn Fn(&[u8]) -> bool,
    /// The exchange that leads to one queue. `None`: the default exchange.
    pub return_exchange: &'a dyn Fn(&[u8]) -> Option<ShortStr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stays {
    #[error("no x-death names the queue that it died in")]
    NoDeath,
    #[error("its properties or its headers cannot be read")]
    Unreadable,
    #[error("its history has a name of more than 255 bytes")]
    TooLong,
}

#[derive(Clone, Debug)]
pub struct Sent {
    pub publication: Publication,
    /// The route that consumers behind the proxy see.
    pub seen_as: Route,
}

/// Exchange and keys of a message. For a returning message they come from `x-death` and may be
/// forged, so the operator needs the permission to publish there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    pub exchange: ShortStr,
    pub routing_key: ShortStr,
    pub cc: Vec<ShortStr>,
}

pub(super) struct Origin<'a> {
    pub(super) queue: ShortStr,
    pub(super) exchange: ShortStr,
    pub(super) routing_key: ShortStr,
    /// The keys of `CC` that count for its next death.
    pub(super) cc: Vec<&'a [u8]>,
}

// === impl Redrive ===

impl Redrive {
    pub fn publication(
        &self,
        of: &Standing<'_>,
        here: &Here<'_>,
        now: Wall,
    ) -> Result<Sent, Stays> {
        let Itself { content, way_back } = of.itself(here)?;
        // A delayed publish has no queue to go back to.
        let way_back = way_back.filter(|way_back| !way_back.queue.is_empty());
        let content = match &self.edit {
            Some(edit) => edit.of(&content, &self.by, now)?,
            None => content,
        };
        let properties = Properties::parse(&content.properties)?;
        let table = Table(properties.headers().unwrap_or_default());
        table.check()?;
        let deaths = retry::deaths(table)?;
        let entries = history::read(Table(&deaths).get(X_DEATH)?);
        let newest = entries.iter().find(|entry| {
            let queue = entry.queue();
            queue.is_some_and(|queue| !(here.is_own_queue)(queue))
        });
        let source = match &way_back {
            Some(way_back) => Some(way_back.queue.as_bytes()),
            None => newest.and_then(Entry::queue),
        };
        let origin = match (&way_back, newest) {
            _ if !source.is_some_and(|queue| self.leads_back(queue)) => None,
            (Some(way_back), _) => Some(way_back.origin(table)?),
            (None, newest) => newest.map(Origin::of_death).transpose()?,
        };
        let return_exchange = origin
            .as_ref()
            .and_then(|origin| (here.return_exchange)(&origin.queue));
        let (exchange, routing_key) = match (&origin, &return_exchange) {
            (Some(origin), Some(exchange)) => (exchange.clone(), origin.routing_key.clone()),
            (Some(origin), None) => (ShortStr::EMPTY, origin.queue.clone()),
            (None, _) => self.elsewhere(|| first_key(table, &entries, of, here))?,
        };
        let seen_as = match &origin {
            Some(origin) => origin.route()?,
            None => Route::new(&exchange, &routing_key),
        };
        let headers = self.headers(table, origin.as_ref(), &return_exchange, here, now)?;
        let edited = edited(&properties, headers, origin, here)?;
        let publication = Publication {
            exchange,
            routing_key,
            content: content.with_properties(edited),
            queue: source.and_then(ShortStr::copy).unwrap_or_default(),
            reason: newest.and_then(Entry::reason).unwrap_or(Reason::Rejected),
            at_least_once: true,
            history_cut: false,
            purpose: Purpose::Redrive,
            by: None,
        };
        Ok(Sent {
            publication,
            seen_as,
        })
    }

    /// Exchange and key for a message that does not return to its queue.
    fn elsewhere(
        &self,
        own_key: impl FnOnce() -> Result<ShortStr, Stays>,
    ) -> Result<(ShortStr, ShortStr), Stays> {
        match &self.to {
            Destination::Source => Err(Stays::NoDeath),
            Destination::Queue(queue) => Ok((ShortStr::EMPTY, queue.clone())),
            Destination::Exchange {
                exchange,
                routing_key,
            } => {
                let key = routing_key.clone().map_or_else(own_key, Ok)?;
                Ok((exchange.clone(), key))
            }
        }
    }

    fn leads_back(&self, source: &[u8]) -> bool {
        match &self.to {
            Destination::Source => true,
            Destination::Queue(queue) => queue.as_bytes() == source,
            Destination::Exchange { .. } => false,
        }
    }

    fn headers(
        &self,
        table: Table<'_>,
        origin: Option<&Origin<'_>>,
        return_exchange: &Option<ShortStr>,
        here: &Here<'_>,
        now: Wall,
    ) -> Result<Vec<u8>, Malformed> {
        let mut edit = HeaderEdit::default();
        put_cc(&mut edit, table, origin, return_exchange.is_some())?;
        let bcc = headers::routes(table, private::BCC)?;
        let bcc_counts = origin.is_some_and(|of| bcc.first() == Some(&of.routing_key.as_bytes()));
        if self.keep_history {
            remembered::restore(&mut edit, table)?;
        }
        edit.table(REDRIVEN, &mark::counted(table, &self.by, now));
        let stays = |name: &[u8]| {
            bcc_counts && name == private::BCC
                || [private::DELIVERY_TIME, private::EDITED].contains(&name)
        };
        let goes = |name: &[u8]| {
            name.starts_with(private::PREFIX) && !stays(name)
                || [PARKED_EXCHANGE, PARKED_CAUSE].contains(&name)
                || OF_THE_QUEUE.contains(&name)
                || !self.keep_history && retry::is_of_deaths(name)
        };
        let headers = edit.apply(table, |name| !goes(name))?;
        match here.dialect {
            Dialect::V3 => Ok(headers),
            Dialect::V3_13 | Dialect::V4 => {
                remembered::remember(headers, remembered::is_forgotten(table)?, here.history_form)
            }
        }
    }
}

/// Writes the keys of `CC`. Keys only for display go to the private header if the broker would
/// route by them. Keys that do not count are still shown.
fn put_cc<'a>(
    edit: &mut HeaderEdit<'a>,
    table: Table<'a>,
    origin: Option<&Origin<'_>>,
    leads_to_one_queue: bool,
) -> Result<(), Malformed> {
    edit.remove(headers::CC);
    edit.remove(headers::BCC);
    let of = match table.get(headers::CC)? {
        Some(_) => headers::CC,
        None => private::CC,
    };
    let counts = origin.map_or(&[][..], |origin| &origin.cc);
    let name = match leads_to_one_queue && !counts.is_empty() {
        true => headers::CC,
        false => private::CC,
    };
    match table.get(of)? {
        Some(shown) if counts.is_empty() || headers::routes(table, of)? == counts => {
            edit.value(name, &shown);
        }
        _ if counts.is_empty() => {}
        _ => edit.array(name, &headers::longstrs(counts)),
    }
    Ok(())
}

/// With these headers, and the table of a retry if it returns to its queue.
fn edited(
    properties: &Properties<'_>,
    headers: Vec<u8>,
    origin: Option<Origin<'_>>,
    here: &Here<'_>,
) -> Result<Bytes, Stays> {
    let edited = properties.with_headers(headers);
    let Some(origin) = origin else {
        return Ok(edited);
    };
    let retry = origin.back(properties.get(Property::Expiration));
    let proven = proof::prove(&edited, here.own_user, None).ok_or(Malformed)?;
    Ok(retry.written_into(&proven)?)
}

/// The first routing key of a message, as far as its headers show it.
fn first_key(
    table: Table<'_>,
    entries: &[Entry<'_>],
    of: &Standing<'_>,
    here: &Here<'_>,
) -> Result<ShortStr, Stays> {
    let [reason, queue, _] = X_FIRST_DEATH;
    let said = |name| Ok::<_, Malformed>(table.get(name)?.and_then(Value::as_longstr));
    let (reason, queue) = (said(reason)?, said(queue)?);
    // 3.x turns the older ones around at each death (S4.2).
    let first = entries.iter().find(|entry| {
        let its = entry.reason().map(|reason| reason.as_str().as_bytes());
        queue.is_some() && (entry.queue(), its) == (queue, reason)
    });
    let first = first.or(entries.last());
    match first.and_then(|entry| entry.routing_keys().next()) {
        Some(key) => ShortStr::copy(key).ok_or(Stays::TooLong),
        None => of.own_key(here),
    }
}

// === impl Origin ===

impl<'a> Origin<'a> {
    /// From the entry of its death. 3.x and 4.x keep the values of the first death in that queue by
    /// that reason (S4.2).
    fn of_death(death: &Entry<'a>) -> Result<Origin<'a>, Stays> {
        let name = |text: &[u8]| ShortStr::copy(text).ok_or(Stays::TooLong);
        let queue = name(death.queue().ok_or(Stays::NoDeath)?)?;
        let mut keys = death.routing_keys();
        Ok(Origin {
            exchange: name(death.exchange().unwrap_or_default())?,
            routing_key: match keys.next() {
                Some(key) => name(key)?,
                None => queue.clone(),
            },
            queue,
            cc: keys.collect(),
        })
    }

    fn back(self, expiration: Option<&'a [u8]>) -> Retry<'a> {
        Retry {
            queue: self.queue,
            exchange: self.exchange,
            routing_key: self.routing_key,
            attempts: Attempts::default(),
            cc_counts: !self.cc.is_empty(),
            dies_when_full: false,
            delay: None,
            expiration,
            deadline: None,
            away: None,
        }
    }

    fn route(&self) -> Result<Route, Stays> {
        let cc = self.cc.iter().map(|key| ShortStr::copy(key));
        Ok(Route {
            cc: cc.collect::<Option<_>>().ok_or(Stays::TooLong)?,
            ..Route::new(&self.exchange, &self.routing_key)
        })
    }
}

// === impl Route ===

impl Route {
    pub fn new(exchange: &ShortStr, routing_key: &ShortStr) -> Route {
        Route {
            exchange: exchange.clone(),
            routing_key: routing_key.clone(),
            cc: Vec::new(),
        }
    }
}

// === impl Here ===

impl fmt::Debug for Here<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Here")
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}

// === impl Stays ===

impl From<Malformed> for Stays {
    fn from(_: Malformed) -> Stays {
        Stays::Unreadable
    }
}
