//! How a queue is handled, by what is known of it and by the policies in force: which of its dead letters are the proxy's, why, and what to do about
//! it. A pure function; `testdata/handling.txt` shows it.

use std::time::Duration;

use crate::amqp::version::Version;
use crate::dead_letter::{Lookup, Target};
use crate::machine::{Fallback, Mono};
use crate::objects::{Names, QueueType};

use super::arguments::DeclareArguments;
use super::catalogue::{self, fact::Source};
use super::lenient::Kept;
use super::live::LivePolicies;
use super::policy::{Mode, Queue};
use super::{Declared, Form};

/// Which dead letters of a queue the proxy handles; most urgent state first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Unknown, so all are left to the broker.
    Unknown,
    /// Rejects and retries; expiry and overflow are the broker's.
    RejectsOnly,
    Off,
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Why {
    pub name: &'static str,
    pub says: &'static str,
    /// Empty: intended.
    pub advice: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handling {
    pub state: State,
    pub why: Why,
    pub target: Option<Target>,
    pub retries: bool,
    pub ack_timeout: Option<Duration>,
    /// In what its last declare differs from it, beside the target.
    pub kept: Box<[Kept]>,
    /// The source, and when it was so.
    pub told: Option<(Source, Mono)>,
    /// The last failed question, without a source.
    pub asked: Option<Mono>,
}

#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    pub policies: &'a LivePolicies,
    pub mode: Mode,
    pub names: &'a Names,
    pub version: Option<Version>,
}

const ANEW: &str = "`dlx-proxy queues alter QUEUE` makes it anew under its clients, where one proxy has all clients of the vhost. Else delete the queue when it is empty, and let a client declare it through the proxy.";
const UNDECLARED: Why = why(
    "undeclared",
    "No declare of the queue came through the proxy. Its rejects are left to the broker.",
    "Set `management-url`; if it is set, see why the API does not show the queue. Or let a client declare the queue through the proxy.",
);
const KEY_UNKNOWN: Why = why(
    "key-unknown",
    "A policy of the broker may set its routing key, and cannot be read. Its rejects are left to the broker.",
    "Set `management-url`; or set the routing key in the arguments of the queue or in a [[policy]] of the proxy.",
);
const NO_PERMISSION: Why = why(
    "no-permission",
    "The client's user may not write to the intake exchange, so that the queue was declared without one.",
    "`dlx-proxy doctor --client-user USER` prints the command that gives this permission. Then make the queue anew: `dlx-proxy queues alter QUEUE`.",
);
const NAME_TOO_LONG: Why = why(
    "name-too-long",
    "The name of its intake exchange would be longer than 255 bytes, so that the queue was declared without one.",
    "Give the dead-letter exchange or the routing key a shorter name.",
);
const LEFT: Why = why(
    "not-taken-over",
    "The proxy could not take its declare over at that moment. The log has the cause.",
    ANEW,
);
const OWN_ARGUMENTS: Why = why(
    "own-arguments",
    "The queue was made with its own dead-letter arguments, at the broker itself or before it was taken over.",
    ANEW,
);
const BROKER_POLICY: Why = why(
    "broker-policy",
    "A policy of the broker names its dead-letter exchange.",
    "`dlx-proxy queues adopt QUEUE` hands them to the proxy at once.",
);
const PROXY_POLICY: Why = why(
    "proxy-policy",
    "Only a policy of the proxy names its dead-letter exchange. The broker discards what expires or overflows.",
    "`dlx-proxy queues adopt QUEUE` hands expiry and overflow to the proxy at once, if no policy of the broker applies to the queue. Else name the exchange in that policy, too, and adopt it.",
);
const KEEP: Why = why("mode-rejects-only", "The mode is `rejects-only`.", "");
const NATIVE: Why = why("mode-off", "The mode is `off`.", "");
const AT_LEAST_ONCE: Why = why(
    "at-least-once",
    "The broker publishes its dead letters with confirms (`at-least-once` with `reject-publish`).",
    "",
);
const RETRIES_ALONE: Why = why(
    "retries-alone",
    "The queue has retries or an ack timeout, and no dead-letter exchange.",
    "",
);
const NO_TARGET: Why = why(
    "no-target",
    "The queue has no dead-letter exchange, no retries and no ack timeout.",
    "",
);
const TAKEN_OVER: Why = why("taken-over", "The queue has an intake exchange.", "");

const ADOPTED: Why = why(
    "adopted",
    "A policy that the proxy made at the broker names its intake exchange (`dlx-proxy queues release` removes it).",
    "",
);

const fn why(name: &'static str, says: &'static str, advice: &'static str) -> Why {
    Why { name, says, advice }
}

// === impl State ===

impl State {
    pub const ALL: [State; 4] = [State::Unknown, State::RejectsOnly, State::Off, State::Full];

    pub fn as_str(self) -> &'static str {
        match self {
            State::Unknown => "unknown",
            State::RejectsOnly => "rejects-only",
            State::Off => "off",
            State::Full => "full",
        }
    }

    pub fn parse(name: &str) -> Result<State, String> {
        let known = State::ALL.into_iter().find(|state| state.as_str() == name);
        known.ok_or_else(|| format!("write {}", State::ALL.map(State::as_str).join(", ")))
    }
}

// === impl Handling ===

