//! The proxy's own policies: which one a queue has, and what it adds to the queue's arguments. (The broker's: [`super::broker_policy`].)
//!
//! As in RabbitMQ (`rabbit_policy:match_all`) the policy of the highest priority wins alone, the patterns are searched anywhere in the
//! name, and arguments overrule the policy key by key. Differences:
//! - A policy that says `overrules-arguments` comes before the arguments, key by key.
//! - Equal priorities: RabbitMQ takes whichever its database lists first, which is no promise; here the first in the file wins.
//! - Patterns are those of the crate `regex`, which runs in linear time, not PCRE: no look-around, no back-references, no atomic groups, no
//!   `\Q…\E`. What both can read means the same, but for oddities: possessive repetitions are read as repeated ones, `&&`, `--`, `~~` and `[`
//!   in a class as operations, and octets over 127 are no letters (to PCRE in Erlang they are those of Latin-1).
//! - RabbitMQ passes over a policy that has a key which the queue's type does not know. Here only streams are passed over.

use std::fmt::Write;

use regex::bytes::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::dead_letter::Target;
use crate::objects::{DeclaredTarget, QueueType};

use super::generated;
use super::said_retries::SaidRetries;

/// Whose the dead letters of a queue are. It says nothing of what else may be done with its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Declares get an intake exchange: every kind of dead letter is the proxy's.
    Full,
    /// Declares stay as they are: rejects are the proxy's, expiry and length limits stay native.
    RejectsOnly,
    /// All are the broker's, those of rejects too.
    Off,
}

/// What becomes of a declare that differs from the queue only in where its dead letters go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Declares {
    /// It is refused, as RabbitMQ does (406).
    Strict,
    /// It is accepted, and what it says counts from then on.
    Lenient,
}

/// A queue, as policies see it.
#[derive(Clone, Copy, Debug)]
pub struct Queue<'a> {
    pub vhost: &'a [u8],
    /// Its name. While the broker has yet to generate that, one like it ([`generated::sample`]).
    pub name: &'a [u8],
    pub queue_type: QueueType,
}

/// The queues that a policy may fit, spelled as RabbitMQ's `--apply-to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApplyTo {
    /// Classic and quorum queues.
    Queues,
    ClassicQueues,
    QuorumQueues,
    /// The same as `queues`: exchanges have no dead letters. RabbitMQ's word, so that its policies can be copied.
    All,
}

/// One policy, as a `[[policy]]` of the settings says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Policy {
    pub name: ShortStr,
    pub vhost: Vhost,
    /// Searched in the queue's name.
    pub pattern: Pattern,
    pub apply_to: ApplyTo,
    /// The highest that fits wins.
    pub priority: i64,
    /// Instead of what the queue's arguments or the global mode say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Instead of the global setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declares: Option<Declares>,
    /// Its keys come before those of a queue's arguments, not behind them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub overrules_arguments: bool,
    pub definition: Definition,
}

/// What a policy sets. A queue's own arguments overrule it key by key, unless [`Policy::overrules_arguments`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Definition {
    /// Name of the exchange; an empty one is the default exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_exchange: Option<ShortStr>,
    /// Instead of the message's own keys; an empty one is a key too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_routing_key: Option<ShortStr>,
    /// Of messages that clients return.
    #[serde(flatten)]
    pub retries: SaidRetries,
}

/// A regular expression that is searched in names of queues.
#[derive(Clone, Debug)]
pub struct Pattern {
    written: String,
    regex: Regex,
}

/// A pattern that is more than the crate `regex` can read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("not a regular expression: {0}")]
pub struct BadPattern(String);

/// All policies: an immutable snapshot.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// Highest priority first; of equal ones the first in the file.
    policies: Vec<Policy>,
    /// One of them speaks of retries.
    any_retries: bool,
}

/// Reads a pattern as RabbitMQ does (`re:run` without options): by octets.
///
/// # Errors
/// When it is more than the crate `regex` can read.
pub fn pattern(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(&by_octets(text)).unicode(false).build()
}

fn by_octets(text: &str) -> String {
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
    octets
}

// === impl Policies ===

impl Policies {
    /// These, in the order of the file.
    pub fn new(mut policies: Vec<Policy>) -> Policies {
        policies.sort_by_key(|policy| std::cmp::Reverse(policy.priority)); // stable
        let speaks = |policy: &Policy| !policy.definition.retries.is_silent();
        Policies {
            any_retries: policies.iter().any(speaks),
            policies,
        }
    }

