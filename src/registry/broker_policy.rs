//! The broker's own policies, as its management API lists them: what the one that a queue has adds to its dead-letter exchange.
//!
//! `rabbit_policy:match_all`: of those that fit, the highest priority wins alone. A policy fits by vhost, `apply-to`, pattern, and only if
//! the queue's type knows all of its keys (`unsupported_policies` of `rabbit_classic_queue` and `rabbit_quorum_queue`). Some of that
//! cannot be told from here: the type of a queue whose declare did not say it, patterns that only PCRE can read, which of two policies
//! with the same priority wins. Where the candidates disagree the answer is "unknown", and the broker has to deal with the death.
//!
//! Of `dead-letter-exchange` only its presence is read: a queue that has its exchange from such a policy is the broker's, and an argument
//! overrules it. But where a policy of ours names another, it matters that the broker has one at all.
//! Operator policies cannot carry any of these keys (S2.1).

use std::collections::BTreeMap;

use regex::bytes::Regex;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::dead_letter::Target;
use crate::objects::QueueType;

use super::policy::{Queue, pattern};

/// Keys that no classic queue knows.
const NOT_CLASSIC: &[&str] = &[
    "max-age",
    "stream-max-segment-size-bytes",
    "initial-cluster-size",
    "delivery-limit",
    "dead-letter-strategy",
    "target-group-size",
    "selector-fields",
    "selector-field-max-bytes",
];
/// Keys that classic queues know in some of the versions.
const PERHAPS_CLASSIC: &[&str] = &[
    "queue-leader-locator", // from 4.0 on
    "max-in-memory-length", // until 3.12
    "max-in-memory-bytes",
];
/// Keys that no quorum queue knows.
const NOT_QUORUM: &[&str] = &[
    "max-priority",
    "queue-mode",
    "ha-mode",
    "ha-params",
    "ha-sync-mode",
    "ha-promote-on-shutdown",
    "ha-promote-on-failure",
    "queue-master-locator",
    "max-age",
    "stream-max-segment-size-bytes",
    "initial-cluster-size",
    "selector-fields",
    "selector-field-max-bytes",
];

/// All of them, of all vhosts that are known: an immutable snapshot.
#[derive(Clone, Debug, Default)]
pub struct BrokerPolicies {
    /// Highest priority first.
    by_vhost: BTreeMap<Vhost, Vec<Policy>>,
    /// They will be read, but were not yet: nothing can be told from here.
    unread: bool,
}

/// One, as the broker tells it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BrokerPolicy<'a> {
    /// The vhost it acts in.
    pub vhost: &'a str,
    /// Its name.
    pub name: &'a str,
    /// PCRE, searched in the queue's name.
    pub pattern: &'a str,
    /// `queues`, `all`, … as written.
    pub apply_to: &'a str,
    /// Any number.
    pub priority: f64,
    /// The names of all keys of its definition.
    pub keys: Vec<&'a str>,
    /// `dead-letter-routing-key`.
    pub routing_key: Option<&'a str>,
    /// `dead-letter-strategy`.
    pub strategy: Option<&'a str>,
}

/// What a policy of the broker adds to a dead-letter exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// `dead-letter-routing-key`.
    pub routing_key: Option<ShortStr>,
    /// The strategy `at-least-once`.
    pub at_least_once: bool,
}

#[derive(Clone, Debug)]
struct Policy {
    /// `None`: we cannot read it.
    pattern: Option<Regex>,
    classic: Fit,
    quorum: Fit,
    priority: f64,
    /// `None`: a key that no client could see.
    adds: Option<Added>,
    /// It has a `dead-letter-exchange`.
    names_exchange: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    No,
    Perhaps,
    Yes,
}

// === impl BrokerPolicies ===

impl BrokerPolicies {
    /// As long as they have not been read.
    pub fn unread() -> BrokerPolicies {
        BrokerPolicies {
            unread: true,
            ..BrokerPolicies::default()
        }
    }

