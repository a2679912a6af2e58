//! What becomes of a message that a client returned to its queue, where that has retries: it comes back later, or it dies.

use std::time::Duration;

use crate::amqp::content::Content;
use crate::amqp::cursor::Malformed;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Properties, Property};
use crate::amqp::table::Table;
use crate::machine::{Cause, Fallback, Publication, Purpose, Reason, Wall};

use super::delayed;
use super::disposal::{Disposal, dispose};
use super::headers::X_DEATH;
use super::history::{self, Entry};
use super::plan::plan;
use super::remembered::{self, Past};
use super::retries::{Attempts, Decision, Retries, Returned};
use super::retry::{self, Away, Retry};
use super::route::Keys;
use super::verdict::Verdict;
use super::{Death, Lookup, Rules, Target};

#[derive(Clone, Copy, Debug)]
pub struct Return<'a> {
    /// Its death if the limit is reached. The content is as before the first retry.
    pub death: Death<'a>,
    pub returned: Returned,
    /// Earlier returns, including the queue's own count.
    pub attempts: Attempts,
    /// End of its TTL, if an earlier retry has fixed it.
    pub deadline: Option<Wall>,
    pub queue_ttl: Option<Duration>,
    pub delivered: Wall,
    /// All sources of a dead-letter target are known. Otherwise the broker may know another one.
    pub knows_all: bool,
    /// A copy dies whenever the full queue refuses it.
    pub dies_when_full: bool,
    /// It fits a frame, including its table.
    pub fits: bool,
    pub by_exchange: Option<&'a ShortStr>,
    /// Differs for each return, as far as it can: which of the delays within the jitter it gets.
    pub draw: u64,
    pub verdict: Option<&'a Verdict>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CameBack {
    pub queue: ShortStr,
    pub disposal: Disposal,
}

/// `None`: left to the broker.
pub fn give_back(
    of: &Return<'_>,
    retries: &Retries,
    lookup: &Lookup,
    rules: &Rules,
    own_user: &[u8],
    now: Wall,
) -> Option<Disposal> {
    let decision = match of.verdict {
        Some(verdict) if verdict.dies => Decision::Dies,
        verdict => {
            let delay = verdict.and_then(|verdict| verdict.delay);
            retries.decide_with(of.attempts, of.returned, delay, of.draw)
        }
    };
    match decision {
        Decision::Native => None,
        Decision::Back(..) if !of.fits => Some(dies(&of.death, lookup, rules, now)),
        Decision::Dies => Some(dies(&of.death, lookup, rules, now)),
        Decision::Back(delay, attempts) => {
            let retried = away(of, delay, attempts, lookup, rules, own_user, now);
            Some(retried.map_or(
                Disposal::LeaveToBroker(Fallback::Unreadable),
                Disposal::Retry,
            ))
        }
    }
}

/// It is dead, and never dropped: without a known target, or in a cycle, it is parked. The broker
/// could only requeue it, and the client would get it again at once, forever.
fn dies(death: &Death<'_>, lookup: &Lookup, rules: &Rules, now: Wall) -> Disposal {
    let (target, nowhere) = match lookup {
        Lookup::Target(target) => (target.clone(), None),
        Lookup::KeyUnknown | Lookup::Unknown => (by_default(), Some(Cause::TargetUnknown)),
        Lookup::NoExchange => (by_default(), Some(Cause::NoTarget)),
    };
    let target = Target {
        at_least_once: true,
        ..target
    };
    let planned = plan(death, &target, rules, now.seconds());
    match (nowhere, planned) {
        (_, Err(Malformed)) => Disposal::LeaveToBroker(Fallback::Unreadable),
        (Some(cause), Ok(Disposal::Publish(publication) | Disposal::Park(publication, _))) => {
            Disposal::Park(
                // The rule of cycles may have left out its own key.
                Publication {
                    routing_key: ShortStr::copy(death.routing_key).unwrap_or_default(),
                    ..publication
                },
                cause,
            )
        }
        (_, Ok(disposal)) => disposal,
    }
}

