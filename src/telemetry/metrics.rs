//! Every metric: name, type, labels, meaning. The table of docs/metrics.md is made from this file. A [`Metrics`] is a handle that is passed on;
//! nothing is global, so two proxies can live in one process. Label values come from an enum or a bounded set of names.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::encoding::{EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

use tracing::warn;

use super::alarms::{AlarmGauge, Alarms};
use super::dead_letter_queues::QueueGauge;
use super::hook::Outcomes;
use super::names::Names;
use super::own_queues::{OwnQueueGauge, OwnQueues};
use super::remembered::Remembered;
use super::repeats::Repeats;
use super::upstream::{AddressCounter, AddressGauge};
use crate::machine::Limit;

pub use connections::{ConnectionMeter, Levels};
pub(super) use labels::*;
pub use standing::Standing;

mod connections;
mod labels;
mod standing;

/// All metrics of one proxy. Clones are the same metrics.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

/// What docs/metrics.md says of one metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// As Prometheus shows it.
    pub name: String,
    pub kind: &'static str,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

#[derive(Debug)]
pub(super) struct Inner {
    registry: Registry,
    descriptions: Vec<Description>,
    pub(super) names: Names,
    pub(super) repeats: Repeats,
    pub(super) remembered: Remembered,
    connections: Gauge,
    connections_total: Counter,
    connections_refused: Counter,
    pub(super) proxy_headers_refused: Counter,
    pub(super) upstream_connections: AddressGauge,
    pub(super) upstream_failures: AddressCounter,
    pub(super) upstream_up: AddressGauge,
    channels: Gauge,
    retained_bytes: Gauge,
    withheld_rejects: Gauge,
    /// Frames and bytes that came from this leg.
    client: Direction,
    broker: Direction,
    pub(super) dead_letters: Family<DeadLetterLabels, Counter>,
    pub(super) undelivered: Family<UndeliveredLabels, Counter>,
    pub(super) retries: Family<RetryLabels, Counter>,
    pub(super) retries_overdue: VhostGauge,
    pub(super) dead_letter_queue_messages: QueueGauge,
    pub(super) dead_letter_queue_oldest: QueueGauge,
    pub(super) hook_waiting: Gauge,
    pub(super) hook_posts: Outcomes,
    pub(super) hook_dead_letters: Outcomes,
    pub(super) redriven: Family<super::names::RedriveLabels, Counter>,
    pub(super) fallbacks: Family<FallbackLabels, Counter>,
    pub(super) rejects_kept: Family<CauseLabels, Counter>,
    pub(super) rejects_returned: Counter,
    pub(super) queues_managed: Family<KindLabels, Counter>,
    pub(super) queues_redeclared: Counter,
    pub(super) redeclares_unrecorded: Counter,
    pub(super) record_foreign: Counter,
    pub(super) probes_over_limit: Counter,
    pub(super) names_refused: Counter,
    pub(super) externals_refused: Counter,
    upstream_tls_failures: Counter,
    pub(super) handshakes_failed: Family<CauseLabels, Counter>,
    certificates: Family<SettingLabels, Gauge>,
    pub(super) edits_dropped: Counter,
    limits_met: Family<LimitLabels, Counter>,
    pub(super) protocol_faults: Family<LegLabels, Counter>,
    pub(super) link_up: Family<LinkLabels, Gauge>,
    pub(super) link_failures: Family<LinkLabels, Counter>,
    pub(super) link_channels_closed: Family<LinkLabels, Counter>,
    pub(super) publisher_blocked: VhostGauge,
    pub(super) intake_consuming: VhostGauge,
    pub(super) intake_exchanges: VhostGauge,
    pub(super) parked_moved: Family<VhostLabels, Counter>,
    pub(super) parked_waiting: VhostGauge,
    pub(super) parked_staying: VhostGauge,
    pub(super) vhost_native: VhostGauge,
    pub(super) other_user: VhostGauge,
    pub(super) own_queue_up: OwnQueueGauge,
    pub(super) own_queues: OwnQueues,
    pub(super) broker_alarms: AlarmGauge,
    pub(super) alarms: Alarms,
    management_up: Gauge,
    management_failures: Counter,
}

#[derive(Debug)]
struct Direction {
    frames: Counter,
    bytes: Counter,
}

/// A registry that can list its metrics, for the documents.
struct DescribedRegistry {
    registry: Registry,
    descriptions: Vec<Description>,
}

