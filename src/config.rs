//! The settings: their names, types and defaults. `raw` layers what people typed and remembers where each value stood, `check` turns it
//! into a [`Config`] or into every mistake at once. Each setting is written once, in `default.toml`, which is default, manual and test input.
//! Only `app`, `reload` and `main` see a [`Config`]: the other parts get small structs of their own.

use std::net::SocketAddr;
use std::time::Duration;

use bytesize::ByteSize;
use clap::ValueEnum;
use serde::{Serialize, Serializer};

mod check;
mod difference;
mod raw;
mod url;
mod value;

pub use difference::{Change, RELOADED};
pub use raw::{Mistake, Mistakes, Sources};
pub use url::{ManagementUrl, Secret, Upstream};

/// Every setting with its default and its meaning, as printed by `dlx-proxy print-default-config`.
pub const DEFAULT_TOML: &str = include_str!("config/default.toml");

/// The settings in force. `default.toml` says what each means to a user; names there are these with `-` for `_`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Config {
    /// Where AMQP clients connect.
    pub listen: SocketAddr,
    /// Where health, readiness and metrics are served.
    pub admin: SocketAddr,
    /// The broker, and the user of the proxy's own links.
    pub upstream: Upstream,
    /// RabbitMQ's management API, if the proxy may read it.
    #[serde(serialize_with = "none_as_empty")]
    pub management_url: Option<ManagementUrl>,
    /// Vhosts whose links are opened at start and count for readiness.
    pub vhosts: Vec<String>,
    /// First part of the name of every exchange and queue of the proxy's own.
    pub prefix: String,
    /// Whether declares are taken over.
    pub mode: Mode,
    /// What counts of an `x-death` that a client publishes.
    pub history: History,
    /// Whether BCC keys survive until the next keyless death.
    pub bcc: Bcc,
    /// What becomes of a dead letter that no queue takes.
    pub on_unroutable: OnUnroutable,
    /// Entries that `x-death` may have.
    pub max_history: usize,
    /// Attempts at a dead letter that is nacked.
    pub nack_retries: u32,
    /// Wait for a confirm before publishing again.
    #[serde(with = "humantime_serde")]
    pub confirm_timeout: Duration,
    /// Time connected and unblocked after which a dead letter is parked.
    #[serde(with = "humantime_serde")]
    pub retry_for: Duration,
    /// Type of the intake queue.
    pub intake_queue_type: QueueType,
    /// `prefetch_count` of the intake consumer.
    pub intake_prefetch: u16,
    /// Intake exchanges per vhost.
    pub max_intake_exchanges: usize,
    /// Bytes of dead letters that the publisher of a vhost holds.
    #[serde(serialize_with = "as_size")]
    pub publisher_bytes: usize,
    /// Bytes of signals that the intake of a vhost holds.
    #[serde(serialize_with = "as_size")]
    pub intake_bytes: usize,
    /// Client connections at once.
    pub max_connections: usize,
    /// Bytes of unsettled deliveries kept by the whole process.
    #[serde(serialize_with = "as_size")]
    pub retained_bytes: usize,
    /// Bytes of unsettled deliveries kept for one connection.
    #[serde(serialize_with = "as_size")]
    pub retained_bytes_per_connection: usize,
    /// Withheld rejects of one connection.
    pub max_tickets_per_connection: usize,
    /// Queues that one connection may declare or use and have managed.
    pub max_queues_per_connection: usize,
    /// Replies that the broker owes one connection.
    pub max_replies_per_connection: usize,
    /// Wait of a closing command for the rejects before it.
    #[serde(with = "humantime_serde")]
    pub close_wait: Duration,
    /// Time for the examination of one declare.
    #[serde(with = "humantime_serde")]
    pub probe_timeout: Duration,
    /// Time from a connection's first byte to `connection.open`.
    #[serde(with = "humantime_serde")]
    pub handshake_timeout: Duration,
    /// Connections to the admin port at once.
    pub max_admin_connections: usize,
    /// Time from a connection to the admin port to the end of its answer.
    #[serde(with = "humantime_serde")]
    pub admin_timeout: Duration,
    /// Time that sessions have to settle after the stop signal.
    #[serde(with = "humantime_serde")]
    pub drain_timeout: Duration,
    /// Threads of the runtime; `auto` is resolved already.
    pub worker_threads: usize,
    /// How log lines look.
    pub log_format: LogFormat,
    /// The least important lines that are still written.
    pub log_level: LogLevel,
    /// The proxy's own policies, in the order of the file.
    #[serde(rename = "policy", skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Policy>,
}

