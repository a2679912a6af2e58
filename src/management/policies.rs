//! What `/api/policies` answers, and the snapshot that comes of it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::registry::broker_policy::{BrokerPolicies, BrokerPolicy};

/// What was read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) policies: BrokerPolicies,
    /// Names of policies whose patterns the crate `regex` does not understand.
    pub(super) unreadable: Vec<String>,
}

/// One member of the answer; what else is in it does not matter.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Policy<'a> {
    #[serde(borrow)]
    vhost: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    pattern: Cow<'a, str>,
    #[serde(borrow)]
    apply_to: Cow<'a, str>,
    /// Any number, as RabbitMQ checks no more.
    priority: f64,
    definition: BTreeMap<String, Value>,
}

/// Reads the answer.
pub(super) fn read(json: &[u8]) -> serde_json::Result<Read> {
    let listed: Vec<Policy<'_>> = serde_json::from_slice(json)?;
    let (policies, unreadable) = BrokerPolicies::new(listed.iter().map(|policy| BrokerPolicy {
        vhost: &policy.vhost,
        name: &policy.name,
        pattern: &policy.pattern,
        apply_to: &policy.apply_to,
        priority: policy.priority,
        keys: policy.definition.keys().map(String::as_str).collect(),
        routing_key: policy.text("dead-letter-routing-key"),
        strategy: policy.text("dead-letter-strategy"),
    }));
    Ok(Read {
        policies,
        unreadable: unreadable.into_iter().map(str::to_owned).collect(),
    })
}

// === impl Policy ===

impl Policy<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        self.definition.get(key)?.as_str()
    }
}
