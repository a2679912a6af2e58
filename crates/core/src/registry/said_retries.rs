//! What the arguments of a queue, or a policy, say of retries and of a delivery limit; and who carries that out.
//!
//! RabbitMQ checks none of these arguments: what it cannot use it takes for `disabled` (`rabbit_quorum_queue:get_delayed_retry`). So does this.

use std::time::Duration;

use serde::Serialize;

use crate::amqp::table::{Table, Value};
use crate::amqp::version::Version;
use crate::dead_letter::grid::Jitter;
use crate::dead_letter::retries::{
    BackOff, Counts, Delays, LONGEST_DELAY, OnCrash, Retries, RetryType,
};
use crate::dead_letter::schedule::{Schedule, millis};
use crate::objects::QueueType;

use super::broker_policy::least;

const TYPE: &[u8] = b"x-delayed-retry-type";
const MIN: &[u8] = b"x-delayed-retry-min";
const MAX: &[u8] = b"x-delayed-retry-max";
const MULTIPLIER: &[u8] = b"x-delayed-retry-multiplier";
const DELAYS: &[u8] = b"x-delayed-retry-delays";
const LIMIT: &[u8] = b"x-delivery-limit";
const COUNTS: &[u8] = b"x-delivery-limit-counts";
const ACK_TIMEOUT: &[u8] = b"x-ack-timeout";
const CONSUMER_TIMEOUT: &[u8] = b"x-consumer-timeout";

/// Removed for classic queues: the broker refuses them, or will from 4.3 on (S11.1, S11.2).
const OF_QUORUM_QUEUES: [&[u8]; 8] = [
    TYPE,
    MIN,
    MAX,
    MULTIPLIER,
    DELAYS,
    LIMIT,
    COUNTS,
    ACK_TIMEOUT,
];

/// For a maximum, multiplier or jitter without a delay.
const DELAY_IS_MISSING: &str = "delayed-retry-max, delayed-retry-multiplier and delayed-retry-jitter delay nothing without a delayed-retry-min or delayed-retry-delays";
/// For counting options without a limit or delay.
const NOTHING_COUNTS: &str =
    "on-crash and delivery-limit-counts count nothing without a delivery-limit or a delay";
const NOTHING_SPREADS: &str = "delayed-retry-jitter is too small: no other delay queue is in reach of any of these delays; 0.6 is always enough";
const TWO_SCHEDULES: &str = "delayed-retry-delays lists each delay: leave out delayed-retry-min, delayed-retry-max and delayed-retry-multiplier";

/// A shorter one would take back what is on its way: a pause of a client or a slow network lasts as
/// long.
const SHORTEST_ACK_TIMEOUT: u32 = 1000;
pub const ACK_TIMEOUT_MUST: &str =
    "must be at least a second, such as \"30s\" or 30000 (milliseconds)";
const ENDS_TOO_LATE: &str =
    "x-ack-timeout must be shorter than x-consumer-timeout, at which the broker closes the channel";

/// The default limit with delays, as for quorum queues of RabbitMQ 4.x.
const DEFAULT_LIMIT: u64 = 20;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SaidRetries {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_retry_type: Option<RetryType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_retry_min: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_retry_max: Option<u32>,
    /// See [`Delays::Growing`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_retry_multiplier: Option<u32>,
    /// In place of the three before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_retry_delays: Option<Schedule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_retry_jitter: Option<Jitter>,
    /// Negative: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_limit: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_limit_counts: Option<Counts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_crash: Option<OnCrash>,
    /// In milliseconds. A delivery that is unsettled for longer counts as returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack_timeout: Option<u32>,
}

// === impl SaidRetries ===