    /// Takes them in; what is for exchanges or streams only is left out. Returns the names of those whose patterns cannot
    /// be read, too.
    pub fn new<'a>(
        listed: impl IntoIterator<Item = BrokerPolicy<'a>>,
    ) -> (BrokerPolicies, Vec<&'a str>) {
        let mut policies = BrokerPolicies::default();
        let mut unreadable = Vec::new();
        for listed in listed {
            let policy = Policy::new(&listed);
            if (policy.classic, policy.quorum) == (Fit::No, Fit::No) {
                continue;
            }
            if policy.pattern.is_none() {
                unreadable.push(listed.name);
            }
            if let Some(vhost) = ShortStr::copy(listed.vhost.as_bytes()) {
                policies.by_vhost.entry(vhost).or_default().push(policy);
            }
        }
        for policies in policies.by_vhost.values_mut() {
            policies.sort_by(|a, b| b.priority.total_cmp(&a.priority));
        }
        (policies, unreadable)
    }

    /// What the broker's policy for this queue adds. `None`: that cannot be told from here.
    pub fn added(&self, queue: Queue<'_>) -> Option<Added> {
        self.of(queue, |policy| policy.adds.clone(), Some(Added::default()))?
    }

    /// Whether the broker's policy for this queue names a dead-letter exchange, for certain.
    pub fn names_exchange(&self, queue: Queue<'_>) -> bool {
        let named = self.of(queue, |policy| policy.names_exchange, false);
        named.unwrap_or(false)
    }

    /// What the policy of this queue says, or `without` if it has none. `None`: that cannot be told from here.
    fn of<T: PartialEq>(
        &self,
        queue: Queue<'_>,
        says: impl Fn(&Policy) -> T,
        without: T,
    ) -> Option<T> {
        if self.unread {
            return None;
        }
        let Some(policies) = self.by_vhost.get(queue.vhost) else {
            return Some(without);
        };
        let mut candidates = Vec::new();
        let mut certain: Option<f64> = None;
        for policy in policies {
            // Of equal priorities either may win.
            if certain.is_some_and(|priority| policy.priority < priority) {
                break;
            }
            match policy.fits(queue) {
                Fit::No => continue,
                Fit::Perhaps => {}
                Fit::Yes => certain = Some(policy.priority),
            }
            candidates.push(says(policy));
        }
        if certain.is_none() {
            candidates.push(without);
        }
        candidates.dedup();
        candidates.pop().filter(|_| candidates.is_empty())
    }
}

// === impl Policy ===

impl Policy {
    fn new(listed: &BrokerPolicy<'_>) -> Policy {
        let (classic, quorum) = match listed.apply_to {
            "queues" | "all" => (Fit::Yes, Fit::Yes),
            "classic_queues" => (Fit::Yes, Fit::No),
            "quorum_queues" => (Fit::No, Fit::Yes),
            _ => (Fit::No, Fit::No),
        };
        let has = |keys: &[&str]| listed.keys.iter().any(|key| keys.contains(key));
        let classic = match classic {
            Fit::Yes if has(NOT_CLASSIC) => Fit::No,
            Fit::Yes if has(PERHAPS_CLASSIC) => Fit::Perhaps,
            fit => fit,
        };
        let quorum = match quorum {
            Fit::Yes if has(NOT_QUORUM) => Fit::No,
            fit => fit,
        };
        let at_least_once = listed.strategy == Some("at-least-once");
        let adds = match listed.routing_key.map(|key| ShortStr::copy(key.as_bytes())) {
            Some(None) => None,
            Some(routing_key) => Some(Added {
                routing_key,
                at_least_once,
            }),
            None => Some(Added {
                routing_key: None,
                at_least_once,
            }),
        };
        Policy {
            pattern: pattern(listed.pattern).ok(),
            classic,
            quorum,
            priority: listed.priority,
            adds,
            names_exchange: listed.keys.contains(&"dead-letter-exchange"),
        }
    }

    fn fits(&self, queue: Queue<'_>) -> Fit {
        let by_type = match queue.queue_type {
            QueueType::Classic => self.classic,
            QueueType::Quorum => self.quorum,
            QueueType::Default if self.classic == self.quorum => self.classic,
            QueueType::Default => Fit::Perhaps,
            QueueType::Other => Fit::No,
        };
        match &self.pattern {
            Some(pattern) if !pattern.is_match(queue.name) => Fit::No,
            None if by_type == Fit::Yes => Fit::Perhaps,
            _ => by_type,
        }
    }
}

// === impl Added ===

impl Added {
    /// The target, with what it does not say itself.
    pub(super) fn to(self, target: Target) -> Target {
        Target {
            routing_key: target.routing_key.or(self.routing_key),
            at_least_once: target.at_least_once || self.at_least_once,
            ..target
        }
    }
}