    /// Whether one of them speaks of retries.
    pub fn speak_of_retries(&self) -> bool {
        self.any_retries
    }

    /// Whether one of them lets declares differ from their queues.
    pub fn any_is_lenient(&self) -> bool {
        let mut policies = self.policies.iter();
        policies.any(|policy| policy.declares == Some(Declares::Lenient))
    }

    pub fn matching(&self, queue: Queue<'_>) -> Option<&Policy> {
        let mut policies = self.policies.iter();
        policies.find(|policy| policy.may_fit(queue) && policy.pattern.regex.is_match(queue.name))
    }

    /// Whether it is clear which policy a queue has by how its name begins, which is `queue.name` here.
    pub fn decide(&self, queue: Queue<'_>) -> bool {
        let policies = self.policies.iter();
        let mut decided = policies
            .filter(|policy| policy.may_fit(queue))
            .map(|policy| generated::decided(&policy.pattern.regex, queue.name));
        decided.find(|decided| *decided != Some(false)) != Some(None)
    }
}

// === impl Policy ===

impl Policy {
    /// Whether its pattern is looked at for that queue.
    fn may_fit(&self, queue: Queue<'_>) -> bool {
        self.apply_to.fits(queue.queue_type) && self.vhost.as_bytes() == queue.vhost
    }
}

impl Default for Policy {
    /// Fits all queues of the vhost `/`, and sets nothing.
    fn default() -> Policy {
        Policy {
            name: ShortStr::EMPTY,
            vhost: Vhost::ROOT,
            pattern: Pattern::default(),
            apply_to: ApplyTo::Queues,
            priority: 0,
            mode: None,
            declares: None,
            overrules_arguments: false,
            definition: Definition::default(),
        }
    }
}

// === impl DeclaredTarget ===

impl DeclaredTarget {
    /// The target of a queue that says this, and has that policy. `None`: it has no dead-letter exchange.
    pub fn target(&self, policy: Option<&Policy>) -> Option<Target> {
        self.target_or(policy, None)
    }

    /// The same where that exchange counts if nothing else names one.
    pub(super) fn target_or(
        &self,
        policy: Option<&Policy>,
        exchange: Option<&ShortStr>,
    ) -> Option<Target> {
        let said = match self {
            DeclaredTarget::Target(target) => (Some(&target.exchange), target.routing_key.as_ref()),
            DeclaredTarget::Policy { .. } => (None, None),
        };
        let set = policy.map(|policy| &policy.definition);
        let set = (
            set.and_then(|set| set.dead_letter_exchange.as_ref()),
            set.and_then(|set| set.dead_letter_routing_key.as_ref()),
        );
        let (first, then) = match policy.is_some_and(|policy| policy.overrules_arguments) {
            true => (set, said),
            false => (said, set),
        };
        Some(Target {
            exchange: first.0.or(then.0).or(exchange)?.clone(),
            routing_key: first.1.or(then.1).cloned(),
            at_least_once: self.at_least_once(),
        })
    }
}

// === impl Pattern ===

impl Pattern {
    /// Reads it as RabbitMQ does, as far as the crate `regex` can.
    ///
    /// # Errors
    /// When it cannot.
    pub fn new(text: &str) -> Result<Pattern, BadPattern> {
        match pattern(text) {
            Ok(regex) => Ok(Pattern {
                written: text.to_owned(),
                regex,
            }),
            Err(error) => {
                // The last line says what is wrong; those before it show where.
                let said = error.to_string();
                let reason = said.lines().last().unwrap_or_default();
                Err(BadPattern(reason.trim_start_matches("error: ").to_owned()))
            }
        }
    }
}

impl Default for Pattern {
    /// It is found in every name.
    fn default() -> Pattern {
        Pattern::new("").expect("an empty pattern can be read")
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.written == other.written
    }
}

impl Eq for Pattern {}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.written)
    }
}

// === impl ApplyTo ===

impl ApplyTo {
    fn fits(self, queue_type: QueueType) -> bool {
        match (self, queue_type) {
            (_, QueueType::Other) => false,
            (
                ApplyTo::Queues | ApplyTo::All,
                QueueType::Classic | QueueType::Default | QueueType::Quorum,
            )
            | (ApplyTo::ClassicQueues, QueueType::Classic | QueueType::Default)
            | (ApplyTo::QuorumQueues, QueueType::Quorum) => true,
            (ApplyTo::ClassicQueues, QueueType::Quorum)
            | (ApplyTo::QuorumQueues, QueueType::Classic | QueueType::Default) => false,
        }
    }
}
