//! What a proxy has to publish of a message: its dead letter, or the message itself, on its way out of its queue and back.

use std::fmt;

use dlx_proxy::objects::OwnObject;

use super::super::codec::frame::Frame;
use super::super::codec::methods::Arg;
use super::super::codec::value::{Bytes, Table, Value};
use super::super::proxy::names;
use super::super::retries::Attempts;
use super::history::{Counts, History};

/// The table of a retry.
const RETRY: &str = "x-dlx-proxy-retry";

/// A message that was returned: the queue it belongs to, how often it has come back then, and what it had died of before.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stay {
    pub queue: Bytes,
    pub attempts: Attempts,
    pub deaths: Counts,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Duty {
    /// Its dead letter.
    Dies(Counts),
    /// Into a delay queue.
    Leaves(Stay),
    /// Into its own queue.
    Returns(Stay),
    /// To where an operator wants it.
    Redriven(Sent),
}

/// A message that an operator sends back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sent {
    /// By that redrive.
    pub walk: u64,
    /// How often it was sent back then.
    pub mark: u64,
    pub to: Place,
    /// What it says that it had died of.
    pub deaths: Counts,
}

/// Where it goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// Back into the queue that it came from.
    Home(Bytes),
    Queue(Bytes),
    /// With this key, or one of its own.
    Exchange(Bytes, Option<Bytes>),
}

/// What a publication says of a retry.
pub(super) struct Told {
    pub queue: Bytes,
    pub attempts: Attempts,
    /// Milliseconds of the wall clock.
    pub deadline: Option<u64>,
    /// Of one that leaves: when it may come back, and its deaths.
    pub away: Option<(u64, History)>,
}

// === impl Stay ===

impl fmt::Display for Stay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = String::from_utf8_lossy(&self.queue);
        write!(f, "{queue} {}, {}", self.attempts, self.deaths)
    }
}

// === impl Duty ===

impl Duty {
    /// The one of a publication with this content.
    pub(super) fn of(content: &Frame, exchange: &[u8], key: &[u8], parked: bool) -> Duty {
        let deaths = History::of(content);
        let Some(told) = Told::of(content) else {
            if deaths.is_empty() {
                // A publish that was delayed.
                return Duty::Returns(Stay::default());
            }
            return Duty::Dies(deaths.counts());
        };
        let stay = |deaths: &History| Stay {
            queue: told.queue.clone(),
            attempts: told.attempts,
            deaths: deaths.counts(),
        };
        let home = told.leads_home(exchange, key);
        match &told.away {
            Some((_, deaths)) => Duty::Leaves(stay(deaths)),
            None if home || parked => Duty::Returns(stay(&deaths)),
            None => Duty::Dies(deaths.counts()),
        }
    }
}

impl fmt::Display for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Duty::Dies(counts) => write!(f, "its death of {counts}"),
            Duty::Leaves(stay) => write!(f, "its leaving {stay}"),
            Duty::Returns(stay) => write!(f, "its return to {stay}"),
            Duty::Redriven(Sent {
                walk,
                mark,
                to,
                deaths,
            }) => {
                write!(f, "its redrive {walk} to {to}, the {mark}., {deaths}")
            }
        }
    }
}

// === impl Place ===

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, name) = match self {
            Place::Home(queue) => ("its queue", queue),
            Place::Queue(queue) => ("queue", queue),
            Place::Exchange(exchange, _) => ("exchange", exchange),
        };
        write!(f, "{word} {}", String::from_utf8_lossy(name))
    }
}

// === impl Told ===

impl Told {
    pub(super) fn of(content: &Frame) -> Option<Told> {
        let Value::Table(table) = content.headers()?.get(RETRY)? else {
            return None;
        };
        let deaths = match table.get("deaths") {
            Some(Value::Table(deaths)) => Some(deaths_of(deaths)),
            _ => None,
        };
        Some(Told {
            queue: text(table, "queue"),
            attempts: Attempts {
                all: number(table, "all").unwrap_or(0),
                failed: number(table, "failed").unwrap_or(0),
            },
            deadline: number(table, "deadline"),
            away: number(table, "due").zip(deaths),
        })
    }

    /// Whether that leads to its queue alone.
    pub(super) fn leads_home(&self, exchange: &[u8], key: &[u8]) -> bool {
        match exchange {
            b"" => key == self.queue,
            exchange => names().parse(exchange) == Some(OwnObject::ReturnExchange(&self.queue)),
        }
    }
}

fn deaths_of(headers: &Table) -> History {
    History::of(&Frame::new(
        "",
        vec![("headers", Arg::Table(headers.clone()))],
    ))
}

fn text(table: &Table, name: &str) -> Bytes {
    match table.get(name) {
        Some(Value::Text(text)) => text.clone(),
        _ => Bytes::new(),
    }
}

fn number(table: &Table, name: &str) -> Option<u64> {
    match table.get(name) {
        Some(Value::Integer(_, number)) => u64::try_from(*number).ok(),
        _ => None,
    }
}
