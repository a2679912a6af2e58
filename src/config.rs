//! The settings: their names, types and defaults. `raw` layers what people typed and remembers where each value stood, `check` turns it
//! into a [`Config`] or into every mistake at once. Each value is parsed once, into the type that its part works with, so that no part can
//! refuse it later. Each default is written once, in `default.toml`, which is default, manual and test input. CONTRIBUTING.md says how to add
//! a setting.
//! Only `app`, `reload` and `main` see a [`Config`]: the other parts get small structs of their own.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use crate::amqp::ids::Vhost;
use crate::descriptors::Clients;
use crate::intake::QueueType;
use crate::letter::ErrorHeaders;
use crate::machine::Limits;
use crate::net::nodes::Order;
use crate::net::ports::At;
use crate::net::proxy_protocol::{Told, Trusted};
use crate::objects::Names;
use crate::publisher::OnUnroutable;
use crate::registry::delayed_exchanges::DelayHeader;
use crate::registry::lenient::Lenient;
use crate::registry::policy::{Definition, Mode, Policy};
use crate::tls;

mod check;
mod difference;
mod gone;
mod raw;
mod url;
mod value;

pub use difference::{Change, RELOADED};
pub use raw::{ADMIN_CA_FILE, Mistake, Mistakes, PASSWORD, Sources, URL, USERNAME};
pub use url::{HttpUrl, Secret, Upstream};

pub const DEFAULT_TOML: &str = include_str!("config/default.toml");

/// Limits that nobody tunes; parsed like settings.
pub const FIXED_TOML: &str = include_str!("config/fixed.toml");

/// The settings in force. `default.toml` describes each; names there have `-` for `_`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Config {
    #[serde(serialize_with = "none_as_empty")]
    pub listen: Option<At>,
    #[serde(serialize_with = "none_as_empty")]
    pub listen_tls: Option<SocketAddr>,
    /// Load balancers that send a PROXY header.
    pub listen_proxy_protocol: Trusted,
    #[serde(serialize_with = "none_as_empty")]
    pub admin: Option<SocketAddr>,
    #[serde(serialize_with = "none_as_empty")]
    pub admin_tls: Option<SocketAddr>,
    pub admin_api: bool,
    pub admin_edit: bool,
    pub upstream: Upstream,
    /// Whether connections to the broker begin with a PROXY header.
    pub upstream_proxy_protocol: Told,
    pub upstream_order: Order,
    #[serde(serialize_with = "none_as_empty")]
    pub management_url: Option<HttpUrl>,
    /// Opened at start; they count for readiness.
    pub vhosts: Vec<Vhost>,
    pub ready_when_refused: bool,
    #[serde(rename = "prefix")]
    pub names: Names,
    pub mode: Mode,
    pub lenient: Lenient,
    pub delayed_publish: Vec<DelayHeader>,
    #[serde(serialize_with = "none_as_empty")]
    pub on_dead_letter: Option<HttpUrl>,
    pub history: History,
    pub on_unroutable: OnUnroutable,
    pub intake_queue_type: QueueType,
    pub intake_prefetch: u16,
    /// `auto` is resolved already.
    pub worker_threads: usize,
    pub log_format: LogFormat,
    /// Settings above need a restart.
    #[serde(flatten)]
    pub reloadable: Reloadable,
}

/// Settings that a reload changes; `app::Live` applies them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Reloadable {
    #[serde(flatten)]
    pub limits: Limits,
    /// For the messages held per vhost. Its parts are below and in the limits.
    #[serde(serialize_with = "as_size")]
    pub memory: usize,
    pub max_connections: Clients,
    /// Unsettled deliveries kept by the whole process, in bytes.
    #[serde(skip)]
    pub retained_bytes: usize,
    pub max_admin_connections: usize,
    pub max_browses: usize,
    pub error_headers: ErrorHeaders,
    #[serde(flatten)]
    pub tls: tls::Settings,
    /// How long sessions may settle after the stop signal.
    #[serde(with = "humantime_serde")]
    pub drain_timeout: Duration,
    pub log_level: LogLevel,
    #[serde(rename = "policy", skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Policy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum History {
    Continue,
    Broker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    Text,
    Json,
}

