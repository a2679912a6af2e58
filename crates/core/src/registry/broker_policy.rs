//! The broker's own policies, as its management API lists them: what those that a queue has add to its arguments.
//!
//! `rabbit_policy:match_all`: of those that fit, the highest priority wins alone. A policy fits by vhost, `apply-to`, pattern, and only if
//! the queue's type knows all of its keys (`unsupported_policies` of `rabbit_classic_queue` and `rabbit_quorum_queue`). Some of that
//! cannot be told from here: the type of a queue whose declare did not say it, patterns that only PCRE can read, which of two policies
//! with the same priority wins. Where the candidates disagree the answer is "unknown", and the broker has to deal with the death.
//!
//! Where dead letters go an operator policy cannot say (S2.1). Of a number the smallest counts that the arguments, the policy and the operator
//! policy say; a limit below 0 is none. Those are read that a retry needs: how long a message lives, and how often it comes back. What a full
//! queue does an argument overrules, and an operator policy (from 3.12 on) overrules the policy.
//!
//! A policy that names an intake exchange adds the target in the name of that exchange: the queue is adopted ([`super::adoption`]).

use std::collections::BTreeMap;

use regex::bytes::Regex;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::dead_letter::Target;
use crate::objects::{DeclaredTarget, Names, OwnObject, QueueType};

use super::policy::{Queue, pattern};

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
/// Known to classic queues in some versions.
const PERHAPS_CLASSIC: &[&str] = &[
    "queue-leader-locator", // from 4.0 on
    "max-in-memory-length", // until 3.12
    "max-in-memory-bytes",
];
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

/// Of all known vhosts: an immutable snapshot.
#[derive(Clone, Debug, Default)]
pub struct BrokerPolicies {
    /// Policies and operator policies, highest priority first.
    by_vhost: BTreeMap<Vhost, [Vec<Policy>; 2]>,
    read: Read,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Read {
    /// Never read. Keys count as absent; whether one names an exchange is unknown.
    #[default]
    Never,
    /// Not read yet: nothing is known.
    NotYet,
    Once,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct BrokerPolicy<'a> {
    pub vhost: &'a str,
    pub name: &'a str,
    /// PCRE, searched in the queue's name.
    pub pattern: &'a str,
    /// `queues`, `all`, … unchanged.
    pub apply_to: &'a str,
    pub priority: f64,
    pub keys: Vec<&'a str>,
    pub exchange: Option<&'a str>,
    pub routing_key: Option<&'a str>,
    pub strategy: Option<&'a str>,
    pub limits: Limits,
    pub by_operator: bool,
}

/// The smallest of several numbers counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// In milliseconds.
    pub message_ttl: Option<i64>,
    /// Negative: unlimited.
    pub delivery_limit: Option<i64>,
    /// Whether `overflow` is `reject-publish-dlx`.
    pub dies_when_full: Option<bool>,
}

/// Dead-letter keys of a broker policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    pub exchange: Option<ShortStr>,
    pub routing_key: Option<ShortStr>,
    pub at_least_once: bool,
}

#[derive(Clone, Debug)]
struct Policy {
    name: String,
    /// `None`: unreadable.
    pattern: Option<Regex>,
    classic: Fit,
    quorum: Fit,
    priority: f64,
    /// `None`: an invisible exchange or key.
    adds: Option<Added>,
    names_exchange: bool,
    /// That exchange is an intake exchange.
    adopts: bool,
    limits: Limits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    No,
    Perhaps,
    Yes,
}

// === impl Limits ===

impl Limits {
    fn within(self, operator: Limits) -> Limits {
        Limits {
            message_ttl: least(self.message_ttl, operator.message_ttl),
            delivery_limit: least(self.delivery_limit, operator.delivery_limit),
            dies_when_full: operator.dies_when_full.or(self.dies_when_full),
        }
    }
}

/// The smaller one. Negative: unlimited.
pub fn least<T: Ord + Default>(one: Option<T>, other: Option<T>) -> Option<T> {
    let said = [one, other].into_iter().flatten();
    said.filter(|number| *number >= T::default()).min()
}

// === impl BrokerPolicies ===

impl BrokerPolicies {
    pub fn unread() -> BrokerPolicies {
        BrokerPolicies {
            read: Read::NotYet,
            ..BrokerPolicies::default()
        }
    }

