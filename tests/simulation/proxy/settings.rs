//! What an operator has set, and the same as the proxy reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::Duration;

use dlx_proxy::amqp::ids::{ShortStr, Vhost};
use dlx_proxy::config::Config;
use dlx_proxy::dead_letter::grid::Jitter;
use dlx_proxy::dead_letter::retries::{self as rules_of_retries, RetryType};
use dlx_proxy::dead_letter::schedule::Schedule;
use dlx_proxy::intake;
use dlx_proxy::machine::Limits;
use dlx_proxy::publisher::OnUnroutable;
use dlx_proxy::registry::delayed_exchanges::DelayHeader;
use dlx_proxy::registry::lenient::Lenient;
use dlx_proxy::registry::policy::{Definition, Mode, Pattern, Policy};
use dlx_proxy::registry::said_retries::SaidRetries;
use fastrand::Rng;

use super::super::plan::{OWN_QUEUES, Own, Plan};
use super::super::retries::{OnCrash, Words};
use super::super::rulings::Rulings;

/// What an operator has set.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub mode: Mode,
    pub lenient: Lenient,
    /// Queues whose policy says something else.
    otherwise: BTreeMap<String, Lenient>,
    pub rulings: Rulings,
    /// Queues whose arguments name no target; in mode `rejects-only`, so that a policy which names one can go.
    targetless: BTreeSet<String>,
    /// There are policies that are for none of the queues.
    decoys: bool,
    /// Headers that delay a publish.
    pub delays: Vec<DelayHeader>,
    /// Queues of single clients.
    pub own: Option<Own>,
    pub on_unroutable: OnUnroutable,
    pub queue_type: intake::QueueType,
    pub prefetch: u16,
    pub max_tickets: usize,
    pub retained: usize,
    pub max_queues: usize,
    pub max_replies: usize,
    pub close_wait: Duration,
    pub retry_for: Duration,
    pub parked_retry: Duration,
    pub intake_quiet: Duration,
    pub nack_retries: u32,
    pub stamp: bool,
    /// Batches that wait for the publisher.
    pub publisher_inbox: usize,
}

// === impl Settings ===

impl Settings {
    /// Small bounds, so that they are met.
    pub(crate) fn draw(rng: &mut Rng) -> Settings {
        Settings {
            mode: if rng.u8(..5) == 0 {
                Mode::RejectsOnly
            } else {
                Mode::Full
            },
            lenient: Lenient::default(),
            otherwise: BTreeMap::new(),
            rulings: Rulings::new(),
            targetless: BTreeSet::new(),
            decoys: false,
            delays: Vec::new(),
            own: None,
            on_unroutable: if rng.u8(..5) == 0 {
                OnUnroutable::Drop
            } else {
                OnUnroutable::Park
            },
            queue_type: if rng.bool() {
                intake::QueueType::Quorum
            } else {
                intake::QueueType::Classic
            },
            prefetch: [1, 2, 5, 20, 1000][rng.usize(..5)],
            max_tickets: [1, 2, 4, 16, 4096][rng.usize(..5)],
            retained: [2_000, 20_000, 1 << 20][rng.usize(..3)],
            max_queues: [1, 2, 65_536, 65_536][rng.usize(..4)],
            max_replies: [1, 8_192][rng.usize(..2)],
            close_wait: Duration::from_secs(5),
            retry_for: Duration::from_secs(60),
            parked_retry: Duration::from_secs([0, 3, 30][rng.usize(..3)]),
            // By a clone: the worlds of seeds that are known stay as they are.
            intake_quiet: Duration::from_secs([0, 5, 60][rng.clone().usize(..3)]),
            nack_retries: rng.u32(..4),
            stamp: rng.clone().bool(),
            publisher_inbox: [1, 2, 1024][rng.usize(..3)],
        }
    }

    /// What those of a plan say. Rejects of queues beyond `max-queues-per-connection` go to the broker whatever it knows (docs/guarantees.md); and
    /// one of a message that is larger than the budget is never done, as it returns to its queue.
    pub(crate) fn with_policies(mut self, plan: &Plan, rng: &mut Rng, sighups: bool) -> Settings {
        self.rulings = plan.rulings();
        self.decoys = sighups;
        let targetless = plan.sources.iter();
        let targetless = targetless.filter(|queue| plan.argued_target(queue).is_none());
        self.targetless = targetless.cloned().collect();
        if !plan.policies.is_empty() || sighups && !self.targetless.is_empty() {
            self.max_queues = 65_536;
            self.retained = self.retained.max(20_000);
        }
        if plan.retrying {
            self.max_queues = 65_536;
            self.retained = self
                .retained
                .max([2_000, 20_000, 1 << 20, 1 << 20][rng.usize(..4)]);
        }
        self
    }

    /// Declares of some queues may differ from these.
    pub(crate) fn with_redeclares(mut self, plan: &Plan) -> Settings {
        let Some(redeclares) = &plan.redeclares else {
            return self;
        };
        self.max_queues = 65_536;
        self.retained = self.retained.max(20_000);
        let differs = |queue: &&String| redeclares.of(queue).is_some();
        let (lenient, otherwise, exceptions): (_, _, Vec<&String>) = match redeclares.by_policy {
            true => {
                let these = plan.sources.iter().filter(differs);
                (Lenient::default(), Lenient::targets(), these.collect())
            }
            false => {
                let these = plan.sources.iter().filter(|queue| !differs(queue));
                (Lenient::targets(), Lenient::default(), these.collect())
            }
        };
        self.lenient = lenient;
        let exceptions = exceptions.into_iter().cloned();
        self.otherwise = exceptions.map(|queue| (queue, otherwise.clone())).collect();
        self
    }