// === impl Metrics ===

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let mut registry = DescribedRegistry {
            registry: Registry::with_prefix(PREFIX),
            descriptions: Vec::new(),
        };
        let build: Family<VersionLabels, Gauge> = registry.add(
            "build_info",
            &["version"],
            "The version that runs; always 1",
            Family::default(),
        );
        build
            .get_or_create(&VersionLabels {
                version: env!("CARGO_PKG_VERSION"),
            })
            .set(1);
        let direction = &["direction"];
        let frames: Family<DirectionLabels, Counter> = registry.add(
            "frames",
            direction,
            "AMQP frames of client connections that were passed on",
            Family::default(),
        );
        let bytes: Family<DirectionLabels, Counter> = registry.add(
            "bytes",
            direction,
            "Bytes of client connections that were passed on",
            Family::default(),
        );
        let traffic = |direction| Direction {
            frames: frames.get_or_create_owned(&DirectionLabels { direction }),
            bytes: bytes.get_or_create_owned(&DirectionLabels { direction }),
        };
        let (link, vhost, address) = (&["vhost", "link"], &["vhost"], &["node", "address"]);
        let inner = Inner {
            connections: registry.add("connections_open", &[], "Client connections that are open", Gauge::default()),
            connections_total: registry.add("connections", &[], "Client connections accepted", Counter::default()),
            connections_refused: registry.add(
                "connections_refused",
                &[],
                "Client connections that ended because the broker could not be reached",
                Counter::default(),
            ),
            proxy_headers_refused: registry.add(
                "proxy_headers_refused",
                &[],
                "Client connections that ended because they came from `listen-proxy-protocol` without a PROXY header that can be read",
                Counter::default(),
            ),
            upstream_connections: registry.add(
                "upstream_connections",
                address,
                "Open connections to an address of a RabbitMQ node: those of clients, and the proxy's own",
                Family::default(),
            ),
            upstream_failures: registry.add(
                "upstream_failures",
                address,
                "Connections to an address of a RabbitMQ node that were refused, not answered in time, or ended before the broker said anything",
                Family::default(),
            ),
            upstream_up: registry.add(
                "upstream_up",
                address,
                "1 if this address of a RabbitMQ node answered the last connection attempt, else 0; the proxy tries an address that failed again when no other \
                 is left, or after a pause of 1 s, doubled up to 30 s",
                Family::default(),
            ),
            channels: registry.add("channels_open", &[], "Channels of client connections that are open", Gauge::default()),
            client: traffic("client_to_broker"),
            broker: traffic("broker_to_client"),
            dead_letters: registry.add(
                "messages_dead_lettered",
                &["vhost", "queue", "reason", "outcome"],
                "Dead letters that came to an end: confirmed at their target, parked, dropped by a rule, or refused, which leaves the message \
                 with the broker; at most 200 queues by name, then _other",
                Family::default(),
            ),
            undelivered: registry.add(
                "dead_letters_undelivered",
                &["vhost", "outcome", "cause"],
                "Dead letters that were parked, dropped or refused, by cause",
                Family::default(),
            ),
            retries: registry.add(
                "retries",
                &["vhost", "queue", "outcome"],
                "Messages that clients returned to queues with retries: in a delay queue (confirmed), not taken by one (refused), and back in their queue (returned)",
                Family::default(),
            ),
            dead_letter_queue_messages: registry.add(
                "dead_letter_queue_messages",
                &["vhost", "queue"],
                "Messages in a queue to which this proxy has published dead letters; at most 200 queues per vhost, and only while the management API answers",
                Family::default(),
            ),
            dead_letter_queue_oldest: registry.add(
                "dead_letter_queue_oldest_seconds",
                &["vhost", "queue"],
                "Age of the oldest message in a queue to which this proxy has published dead letters; absent unless this proxy published all messages there",
                Family::default(),
            ),
            hook_waiting: registry.add("hook_waiting", &[], "Dead letters that wait to be reported to the hook (`on-dead-letter`)", Gauge::default()),
            hook_posts: registry.add("hook_posts", &["outcome"], "Requests to the hook (`on-dead-letter`), by whether the hook accepted them", Family::default()),
            hook_dead_letters: registry.add(
                "hook_dead_letters",
                &["outcome"],
                "Dead letters that were reported to the hook (taken), or never will be (dropped)",
                Family::default(),
            ),
            redriven: registry.add(
                "redriven",
                &["vhost", "outcome"],
                "Dead letters that operators sent back: confirmed, or refused and therefore still in their queue",
                Family::default(),
            ),
            retries_overdue: registry.add(
                "retries_overdue",
                vhost,
                "Messages that wait in delay queues although their delay is over, as RabbitMQ has moved none out for four minutes; only with a management-url",
                Family::default(),
            ),
            retained_bytes: registry.add("retained_bytes", &[], "Memory of unsettled deliveries, kept for a possible reject", Gauge::default()),
            withheld_rejects: registry.add(
                "withheld_rejects",
                &[],
                "Rejects that the broker has not seen yet, because their dead letters are not confirmed",
                Gauge::default(),
            ),
            fallbacks: registry.add(
                "fallbacks",
                &["request", "cause"],
                "Declares, rejects and returns that were left to the broker although they have a dead-letter exchange or retries, queues that nobody knows (`undeclared`), and lost clients (`crash`) that were not counted, by cause",
                Family::default(),
            ),
            rejects_kept: registry.add(
                "rejects_kept",
                &["cause"],
                "Rejects that the proxy kept to itself because the broker knows no dead-letter exchange for the queue, and returns to queues with retries, by the cause that delays what is published for them",
                Family::default(),
            ),
            rejects_returned: registry.add(
                "rejects_returned",
                &[],
                "Messages that were returned to their queue because their reject or return was kept for too long, or there was no copy to publish",
                Counter::default(),
            ),
            queues_managed: registry.add("queues_managed", &["mode"], "Times that a session began to manage a queue, by mode", Family::default()),
            queues_redeclared: registry.add("queues_redeclared", &[], "Declares that changed where the dead letters of an existing queue go (`declares = \"lenient\"`)", Counter::default()),
            redeclares_unrecorded: registry.add("redeclares_unrecorded", &[], "Declares that changed the target of an existing queue and went on unrecorded: other proxies of the vhost may not know the new target yet", Counter::default()),
            record_foreign: registry.add("record_foreign_messages", &[], "Messages in the record of redeclared queues that no proxy with this user wrote; they count for nothing, and are counted anew whenever the record is read", Counter::default()),
            probes_over_limit: registry.add(
                "probes_over_limit",
                &[],
                "Client connections that the broker closed because a probe's channel was one too many for their user",
                Counter::default(),
            ),
            names_refused: registry.add("names_refused", &[], "Requests of clients that were refused because they named an object of the proxy's own", Counter::default()),
            externals_refused: registry.add(
                "externals_refused",
                &[],
                "Client connections that were refused because they chose EXTERNAL, or a protocol other than AMQP 0-9-1 while the proxy shows the broker a certificate",
                Counter::default(),
            ),
            handshakes_failed: registry.add(
                "tls_handshakes_failed",
                &["cause"],
                "Client connections to `listen-tls` whose TLS handshake failed, by cause",
                Family::default(),
            ),
            upstream_tls_failures: registry.add(
                "upstream_tls_failures",
                &[],
                "Connections to the broker whose TLS handshake failed",
                Counter::default(),
            ),
            certificates: registry.add(
                "certificate_expires_timestamp_seconds",
                &["setting"],
                "When the certificates of this setting expire (the earliest of the chain), in seconds since 1970",
                Family::default(),
            ),
            edits_dropped: registry.add("edits_dropped", &[], "Private headers of the proxy that were left out because they did not fit the frame", Counter::default()),
            limits_met: registry.add("limits_met", &["limit"], "Times that a limit was met; the label is the name of its setting", Family::default()),
            protocol_faults: registry.add("protocol_faults", &["leg"], "Violations of the AMQP protocol, by the leg that caused them", Family::default()),
            link_up: registry.add("link_up", link, "1 while this link (a connection of the proxy's own) is up", Family::default()),
            link_failures: registry.add("link_failures", link, "Times that this link (a connection of the proxy's own) was lost or could not be opened", Family::default()),
            link_channels_closed: registry.add("link_channels_closed", link, "Channels of this link (a connection of the proxy's own) that the broker closed", Family::default()),
            publisher_blocked: registry.add("publisher_blocked", vhost, "1 while the broker blocks the publisher by an alarm", Family::default()),
            intake_consuming: registry.add("intake_consuming", vhost, "1 while the intake consumer of this proxy is registered", Family::default()),
            intake_exchanges: registry.add("intake_exchanges", vhost, "Intake exchanges declared by this proxy", Family::default()),
            parked_moved: registry.add("parked_moved", vhost, "Parked messages that the proxy tried again and that reached their targets", Family::default()),
            parked_waiting: registry.add(
                "parked_waiting",
                vhost,
                "Parked messages that their targets did not take when this proxy last tried",
                Family::default(),
            ),
            parked_staying: registry.add(
                "parked_staying",
                vhost,
                "Parked messages that the proxy does not try again, as of its last look: nothing proves that it parked them, or another try cannot help",
                Family::default(),
            ),
            vhost_native: registry.add("vhost_native", vhost, "1 if the proxy's user may not use this vhost: all its queues are left to the broker", Family::default()),
            other_user: registry.add("other_user", vhost, "1 if proxies with another user work in this vhost: each parks what the other ones delay or park", Family::default()),
            own_queue_up: registry.add(
                "own_queue_up",
                &["vhost", "queue"],
                "1 while this queue of the proxy's own does its work; 0 if it was deleted, does not answer, or loses messages by a policy (seen only with a management-url)",
                Family::default(),
            ),
            own_queues: OwnQueues::default(),
            broker_alarms: registry.add(
                "broker_alarms",
                &["resource"],
                "Nodes of the broker with an alarm for this resource (memory or disk); only with a management-url",
                Family::default(),
            ),
            alarms: Alarms::default(),
            management_up: registry.add(
                "management_up",
                &[],
                "1 if the management API answered the last request; 0 if not, or without a management-url",
                Gauge::default(),
            ),
            management_failures: registry.add(
                "management_failures",
                &[],
                "Times that the management API could not be read",
                Counter::default(),
            ),
            names: Names::new(),
            repeats: Repeats::default(),
            remembered: Remembered::default(),
            registry: registry.registry,
            descriptions: registry.descriptions,
        };
        Self(Arc::new(inner))
    }

    /// Counts a limit that was met, and writes so, once a minute.
    pub fn limit_met(&self, limit: Limit) {
        let limit = limit.as_str();
        self.0
            .limits_met
            .get_or_create(&LimitLabels { limit })
            .inc();
        let line = ("a limit was met", String::new(), limit);
        if let Some(held_back) = self.0.repeats.write(line, Instant::now()) {
            let held_back = (held_back > 0).then_some(held_back);
            warn!(limit, held_back, "a limit was met");
        }
    }

    /// Writes why the system gave none of the connections that wait, once a minute.
    pub fn cannot_accept(&self, error: &io::Error) {
        let line = ("cannot accept a connection", error.to_string(), "");
        if let Some(held_back) = self.0.repeats.write(line, Instant::now()) {
            let held_back = (held_back > 0).then_some(held_back);
            warn!(%error, held_back, "cannot accept a connection");
        }
    }

    /// The certificate that this setting names ends then, since 1970; `None`: there is none.
    pub fn certificate_expires(&self, setting: &'static str, at: Option<Duration>) {
        let labels = SettingLabels { setting };
        let Some(at) = at else {
            self.0.certificates.remove(&labels);
            return;
        };
        let at = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
        self.0.certificates.get_or_create(&labels).set(at);
    }

    /// Counts a connection to the broker that TLS did not come about on, and writes why, once a minute.
    pub fn upstream_tls_failed(&self, error: &io::Error) {
        self.0.upstream_tls_failures.inc();
        let line = ("no TLS with the broker", error.to_string(), "");
        if let Some(held_back) = self.0.repeats.write(line, Instant::now()) {
            let held_back = (held_back > 0).then_some(held_back);
            warn!(%error, held_back, "no TLS with the broker");
        }
    }

    /// Counts a reading of the management API.
    pub fn management(&self, answered: bool) {
        self.0.management_up.set(answered.into());
        if !answered {
            self.0.management_failures.inc();
        }
    }

    /// The text that `/metrics` answers, as OpenMetrics.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        text::encode(&mut out, &self.0.registry).expect("a String takes everything");
        out
    }

    /// Every metric, in the order in which it was added.
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

// === impl Description ===

/// As a row of docs/metrics.md.
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

const PREFIX: &str = "dlx_proxy";

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
