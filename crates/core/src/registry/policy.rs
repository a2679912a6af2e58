//! The proxy's own policies: which one a queue has, and what it adds to the queue's arguments. (The broker's: [`super::broker_policy`].)
//!
//! As in RabbitMQ (`rabbit_policy:match_all`) the policy of the highest priority wins alone, the patterns are searched anywhere in the
//! name, and arguments overrule the policy key by key. Differences:
//! - A policy that says `overrules-arguments` comes before the arguments, key by key.
//! - Equal priorities: RabbitMQ takes whichever its database lists first, which is no promise; here the first in the file wins.
//! - Patterns are those of the crate `regex`, which runs in linear time, not PCRE: no look-around, no back-references, no atomic groups, no
//!   `\Q…\E`. What both can read means the same, but for oddities: possessive repetitions are read as repeated ones, `&&`, `--`, `~~` and `[`
//!   in a class as operations, and bytes over 127 are no letters (to PCRE in Erlang they are those of Latin-1).
//! - RabbitMQ passes over a policy that has a key which the queue's type does not know. Here only streams are passed over.

use std::fmt::Write;

use regex::bytes::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::dead_letter::Target;
use crate::objects::{DeclaredTarget, QueueType};

use super::generated;
use super::lenient::Lenient;
use super::said_retries::SaidRetries;

/// What the crate `regex` and PCRE certainly read alike: letters, classes of them, groups, and repetitions that are not possessive.
const PLAIN: &str = concat!(
    r#"^(?:(?:[A-Za-z0-9 _/:,=@%#~!"'<>;&.^$|)-]|\\[dD.*+?()\[\]{}|^$\\/-]|\((?:\?:)?"#,
    r"|\[\^?(?:[0-9A-Za-z]-[0-9A-Za-z]|[0-9A-Za-z _./:,=@%#!$*+?()|;]|\\[dD.*+?()\[\]{}|^$\\/-])+-?\])",
    r"(?:[*+?]\??|\{[0-9]+(?:,[0-9]*)?\}\??)?)*$",
);

/// Who handles the dead letters of a queue. Independent of retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Declares get an intake exchange: the proxy handles all dead letters.
    Full,
    /// Declares stay unchanged: the proxy handles rejects; expiry and length limits are the
    /// broker's.
    RejectsOnly,
    /// The broker handles all, even rejects.
    Off,
}

/// The inputs of a policy match.
#[derive(Clone, Copy, Debug)]
pub struct Queue<'a> {
    pub vhost: &'a [u8],
    /// If not generated yet: a possible one ([`generated::sample`]).
    pub name: &'a [u8],
    pub queue_type: QueueType,
}

/// Spelled as RabbitMQ's `--apply-to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApplyTo {
    Queues,
    ClassicQueues,
    QuorumQueues,
    /// Same as `queues`, because exchanges have no dead letters. Allows copies of RabbitMQ's
    /// policies.
    All,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Policy {
    pub name: ShortStr,
    pub vhost: Vhost,
    pub pattern: Pattern,
    pub apply_to: ApplyTo,
    /// The highest that matches wins.
    pub priority: i64,
    /// Overrides arguments and the global mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lenient: Option<Lenient>,
    /// Its keys override the queue's arguments.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub overrules_arguments: bool,
    pub definition: Definition,
}

/// A queue's own arguments override it key by key, unless [`Policy::overrules_arguments`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Definition {
    /// Empty is the default exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_exchange: Option<ShortStr>,
    /// Replaces the message's keys; an empty key is a set key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_routing_key: Option<ShortStr>,
    /// For messages that clients return.
    #[serde(flatten)]
    pub retries: SaidRetries,
}

#[derive(Clone, Debug)]
pub struct Pattern {
    written: String,
    regex: Regex,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("not a regular expression: {0}")]
pub struct BadPattern(String);

#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// Highest priority first, then in the order of the file.
    policies: Vec<Policy>,
    any_retries: bool,
    any_ack_timeout: bool,
}

