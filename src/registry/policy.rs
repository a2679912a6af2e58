//! The proxy's own policies: which one a queue has, and what it adds to the queue's arguments. (The broker's: [`super::broker_policy`].)
//!
//! As in RabbitMQ (`rabbit_policy:match_all`) the policy of the highest priority wins alone, the patterns are searched anywhere in the
//! name, and arguments overrule the policy key by key. Differences:
//! - Equal priorities: RabbitMQ takes whichever its database lists first, which is no promise; here the first in the file wins.
//! - Patterns are those of the crate `regex`, which runs in linear time, not PCRE: no look-around, no back-references, no atomic groups, no
//!   `\Q…\E`. What both can read means the same, but for oddities: possessive repetitions are read as repeated ones, `&&`, `--`, `~~` and `[`
//!   in a class as operations, and octets over 127 are no letters (to PCRE in Erlang they are those of Latin-1).
//! - RabbitMQ passes over a policy that has a key which the queue's type does not know. Here only streams are passed over.

use std::fmt::Write;

use regex::bytes::{Regex, RegexBuilder};
use thiserror::Error;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::dead_letter::Target;

use super::intake_name::Intake;

/// What RabbitMQ's generated queue names begin with.
const GENERATED: &[u8] = b"amq.gen-";

/// Whether declares are rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They get an intake exchange: every kind of dead letter is the proxy's.
    Takeover,
    /// They stay as they are: rejects are the proxy's, expiry and length limits stay native.
    Keep,
}

/// The type of a queue, as far as one can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueType {
    /// `classic`.
    Classic,
    /// A declare without `x-queue-type`: classic, unless its vhost has another default, which cannot be seen.
    Default,
    /// `quorum`.
    Quorum,
    /// A stream, or a type that is new to us: it takes no dead-letter exchange that we know of.
    Other,
}

/// A queue, as policies see it.
#[derive(Clone, Copy, Debug)]
pub struct Queue<'a> {
    /// Its vhost.
    pub vhost: &'a [u8],
    /// Its name; empty when the broker is going to generate one.
    pub name: &'a [u8],
    /// Its type.
    pub queue_type: QueueType,
}

/// The queues that a policy may fit: its `apply-to`. (RabbitMQ's `all` means `queues` here, as exchanges have no dead letters.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyTo {
    /// `queues`, `all`.
    Queues,
    /// `classic_queues`.
    ClassicQueues,
    /// `quorum_queues`.
    QuorumQueues,
}

/// A policy as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// The vhost it acts in.
    pub vhost: String,
    /// Searched in the queue's name.
    pub pattern: String,
    /// The queues it may fit.
    pub apply_to: ApplyTo,
    /// The highest that fits wins.
    pub priority: i64,
    /// Instead of the global mode.
    pub mode: Option<Mode>,
    /// `dead-letter-exchange`; empty is the default exchange.
    pub dead_letter_exchange: Option<String>,
    /// `dead-letter-routing-key`; an empty one is a key too.
    pub dead_letter_routing_key: Option<String>,
}

/// A policy that cannot act.
#[derive(Clone, Debug, Error)]
pub enum BadPolicy {
    /// Its pattern.
    #[error("policy {name:?}: pattern {pattern:?} is not a regular expression")]
    Pattern {
        /// Of which policy.
        name: String,
        /// As written.
        pattern: String,
        /// What is wrong with it.
        source: regex::Error,
    },
    /// A vhost, exchange or key.
    #[error("policy {name:?}: {key} is over 255 bytes")]
    TooLong {
        /// Of which policy.
        name: String,
        /// Of what.
        key: &'static str,
    },
}

/// All policies, compiled: an immutable snapshot.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// Highest priority first; of equal ones the first in the file.
    policies: Vec<Policy>,
}

/// One policy.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// Instead of the global mode.
    pub mode: Option<Mode>,
    /// `dead-letter-exchange`.
    pub exchange: Option<ShortStr>,
    /// `dead-letter-routing-key`.
    pub routing_key: Option<ShortStr>,
    vhost: Vhost,
    pattern: Regex,
    apply_to: ApplyTo,
    priority: i64,
}

