//! What differs between two sets of settings, in the words of an operator; and which of it a running proxy can take over.

use std::collections::BTreeMap;
use std::fmt;

use super::raw::POLICY;
use super::{Config, Policy};

/// Settings that a running proxy takes over; all others need a restart.
pub const RELOADED: [&str; 21] = [
    "max-history",
    "nack-retries",
    "confirm-timeout",
    "retry-for",
    "max-intake-exchanges",
    "publisher-bytes",
    "intake-bytes",
    "max-connections",
    "retained-bytes",
    "retained-bytes-per-connection",
    "max-tickets-per-connection",
    "max-queues-per-connection",
    "max-replies-per-connection",
    "close-wait",
    "probe-timeout",
    "handshake-timeout",
    "max-admin-connections",
    "admin-timeout",
    "drain-timeout",
    "log-level",
    POLICY,
];

/// One setting with another value. Shown as `name old → new`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The setting.
    pub name: String,
    /// Old and new value, or what happened to policies.
    what: String,
}

// === impl Change ===

impl Change {
    /// A running proxy takes it over.
    pub fn is_reloaded(&self) -> bool {
        RELOADED.contains(&self.name.as_str())
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.what)
    }
}

// === impl Config ===

impl Config {
    /// What is different in `new`. Passwords are not shown.
    pub fn changes(&self, new: &Config) -> Vec<Change> {
        let (old_table, new_table) = (self.table(), new.table());
        let mut changes: Vec<Change> = old_table
            .iter()
            .filter(|(name, _)| *name != POLICY)
            .filter_map(|(name, old)| {
                let new = new_table.get(name).filter(|new| *new != old)?;
                Some(change(name, format!("{old} → {new}")))
            })
            .collect();
        let hidden = "has another password";
        if self.upstream != new.upstream && old_table.get("upstream") == new_table.get("upstream") {
            changes.push(change("upstream", hidden.to_owned()));
        }
        let url = "management-url";
        if self.management_url != new.management_url && old_table.get(url) == new_table.get(url) {
            changes.push(change(url, hidden.to_owned()));
        }
        changes.extend(changes_of_policies(&self.policies, &new.policies));
        changes
    }

    /// These settings, but of those that a running proxy takes over the values of `new`.
    pub fn reloaded(&self, new: &Config) -> Config {
        Config {
            max_history: new.max_history,
            nack_retries: new.nack_retries,
            confirm_timeout: new.confirm_timeout,
            retry_for: new.retry_for,
            max_intake_exchanges: new.max_intake_exchanges,
            publisher_bytes: new.publisher_bytes,
            intake_bytes: new.intake_bytes,
            max_connections: new.max_connections,
            retained_bytes: new.retained_bytes,
            retained_bytes_per_connection: new.retained_bytes_per_connection,
            max_tickets_per_connection: new.max_tickets_per_connection,
            max_queues_per_connection: new.max_queues_per_connection,
            max_replies_per_connection: new.max_replies_per_connection,
            close_wait: new.close_wait,
            probe_timeout: new.probe_timeout,
            handshake_timeout: new.handshake_timeout,
            max_admin_connections: new.max_admin_connections,
            admin_timeout: new.admin_timeout,
            drain_timeout: new.drain_timeout,
            log_level: new.log_level,
            policies: new.policies.clone(),
            ..self.clone()
        }
    }

    fn table(&self) -> toml::Table {
        toml::Table::try_from(self).expect("a Config has only types that TOML has")
    }
}

fn change(name: &str, what: String) -> Change {
    let name = name.to_owned();
    Change { name, what }
}

fn changes_of_policies(old: &[Policy], new: &[Policy]) -> Vec<Change> {
    fn named(policies: &[Policy]) -> BTreeMap<(&str, &str), &Policy> {
        let named = policies.iter();
        named
            .map(|policy| ((policy.vhost.as_str(), policy.name.as_str()), policy))
            .collect()
    }
    let (old, new) = (named(old), named(new));
    let mut names: Vec<_> = old.keys().chain(new.keys()).collect();
    names.sort();
    names.dedup();
    let of_one = |key: &&(&str, &str)| {
        let what = match (old.get(*key), new.get(*key)) {
            (None, _) => "added",
            (_, None) => "removed",
            (old, new) if old != new => "changed",
            _ => return None,
        };
        let (vhost, name) = key;
        Some(change(
            POLICY,
            format!("{name:?} of vhost {vhost:?} {what}"),
        ))
    };
    names.iter().filter_map(of_one).collect()
}