/// From the fewest lines to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

const OF_REJECTS_ONLY: &str = "in mode `rejects-only` a policy acts on rejects only: the broker does not know it, so nothing expires or overflows into its exchange";
const LENIENT_OF_REJECTS_ONLY: &str = "in mode `rejects-only` what a lenient declare changes acts on rejects only: the broker does not know it, so nothing expires or overflows into the new exchange";

// === impl Config ===

impl Config {
    /// # Errors
    /// All mistakes, each with its place and remedy. Values that a stronger source overrides are
    /// not checked.
    pub fn load(sources: &Sources) -> Result<Self, Mistakes> {
        check::check(raw::read(sources))
    }

    pub fn tls_uses(&self) -> tls::Uses {
        let management = self.management_url.as_ref();
        tls::Uses {
            upstream: self.upstream.tls || management.is_some_and(|url| url.tls),
            hook: self.on_dead_letter.as_ref().is_some_and(|url| url.tls),
            clients: self.listen_tls.is_some(),
            admin: self.admin_tls.is_some(),
        }
    }

    /// Settings and policies with less effect than they seem to have, and why.
    pub fn notes(&self) -> Vec<(String, &'static str)> {
        let mut notes = Vec::new();
        if self.mode == Mode::RejectsOnly && self.lenient.follows_targets() {
            notes.push(("lenient".to_owned(), LENIENT_OF_REJECTS_ONLY));
        }
        for policy in &self.reloadable.policies {
            let Definition {
                dead_letter_exchange: exchange,
                dead_letter_routing_key: key,
                retries,
            } = &policy.definition;
            let keeps = policy.mode.unwrap_or(self.mode) == Mode::RejectsOnly;
            let of_its_own = policy.mode.is_some() || policy.lenient.is_some();
            let lenient = policy.lenient.as_ref().unwrap_or(&self.lenient);
            let targets = exchange.is_some() || key.is_some();
            let of_policy = [
                (keeps && targets).then_some(OF_REJECTS_ONLY),
                (of_its_own && keeps && lenient.follows_targets())
                    .then_some(LENIENT_OF_REJECTS_ONLY),
                retries.does_nothing(),
            ];
            let name = format!("policy {:?}", policy.name);
            notes.extend(
                of_policy
                    .into_iter()
                    .flatten()
                    .map(|why| (name.clone(), why)),
            );
        }
        notes
    }

    /// A file of settings in the order of `default.toml`, passwords hidden.
    pub fn to_toml(&self) -> String {
        let table = difference::table(self);
        let names = DEFAULT_TOML
            .lines()
            .filter_map(|line| line.split_once(" = "));
        let settings = names.filter_map(|(name, _)| Some((name, table.get(name)?)));
        let settings = settings.map(|(name, value)| format!("{name} = {value}\n"));
        let policies = self.reloadable.policies.iter().map(|policy| {
            let policy = toml::to_string(&BTreeMap::from([(raw::POLICY, [policy])]));
            format!(
                "\n{}",
                policy.expect("a Policy has only types that TOML has")
            )
        });
        settings.chain(policies).collect()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::load(&Sources::default()).expect("default.toml has no mistakes: a test loads it")
    }
}

/// In the largest unit without a remainder, so that it reads back as the same number.
fn as_size<S: Serializer>(bytes: &usize, serializer: S) -> Result<S::Ok, S::Error> {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let even = |(_, power): &(_, u32)| *bytes > 0 && bytes.trailing_zeros() >= *power;
    match units.into_iter().find(even) {
        Some((unit, power)) => serializer.collect_str(&format_args!("{}{unit}", bytes >> power)),
        None => serializer.collect_str(&format_args!("{bytes}B")),
    }
}

/// Absent values print as `""`, as they are read. TOML has no null, and a missing setting would
/// look forgotten.
fn none_as_empty<S: Serializer, U: Display>(
    url: &Option<U>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match url {
        Some(url) => serializer.collect_str(url),
        None => serializer.serialize_str(""),
    }
}
