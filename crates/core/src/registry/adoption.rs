//! Adoption: which policies of ours at the broker make queues `full` at once whose dead-letter exchange comes from a policy of the user. (Of those
//! that are made from a `[[policy]]`: `by_proxy.rs`.)
//!
//! Ours is the user's policy with the intake exchange in the place of the dead-letter exchange, one priority higher. All else is the user's:
//! - The pattern, the types, and all other keys: only one policy applies to a queue, and only if its type knows all of the keys.
//! - The routing key, too. A queue whose arguments name an exchange and no key has its key from the policy (S2.1), adopted or not.
//!
//! Its name tells which policy it was made from. So ours can be made again from a list of policies alone: no proxy has to remember it, and
//! several proxies make the same of it.

use std::collections::{BTreeMap, BTreeSet};

use regex::bytes::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::amqp::ids::ShortStr;
use crate::dead_letter::Target;
use crate::objects::{DeclaredTarget, Names, OwnObject, QueueType};

use super::broker_policy::{BrokerPolicies, BrokerPolicy, Fit, Limits, fits};
use super::policy::{Policy, Queue};

pub use by_proxy::{Here, OfFile};
pub use plan::{Change, Plan};

mod by_proxy;
mod plan;

/// Behind the prefix: the name of one of ours; the name of the user's follows.
const START: &str = ".adopted/";
const EXCHANGE: &str = "dead-letter-exchange";

/// A policy of the broker as the management API lists it, and takes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ListedPolicy {
    pub vhost: String,
    pub name: String,
    /// PCRE, searched in names.
    pub pattern: String,
    pub apply_to: String,
    pub priority: f64,
    pub definition: BTreeMap<String, Value>,
}

/// The policy that one of ours was made from: its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source<'a> {
    Broker(&'a str),
    /// Of the proxy's file.
    Proxy(&'a str),
}

/// A queue as the management API lists it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ListedQueue {
    pub name: String,
    #[serde(default, rename = "type")]
    pub queue_type: Option<String>,
    /// The one policy that applies.
    #[serde(default)]
    pub policy: Option<String>,
    #[serde(default)]
    pub arguments: Value,
    #[serde(default)]
    pub durable: bool,
    #[serde(default)]
    pub auto_delete: bool,
    #[serde(default)]
    pub exclusive: bool,
    /// Nodes with a replica, and those of them that run.
    #[serde(default)]
    pub members: BTreeSet<String>,
    #[serde(default)]
    pub online: BTreeSet<String>,
}

/// Which queues a plan is for.
#[derive(Clone, Debug)]
pub enum Meant {
    Queue(String),
    All(Regex),
}

/// Why a policy or a queue is not adopted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum Refusal {
    #[error("no policy names a dead-letter exchange for it")]
    NoExchange,
    #[error(
        "its own arguments name its dead-letter exchange: make it anew (`dlx-proxy queues alter`)"
    )]
    OwnArguments,
    #[error("it was declared with an intake exchange: the proxy handles all its dead letters")]
    TakenOver,
    #[error("the policy {0} of the proxy adopts it already")]
    Adopted(String),
    #[error("no policy of the proxy adopts it")]
    NotAdopted,
    #[error("a stream has no dead letters")]
    Stream,
    #[error(
        "the broker confirms its dead letters itself (`at-least-once` with `reject-publish`): name the queue to adopt it all the same"
    )]
    ConfirmedByBroker,
    #[error(
        "between its policy {policy} and the policy {above} no priority is free: ours would be {priority}. Raise the priority of {above}"
    )]
    NoPriority {
        policy: String,
        above: String,
        priority: i64,
    },
    #[error("the dead-letter exchange of its policy {0} is no name of 255 bytes or less")]
    NoName(String),
    #[error("the name of the intake exchange for its policy {0} would be longer than 255 bytes")]
    NameTooLong(String),
    #[error(
        "the broker could read the pattern of the [[policy]] {0} of the proxy otherwise: write it without special forms"
    )]
    Pattern(String),
    #[error(
        "it has the policy {by} of the broker, which would hide one for the [[policy]] {policy}: name the exchange in {by}, and adopt that"
    )]
    Hidden { policy: String, by: String },
    #[error(
        "the pattern of the [[policy]] {policy} also matches the queue {queue}, for which the proxy has no dead-letter exchange"
    )]
    Other { policy: String, queue: String },
    #[error("the [[policy]] {0} of this proxy says something else: release and adopt its queues")]
    Differs(String),
}