/// Reads a pattern as RabbitMQ does (`re:run` without options): by octets.
///
/// # Errors
/// When it is more than the crate `regex` can read.
pub fn pattern(text: &str) -> Result<Regex, regex::Error> {
    let mut octets = String::with_capacity(text.len());
    let mut escaped = false;
    for octet in text.bytes() {
        if octet.is_ascii() {
            octets.push(char::from(octet));
        } else {
            // By octets, `regex` takes no other letters. A backslash before one means nothing.
            octets.truncate(octets.len() - usize::from(escaped));
            let _ = write!(octets, "\\x{octet:02x}"); // a String takes all
        }
        escaped = octet == b'\\' && !escaped;
    }
    RegexBuilder::new(&octets).unicode(false).build()
}

// === impl Policies ===

impl Policies {
    /// Compiles them.
    ///
    /// # Errors
    /// At the first that cannot act.
    pub fn new(specs: &[Spec]) -> Result<Policies, BadPolicy> {
        let mut policies = specs
            .iter()
            .map(Policy::new)
            .collect::<Result<Vec<_>, _>>()?;
        policies.sort_by_key(|policy| std::cmp::Reverse(policy.priority)); // stable
        Ok(Policies { policies })
    }

    /// The policy of a queue.
    pub fn matching(&self, queue: Queue<'_>) -> Option<&Policy> {
        self.policies.iter().find(|policy| {
            policy.apply_to.fits(queue.queue_type)
                && policy.vhost.as_bytes() == queue.vhost
                && policy.pattern.is_match(queue.matched_name())
        })
    }
}

// === impl Queue ===

impl<'a> Queue<'a> {
    /// What patterns are searched in: a name that the broker is going to generate begins like all of them.
    pub(super) fn matched_name(&self) -> &'a [u8] {
        match self.name {
            [] => GENERATED,
            name => name,
        }
    }
}

// === impl Policy ===

impl Policy {
    fn new(spec: &Spec) -> Result<Policy, BadPolicy> {
        let short = |key, text: &str| {
            ShortStr::copy(text.as_bytes()).ok_or_else(|| BadPolicy::TooLong {
                name: spec.name.clone(),
                key,
            })
        };
        let optional =
            |key, text: &Option<String>| text.as_deref().map(|text| short(key, text)).transpose();
        Ok(Policy {
            name: spec.name.clone(),
            mode: spec.mode,
            exchange: optional("dead-letter-exchange", &spec.dead_letter_exchange)?,
            routing_key: optional("dead-letter-routing-key", &spec.dead_letter_routing_key)?,
            vhost: short("vhost", &spec.vhost)?,
            pattern: pattern(&spec.pattern).map_err(|source| BadPolicy::Pattern {
                name: spec.name.clone(),
                pattern: spec.pattern.clone(),
                source,
            })?,
            apply_to: spec.apply_to,
            priority: spec.priority,
        })
    }
}

// === impl Intake ===

impl Intake {
    /// The target of a queue that says this, and has that policy. `None`: it has no dead-letter exchange.
    pub fn target(&self, policy: Option<&Policy>) -> Option<Target> {
        let said = match self {
            Intake::Target(target) => Some(target),
            Intake::Policy { .. } => None,
        };
        let exchange = said
            .map(|target| &target.exchange)
            .or(policy.and_then(|policy| policy.exchange.as_ref()))?;
        let routing_key = said
            .and_then(|target| target.routing_key.as_ref())
            .or(policy.and_then(|policy| policy.routing_key.as_ref()));
        Some(Target {
            exchange: exchange.clone(),
            routing_key: routing_key.cloned(),
            at_least_once: self.at_least_once(),
        })
    }
}

// === impl ApplyTo ===

impl ApplyTo {
    fn fits(self, queue_type: QueueType) -> bool {
        match (self, queue_type) {
            (_, QueueType::Other) => false,
            (ApplyTo::Queues, QueueType::Classic | QueueType::Default | QueueType::Quorum)
            | (ApplyTo::ClassicQueues, QueueType::Classic | QueueType::Default)
            | (ApplyTo::QuorumQueues, QueueType::Quorum) => true,
            (ApplyTo::ClassicQueues, QueueType::Quorum)
            | (ApplyTo::QuorumQueues, QueueType::Classic | QueueType::Default) => false,
        }
    }
}