/// Whether declares are taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Queues are declared with an intake exchange: every kind of dead letter is the proxy's.
    Takeover,
    /// No declare is changed: rejects are the proxy's, expiry and length limits stay native.
    Keep,
}

/// What counts of an `x-death` that a client publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum History {
    /// Count on, on every version of the broker.
    Continue,
    /// Forget it where the broker does.
    Broker,
}

/// Whether BCC keys survive until the next keyless death.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Bcc {
    /// In a private header.
    Carry,
    /// Not at all.
    Forget,
}

/// What becomes of a dead letter that no queue takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum OnUnroutable {
    /// Into the parking queue.
    Park,
    /// Dropped and counted, as RabbitMQ does.
    Drop,
}

/// `x-queue-type` of the intake queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum QueueType {
    /// Replicated; sheds a message that crashes each delivery.
    Quorum,
    /// Faster.
    Classic,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// The least important lines that are still written, fewest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Someone must act.
    Error,
    /// Degraded and handled.
    Warn,
    /// Life cycle.
    Info,
    /// One session.
    Debug,
    /// One message.
    Trace,
}

/// One `[[policy]]` of the file. Which one wins for a queue is decided by `registry::policy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Policy {
    /// Unique in its vhost.
    pub name: String,
    /// The vhost it acts in.
    pub vhost: String,
    /// A regular expression for the crate `regex`, searched in the queue's name; it was compiled once as a check.
    pub pattern: String,
    /// The queues it may fit.
    pub apply_to: ApplyTo,
    /// The highest that fits wins.
    pub priority: i64,
    /// Instead of the global mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The keys it sets.
    pub definition: Definition,
}

/// The queues a policy may fit, spelled as RabbitMQ's `--apply-to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum ApplyTo {
    /// Classic and quorum queues.
    Queues,
    /// Classic queues only.
    ClassicQueues,
    /// Quorum queues only.
    QuorumQueues,
    /// The same as `queues`: exchanges have no dead letters. RabbitMQ's word, so that its policies can be copied.
    All,
}

/// What a policy sets; a queue's own arguments overrule it key by key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Definition {
    /// Name of the exchange; `""` is the default exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_exchange: Option<String>,
    /// Instead of the message's own keys; `""` is a key too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_routing_key: Option<String>,
}

// === impl Config ===

impl Config {
    /// The settings in force for these sources.
    ///
    /// # Errors
    /// Every mistake in them, each with its place and remedy. A value that a stronger source overrules is not looked at.
    pub fn load(sources: &Sources) -> Result<Self, Mistakes> {
        check::check(raw::read(sources))
    }

    /// The settings as a file of settings, passwords hidden.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a Config has only types that TOML has")
    }
}

impl Default for Config {
    /// What `default.toml` says.
    fn default() -> Self {
        Self::load(&Sources::default()).expect("default.toml has no mistakes: a test loads it")
    }
}

/// An absent URL is written as it is read: as `""`. TOML has no null, and a setting left out would look forgotten.
fn none_as_empty<S: Serializer>(
    url: &Option<ManagementUrl>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match url {
        Some(url) => serializer.collect_str(url),
        None => serializer.serialize_str(""),
    }
}

/// A size in its largest even unit, so that what is printed reads back as the same number.
fn as_size<S: Serializer>(bytes: &usize, serializer: S) -> Result<S::Ok, S::Error> {
    let units = [
        ("GiB", bytesize::GIB),
        ("MiB", bytesize::MIB),
        ("KiB", bytesize::KIB),
    ];
    let ByteSize(bytes) = ByteSize(*bytes as u64);
    match units
        .iter()
        .find(|(_, unit)| bytes > 0 && bytes % unit == 0)
    {
        Some((name, unit)) => serializer.collect_str(&format_args!("{}{name}", bytes / unit)),
        None => serializer.collect_str(&format_args!("{bytes}B")),
    }
}
