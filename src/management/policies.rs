//! What `/api/policies` and `/api/operator-policies` answer, and the snapshot that comes of it.

use crate::registry::broker_policy::{BrokerPolicies, BrokerPolicy, Limits};

use super::examined::ListedPolicy;

#[derive(Debug, Default, PartialEq)]
pub(super) struct Listed {
    pub(super) policies: Vec<ListedPolicy>,
    pub(super) operator_policies: Vec<ListedPolicy>,
}

// === impl Listed ===

impl Listed {
    /// The snapshot, and policies whose patterns the crate `regex` cannot read.
    pub(super) fn read(&self) -> (BrokerPolicies, Vec<String>) {
        let policies = self.policies.iter().map(|policy| policy.read(false));
        let operators = self.operator_policies.iter();
        let operators = operators.map(|policy| policy.read(true));
        let (policies, unreadable) = BrokerPolicies::new(policies.chain(operators));
        let unreadable = unreadable.into_iter().map(str::to_owned);
        (policies, unreadable.collect())
    }
}

// === impl ListedPolicy ===

impl ListedPolicy {
    fn read(&self, by_operator: bool) -> BrokerPolicy<'_> {
        let text = |key: &str| self.definition.get(key)?.as_str();
        let number = |key: &str| self.definition.get(key)?.as_i64();
        BrokerPolicy {
            vhost: &self.vhost,
            name: &self.name,
            pattern: &self.pattern,
            apply_to: &self.apply_to,
            priority: self.priority,
            keys: self.definition.keys().map(String::as_str).collect(),
            exchange: text("dead-letter-exchange"),
            routing_key: text("dead-letter-routing-key"),
            strategy: text("dead-letter-strategy"),
            limits: Limits {
                message_ttl: number("message-ttl"),
                delivery_limit: number("delivery-limit"),
                dies_when_full: text("overflow").map(|said| said == "reject-publish-dlx"),
            },
            by_operator,
        }
    }
}