/// What has to be so for one policy of ours, given all policies.
#[derive(Clone, Debug, PartialEq)]
pub enum Wanted {
    /// This one: to be put if it is new. Its intake exchange has to exist before.
    Keep { ours: ListedPolicy, is_new: bool },
    /// The policy that it was made from is gone, or names no exchange any more.
    Delete(ListedPolicy),
    /// It cannot be made from that one any more. It stays as it is.
    Stuck(ListedPolicy, Refusal),
}

// === impl ListedPolicy ===

impl ListedPolicy {
    pub fn read(&self, by_operator: bool) -> BrokerPolicy<'_> {
        let number = |key: &str| self.definition.get(key)?.as_i64();
        BrokerPolicy {
            vhost: &self.vhost,
            name: &self.name,
            pattern: &self.pattern,
            apply_to: &self.apply_to,
            priority: self.priority,
            keys: self.definition.keys().map(String::as_str).collect(),
            exchange: self.text(EXCHANGE),
            routing_key: self.text("dead-letter-routing-key"),
            strategy: self.text("dead-letter-strategy"),
            limits: Limits {
                message_ttl: number("message-ttl"),
                delivery_limit: number("delivery-limit"),
                dies_when_full: self
                    .text("overflow")
                    .map(|said| said == "reject-publish-dlx"),
            },
            by_operator,
        }
    }

    /// The intake exchange that it names.
    pub fn intake(&self, names: &Names) -> Option<ShortStr> {
        let name = ShortStr::copy(self.text(EXCHANGE)?.as_bytes())?;
        names.is_intake_exchange(&name).then_some(name)
    }

    pub fn is_ours(&self, names: &Names) -> bool {
        self.source(names).is_some()
    }

    pub fn is_of_file(&self, names: &Names) -> bool {
        matches!(self.source(names), Some(Source::Proxy(_)))
    }

    /// What this one was made from, if it is one of ours.
    fn source<'a>(&'a self, names: &Names) -> Option<Source<'a>> {
        source(&self.name, names)
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.definition.get(key)?.as_str()
    }

    /// RabbitMQ takes whole numbers.
    fn above(&self) -> i64 {
        (self.priority.floor() as i64).saturating_add(1)
    }
}

fn source<'a>(ours: &'a str, names: &Names) -> Option<Source<'a>> {
    let prefix = str::from_utf8(names.prefix()).ok()?;
    let name = ours.strip_prefix(prefix)?;
    let by_proxy = || name.strip_prefix(by_proxy::START).map(Source::Proxy);
    name.strip_prefix(START)
        .map(Source::Broker)
        .or_else(by_proxy)
}

/// Ours, made from one of the user's. `all`: policies of the same vhost.
///
/// # Errors
/// When it would not do what it is for.
fn made_from<'a>(
    source: &ListedPolicy,
    all: impl IntoIterator<Item = &'a ListedPolicy>,
    names: &Names,
) -> Result<ListedPolicy, Refusal> {
    let name = &source.name;
    let exchange = source.text(EXCHANGE).ok_or(Refusal::NoExchange)?;
    let exchange = ShortStr::copy(exchange.as_bytes());
    let exchange = exchange.ok_or_else(|| Refusal::NoName(name.clone()))?;
    if names.is_intake_exchange(&exchange) {
        return Err(Refusal::Adopted(name.clone()));
    }
    let priority = source.above();
    let is_between = |other: &&ListedPolicy| {
        !other.is_ours(names)
            && other.priority > source.priority
            && other.priority <= priority as f64
    };
    if let Some(above) = all.into_iter().find(is_between) {
        return Err(Refusal::NoPriority {
            policy: name.clone(),
            above: above.name.clone(),
            priority,
        });
    }
    let said = DeclaredTarget::Target(Target {
        exchange,
        routing_key: None,
        at_least_once: source.text("dead-letter-strategy") == Some("at-least-once"),
    });
    let keys: Vec<_> = source.definition.keys().map(String::as_str).collect();
    let queue_type = match fits(&source.apply_to, &keys) {
        (Fit::No, _) => QueueType::Quorum,
        // The intake knows the types of the queues besides.
        (Fit::Perhaps | Fit::Yes, _) => QueueType::Default,
    };
    let intake = names.name(&OwnObject::intake_exchange(&said, queue_type));
    let intake = intake.ok_or_else(|| Refusal::NameTooLong(name.clone()))?;
    let mut definition = source.definition.clone();
    definition.insert(EXCHANGE.to_owned(), intake.to_string().into());
    Ok(ListedPolicy {
        name: format!("{}{START}{name}", names.prefix()),
        priority: priority as f64,
        definition,
        ..source.clone()
    })
}