fn by_default() -> Target {
    Target {
        exchange: ShortStr::EMPTY,
        routing_key: None,
        at_least_once: true,
    }
}

fn away(
    of: &Return<'_>,
    delay: Duration,
    attempts: Attempts,
    lookup: &Lookup,
    rules: &Rules,
    own_user: &[u8],
    now: Wall,
) -> Result<Publication, Malformed> {
    let queue = of.death.queue;
    let content = content_away(of, delay, attempts, lookup, rules, own_user, now)?;
    match delay.is_zero() {
        false => Ok(to_delay(queue, content, delay)),
        true => {
            let properties = Properties::parse(&content.properties)?;
            let (retry, original) = retry::read(&properties, own_user).ok_or(Malformed)?;
            let content = retry.back(&content, original, rules, own_user, now)?;
            Ok(put_back(&retry, content, of.by_exchange))
        }
    }
}

/// What it is until it comes back.
pub(super) fn content_away(
    of: &Return<'_>,
    delay: Duration,
    attempts: Attempts,
    lookup: &Lookup,
    rules: &Rules,
    own_user: &[u8],
    now: Wall,
) -> Result<Content, Malformed> {
    let death = &of.death;
    let properties = Properties::parse(&death.content.properties)?;
    let headers = Table(properties.headers().unwrap_or_default());
    let past = Past::read(headers, rules, false)?;
    let expiration = properties.get(Property::Expiration);
    let deadline = of
        .deadline
        .or_else(|| Some(of.delivered.after(ttl(expiration, of.queue_ttl)?)));
    let due = now.after(delay);
    let is_over = deadline.is_some_and(|deadline| deadline <= due);
    let deaths = retry::deaths(headers)?;
    let retry = Retry {
        queue: death.queue.clone(),
        exchange: ShortStr::copy(death.exchange).ok_or(Malformed)?,
        routing_key: ShortStr::copy(death.routing_key).ok_or(Malformed)?,
        attempts,
        cc_counts: !Keys::of_death(death, headers, &past, rules)?.cc.is_empty(),
        dies_when_full: of.dies_when_full,
        delay: None,
        expiration,
        deadline,
        away: Some(Away {
            due,
            priority: retry::priority(&properties),
            deaths: Table(&deaths),
            by_exchange: of.by_exchange.is_some(),
            forgotten: remembered::is_forgotten(headers)?,
            target: match lookup {
                Lookup::Target(_) if is_over => lookup.clone(),
                Lookup::NoExchange if is_over && of.knows_all => Lookup::NoExchange,
                _ => Lookup::Unknown,
            },
        }),
    };
    retry.content(death.content, own_user)
}

/// Delays a returning message again, because its queue is full. `None`: a copy would die each time.
pub fn away_again(of: &Publication, own_user: &[u8], now: Wall) -> Option<Publication> {
    let properties = Properties::parse(&of.content.properties).ok()?;
    let (retry, original) = retry::read(&properties, own_user)?;
    if retry.dies_when_full {
        return None;
    }
    let before = retry.before(&of.content, original).ok()?;
    let properties = Properties::parse(&before.properties).ok()?;
    let headers = Table(properties.headers().unwrap_or_default());
    let deaths = retry::deaths(headers).ok()?;
    let away = Away {
        due: now,
        priority: retry::priority(&properties),
        deaths: Table(&deaths),
        by_exchange: !of.exchange.is_empty(),
        forgotten: remembered::is_forgotten(headers).ok()?,
        // When its TTL is over, it expires in its queue.
        target: Lookup::KeyUnknown,
    };
    let retry = Retry {
        away: Some(away),
        ..retry
    };
    let content = retry.content(&before, own_user).ok()?;
    Some(to_delay(&retry.queue, content, Duration::ZERO))
}

/// The shorter one (S1.2).
fn ttl(expiration: Option<&[u8]>, of_the_queue: Option<Duration>) -> Option<Duration> {
    let own = expiration.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    let own = own.map(Duration::from_millis);
    own.into_iter().chain(of_the_queue).min()
}

