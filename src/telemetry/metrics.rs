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

use super::dead_letter_queues::QueueGauge;
use super::hook::Outcomes;
use super::names::Names;
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
    /// `counter` or `gauge`.
    pub kind: &'static str,
    /// Label names.
    pub labels: &'static [&'static str],
    /// One sentence.
    pub help: &'static str,
}

#[derive(Debug)]
pub(super) struct Inner {
    registry: Registry,
    descriptions: Vec<Description>,
    pub(super) names: Names,
    pub(super) repeats: Repeats,
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
                "Connections that are open to an address of a node of the broker, the proxy's own too",
                Family::default(),
            ),
            upstream_failures: registry.add(
                "upstream_failures",
                address,
                "Connections that an address of a node refused, did not answer in time, or ended before the broker said anything",
                Family::default(),
            ),
            upstream_up: registry.add(
                "upstream_up",
                address,
                "0 while an address of a node failed when it was last tried, 1 if it answered then; an address that failed is tried again when nothing \
                 else is left, or after a pause of 1 s, doubled up to 30 s",
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
                "Messages that clients returned to queues with retries: sent away (confirmed), refused, and back in their queue (returned)",
                Family::default(),
            ),
            dead_letter_queue_messages: registry.add(
                "dead_letter_queue_messages",
                &["vhost", "queue"],
                "Messages in a queue that dead letters of this process went to, of at most 200 queues a vhost; only with a management-url, and only while \
                 it answers",
                Family::default(),
            ),
            dead_letter_queue_oldest: registry.add(
                "dead_letter_queue_oldest_seconds",
                &["vhost", "queue"],
                "How long the oldest message of such a queue has been there, if this process published all that is there; else absent",
                Family::default(),
            ),
            hook_waiting: registry.add("hook_waiting", &[], "Dead letters of which the hook (`on-dead-letter`) is not told yet", Gauge::default()),
            hook_posts: registry.add("hook_posts", &["outcome"], "Requests to the hook, by whether it took what they said", Family::default()),
            hook_dead_letters: registry.add(
                "hook_dead_letters",
                &["outcome"],
                "Dead letters of which the hook was told (taken), or is never told (dropped)",
                Family::default(),
            ),
            redriven: registry.add(
                "redriven",
                &["vhost", "outcome"],
                "Dead letters that operators sent back: confirmed, or refused, which leaves them in their queue",
                Family::default(),
            ),
            retries_overdue: registry.add(
                "retries_overdue",
                vhost,
                "Messages that wait in delay queues although their delay is over, since RabbitMQ has moved nothing out for two minutes; only with a management-url",
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
                "Declares and rejects that were left to the broker although they have a dead-letter exchange, and lost clients (`crash`) that were not counted, by cause",
                Family::default(),
            ),
            rejects_kept: registry.add(
                "rejects_kept",
                &["cause"],
                "Rejects that were kept from a broker that knows no dead-letter exchange for their queue, by the reason why they are not published yet",
                Family::default(),
            ),
            rejects_returned: registry.add(
                "rejects_returned",
                &[],
                "Messages that were returned to their queue because their reject was kept from the broker and there was no copy of them to publish",
                Counter::default(),
            ),
            queues_managed: registry.add("queues_managed", &["mode"], "Times that a session began to manage a queue, by mode", Family::default()),
            queues_redeclared: registry.add("queues_redeclared", &[], "Declares that changed where the dead letters of a queue go that exists (`declares = \"lenient\"`)", Counter::default()),
            redeclares_unrecorded: registry.add("redeclares_unrecorded", &[], "Such declares that went on before they were recorded: other proxies of the vhost may not know them yet", Counter::default()),
            probes_over_limit: registry.add(
                "probes_over_limit",
                &[],
                "Client connections that the broker closed because a probe's channel was one too many for their user",
                Counter::default(),
            ),
            names_refused: registry.add("names_refused", &[], "Requests of clients that were refused because they name an object of the proxy's own", Counter::default()),
            externals_refused: registry.add(
                "externals_refused",
                &[],
                "Client connections that were refused because they chose EXTERNAL, or a protocol other than AMQP 0-9-1 while the proxy shows the broker a certificate",
                Counter::default(),
            ),
            handshakes_failed: registry.add(
                "tls_handshakes_failed",
                &["cause"],
                "Client connections to listen-tls that did not come through the handshake of TLS, by cause",
                Family::default(),
            ),
            upstream_tls_failures: registry.add(
                "upstream_tls_failures",
                &[],
                "Connections to the broker that did not come through the handshake of TLS",
                Counter::default(),
            ),
            certificates: registry.add(
                "certificate_expires_timestamp_seconds",
                &["setting"],
                "When the certificate ends that this setting names, or the first of its chain, in seconds since 1970",
                Family::default(),
            ),
            edits_dropped: registry.add("edits_dropped", &[], "Headers of the proxy's own that were left out because they would not have fitted a frame", Counter::default()),
            limits_met: registry.add("limits_met", &["limit"], "Times that a limit was met; the label is the name of its setting", Family::default()),
            protocol_faults: registry.add("protocol_faults", &["leg"], "Faults of the protocol, by who caused them", Family::default()),
            link_up: registry.add("link_up", link, "1 while this connection of the proxy's own is up", Family::default()),
            link_failures: registry.add("link_failures", link, "Times that this connection of the proxy's own was lost or could not be opened", Family::default()),
            link_channels_closed: registry.add("link_channels_closed", link, "Channels of this connection of the proxy's own that the broker closed", Family::default()),
            publisher_blocked: registry.add("publisher_blocked", vhost, "1 while the broker blocks the publisher by an alarm", Family::default()),
            intake_consuming: registry.add("intake_consuming", vhost, "1 while the intake consumer of this proxy is registered", Family::default()),
            intake_exchanges: registry.add("intake_exchanges", vhost, "Intake exchanges declared by this proxy", Family::default()),
            parked_moved: registry.add("parked_moved", vhost, "Parked messages that went to their targets by themselves", Family::default()),
            parked_waiting: registry.add(
                "parked_waiting",
                vhost,
                "Parked messages that their targets did not take when this proxy last tried",
                Family::default(),
            ),
            parked_staying: registry.add(
                "parked_staying",
                vhost,
                "Parked messages that never go by themselves, as of the last try: nothing proves that the proxy parked them, or another try cannot help",
                Family::default(),
            ),
            vhost_native: registry.add("vhost_native", vhost, "1 if the proxy's user has no rights in this vhost: all its queues are left to the broker", Family::default()),
            management_up: registry.add(
                "management_up",
                &[],
                "1 if the management API answered when it was last read; 0 also without a management-url",
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

    /// The certificate that this setting names ends then, since 1970.
    pub fn certificate_expires(&self, setting: &'static str, at: Duration) {
        let at = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
        let labels = SettingLabels { setting };
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