/// What has to become of each of ours, as the user's policies and the file are now.
pub fn wanted(policies: &[ListedPolicy], names: &Names, file: OfFile<'_>) -> Vec<Wanted> {
    let each = policies.iter().filter_map(|ours| {
        let of = match ours.source(names)? {
            Source::Broker(of) => of,
            Source::Proxy(of) => return Some(by_proxy::wanted(ours, of, names, file)),
        };
        let here = || policies.iter().filter(|other| other.vhost == ours.vhost);
        let Some(source) = here().find(|other| other.name == of) else {
            return Some(Wanted::Delete(ours.clone()));
        };
        Some(match made_from(source, here(), names) {
            Ok(made) => Wanted::Keep {
                is_new: made != *ours,
                ours: made,
            },
            Err(Refusal::NoExchange) => Wanted::Delete(ours.clone()),
            Err(refusal) => Wanted::Stuck(ours.clone(), refusal),
        })
    });
    each.collect()
}

/// Whether this is still to be done by a newer reading, when another proxy may have adopted or released since.
pub fn is_still(wanted: &Wanted, newer: &[ListedPolicy], names: &Names, file: OfFile<'_>) -> bool {
    self::wanted(newer, names, file).contains(wanted)
}

/// The policy of ours that a queue had, and another one that it has now: not the one that ours was
/// made from.
pub fn ended(
    before: &BrokerPolicies,
    now: &BrokerPolicies,
    queue: Queue<'_>,
    names: &Names,
) -> Option<(String, String)> {
    let (ours, _) = before.policy(queue).filter(|(_, adopts)| *adopts)?;
    let (other, _) = now.policy(queue).filter(|(_, adopts)| !adopts)?;
    (source(&ours, names)? != Source::Broker(&other)).then_some((ours, other))
}

/// Policies to put so that the queues that are meant become `full`. Each adopts all queues that it
/// applies to. `policies`, `queues`: those of one vhost.
pub fn adopt(
    policies: &[ListedPolicy],
    queues: &[ListedQueue],
    meant: &Meant,
    names: &Names,
    here: Here<'_>,
) -> Plan {
    let mut plan = Plan::default();
    let judged = queues
        .iter()
        .filter(|queue| !names.is_ours(queue.name.as_bytes()));
    let judged: Vec<_> = judged
        .map(|queue| (queue, queue.judged(policies, meant, names)))
        .collect();
    let mut sources = BTreeSet::new();
    let mut of_file = BTreeMap::<_, (&Policy, Vec<&str>)>::new();
    for (queue, judged) in judged.iter().filter(|(queue, _)| meant.is(&queue.name)) {
        match judged {
            Ok(source) => {
                sources.insert(&*source.name);
            }
            Err(Refusal::NoExchange) => match by_proxy::judged(queue, here) {
                Ok(policy) => {
                    let of = of_file.entry(&policy.name);
                    of.or_insert((policy, Vec::new())).1.push(&queue.name);
                }
                Err(refusal) => plan.leave(refusal, &queue.name),
            },
            Err(refusal) => plan.leave(refusal.clone(), &queue.name),
        }
    }
    for (policy, meant) in of_file.into_values() {
        match by_proxy::change(policy, queues, names, here) {
            Ok(change) => plan.changes.push(change),
            Err(refusal) => {
                for queue in meant {
                    plan.leave(refusal.clone(), queue);
                }
            }
        }
    }
    let sources = policies
        .iter()
        .filter(|policy| sources.contains(&*policy.name));
    for source in sources {
        let has_it = |queue: &ListedQueue| queue.policy.as_deref() == Some(&source.name);
        let mine = judged.iter().filter(|(queue, _)| has_it(queue));
        plan.adopt(source, mine.collect(), meant, || {
            made_from(source, policies, names)
        });
    }
    plan
}