/// For a message from a delay queue. `is_delay_queue`: checks names; `return_exchange`: the
/// exchange for one queue; `lookup`: the current target of a queue. `None`: not sent by the proxy.
pub fn come_back(
    content: &Content,
    rules: &Rules,
    own_user: &[u8],
    is_delay_queue: impl Fn(&[u8]) -> bool,
    return_exchange: impl Fn(&[u8]) -> Option<ShortStr>,
    lookup: impl Fn(&[u8]) -> Lookup,
    now: Wall,
) -> Option<CameBack> {
    let properties = Properties::parse(&content.properties).ok()?;
    let (retry, original) = retry::read(&properties, own_user)?;
    let away = retry.away.as_ref()?;
    let queue = retry.queue.clone();
    let rest = match is_released(&properties, is_delay_queue) {
        true => Duration::ZERO,
        false => now.until(away.due),
    };
    if let Some(delay) = retry.delay {
        return delayed::came_out(content, &retry, original, (delay, rest), rules).ok();
    }
    let is_over = retry.deadline.is_some_and(|deadline| deadline <= now);
    // Nothing is dropped because there was no target a while ago.
    let target = match &away.target {
        Lookup::NoExchange if lookup(&queue) != Lookup::NoExchange => &Lookup::Unknown,
        target => target,
    };
    let disposal = if !rest.is_zero() {
        // It was in a queue with a shorter delay, as there may not be one for each.
        Disposal::Retry(to_delay(&queue, retry::again(content).ok()?, rest))
    } else if is_over && *target == Lookup::NoExchange {
        // As a queue without a dead-letter exchange lets go what expires in it.
        Disposal::Drop(Vec::new())
    } else if is_over && matches!(target, Lookup::Target(_)) {
        let before = retry.before(content, original).ok()?;
        let death = Death {
            queue: &queue,
            reason: Reason::Expired,
            exchange: &retry.exchange,
            routing_key: &retry.routing_key,
            content: &before,
            recorded: false,
            by: None,
        };
        dispose(&death, target, rules, now.seconds())
    } else {
        // If its TTL is over, it expires in its queue, where the broker knows what to do.
        let by_exchange = match away.by_exchange {
            true => Some(return_exchange(&queue)?),
            false => None,
        };
        let content = retry.back(content, original, rules, own_user, now).ok()?;
        Disposal::Retry(put_back(&retry, content, by_exchange.as_ref()))
    };
    Some(CameBack { queue, disposal })
}

/// Released early by a reject in the delay queue. Clients cannot forge that entry: the proxy
/// removes existing ones when it delays a message.
fn is_released(properties: &Properties<'_>, is_delay_queue: impl Fn(&[u8]) -> bool) -> bool {
    let x_death = properties.headers().map(|table| Table(table).get(X_DEATH));
    let deaths = history::read(x_death.and_then(Result::ok).flatten());
    let newest = deaths.first().filter(|newest| newest.is_rejected());
    newest.and_then(Entry::queue).is_some_and(is_delay_queue)
}

/// To a delay queue, which the publisher chooses.
pub(super) fn to_delay(queue: &ShortStr, content: Content, delay: Duration) -> Publication {
    Publication {
        exchange: ShortStr::EMPTY,
        routing_key: ShortStr::EMPTY,
        content,
        queue: queue.clone(),
        reason: Reason::Rejected,
        at_least_once: true,
        history_cut: false,
        purpose: Purpose::Delay(delay),
        by: None,
    }
}

fn put_back(retry: &Retry<'_>, content: Content, by_exchange: Option<&ShortStr>) -> Publication {
    let (exchange, routing_key) = match by_exchange {
        Some(exchange) => (exchange, &retry.routing_key),
        None => (&ShortStr::EMPTY, &retry.queue),
    };
    Publication {
        exchange: exchange.clone(),
        routing_key: routing_key.clone(),
        content,
        queue: retry.queue.clone(),
        reason: Reason::Rejected,
        at_least_once: true,
        history_cut: false,
        purpose: Purpose::Return,
        by: None,
    }
}
