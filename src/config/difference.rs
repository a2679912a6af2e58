//! What differs between two sets of settings, in the words of an operator; and which of it a running proxy can take over.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::LazyLock;

use serde::Serialize;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::registry::policy::Policy;

use super::Config;
use super::raw::POLICY;

/// Settings that a reload changes; all others need a restart.
pub static RELOADED: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let names = table(&Config::default().reloadable).into_iter();
    names
        .map(|(name, _)| name)
        .chain([POLICY.to_owned()])
        .collect()
});

/// Displayed as `name old → new`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub name: String,
    what: String,
}

// === impl Change ===

impl Change {
    pub fn is_reloaded(&self) -> bool {
        RELOADED.contains(&self.name)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.what)
    }
}

// === impl Config ===

impl Config {
    /// Passwords are not shown.
    pub fn changes(&self, new: &Config) -> Vec<Change> {
        let (old_table, new_table) = (table(self), table(new));
        let mut changes: Vec<Change> = old_table
            .iter()
            .filter(|(name, _)| *name != POLICY)
            .filter_map(|(name, old)| {
                let new = new_table.get(name).filter(|new| *new != old)?;
                Some(change(name, format!("{old} → {new}")))
            })
            .collect();
        let hidden = [
            ("upstream", self.upstream != new.upstream),
            ("management-url", self.management_url != new.management_url),
            ("on-dead-letter", self.on_dead_letter != new.on_dead_letter),
        ];
        for (name, differs) in hidden {
            if differs && old_table.get(name) == new_table.get(name) {
                let what = match name {
                    "on-dead-letter" => "has another password, path or query",
                    _ => "has another password",
                };
                changes.push(change(name, what.to_owned()));
            }
        }
        changes.extend(changes_of_policies(
            &self.reloadable.policies,
            &new.reloadable.policies,
        ));
        changes
    }

    /// These settings, with the reloadable ones of `new`.
    pub fn reloaded(&self, new: &Config) -> Config {
        Config {
            reloadable: new.reloadable.clone(),
            ..self.clone()
        }
    }
}

pub(super) fn table(settings: &impl Serialize) -> toml::Table {
    toml::Table::try_from(settings).expect("settings have only types that TOML has")
}

fn change(name: &str, what: String) -> Change {
    let name = name.to_owned();
    Change { name, what }
}

fn changes_of_policies(old: &[Policy], new: &[Policy]) -> Vec<Change> {
    fn named(policies: &[Policy]) -> BTreeMap<(&Vhost, &ShortStr), &Policy> {
        let named = policies.iter();
        named
            .map(|policy| ((&policy.vhost, &policy.name), policy))
            .collect()
    }
    let (old, new) = (named(old), named(new));
    let mut names: Vec<_> = old.keys().chain(new.keys()).collect();
    names.sort();
    names.dedup();
    let of_one = |key: &&(&Vhost, &ShortStr)| {
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
