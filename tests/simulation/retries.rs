//! What the queues of a world say of retries, and what docs/reference/retries.md promises for it. Counted by a stranger, as the accounts are.

use std::fmt;

use fastrand::Rng;

use super::codec::value::{Array, Bytes, Value};
use super::rulings::Ruling;

const LISTS: [&[u32]; 3] = [&[30], &[1, 400], &[400, 30, 4_000]];

/// How often a message comes back that is delayed, where no limit is said.
const DEFAULT_LIMIT: u64 = 20;

/// The method by which a client returned a message. The end of a client counts as `Reject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Nack,
    Reject,
}

/// How often a message has come back into its queue: in all, and after failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Attempts {
    pub all: u64,
    pub failed: u64,
}

/// What becomes of the deliveries of a client that is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnCrash {
    #[default]
    Requeue,
    CountOldest,
    CountAll,
}

/// What arguments, or a policy of the proxy, say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    pub kind: Option<&'static str>,
    pub min: Option<u32>,
    pub max: Option<u32>,
    pub multiplier: Option<u32>,
    /// Each delay by itself, in place of the three before.
    pub delays: Option<&'static [u32]>,
    pub limit: Option<i32>,
    pub counts: Option<&'static str>,
    /// After so many milliseconds a delivery is taken back.
    pub ack_timeout: Option<u32>,
    /// Only a policy can say these.
    pub on_crash: OnCrash,
    pub jitter: Option<&'static str>,
}

/// What becomes of a returned message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The broker returns it.
    Native,
    /// After so many milliseconds, having come back so often then.
    Back(u64, Attempts),
    Dies,
}

/// The retries of one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retries {
    said: Words,
    /// Nobody could lead a message back into it: only the end is the proxy's.
    pub stays: bool,
}

/// What the declare of a queue asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub words: Words,
    pub quorum: bool,
}

/// One of the lives of a queue, as far as retries go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Life {
    /// What its policy says besides changes.
    Asked(Asked),
    Fixed(Known),
}

/// What becomes of what is returned to a queue, as sessions know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Those that have seen its declare.
    pub seen: Option<Retries>,
    /// The others: what a policy says.
    pub unseen: Option<Retries>,
    /// Ack timeouts, as both know them.
    pub timeouts: [Option<u32>; 2],
}

// === impl Attempts ===

impl Attempts {
    pub(crate) fn plus(self, other: Attempts) -> Attempts {
        Attempts {
            all: self.all + other.all,
            failed: self.failed + other.failed,
        }
    }

    pub(crate) fn and(self, by: By) -> Attempts {
        self.plus(Attempts {
            all: 1,
            failed: u64::from(by == By::Reject),
        })
    }
}

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} times, {} after failures", self.all, self.failed)
    }
}

// === impl Words ===

impl Words {
    /// Short delays, and limits that are met. `keeps_type`: the queue's broker does nothing by itself when a type is said.
    pub(crate) fn draw(rng: &mut Rng, keeps_type: bool) -> Words {
        let min = [None, Some(1), Some(30), Some(400), Some(4_000)][rng.usize(..5)];
        let multiplier = [None, None, Some(1), Some(2), Some(3)][rng.usize(..5)];
        let times = [None, Some(1), Some(2), Some(5)][rng.usize(..4)];
        let kind = [None, Some("all"), Some("failed"), Some("returned")][rng.usize(..4)];
        let kind = kind.filter(|_| keeps_type || multiplier.is_some());
        let disabled = rng.u8(..10) == 0;
        let limit = [None, Some(-1), Some(0), Some(1), Some(2), Some(3)][rng.usize(..6)];
        let listed = rng.u8(..4) == 0;
        let delays = listed.then(|| LISTS[rng.usize(..LISTS.len())]);
        let (min, kind) = match listed {
            true => (None, kind.filter(|_| keeps_type)),
            false => (min, kind),
        };
        let words = Words {
            kind: kind.filter(|_| min.is_some() || listed),
            min,
            max: min.and_then(|min| Some(min * times?)),
            multiplier: multiplier.filter(|_| min.is_some()),
            delays,
            limit,
            counts: [None, Some("all"), Some("failed")][rng.usize(..3)],
            ack_timeout: [None, None, None, Some(1_000), Some(5_000)][rng.usize(..5)],
            ..Words::default()
        };
        match disabled && words.kind.is_some() {
            true => Words {
                kind: Some("disabled"),
                ..words
            },
            false => words,
        }
    }

