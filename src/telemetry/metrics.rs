//! Every metric: name, type, labels, meaning, one line each. The table of docs/reference/metrics.md is made from this file. A [`Metrics`] is a handle that is
//! passed on; nothing is global, so two proxies can live in one process. Label values come from an enum or a bounded set of names.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::encoding::{EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

use super::alarms::Alarms;
use super::facts::{self, Fact};
use super::own_queues::OwnQueues;
use super::remembered::Remembered;
use super::repeats::Repeats;
use super::series::{Names, Series};
use crate::amqp::ids::{ShortStr, Vhost};
use crate::machine::Limit;

pub use connections::{ConnectionMeter, Levels};
pub use standing::Standing;

mod connections;
mod standing;

const PREFIX: &str = "dlx_proxy";
/// States of messages in delay queues.
const STATES: [&str; 2] = ["waiting", "due"];

#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    registry: Registry,
    descriptions: Vec<Description>,
    table: Table,
    pub(super) names: Names,
    pub(super) repeats: Repeats,
    pub(super) remembered: Remembered,
    pub(super) own_queues: OwnQueues,
    pub(super) alarms: Alarms,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub name: String,
    pub kind: &'static str,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

struct DescribedRegistry {
    registry: Registry,
    descriptions: Vec<Description>,
}