    /// Ignores policies for exchanges or streams. Also returns those with unreadable patterns.
    pub fn new<'a>(
        listed: impl IntoIterator<Item = BrokerPolicy<'a>>,
        names: &Names,
    ) -> (BrokerPolicies, Vec<&'a str>) {
        let mut policies = BrokerPolicies {
            read: Read::Once,
            ..BrokerPolicies::default()
        };
        let mut unreadable = Vec::new();
        for listed in listed {
            let policy = Policy::new(&listed, names);
            if (policy.classic, policy.quorum) == (Fit::No, Fit::No) {
                continue;
            }
            if policy.pattern.is_none() {
                unreadable.push(listed.name);
            }
            if let Some(vhost) = ShortStr::copy(listed.vhost.as_bytes()) {
                let [users, operators] = policies.by_vhost.entry(vhost).or_default();
                match listed.by_operator {
                    true => operators.push(policy),
                    false => users.push(policy),
                }
            }
        }
        for policies in policies.by_vhost.values_mut().flatten() {
            policies.sort_by(|a, b| b.priority.total_cmp(&a.priority));
        }
        (policies, unreadable)
    }

    /// Otherwise a queue may have an unknown exchange by policy.
    pub fn are_read(&self) -> bool {
        self.read == Read::Once
    }

    /// From the broker's policy of this queue. `None`: unknown.
    pub fn added(&self, queue: Queue<'_>) -> Option<Added> {
        self.of(
            queue,
            0,
            |policy| policy.adds.clone(),
            Some(Added::default()),
        )?
    }

    pub fn limits(&self, queue: Queue<'_>) -> Limits {
        let [by_policy, by_operator] = [0, 1].map(|kind| {
            let said = self.of(queue, kind, |policy| policy.limits, Limits::default());
            said.unwrap_or_default()
        });
        by_policy.within(by_operator)
    }

    pub fn names_exchange(&self, queue: Queue<'_>) -> bool {
        let named = self.of(queue, 0, |policy| policy.names_exchange, false);
        named.unwrap_or(false)
    }

    /// Whether an intake exchange is named for this queue, unless its arguments name another one.
    pub fn adopts(&self, queue: Queue<'_>) -> bool {
        self.of(queue, 0, |policy| policy.adopts, false)
            .unwrap_or(false)
    }

    /// The name of this queue's policy, and whether it adopts. `None`: unknown, or no policy.
    pub fn policy(&self, queue: Queue<'_>) -> Option<(String, bool)> {
        let of = |policy: &Policy| Some((policy.name.clone(), policy.adopts));
        self.of(queue, 0, of, None)?
    }

    /// From the policy of this queue, or `without` if it has none. `None`: unknown. `kind`: 1 for
    /// operator policies.
    fn of<T: PartialEq>(
        &self,
        queue: Queue<'_>,
        kind: usize,
        says: impl Fn(&Policy) -> T,
        without: T,
    ) -> Option<T> {
        if self.read == Read::NotYet {
            return None;
        }
        let policies = self.by_vhost.get(queue.vhost);
        let Some(policies) = policies.and_then(|kinds| kinds.get(kind)) else {
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
    fn new(listed: &BrokerPolicy<'_>, names: &Names) -> Policy {
        let (classic, quorum) = fits(listed.apply_to, &listed.keys);
        let name = |said: Option<&str>| match said {
            Some(said) => ShortStr::copy(said.as_bytes()).map(Some),
            None => Some(None),
        };
        let named = name(listed.exchange).zip(name(listed.routing_key));
        let mut adds = named.map(|(exchange, routing_key)| Added {
            exchange,
            routing_key,
            at_least_once: listed.strategy == Some("at-least-once"),
        });
        let adopts = match listed
            .exchange
            .and_then(|name| names.parse(name.as_bytes()))
        {
            Some(OwnObject::IntakeExchange(said, _)) => {
                adds = adds.map(|added| added.meant(said));
                true
            }
            Some(_) | None => false,
        };
        Policy {
            name: listed.name.to_owned(),
            pattern: pattern(listed.pattern).ok(),
            classic,
            quorum,
            priority: listed.priority,
            adds,
            names_exchange: listed.keys.contains(&"dead-letter-exchange"),
            adopts,
            limits: listed.limits,
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

/// Whether a policy can apply to classic and to quorum queues.
pub(super) fn fits(apply_to: &str, keys: &[&str]) -> (Fit, Fit) {
    let (classic, quorum) = match apply_to {
        "queues" | "all" => (Fit::Yes, Fit::Yes),
        "classic_queues" => (Fit::Yes, Fit::No),
        "quorum_queues" => (Fit::No, Fit::Yes),
        _ => (Fit::No, Fit::No),
    };
    let has = |known: &[&str]| keys.iter().any(|key| known.contains(key));
    let classic = match classic {
        Fit::Yes if has(NOT_CLASSIC) => Fit::No,
        Fit::Yes if has(PERHAPS_CLASSIC) => Fit::Perhaps,
        fit => fit,
    };
    let quorum = match quorum {
        Fit::Yes if has(NOT_QUORUM) => Fit::No,
        fit => fit,
    };
    (classic, quorum)
}

// === impl Added ===

impl Added {
    /// With the target that the name of an intake exchange tells.
    fn meant(self, said: DeclaredTarget) -> Added {
        let DeclaredTarget::Target(target) = said else {
            return Added {
                exchange: None,
                ..self
            };
        };
        Added {
            exchange: Some(target.exchange),
            routing_key: target.routing_key.or(self.routing_key),
            at_least_once: self.at_least_once || target.at_least_once,
        }
    }

    /// Completes the target's missing keys.
    pub(super) fn to(self, target: Target) -> Target {
        Target {
            routing_key: target.routing_key.or(self.routing_key),
            at_least_once: target.at_least_once || self.at_least_once,
            ..target
        }
    }
}
