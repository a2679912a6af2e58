//! What redrives send back: where it goes, how often it was sent back, and what it says that it died of.

use dlx_proxy::dead_letter::redrive::Destination;

use super::super::codec::value::{Table, Value};
use super::super::operator::BY;
use super::super::retries::Attempts;
use super::copies::is_ours;
use super::duties::{Duty, Place, Sent, Stay, Told};
use super::history::{Counts, History};
use super::{Accounts, Bytes, Copy, Frame, Micros, Tag, is_parking, told_in};

/// The header that counts how often an operator has sent a message back.
const REDRIVEN: &str = "x-dlx-proxy-redriven";
/// What the parking queue adds.
const PARKED: &str = "x-parked-exchange";

impl Accounts {
    /// What that redrive may publish of a copy that it has taken.
    pub(super) fn redrives(&self, number: u64, queue: &Bytes, copy: &Copy) -> Vec<Duty> {
        let wanted = self.walks.0.get(&number).map(|account| &account.wanted);
        let Some(wanted) = wanted.filter(|of| of.takes(&copy.body) && of.may_publish()) else {
            return Vec::new();
        };
        let home = match copy
            .stay
            .as_ref()
            .filter(|of| is_parking(queue) && !of.is_nowhere())
        {
            Some(stay) => Some(&stay.queue),
            None => copy.died_in.as_ref(),
        };
        let to = match (&wanted.to, home) {
            (None, _) | (Some(Destination::Source), None) => return Vec::new(),
            (Some(Destination::Source), Some(home)) => Place::Home(home.clone()),
            (Some(Destination::Queue(to)), Some(home)) if to.as_bytes() == home => {
                Place::Home(home.clone())
            }
            (Some(Destination::Queue(to)), _) => Place::Queue(to.to_vec()),
            (
                Some(Destination::Exchange {
                    exchange,
                    routing_key,
                }),
                _,
            ) => {
                let key = routing_key.as_ref().map(|key| key.to_vec());
                Place::Exchange(exchange.to_vec(), key)
            }
        };
        let told = match wanted.keeps_history {
            true => told_in(queue, copy),
            false => vec![Counts::default()],
        };
        let sent = told.into_iter().map(|deaths| {
            Duty::Redriven(Sent {
                walk: number,
                mark: copy.mark + 1,
                to: to.clone(),
                deaths,
            })
        });
        sent.collect()
    }

    /// What that publication is, if a redrive has to send it.
    pub(super) fn redriven(
        &self,
        body: &Bytes,
        (exchange, key): (&Bytes, &Bytes),
        content: &Frame,
    ) -> Option<(Bytes, Duty)> {
        let table = table(content)?;
        let Some(Value::Text(by)) = table.get("by") else {
            return None;
        };
        let number = std::str::from_utf8(by).ok()?.strip_prefix(BY)?;
        let account = self.walks.0.get(&number.parse().ok()?)?;
        let is_new = |told: &Told| told.away.is_none() && told.attempts == Attempts::default();
        let to = match (Told::of(content), &account.wanted.to) {
            (Some(told), _) if is_new(&told) && told.leads_home(exchange, key) => {
                Place::Home(told.queue)
            }
            (None, _) if exchange.is_empty() => Place::Queue(key.clone()),
            (None, Some(Destination::Exchange { routing_key, .. })) => {
                let key = routing_key.as_ref().map(|_| key.clone());
                Place::Exchange(exchange.clone(), key)
            }
            _ => return None,
        };
        let duty = Duty::Redriven(Sent {
            walk: account.wanted.number,
            mark: mark(content),
            to,
            deaths: History::of(content).counts(),
        });
        let of = (body.clone(), duty);
        self.deaths.find(&of).is_some().then_some(of)
    }

    /// # Errors
    /// It goes elsewhere, or too often.
    pub(super) fn publishes_redriven(
        &mut self,
        tag: Tag,
        of: (Bytes, Duty),
        (content, into): (&Frame, &[Bytes]),
        at: Micros,
    ) -> Result<(), String> {
        let Duty::Redriven(sent) = &of.1 else {
            return Ok(());
        };
        let body = String::from_utf8_lossy(&of.0);
        if content.headers().is_some_and(|of| of.get(PARKED).is_some()) {
            return Err(format!("{body}, {}: it says that it is parked", of.1));
        }
        let only = match &sent.to {
            Place::Home(queue) | Place::Queue(queue) => Some(queue),
            Place::Exchange(exchange, key) => key.as_ref().filter(|_| exchange == b"dlx"),
        };
        if let (Some(only), Some(other)) = (only, into.iter().find(|into| Some(*into) != only)) {
            let (only, other) = (
                String::from_utf8_lossy(only),
                String::from_utf8_lossy(other),
            );
            return Err(format!("{body} comes to {other}, and is meant for {only}"));
        }
        if let Place::Home(queue) = &sent.to {
            self.entering.stay = Some(Stay {
                queue: queue.clone(),
                attempts: Attempts::default(),
                deaths: sent.deaths.clone(),
            });
        }
        self.published_once_more(&of, at)?;
        if !into.is_empty() {
            self.flying.insert(tag, of);
        }
        Ok(())
    }
}

fn table(content: &Frame) -> Option<&Table> {
    match content.headers()?.get(REDRIVEN)? {
        Value::Table(table) => Some(table),
        _ => None,
    }
}

/// How often it was sent back, as it says.
pub(super) fn mark(content: &Frame) -> u64 {
    match table(content).and_then(|table| table.get("count")) {
        Some(Value::Integer(_, count)) => u64::try_from(*count).unwrap_or(0),
        _ => 0,
    }
}

/// The queue that it died in last, as it says, if that is none of the proxy's own.
pub(super) fn died_in(content: &Frame) -> Option<Bytes> {
    let Value::Array(deaths) = content.headers()?.get("x-death")? else {
        return None;
    };
    let queues = deaths.items.iter().filter_map(|death| match death {
        Value::Table(death) => death.get("queue"),
        _ => None,
    });
    let mut queues = queues.filter_map(|queue| match queue {
        Value::Text(queue) => Some(queue),
        _ => None,
    });
    queues.find(|queue| !is_ours(queue)).cloned()
}
