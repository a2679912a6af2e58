//! What the arguments of a queue, or a policy, say of retries and of a delivery limit; and who carries that out.
//!
//! RabbitMQ checks none of these arguments: what it cannot use it takes for `disabled` (`rabbit_quorum_queue:get_delayed_retry`). So does this.

use std::time::Duration;

use serde::Serialize;

use crate::amqp::table::{Table, Value};
use crate::amqp::version::Version;
use crate::dead_letter::retries::{BackOff, Counts, LONGEST_DELAY, OnCrash, Retries, RetryType};

use super::policy::QueueType;

const TYPE: &[u8] = b"x-delayed-retry-type";
const MIN: &[u8] = b"x-delayed-retry-min";
const MAX: &[u8] = b"x-delayed-retry-max";
const MULTIPLIER: &[u8] = b"x-delayed-retry-multiplier";
const LIMIT: &[u8] = b"x-delivery-limit";
const COUNTS: &[u8] = b"x-delivery-limit-counts";

/// What a classic queue is declared without: its broker refuses them, or does from 4.3 on (S11.1, S11.2).
const OF_QUORUM_QUEUES: [&[u8]; 6] = [TYPE, MIN, MAX, MULTIPLIER, LIMIT, COUNTS];

/// How often a message comes back that is delayed, where nobody says how often: as with quorum queues of RabbitMQ 4.x.
const DEFAULT_LIMIT: u64 = 20;

/// Each key by itself, in the words of policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SaidRetries {
    /// Which returns are delayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_retry_type: Option<RetryType>,
    /// Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_retry_min: Option<u32>,
    /// Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_retry_max: Option<u32>,
    /// See [`BackOff::multiplier`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_retry_multiplier: Option<u32>,
    /// Below 0: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_limit: Option<i32>,
    /// What it counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_limit_counts: Option<Counts>,
    /// When a client is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_crash: Option<OnCrash>,
}

// === impl SaidRetries ===