/// Policies of ours to delete: those that the queues that are meant have, or will have in a moment, as
/// they still have the user's below it. With a pattern also those that no queue has.
pub fn release(
    policies: &[ListedPolicy],
    queues: &[ListedQueue],
    meant: &Meant,
    names: &Names,
) -> Plan {
    let mut plan = Plan::default();
    for ours in policies {
        let Some(source) = ours.source(names) else {
            continue;
        };
        let has_it = |queue: &&ListedQueue| {
            let policy = queue.policy.as_deref();
            policy.is_some_and(|name| name == ours.name || source == Source::Broker(name))
        };
        let mine: Vec<_> = queues.iter().filter(has_it).collect();
        let is_meant = mine.iter().any(|queue| meant.is(&queue.name));
        if is_meant || mine.is_empty() && matches!(meant, Meant::All(_)) {
            let users = mine.into_iter();
            let users = users.filter(|queue| !names.is_ours(queue.name.as_bytes()));
            plan.changes.push(Change {
                source: match source {
                    Source::Broker(name) => name.to_owned(),
                    Source::Proxy(name) => by_proxy::shown(name),
                },
                ours: ours.clone(),
                queues: users.map(|queue| queue.name.clone()).collect(),
            });
        }
    }
    if let Meant::Queue(name) = meant
        && plan.changes.is_empty()
        && queues.iter().any(|queue| queue.name == *name)
    {
        plan.leave(Refusal::NotAdopted, name);
    }
    plan
}

// === impl ListedQueue ===

impl ListedQueue {
    /// The user's policy that names its dead-letter exchange.
    ///
    /// # Errors
    /// Why it cannot be adopted.
    fn judged<'a>(
        &self,
        policies: &'a [ListedPolicy],
        meant: &Meant,
        names: &Names,
    ) -> Result<&'a ListedPolicy, Refusal> {
        if self.queue_type.as_deref() == Some("stream") {
            return Err(Refusal::Stream);
        }
        if let Some(own) = self.arguments["x-dead-letter-exchange"].as_str() {
            return Err(match names.is_intake_exchange(own.as_bytes()) {
                true => Refusal::TakenOver,
                false => Refusal::OwnArguments,
            });
        }
        let named = |policy: &&ListedPolicy| self.policy.as_ref() == Some(&policy.name);
        let policy = policies.iter().find(named).ok_or(Refusal::NoExchange)?;
        policy.text(EXCHANGE).ok_or(Refusal::NoExchange)?;
        if policy.intake(names).is_some() {
            return Err(Refusal::Adopted(policy.name.clone()));
        }
        match self.is_confirmed_with(policy) && matches!(meant, Meant::All(_)) {
            true => Err(Refusal::ConfirmedByBroker),
            false => Ok(policy),
        }
    }

    /// As `rabbit_quorum_queue:dlh`: arguments overrule the policy.
    fn is_confirmed_with(&self, policy: &ListedPolicy) -> bool {
        let says = |key: &str, text: &str| {
            let own = self.arguments[format!("x-{key}")].as_str();
            own.or(policy.text(key)) == Some(text)
        };
        self.queue_type.as_deref() == Some("quorum")
            && says("dead-letter-strategy", "at-least-once")
            && says("overflow", "reject-publish")
    }
}

// === impl Meant ===

impl Meant {
    pub fn is(&self, queue: &str) -> bool {
        match self {
            Meant::Queue(name) => name == queue,
            Meant::All(pattern) => pattern.is_match(queue.as_bytes()),
        }
    }
}