impl Handling {
    /// For a redeclared queue of which nothing else is known.
    pub fn redeclared(taken_over: bool) -> Handling {
        let (state, why) = match taken_over {
            true => (State::Full, TAKEN_OVER),
            false => (State::Unknown, UNDECLARED),
        };
        Handling {
            state,
            why,
            target: None,
            retries: false,
            ack_timeout: None,
            kept: Default::default(),
            told: None,
            asked: None,
        }
    }
}

// === impl Circumstances ===

impl Circumstances<'_> {
    /// `left`: why its last declare was left to the broker. `None`: neither a target nor retries,
    /// as far as known, or an own queue.
    pub fn of(
        &self,
        vhost: &[u8],
        name: &[u8],
        known: &catalogue::Queue,
        left: Option<Fallback>,
    ) -> Option<Handling> {
        let (declared, told) = self.declared(known);
        let queue_type = declared.queue_type;
        let queue = Queue {
            vhost,
            name,
            queue_type,
        };
        if self.names.is_ours(name) || queue_type == QueueType::Other {
            return None;
        }
        let said = declared.retries.clone();
        let ack_timeout = self.policies.ack_timeout(queue, &said, self.mode);
        let retries = self.policies.retries(queue, said, self.mode, self.version);
        let retries = retries.is_some();
        let asked = known.asked().filter(|_| told.is_none());
        let (state, why, target) = match asked {
            Some(_) => (State::Unknown, UNDECLARED, None),
            None => {
                let comes_back = retries || ack_timeout.is_some();
                match self.judge(queue, &declared, comes_back, left) {
                    None if declared.kept.is_empty() => return None,
                    judged => judged.unwrap_or((State::Off, NO_TARGET, None)),
                }
            }
        };
        Some(Handling {
            state,
            why,
            target,
            retries,
            ack_timeout,
            kept: declared.kept,
            told,
            asked,
        })
    }

    fn judge(
        &self,
        queue: Queue<'_>,
        declared: &Declared,
        comes_back: bool,
        left: Option<Fallback>,
    ) -> Option<(State, Why, Option<Target>)> {
        let ours = self.policies.ours();
        let policy = ours.matching(queue);
        // Without the key that the broker's policies add.
        let said = declared.said.target(policy);
        let lookup = self
            .policies
            .target_of_declared(queue, declared, self.names);
        let target = match lookup {
            Lookup::Target(ref target) => Some(target.clone()),
            Lookup::KeyUnknown => said.clone(),
            Lookup::NoExchange | Lookup::Unknown => None,
        };
        let arguments = DeclareArguments::read(&declared.form.arguments);
        let mode = arguments.mode(&declared.said, policy, self.mode);
        let is_set = policy.and_then(|policy| policy.mode).unwrap_or(self.mode) == mode;
        let broker = self.policies.broker_dead_letters(queue, declared);
        let adopted = self.policies.is_adopted(queue, declared);
        let (state, why) = match (&target, mode) {
            (None, _) if declared.taken_over && !comes_back => return None,
            _ if declared.taken_over => (State::Full, TAKEN_OVER),
            _ if adopted => (State::Full, ADOPTED),
            (_, Mode::Off) => {
                let own = declared.said.target(None);
                let own = own.or(target.filter(|_| said.is_none() && broker));
                let why = if is_set { NATIVE } else { AT_LEAST_ONCE };
                return (own.is_some() || broker).then_some((State::Off, why, own));
            }
            _ if lookup == Lookup::KeyUnknown => (State::Unknown, KEY_UNKNOWN),
            // Two of them with one priority: either may apply.
            (None, _) if broker => (State::Unknown, BROKER_POLICY),
            (None, _) if !comes_back => return None,
            (None, _) => (State::Full, RETRIES_ALONE),
            (Some(_), Mode::RejectsOnly) => (State::RejectsOnly, KEEP),
            (Some(_), Mode::Full) => {
                let by_broker = said.is_none();
                (State::RejectsOnly, native(declared, by_broker, left))
            }
        };
        Some((state, why, target))
    }

    /// All facts combined as one declare, with the source.
    fn declared(&self, known: &catalogue::Queue) -> (Declared, Option<(Source, Mono)>) {
        if let Some(fact) = known.declared() {
            return (Declared::clone(&fact.value), Some((fact.source, fact.at)));
        }
        let queue_type = known.queue_type().unwrap_or(QueueType::Default);
        let intake = known.intake().filter(|fact| fact.value.is_some());
        let arguments = intake.and_then(|fact| fact.value.as_ref());
        let arguments = arguments.map(|intake| DeclareArguments::read(&[]).rewritten(intake));
        let form = Form::of(0, &arguments.unwrap_or_default());
        (
            Declared::of_queue(form, queue_type, self.names),
            intake.map(|fact| (fact.source, fact.at)),
        )
    }
}

/// Why a queue with a target has no intake exchange. `by_broker`: a broker policy names it.
fn native(declared: &Declared, by_broker: bool, left: Option<Fallback>) -> Why {
    match left {
        Some(Fallback::NoPermission | Fallback::Forbidden) => NO_PERMISSION,
        Some(Fallback::NameTooLong) => NAME_TOO_LONG,
        Some(cause) if ![Fallback::NativeQueue, Fallback::Undeclared].contains(&cause) => LEFT,
        _ if declared.existing().exchange.is_some() => OWN_ARGUMENTS,
        _ if by_broker => BROKER_POLICY,
        _ => PROXY_POLICY,
    }
}