    /// With what only a policy says.
    pub(crate) fn of_policy(self, rng: &mut Rng) -> Words {
        let all = [OnCrash::Requeue, OnCrash::CountOldest, OnCrash::CountAll];
        Words {
            on_crash: all[rng.usize(..3)],
            jitter: [None, Some("0.2"), Some("1")][rng.usize(..3)],
            ..self
        }
    }

    fn delays(&self) -> bool {
        (self.min.is_some() || self.delays.is_some()) && self.kind != Some("disabled")
    }

    pub(crate) fn only_a_limit(self) -> Words {
        Words {
            limit: self.limit,
            ..Words::default()
        }
    }

    /// Of returns: an ack timeout is none of theirs.
    fn is_silent(self) -> bool {
        let of_returns = Words {
            ack_timeout: None,
            ..self
        };
        of_returns == Words::default()
    }

    pub(crate) fn arguments(&self) -> Vec<(Bytes, Value)> {
        let text = |name: &str, word: Option<&str>| {
            let word = word.map(|word| Value::Text(word.as_bytes().to_vec()));
            Some((name.as_bytes().to_vec(), word?))
        };
        let number = |name: &str, number: Option<i128>| {
            let number = number.map(|number| Value::Integer(b'I', number));
            Some((name.as_bytes().to_vec(), number?))
        };
        let fields = [
            text("x-delayed-retry-type", self.kind),
            number("x-delayed-retry-min", self.min.map(i128::from)),
            number("x-delayed-retry-max", self.max.map(i128::from)),
            number(
                "x-delayed-retry-multiplier",
                self.multiplier.map(i128::from),
            ),
            self.delays.map(listed),
            number("x-delivery-limit", self.limit.map(i128::from)),
            text("x-delivery-limit-counts", self.counts),
            number("x-ack-timeout", self.ack_timeout.map(i128::from)),
        ];
        fields.into_iter().flatten().collect()
    }

    /// Completed key by key by others.
    fn or(self, other: Words) -> Words {
        let other = match (self.delays, self.min) {
            (None, None) => other,
            (Some(_), _) => Words { min: None, ..other },
            (None, Some(_)) => Words {
                delays: None,
                ..other
            },
        };
        Words {
            kind: self.kind.or(other.kind),
            min: self.min.or(other.min),
            max: self.max.or(other.max),
            multiplier: self.multiplier.or(other.multiplier),
            delays: self.delays.or(other.delays),
            limit: self.limit.or(other.limit),
            counts: self.counts.or(other.counts),
            ack_timeout: self.ack_timeout.or(other.ack_timeout),
            on_crash: other.on_crash,
            jitter: other.jitter,
        }
    }
}

/// As an array of numbers, or as one text.
fn listed(delays: &[u32]) -> (Bytes, Value) {
    let texts: Vec<_> = delays.iter().map(|millis| format!("{millis}ms")).collect();
    let value = match delays.len() {
        1 => Value::Text(texts.join(", ").into_bytes()),
        _ => {
            let number = |millis: &u32| Value::Integer(b'I', i128::from(*millis));
            Value::Array(Array {
                items: delays.iter().map(number).collect(),
                rest: Vec::new(),
            })
        }
    };
    (b"x-delayed-retry-delays".to_vec(), value)
}

// === impl Life ===

impl Life {
    /// While its policy says this.
    pub(crate) fn known(&self, ruling: &Ruling) -> Known {
        let asked = match self {
            Life::Fixed(known) => return *known,
            Life::Asked(asked) => asked,
        };
        let of = |words: Words| match ruling.overrules {
            true => Retries::overruled(words, ruling.retries, asked.quorum),
            false => Retries::of(words, ruling.retries, asked.quorum),
        };
        let (argued, ruled) = (asked.words.ack_timeout, ruling.retries.ack_timeout);
        let timeout = match ruling.overrules {
            true => ruled.or(argued),
            false => argued.or(ruled),
        };
        Known {
            seen: of(asked.words),
            unseen: of(Words::default()),
            timeouts: [timeout, ruled],
        }
    }
}