impl SaidRetries {
    /// The first of duplicate arguments counts (S7.1).
    pub fn of_arguments(arguments: &[u8]) -> SaidRetries {
        let table = Table(arguments);
        let value = |name: &[u8]| table.get(name).ok().flatten();
        let word = |name: &[u8]| value(name).map(|value| value.as_longstr().unwrap_or_default());
        let number = |name: &[u8]| value(name).map(|value| value.as_integer().unwrap_or(0));
        let positive = |number: i64| {
            let number = u32::try_from(number.clamp(0, u32::MAX.into())).ok();
            number.filter(|number| *number > 0)
        };
        let min = number(MIN);
        let delays = value(DELAYS).map(schedule);
        let unusable = min.is_some_and(|min| positive(min).is_none())
            || delays.as_ref().is_some_and(Option::is_none);
        SaidRetries {
            delayed_retry_type: match word(TYPE) {
                _ if unusable => Some(RetryType::Disabled),
                None => None,
                Some(name) => Some(RetryType::parse(name).unwrap_or(RetryType::Disabled)),
            },
            delayed_retry_min: min.and_then(positive),
            delayed_retry_max: number(MAX).and_then(positive),
            delayed_retry_multiplier: number(MULTIPLIER).and_then(positive),
            delayed_retry_delays: delays.flatten(),
            delivery_limit: value(LIMIT)
                .and_then(Value::as_integer)
                .map(|limit| i32::try_from(limit.max(-1)).unwrap_or(i32::MAX)),
            delivery_limit_counts: match word(COUNTS) {
                Some(b"failed") => Some(Counts::Failed),
                Some(b"all") => Some(Counts::All),
                Some(_) | None => None,
            },
            ack_timeout: value(ACK_TIMEOUT).and_then(ack_timeout_of),
            // What only a policy can say.
            delayed_retry_jitter: None,
            on_crash: None,
        }
    }

    pub fn is_silent(&self) -> bool {
        *self == SaidRetries::default()
    }

    /// What it says of returns: RabbitMQ and the proxy share those; an ack timeout is the proxy's.
    pub(super) fn of_returns(self) -> SaidRetries {
        SaidRetries {
            ack_timeout: None,
            ..self
        }
    }