/// Parses a pattern as RabbitMQ does (`re:run` without options): by bytes.
///
/// # Errors
/// When the crate `regex` cannot parse it.
pub fn pattern(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(&by_bytes(text)).unicode(false).build()
}

fn by_bytes(text: &str) -> String {
    let mut bytes = String::with_capacity(text.len());
    let mut escaped = false;
    for byte in text.bytes() {
        if byte.is_ascii() {
            bytes.push(char::from(byte));
        } else {
            // By bytes, `regex` takes no other letters. A backslash before one means nothing.
            bytes.truncate(bytes.len() - usize::from(escaped));
            let _ = write!(bytes, "\\x{byte:02x}"); // a String takes all
        }
        escaped = byte == b'\\' && !escaped;
    }
    bytes
}

// === impl Policies ===

impl Policies {
    pub fn new(mut policies: Vec<Policy>) -> Policies {
        policies.sort_by_key(|policy| std::cmp::Reverse(policy.priority)); // stable
        let said = || policies.iter().map(|policy| &policy.definition.retries);
        Policies {
            any_retries: said().any(|said| !said.clone().of_returns().is_silent()),
            any_ack_timeout: said().any(|said| said.ack_timeout.is_some()),
            policies,
        }
    }

    pub fn speak_of_retries(&self) -> bool {
        self.any_retries
    }

    pub fn speak_of_ack_timeouts(&self) -> bool {
        self.any_ack_timeout
    }

    /// Whether one of them lets a declare change where dead letters go.
    pub fn any_follows_targets(&self) -> bool {
        let mut lenient = self.policies.iter().filter_map(|of| of.lenient.as_ref());
        lenient.any(Lenient::follows_targets)
    }

    pub fn matching(&self, queue: Queue<'_>) -> Option<&Policy> {
        let mut policies = self.policies.iter();
        policies.find(|policy| policy.fits(queue))
    }

    pub(super) fn named(&self, vhost: &[u8], name: &[u8]) -> Option<&Policy> {
        let is_it = |policy: &&Policy| policy.vhost.as_bytes() == vhost && *policy.name == *name;
        self.policies.iter().find(is_it)
    }

    /// Whether the beginning of a name, in `queue.name`, decides the queue's policy.
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
    pub(super) fn fits(&self, queue: Queue<'_>) -> bool {
        self.may_fit(queue) && self.pattern.regex.is_match(queue.name)
    }

    /// Whether its pattern applies to that queue.
    fn may_fit(&self, queue: Queue<'_>) -> bool {
        self.apply_to.fits(queue.queue_type) && self.vhost.as_bytes() == queue.vhost
    }
}

impl Default for Policy {
    /// Matches all queues of the vhost `/`, and sets nothing.
    fn default() -> Policy {
        Policy {
            name: ShortStr::EMPTY,
            vhost: Vhost::ROOT,
            pattern: Pattern::default(),
            apply_to: ApplyTo::Queues,
            priority: 0,
            mode: None,
            lenient: None,
            overrules_arguments: false,
            definition: Definition::default(),
        }
    }
}

// === impl DeclaredTarget ===

impl DeclaredTarget {
    /// The target of a queue with this declare and policy. `None`: no dead-letter exchange.
    pub fn target(&self, policy: Option<&Policy>) -> Option<Target> {
        self.target_or(policy, None)
    }

    /// `exchange`: counts if nothing else names one.
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
    /// # Errors
    /// When the crate `regex` cannot parse it.
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

    pub(super) fn written(&self) -> &str {
        &self.written
    }

    /// Whether the broker certainly reads it alike. `false`: perhaps it does.
    pub(super) fn is_the_same_in_pcre(&self) -> bool {
        Regex::new(PLAIN).is_ok_and(|plain| plain.is_match(self.written.as_bytes()))
    }
}

impl Default for Pattern {
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
    pub(super) fn as_str(self) -> &'static str {
        match self {
            ApplyTo::Queues => "queues",
            ApplyTo::ClassicQueues => "classic_queues",
            ApplyTo::QuorumQueues => "quorum_queues",
            ApplyTo::All => "all",
        }
    }

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