/// `name: Type[labels], "description"`. A metric with labels is a [`Series`].
macro_rules! metrics {
    (@type $type:ident) => { $type };
    (@type $type:ident $($label:literal)+) => { Series<$type, { [$($label),+].len() }> };
    (@make $registry:ident $name:ident $type:ident $help:literal) => {
        $registry.add(stringify!($name), &[], $help, $type::default())
    };
    (@make $registry:ident $name:ident $type:ident $help:literal $($label:literal)+) => {{
        let series: Series<$type, _> = Series::new([$($label),+]);
        $registry.add(stringify!($name), &[$($label),+], $help, series.family());
        series
    }};
    ($($name:ident: $type:ident $([$($label:literal),+])?, $help:literal;)+) => {
        #[derive(Debug)]
        pub struct Table {
            $(#[doc = $help] pub $name: metrics!(@type $type $($($label)+)?),)+
        }

        impl Table {
            fn new(registry: &mut DescribedRegistry) -> Table {
                Table {
                    $($name: metrics!(@make registry $name $type $help $($($label)+)?),)+
                }
            }
        }
    };
}

metrics! {
    build_info: Gauge["version"], "The version that runs; always 1";
    connections_open: Gauge, "Client connections that are open";
    connections: Counter, "Client connections accepted";
    channels_open: Gauge, "Channels of client connections that are open";
    bytes: Counter["direction"], "Bytes of client connections that were passed on";
    retained_bytes: Gauge, "Memory of unsettled deliveries, kept for a possible reject";
    withheld_rejects: Gauge, "Rejects that the broker has not seen yet, because their dead letters are not confirmed";
    upstream_connections: Gauge["node", "address"], "Open connections to an address of a RabbitMQ node: those of clients, and the proxy's own";
    upstream_failures: Counter["node", "address"], "Connections to an address of a RabbitMQ node that were refused, not answered in time, or ended before the broker said anything";
    upstream_up: Gauge["node", "address"], "1 if this address of a RabbitMQ node answered the last connection attempt, else 0; the proxy tries an address that failed again when no other is left, or after a pause of 1 s, doubled up to 30 s";
    link_up: Gauge["vhost", "link"], "1 while this link (a connection of the proxy's own) is up";
    link_failures: Counter["vhost", "link"], "Times that this link (a connection of the proxy's own) was lost or could not be opened";
    publisher_blocked: Gauge["vhost"], "1 while the broker blocks the publisher by an alarm";
    intake_consuming: Gauge["vhost"], "1 while the intake consumer of this proxy is registered";
    vhost_native: Gauge["vhost"], "1 if the proxy's user may not use this vhost: all its queues are left to the broker";
    other_user: Gauge["vhost"], "1 if proxies with another user work in this vhost: each parks what the other ones delay or park";
    own_queue_up: Gauge["vhost", "queue"], "1 while this queue of the proxy's own does its work; 0 if it was deleted, does not answer, or loses messages by a policy (seen only with a management-url)";
    messages_dead_lettered: Counter["vhost", "queue", "reason", "outcome"], "Dead letters that came to an end: confirmed at their target, parked, dropped by a rule, or refused, which leaves the message with the broker; at most 200 queues by name, then _other";
    dead_letters_undelivered: Counter["vhost", "outcome", "cause"], "Dead letters that were parked, dropped or refused, by cause";
    parked_waiting: Gauge["vhost"], "Parked messages that their targets did not take when this proxy last tried";
    parked_staying: Gauge["vhost"], "Parked messages that the proxy does not try again, as of its last look: nothing proves that it parked them, or another try cannot help";
    retries: Counter["vhost", "queue", "outcome"], "Messages that clients returned to queues with retries: in a delay queue (confirmed), not taken by one (refused), and back in their queue (returned)";
    delayed_publishes: Counter["vhost", "outcome"], "Publishes that the proxy delays: in a delay queue (waiting), not taken by one (refused), and when they are due confirmed, parked, dropped, or refused again (late)";
    ack_timeouts: Counter["vhost", "queue"], "Messages that were taken back from clients after the ack timeout of their queue";
    delay_queue_messages: Gauge["vhost", "state"], "Messages in delay queues, retries and delayed publishes: whose delay is not over (waiting), and whose delay is over and which RabbitMQ is moving out (due); only while the management API answers";
    retries_overdue: Gauge["vhost"], "Messages that wait in delay queues although their delay is over, as RabbitMQ has moved none out for four minutes; only with a management-url";
    redriven: Counter["vhost", "outcome"], "Dead letters that operators sent back: confirmed, or refused and therefore still in their queue";
    dead_letter_queue_messages: Gauge["vhost", "queue"], "Messages in a queue to which this proxy has published dead letters; at most 200 queues per vhost, and only while the management API answers";
    dead_letter_queue_oldest_seconds: Gauge["vhost", "queue"], "Age of the oldest message in a queue to which this proxy has published dead letters; absent unless this proxy published all messages there";
    hook_waiting: Gauge, "Dead letters that wait to be reported to the hook (`on-dead-letter`)";
    hook_dead_letters: Counter["outcome"], "Dead letters that were reported to the hook (taken), or never will be (dropped)";
    fallbacks: Counter["request", "cause"], "Declares, rejects and returns that were left to the broker although they have a dead-letter exchange or retries, queues that nobody knows (`undeclared`), and lost clients (`crash`) that were not counted, by cause";
    rejects_kept: Counter["cause"], "Rejects that the proxy kept to itself because the broker knows no dead-letter exchange for the queue, and returns to queues with retries, by the cause that delays what is published for them";
    limits_met: Counter["limit"], "Times that a limit was met; the label is the name of its setting";
    events: Counter["event"], "What else happened, by event: the table below says what each is";
    broker_alarms: Gauge["resource"], "Nodes of the broker with an alarm for this resource (memory or disk); only with a management-url";
    management_up: Gauge, "1 if the management API answered the last request; 0 if not, or without a management-url";
    certificate_expires_timestamp_seconds: Gauge["setting"], "When the certificates of this setting expire (the earliest of the chain), in seconds since 1970";
}

// === impl Metrics ===

impl Metrics {
    pub fn new() -> Self {
        let mut registry = DescribedRegistry {
            registry: Registry::with_prefix(PREFIX),
            descriptions: Vec::new(),
        };
        let table = Table::new(&mut registry);
        let version = table.build_info.with([env!("CARGO_PKG_VERSION").into()]);
        version.set(1);
        // Of a series that begins with its first event, a rule about its increase would not see that.
        for event in facts::ALL.iter().filter_map(|fact| fact.event) {
            drop(table.events.with([event.into()]));
        }
        Self(Arc::new(Inner {
            table,
            registry: registry.registry,
            descriptions: registry.descriptions,
            names: Names::default(),
            repeats: Repeats::default(),
            remembered: Remembered::default(),
            own_queues: OwnQueues::default(),
            alarms: Alarms::default(),
        }))
    }

    /// Counts a fact. `Some`: log it, with the number of similar lines suppressed before.
    pub(super) fn happened(
        &self,
        fact: &Fact,
        place: impl FnOnce() -> String,
        cause: &'static str,
    ) -> Option<Option<u64>> {
        if let Some(event) = fact.event {
            self.events.with([event.into()]).inc();
        }
        if fact.repeats == facts::Repeats::Always {
            return Some(None);
        }
        let key = (fact.words, place(), cause);
        let held_back = self.0.repeats.write(fact.repeats, key, Instant::now())?;
        Some((held_back > 0).then_some(held_back))
    }

    pub fn limit_met(&self, limit: Limit) {
        let limit = limit.as_str();
        self.limits_met.with([limit.into()]).inc();
        line!(self, LIMIT_MET, String::new(), limit, limit);
    }

    /// `setting`: names the file. `at`: since 1970; `None`: no certificate.
    pub fn certificate_expires(&self, setting: &'static str, at: Option<Duration>) {
        let expires = &self.certificate_expires_timestamp_seconds;
        match at {
            Some(at) => drop(expires.with([setting.into()]).set(number(at.as_secs()))),
            None => expires.remove([setting.into()]),
        }
    }

    pub fn management(&self, answered: bool) {
        self.management_up.set(answered.into());
        if !answered {
            line!(self, MANAGEMENT_FAILED, String::new(), "");
        }
    }

    /// Messages in delay queues: whose delay is not over, and whose is. `None`: not known any more.
    pub fn delayed(&self, vhost: &Vhost, messages: Option<[u64; 2]>) {
        let vhost = self.0.names.vhost(vhost);
        for (at, state) in STATES.into_iter().enumerate() {
            let labels = [vhost.clone(), state.into()];
            let gauges = &self.delay_queue_messages;
            match messages.map(|messages| messages[at]) {
                Some(messages) => drop(gauges.with(labels).set(number(messages))),
                None => gauges.remove(labels),
            }
        }
    }

    /// Those of them that RabbitMQ does not move.
    pub fn overdue(&self, vhost: &Vhost, messages: u64) {
        let gauge = self.retries_overdue.with([self.0.names.vhost(vhost)]);
        gauge.set(number(messages));
    }

    /// Unknown values are removed, so that nobody reads a false number.
    pub fn dead_letter_queue(
        &self,
        vhost: &Vhost,
        queue: &ShortStr,
        messages: Option<u64>,
        oldest: Option<Duration>,
    ) {
        let oldest = oldest.map(|oldest| oldest.as_secs());
        for (gauges, value) in [
            (&self.dead_letter_queue_messages, messages),
            (&self.dead_letter_queue_oldest_seconds, oldest),
        ] {
            let labels = [vhost.into(), queue.into()];
            match value {
                Some(value) => drop(gauges.with(labels).set(number(value))),
                None => gauges.remove(labels),
            }
        }
    }

    pub fn encode(&self) -> String {
        let mut out = String::new();
        text::encode(&mut out, &self.0.registry).expect("a String takes everything");
        out
    }

    pub fn descriptions(&self) -> &[Description] {
        &self.0.descriptions
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.0
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Metrics {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.0.table
    }
}

pub(super) fn number(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

// === impl Description ===

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            kind,
            labels,
            help,
        } = self;
        write!(f, "| `{name}` | {kind} | {} | {help}. |", labels.join(", "))
    }
}

// === impl DescribedRegistry ===

impl DescribedRegistry {
    fn add<M: Metric + EncodeMetric + Clone>(
        &mut self,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        metric: M,
    ) -> M {
        // OpenMetrics adds the suffix when it writes a sample; people look for the name with it.
        let (kind, suffix) = match metric.metric_type() {
            MetricType::Counter => ("counter", "_total"),
            _ => ("gauge", ""),
        };
        self.descriptions.push(Description {
            name: format!("{PREFIX}_{name}{suffix}"),
            kind,
            labels,
            help,
        });
        self.registry.register(name, help, metric.clone());
        metric
    }
}