    /// A publish for which there is no room would close its channel.
    pub(crate) fn with_delays(mut self, plan: &Plan) -> Settings {
        self.delays.clone_from(&plan.delays);
        if !plan.delays.is_empty() {
            self.retained = 1 << 20;
        }
        self
    }

    pub(super) fn policies(&self) -> Vec<Policy> {
        let others = self.otherwise.iter();
        let others = others.filter(|(queue, _)| !self.rulings.contains_key(*queue));
        let others = others.map(|(queue, lenient)| Policy {
            vhost: vhost(),
            pattern: Pattern::new(&format!("^{queue}$")).expect("a pattern"),
            priority: 1,
            mode: Some(self.mode),
            lenient: Some(lenient.clone()),
            ..Policy::default()
        });
        let of_queues = self.rulings.iter().map(|(queue, ruling)| Policy {
            vhost: vhost(),
            pattern: Pattern::new(&format!("^{queue}$")).expect("a pattern"),
            priority: 1,
            mode: Some(match self.targetless.contains(queue) {
                true => Mode::RejectsOnly,
                false => self.mode,
            }),
            lenient: self.otherwise.get(queue).cloned(),
            overrules_arguments: ruling.overrules,
            definition: Definition {
                dead_letter_exchange: ruling.exchange.as_deref().map(short),
                dead_letter_routing_key: ruling.key.as_deref().map(short),
                retries: said(&ruling.retries),
            },
            ..Policy::default()
        });
        // What is said of another vhost, or with too low a priority, is said of none of these queues.
        let decoys = [(short("other"), 9), (vhost(), -1)].into_iter();
        let decoys = decoys.filter(|_| self.decoys).map(|(vhost, priority)| {
            let never = Words {
                limit: Some(0),
                ..Words::default()
            };
            Policy {
                vhost,
                priority,
                mode: Some(self.mode),
                overrules_arguments: true,
                definition: Definition {
                    dead_letter_exchange: Some(short("dlx")),
                    dead_letter_routing_key: Some(short("elsewhere")),
                    retries: said(&never),
                },
                ..Policy::default()
            }
        });
        let own = self.own.iter().map(|own| Policy {
            vhost: vhost(),
            pattern: Pattern::new(OWN_QUEUES).expect("a pattern"),
            priority: 1,
            mode: Some(if own.keep {
                Mode::RejectsOnly
            } else {
                self.mode
            }),
            definition: Definition {
                retries: said(&own.policy),
                ..Definition::default()
            },
            ..Policy::default()
        });
        // Also for queues that would be native by default: the model knows no `at-least-once`.
        let all = Policy {
            vhost: vhost(),
            mode: Some(self.mode),
            ..Policy::default()
        };
        let of_queues = of_queues.chain(others);
        of_queues.chain(own).chain([all]).chain(decoys).collect()
    }

    pub(super) fn limits(&self) -> Limits {
        static DEFAULT: LazyLock<Limits> = LazyLock::new(|| Config::default().reloadable.limits);
        Limits {
            nack_retries: self.nack_retries,
            stamp: self.stamp,
            retry_for: self.retry_for,
            parked_retry: self.parked_retry,
            intake_quiet: self.intake_quiet,
            retained_bytes_per_connection: self.retained,
            max_tickets_per_connection: self.max_tickets,
            max_queues_per_connection: self.max_queues,
            max_replies_per_connection: self.max_replies,
            close_wait: self.close_wait,
            ..DEFAULT.clone()
        }
    }
}

/// The same, as the proxy reads it.
fn said(words: &Words) -> SaidRetries {
    let counts = words.counts.map(|counts| match counts {
        "failed" => rules_of_retries::Counts::Failed,
        _ => rules_of_retries::Counts::All,
    });
    let kind = words.kind.map(str::as_bytes);
    SaidRetries {
        delayed_retry_type: kind.and_then(RetryType::parse),
        delayed_retry_min: words.min,
        delayed_retry_max: words.max,
        delayed_retry_multiplier: words.multiplier,
        delayed_retry_delays: words.delays.and_then(|delays| {
            let delays: Vec<_> = delays.iter().map(u32::to_string).collect();
            Schedule::parse(&delays.join(","))
        }),
        delayed_retry_jitter: words.jitter.and_then(|jitter| Jitter::parse(jitter)?),
        delivery_limit: words.limit,
        delivery_limit_counts: counts,
        ack_timeout: words.ack_timeout,
        on_crash: match words.on_crash {
            OnCrash::Requeue => None,
            OnCrash::CountOldest => Some(rules_of_retries::OnCrash::CountOldest),
            OnCrash::CountAll => Some(rules_of_retries::OnCrash::CountAll),
        },
    }
}

pub(crate) fn short(text: &str) -> ShortStr {
    ShortStr::copy(text.as_bytes()).expect("short")
}

pub(crate) fn vhost() -> Vhost {
    short("/")
}