    pub fn does_nothing(&self) -> Option<&'static str> {
        let back_off = self.clone().retries().and_then(|of| of.back_off);
        let counts = back_off.is_some() || self.delivery_limit.is_some_and(|limit| limit >= 0);
        let jitter = self.delayed_retry_jitter;
        let of_delays = [self.delayed_retry_max, self.delayed_retry_multiplier];
        if back_off.is_none() && (jitter.is_some() || of_delays.iter().any(Option::is_some)) {
            return Some(DELAY_IS_MISSING);
        }
        let spreads = |jitter| back_off.as_ref().is_some_and(|of| of.spreads(jitter));
        if jitter.is_some_and(|jitter| !spreads(jitter)) {
            return Some(NOTHING_SPREADS);
        }
        let counted = self.on_crash.is_some() || self.delivery_limit_counts.is_some();
        (!counts && counted).then_some(NOTHING_COUNTS)
    }

    fn names_delay(&self) -> bool {
        self.delayed_retry_min.is_some() || self.delayed_retry_delays.is_some()
    }

    fn grows(&self) -> bool {
        self.delayed_retry_min.is_some()
            || self.delayed_retry_max.is_some()
            || self.delayed_retry_multiplier.is_some()
    }

    /// In RabbitMQ's words (`rabbit_quorum_queue:validate_policy`), where it has some.
    pub fn contradiction(&self) -> Option<String> {
        let (min, max) = (self.delayed_retry_min, self.delayed_retry_max);
        match (self.delayed_retry_type, min, max) {
            _ if self.delayed_retry_delays.is_some() && self.grows() => {
                Some(TWO_SCHEDULES.to_owned())
            }
            (Some(kind), _, _) if kind != RetryType::Disabled && !self.names_delay() => {
                let kind = kind.as_str();
                Some(format!(
                    "delayed-retry-min is required when delayed-retry-type is {kind}"
                ))
            }
            (_, Some(min), Some(max)) if max < min => Some(format!(
                "delayed-retry-max ({max}) must not be smaller than delayed-retry-min ({min})"
            )),
            _ => None,
        }
    }

    /// Completes missing keys from `other`. A list of delays, or a minimum, replaces the other's.
    pub(super) fn or(self, other: SaidRetries) -> SaidRetries {
        let other = match (&self.delayed_retry_delays, self.delayed_retry_min) {
            (Some(_), _) => SaidRetries {
                delayed_retry_min: None,
                ..other
            },
            (None, Some(_)) => SaidRetries {
                delayed_retry_delays: None,
                ..other
            },
            (None, None) => other,
        };
        SaidRetries {
            delayed_retry_type: self.delayed_retry_type.or(other.delayed_retry_type),
            delayed_retry_min: self.delayed_retry_min.or(other.delayed_retry_min),
            delayed_retry_max: self.delayed_retry_max.or(other.delayed_retry_max),
            delayed_retry_multiplier: self
                .delayed_retry_multiplier
                .or(other.delayed_retry_multiplier),
            delayed_retry_delays: self.delayed_retry_delays.or(other.delayed_retry_delays),
            delayed_retry_jitter: self.delayed_retry_jitter.or(other.delayed_retry_jitter),
            delivery_limit: self.delivery_limit.or(other.delivery_limit),
            delivery_limit_counts: self.delivery_limit_counts.or(other.delivery_limit_counts),
            on_crash: self.on_crash.or(other.on_crash),
            ack_timeout: self.ack_timeout.or(other.ack_timeout),
        }
    }

    /// What the proxy does for a queue with this type and these arguments, our policy, which may
    /// override them, and the broker's version and delivery limit. `None`: nothing is requested, or
    /// the broker does it.
    ///
    /// A quorum queue has its own limit, and from 4.3 on delays; there the proxy does what the
    /// broker cannot, or what our policy requests.
    pub fn by_us(
        self,
        (policy, overrules): (SaidRetries, bool),
        by_broker: Option<i64>,
        queue_type: QueueType,
        version: Option<Version>,
    ) -> Option<Retries> {
        let delays = self.names_delay();
        let native = delays
            && self.delayed_retry_type.is_some()
            && self.delayed_retry_multiplier.is_none()
            && self.delayed_retry_delays.is_none()
            && version.is_some_and(|version| version >= Version(4, 3, 0));
        match queue_type {
            QueueType::Other => None,
            QueueType::Quorum if policy.is_silent() && (native || !delays) => None,
            QueueType::Quorum | QueueType::Classic | QueueType::Default => {
                let said = match overrules {
                    true => policy.or(self),
                    false => self.or(policy),
                };
                let by_broker = by_broker.map(|limit| i32::try_from(limit).unwrap_or(i32::MAX));
                let least = least(said.delivery_limit, by_broker);
                let delivery_limit = least.or(said.delivery_limit);
                let said = SaidRetries {
                    delivery_limit,
                    ..said
                };
                said.retries()
            }
        }
    }

    fn retries(self) -> Option<Retries> {
        let wait = |millis: u32| Duration::from_millis(millis.into()).min(LONGEST_DELAY);
        let after = self.delayed_retry_type.unwrap_or(RetryType::All);
        let growing = |min| Delays::Growing {
            min: wait(min),
            max: match (self.delayed_retry_max, self.delayed_retry_multiplier) {
                (Some(max), _) => wait(max),
                // As RabbitMQ 4.3 takes it.
                (None, None) => wait(min),
                (None, Some(_)) => LONGEST_DELAY,
            },
            multiplier: self.delayed_retry_multiplier,
        };
        let listed = self.delayed_retry_delays.map(Delays::Listed);
        let delays = listed.or(self.delayed_retry_min.map(growing));
        let delays = delays.filter(|_| after != RetryType::Disabled);
        let back_off = delays.map(|delays| BackOff {
            after,
            delays,
            jitter: self.delayed_retry_jitter,
        });
        let limit = match self.delivery_limit {
            Some(limit) => u64::try_from(limit).ok(),
            None => back_off.as_ref().map(|_| DEFAULT_LIMIT),
        };
        (back_off.is_some() || limit.is_some()).then_some(Retries {
            back_off,
            limit,
            counts: self.delivery_limit_counts.unwrap_or_default(),
            on_crash: self.on_crash.unwrap_or_default(),
        })
    }
}

