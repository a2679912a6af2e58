//! The table of a retry: its members, read and written.

use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::amqp::table::{Table, TableBuilder, Value};
use crate::dead_letter::retries::Attempts;
use crate::dead_letter::{Lookup, Target};
use crate::machine::Wall;

use super::{Away, Retry, long};

const QUEUE: &[u8] = b"queue";
const EXCHANGE: &[u8] = b"exchange";
const ROUTING_KEY: &[u8] = b"routing-key";
const ALL: &[u8] = b"all";
const FAILED: &[u8] = b"failed";
const CC_COUNTS: &[u8] = b"cc";
const DIES_WHEN_FULL: &[u8] = b"dies-when-full";
/// Of a delayed publish: its whole delay in milliseconds; see `delayed`.
const DELAY: &[u8] = b"delay";
const EXPIRATION: &[u8] = b"expiration";
const DEADLINE: &[u8] = b"deadline";
const DUE: &[u8] = b"due";
const PRIORITY: &[u8] = b"priority";
const DEATHS: &[u8] = b"deaths";
const BY_EXCHANGE: &[u8] = b"by-exchange";
const FORGOTTEN: &[u8] = b"forgotten";
const NO_TARGET: &[u8] = b"no-target";
const TARGET_EXCHANGE: &[u8] = b"dead-letter-exchange";
const TARGET_KEY: &[u8] = b"dead-letter-routing-key";
const TARGET_AT_LEAST_ONCE: &[u8] = b"at-least-once";
pub(super) const DIED: &[u8] = b"died";
/// In the order in which they are written.
const NAMES: [&[u8]; 20] = [
    QUEUE,
    EXCHANGE,
    ROUTING_KEY,
    ALL,
    FAILED,
    CC_COUNTS,
    DIES_WHEN_FULL,
    DELAY,
    EXPIRATION,
    DEADLINE,
    DIED,
    DUE,
    DEATHS,
    PRIORITY,
    TARGET_EXCHANGE,
    TARGET_KEY,
    BY_EXCHANGE,
    FORGOTTEN,
    NO_TARGET,
    TARGET_AT_LEAST_ONCE,
];

/// With the number of its deaths at its return, which a proxy of an earlier version did not write.
pub(super) fn read(table: Table<'_>) -> Option<(Retry<'_>, Option<i64>)> {
    let [
        queue,
        exchange,
        routing_key,
        all,
        failed,
        cc_counts,
        dies_when_full,
        delay,
        expiration,
        deadline,
        died,
        due,
        deaths,
        priority,
        target_exchange,
        target_key,
        by_exchange,
        forgotten,
        no_target,
        at_least_once,
    ] = table.find(NAMES).ok()?;
    let away = match (deaths.and_then(Value::as_table), number(due)) {
        (Some(deaths), Some(due)) => Some(Away {
            due: Wall(due),
            priority: number(priority).and_then(|priority| priority.try_into().ok()),
            deaths,
            by_exchange: by_exchange.is_some(),
            forgotten: forgotten.is_some(),
            target: match name(target_exchange) {
                Some(exchange) => Lookup::Target(Target {
                    exchange,
                    routing_key: name(target_key),
                    at_least_once: at_least_once.is_some(),
                }),
                None if no_target.is_some() => Lookup::NoExchange,
                None => Lookup::Unknown,
            },
        }),
        _ => None,
    };
    let attempts = Attempts {
        all: number(all)?,
        failed: number(failed)?,
    };
    let retry = Retry {
        queue: name(queue)?,
        exchange: name(exchange)?,
        routing_key: name(routing_key)?,
        attempts,
        cc_counts: cc_counts.is_some(),
        dies_when_full: dies_when_full.is_some(),
        delay: number(delay).map(Duration::from_millis),
        expiration: text(expiration),
        deadline: number(deadline).map(Wall),
        away,
    };
    Some((retry, died.and_then(Value::as_integer)))
}

fn text<'a>(value: Option<Value<'a>>) -> Option<&'a [u8]> {
    value.and_then(Value::as_longstr)
}

fn name(value: Option<Value<'_>>) -> Option<ShortStr> {
    text(value).and_then(ShortStr::copy)
}

fn number(value: Option<Value<'_>>) -> Option<u64> {
    value?.as_integer()?.try_into().ok()
}

// === impl Retry ===

impl Retry<'_> {
    /// `away`: what it carries besides while it is away.
    pub(super) fn write(&self, away: Option<&Away<'_>>) -> TableBuilder {
        let mut table = TableBuilder::default();
        table
            .longstr(QUEUE, &self.queue)
            .longstr(EXCHANGE, &self.exchange)
            .longstr(ROUTING_KEY, &self.routing_key)
            .long(ALL, long(self.attempts.all))
            .long(FAILED, long(self.attempts.failed));
        if self.cc_counts {
            table.void(CC_COUNTS);
        }
        if self.dies_when_full {
            table.void(DIES_WHEN_FULL);
        }
        if let Some(delay) = self.delay {
            let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            table.long(DELAY, long(millis));
        }
        if let Some(expiration) = self.expiration {
            table.longstr(EXPIRATION, expiration);
        }
        if let Some(deadline) = self.deadline {
            table.long(DEADLINE, long(deadline.0));
        }
        let Some(away) = away else {
            return table;
        };
        let mut deaths = TableBuilder::default();
        deaths.members(away.deaths.0);
        table.long(DUE, long(away.due.0)).table(DEATHS, &deaths);
        if let Some(priority) = away.priority {
            table.long(PRIORITY, priority.into());
        }
        let (target, no_target) = match &away.target {
            Lookup::Target(target) => (Some(target), false),
            Lookup::NoExchange => (None, true),
            Lookup::KeyUnknown | Lookup::Unknown => (None, false),
        };
        if let Some(target) = target {
            table.longstr(TARGET_EXCHANGE, &target.exchange);
            if let Some(key) = &target.routing_key {
                table.longstr(TARGET_KEY, key);
            }
        }
        for (name, is) in [
            (BY_EXCHANGE, away.by_exchange),
            (FORGOTTEN, away.forgotten),
            (NO_TARGET, no_target),
            (
                TARGET_AT_LEAST_ONCE,
                target.is_some_and(|it| it.at_least_once),
            ),
        ] {
            if is {
                table.void(name);
            }
        }
        table
    }
}