impl SaidRetries {
    /// Of an arguments table. Of several arguments with one name the first counts (S7.1).
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
        let unusable = min.is_some_and(|min| positive(min).is_none());
        SaidRetries {
            delayed_retry_type: match word(TYPE) {
                _ if unusable => Some(RetryType::Disabled),
                None => None,
                Some(name) => Some(RetryType::parse(name).unwrap_or(RetryType::Disabled)),
            },
            delayed_retry_min: min.and_then(positive),
            delayed_retry_max: number(MAX).and_then(positive),
            delayed_retry_multiplier: number(MULTIPLIER).and_then(positive),
            delivery_limit: value(LIMIT)
                .and_then(Value::as_integer)
                .map(|limit| i32::try_from(limit.max(-1)).unwrap_or(i32::MAX)),
            delivery_limit_counts: match word(COUNTS) {
                Some(b"failed") => Some(Counts::Failed),
                Some(b"all") => Some(Counts::All),
                Some(_) | None => None,
            },
            // That only a policy can say.
            on_crash: None,
        }
    }

    /// Whether anything is said.
    pub fn is_silent(&self) -> bool {
        *self == SaidRetries::default()
    }

    /// What a policy must not say, in RabbitMQ's words (`rabbit_quorum_queue:validate_policy`).
    pub fn contradiction(&self) -> Option<String> {
        let (min, max) = (self.delayed_retry_min, self.delayed_retry_max);
        match (self.delayed_retry_type, min, max) {
            (Some(kind), None, _) if kind != RetryType::Disabled => {
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

    /// These, completed key by key by others.
    fn or(self, other: SaidRetries) -> SaidRetries {
        SaidRetries {
            delayed_retry_type: self.delayed_retry_type.or(other.delayed_retry_type),
            delayed_retry_min: self.delayed_retry_min.or(other.delayed_retry_min),
            delayed_retry_max: self.delayed_retry_max.or(other.delayed_retry_max),
            delayed_retry_multiplier: self
                .delayed_retry_multiplier
                .or(other.delayed_retry_multiplier),
            delivery_limit: self.delivery_limit.or(other.delivery_limit),
            delivery_limit_counts: self.delivery_limit_counts.or(other.delivery_limit_counts),
            on_crash: self.on_crash.or(other.on_crash),
        }
    }

    /// What the proxy does for a queue of that type whose arguments say this, with that policy of ours, at a broker of that version. `None`: nothing,
    /// as nobody asks for it, or as the broker does it.
    ///
    /// A quorum queue has a limit of its own, and from 4.3 on delays; so there the proxy does what the broker cannot, or what a policy of ours says.
    pub fn by_us(
        self,
        policy: SaidRetries,
        overrules: bool,
        queue_type: QueueType,
        version: Option<Version>,
    ) -> Option<Retries> {
        let delays = self.delayed_retry_min.is_some();
        let native = delays
            && self.delayed_retry_type.is_some()
            && self.delayed_retry_multiplier.is_none()
            && version.is_some_and(|version| version >= Version(4, 3, 0));
        match queue_type {
            QueueType::Other => None,
            QueueType::Quorum if policy.is_silent() && (native || !delays) => None,
            QueueType::Quorum | QueueType::Classic | QueueType::Default => match overrules {
                true => policy.or(self).retries(),
                false => self.or(policy).retries(),
            },
        }
    }

    fn retries(self) -> Option<Retries> {
        let wait = |millis: u32| Duration::from_millis(millis.into()).min(LONGEST_DELAY);
        let after = self.delayed_retry_type.unwrap_or(RetryType::All);
        let back_off = self
            .delayed_retry_min
            .filter(|_| after != RetryType::Disabled);
        let back_off = back_off.map(|min| BackOff {
            after,
            min: wait(min),
            max: match (self.delayed_retry_max, self.delayed_retry_multiplier) {
                (Some(max), _) => wait(max),
                // As RabbitMQ 4.3 takes it.
                (None, None) => wait(min),
                (None, Some(_)) => LONGEST_DELAY,
            },
            multiplier: self.delayed_retry_multiplier,
        });
        let limit = match self.delivery_limit {
            Some(limit) => u64::try_from(limit).ok(),
            None => back_off.map(|_| DEFAULT_LIMIT),
        };
        (back_off.is_some() || limit.is_some()).then_some(Retries {
            back_off,
            limit,
            counts: self.delivery_limit_counts.unwrap_or_default(),
            on_crash: self.on_crash.unwrap_or_default(),
        })
    }
}

/// The arguments of a queue of that type without those that its broker does not want to see; `None`: it may see them.
pub fn without(arguments: &[u8], queue_type: QueueType) -> Option<Vec<u8>> {
    match queue_type {
        QueueType::Classic | QueueType::Default => {}
        QueueType::Quorum | QueueType::Other => return None,
    }
    Table(arguments).without(|name| OF_QUORUM_QUEUES.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::table::TableBuilder;

    fn arguments(build: impl FnOnce(&mut TableBuilder)) -> Vec<u8> {
        let mut table = TableBuilder::default();
        build(&mut table);
        table.finish()
    }

    fn said(build: impl FnOnce(&mut TableBuilder)) -> SaidRetries {
        SaidRetries::of_arguments(&arguments(build))
    }

    fn by_us(said: SaidRetries, queue_type: QueueType, version: Version) -> Option<Retries> {
        said.by_us(SaidRetries::default(), false, queue_type, Some(version))
    }

    const V4_2: Version = Version(4, 2, 9);
    const V4_3: Version = Version(4, 3, 6);

    #[test]
    fn a_minimum_is_enough() {
        let said = said(|table| {
            table.long(MIN, 500);
        });
        let retries = by_us(said, QueueType::Classic, V4_3).unwrap();
        let back_off = retries.back_off.unwrap();
        assert_eq!(back_off.after, RetryType::All);
        let half = Duration::from_millis(500);
        assert_eq!(
            (back_off.min, back_off.max),
            (half, half),
            "as 4.3 takes it"
        );
        assert_eq!(retries.limit, Some(DEFAULT_LIMIT));
    }

    #[test]
    fn what_the_broker_cannot_use_is_disabled() {
        for bad in [
            said(|table| {
                table.longstr(TYPE, b"bogus").long(MIN, 500);
            }),
            said(|table| {
                table.longstr(TYPE, b"all").long(MIN, 0);
            }),
            said(|table| {
                table.longstr(TYPE, b"all").longstr(MIN, b"1s");
            }),
            said(|table| {
                table.longstr(TYPE, b"all");
            }),
            said(|table| {
                table.long(MAX, 1000).long(MULTIPLIER, 2);
            }),
        ] {
            assert_eq!(by_us(bad, QueueType::Classic, V4_3), None, "{bad:?}");
        }
    }

    #[test]
    fn a_limit_alone_is_ours_on_classic_queues() {
        let said = said(|table| {
            table.long(LIMIT, 3);
        });
        let retries = by_us(said, QueueType::Classic, V4_3).unwrap();
        assert_eq!((retries.back_off, retries.limit), (None, Some(3)));
        assert_eq!(by_us(said, QueueType::Quorum, V4_2), None);
        let none = SaidRetries {
            delivery_limit: Some(-1),
            ..SaidRetries::default()
        };
        assert_eq!(by_us(none, QueueType::Classic, V4_3), None);
    }

    #[test]
    fn a_quorum_queue_of_4_3_is_left_alone_unless_more_is_asked() {
        let native = |table: &mut TableBuilder| {
            table.longstr(TYPE, b"all").long(MIN, 500);
        };
        assert_eq!(by_us(said(native), QueueType::Quorum, V4_3), None);
        assert!(by_us(said(native), QueueType::Quorum, V4_2).is_some());
        let untyped = said(|table| {
            table.long(MIN, 500);
        });
        assert!(by_us(untyped, QueueType::Quorum, V4_3).is_some());
        let grows = said(|table| {
            native(table);
            table.long(MULTIPLIER, 2);
        });
        assert!(by_us(grows, QueueType::Quorum, V4_3).is_some());
        let policy = SaidRetries {
            delivery_limit: Some(3),
            ..SaidRetries::default()
        };
        let both = said(native)
            .by_us(policy, false, QueueType::Quorum, Some(V4_3))
            .unwrap();
        assert_eq!(both.limit, Some(3));
    }

    #[test]
    fn arguments_beat_a_policy_key_by_key() {
        let said = said(|table| {
            table.long(MIN, 500);
        });
        let policy = SaidRetries {
            delayed_retry_min: Some(9),
            delayed_retry_max: Some(2000),
            delayed_retry_multiplier: Some(2),
            delivery_limit: Some(7),
            ..SaidRetries::default()
        };
        let retries = said
            .by_us(policy, false, QueueType::Default, Some(V4_2))
            .unwrap();
        let back_off = retries.back_off.unwrap();
        assert_eq!(back_off.min, Duration::from_millis(500));
        assert_eq!(back_off.max, Duration::from_secs(2));
        assert_eq!((back_off.multiplier, retries.limit), (Some(2), Some(7)));
    }

    #[test]
    fn a_classic_queue_is_declared_without_what_its_broker_refuses() {
        let all = arguments(|table| {
            table
                .long(MIN, 500)
                .longstr(b"x-queue-mode", b"lazy")
                .long(LIMIT, 3);
        });
        let rest = arguments(|table| {
            table.longstr(b"x-queue-mode", b"lazy");
        });
        assert_eq!(without(&all, QueueType::Classic), Some(rest.clone()));
        assert_eq!(without(&all, QueueType::Default), Some(rest.clone()));
        assert_eq!(without(&all, QueueType::Quorum), None);
        assert_eq!(
            without(&rest, QueueType::Classic),
            None,
            "nothing to take out"
        );
    }
}