/// A time with or without a unit. `None`: not valid.
pub fn ack_timeout(text: &str) -> Option<u32> {
    millis(text).filter(|millis| *millis >= SHORTEST_ACK_TIMEOUT)
}

fn ack_timeout_of(value: Value<'_>) -> Option<u32> {
    ack_timeout(&text(value)?)
}

fn text(value: Value<'_>) -> Option<String> {
    match value.as_integer() {
        Some(number) => Some(number.to_string()),
        None => String::from_utf8(value.as_longstr()?.to_vec()).ok(),
    }
}

/// The delays of an array, or of a text with commas. `None`: not valid.
fn schedule(value: Value<'_>) -> Option<Schedule> {
    let Some(array) = value.as_array() else {
        return Schedule::parse(&text(value)?);
    };
    let items = array.values().map(|item| text(item.ok()?));
    Schedule::parse(&items.collect::<Option<Vec<_>>>()?.join(","))
}

/// RabbitMQ's words for an unknown type.
pub fn no_retry_type(text: &str) -> String {
    let words = RetryType::ALL.map(RetryType::as_str).join(", ");
    format!("{text} is not a valid delayed retry type. Must be one of: {words}")
}

/// The same for a delay; `which`: the name of the bound.
pub fn no_delay(text: &str, which: &str) -> String {
    format!("{text} is not a valid delayed retry {which} delay. Must be a positive integer")
}

/// Invalid retry arguments, which RabbitMQ refuses in policies and ignores here. `delays`: whether
/// the queue has a delay, perhaps by policy, with these arguments.
pub fn in_vain(arguments: &[u8], delays: impl Fn(SaidRetries) -> bool) -> Option<String> {
    let table = Table(arguments);
    let value = |name: &[u8]| table.get(name).ok().flatten();
    let text = |value: &Value<'_>| match (value.as_longstr(), value.as_integer()) {
        (Some(text), _) => String::from_utf8_lossy(text).into_owned(),
        (None, Some(number)) => number.to_string(),
        (None, None) => "this".to_owned(),
    };
    if let Some(kind) = value(TYPE) {
        let known = kind.as_longstr().and_then(RetryType::parse);
        if known.is_none() {
            return Some(no_retry_type(&text(&kind)));
        }
    }
    for (name, which) in [(MIN, "minimum"), (MAX, "maximum")] {
        let bad = value(name).filter(|delay| delay.as_integer().is_none_or(|millis| millis <= 0));
        if let Some(bad) = bad {
            return Some(no_delay(&text(&bad), which));
        }
    }
    if value(DELAYS).is_some_and(|delays| schedule(delays).is_none()) {
        return Some(format!("delayed-retry-delays {}", Schedule::MUST));
    }
    let said = SaidRetries::of_arguments(arguments);
    let broker_timeout = value(CONSUMER_TIMEOUT).and_then(Value::as_integer);
    match (value(ACK_TIMEOUT), said.ack_timeout, broker_timeout) {
        (Some(_), None, _) => return Some(format!("ack-timeout {ACK_TIMEOUT_MUST}")),
        (_, Some(ours), Some(brokers)) if i64::from(ours) >= brokers => {
            return Some(ENDS_TOO_LATE.to_owned());
        }
        _ => {}
    }
    let asks = said.delayed_retry_type != Some(RetryType::Disabled);
    match said.names_delay() {
        true => said.contradiction(),
        false if !asks || delays(said.clone()) => None,
        false => said
            .contradiction()
            .or_else(|| said.does_nothing().map(str::to_owned)),
    }
}

/// Removes arguments that the broker must not see; `None`: no change.
pub fn without(arguments: &[u8], queue_type: QueueType) -> Option<Vec<u8>> {
    match queue_type {
        QueueType::Classic | QueueType::Default => {}
        QueueType::Quorum | QueueType::Other => return None,
    }
    Table(arguments).without(|name| OF_QUORUM_QUEUES.contains(&name))
}