// === impl Retries ===

impl Retries {
    /// Of a queue whose arguments and whose policy say this. `None`: what is returned is the broker's. Arguments beat the policy.
    pub(crate) fn of(arguments: Words, policy: Words, quorum: bool) -> Option<Retries> {
        Retries::both(arguments, policy, arguments.or(policy), quorum)
    }

    /// The same where the policy beats the arguments.
    fn overruled(arguments: Words, policy: Words, quorum: bool) -> Option<Retries> {
        let said = Words {
            on_crash: policy.on_crash,
            jitter: policy.jitter,
            ..policy.or(arguments)
        };
        Retries::both(arguments, policy, said, quorum)
    }

    fn both(arguments: Words, policy: Words, said: Words, quorum: bool) -> Option<Retries> {
        // The model is RabbitMQ 4.3, which has a limit for each quorum queue; its delays are not drawn.
        let delays = arguments.min.is_some() || arguments.delays.is_some();
        if quorum && policy.is_silent() && !delays {
            return None;
        }
        let does = said.delays() || said.limit.is_some_and(|limit| limit >= 0);
        does.then_some(Retries { said, stays: false })
    }

    /// The same of a queue that nobody can bind.
    pub(crate) fn staying(self) -> Retries {
        Retries {
            stays: true,
            ..self
        }
    }

    pub(crate) fn on_crash(&self) -> OnCrash {
        self.said.on_crash
    }

    fn limit(&self) -> Option<u64> {
        match self.said.limit {
            Some(limit) => u64::try_from(limit).ok(),
            None => self.said.delays().then_some(DEFAULT_LIMIT),
        }
    }

    /// So many returns, then the message dies.
    fn is_over(&self, attempts: Attempts) -> bool {
        let counted = match self.said.counts {
            Some("failed") => attempts.failed,
            _ => attempts.all,
        };
        self.limit().is_some_and(|limit| counted > limit)
    }

    /// None comes back so often. Where failures count, what is only nacked does.
    pub(crate) fn forbids(&self, attempts: Attempts) -> bool {
        self.said.counts != Some("failed") && self.is_over(attempts)
    }

    /// Of a message that had come back so often.
    pub(crate) fn verdict(&self, before: Attempts, by: By) -> Verdict {
        let said = &self.said;
        let now = before.and(by);
        let failures = said.counts == Some("failed");
        let counts = !failures || by == By::Reject;
        if counts && self.is_over(now) {
            return Verdict::Dies;
        }
        let delayed = match said.kind {
            None | Some("all") => true,
            Some("failed") => by == By::Reject,
            Some("returned") => by == By::Nack,
            Some(_) => false,
        };
        let times = if failures { now.failed } else { now.all }.max(1);
        match self.delay(times).filter(|_| delayed) {
            Some(delay) => Verdict::Back(delay, now),
            None if counts && self.limit().is_some() => Verdict::Back(0, now),
            None => Verdict::Native,
        }
    }

    /// Before a message comes back for the so-manyth time, at least: a jitter makes it longer.
    fn delay(&self, times: u64) -> Option<u64> {
        if let Some(delays) = self.said.delays {
            let delay = delays.get(times as usize - 1).or(delays.last());
            return delay.map(|delay| u64::from(*delay));
        }
        let min = u64::from(self.said.min?);
        let delay = match self.said.multiplier {
            None => min * times,
            Some(factor) => (1..times).fold(min, |delay, _| {
                delay.saturating_mul(factor.into()).min(LONGEST)
            }),
        };
        let most = match (self.said.max, self.said.multiplier) {
            (Some(max), _) => max.into(),
            (None, None) => min,
            (None, Some(_)) => LONGEST,
        };
        Some(delay.min(most))
    }
}

/// Seven days, in milliseconds.
const LONGEST: u64 = 7 * 24 * 3600 * 1000;
