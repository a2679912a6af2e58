//! What `/api/policies` and `/api/operator-policies` answer, and the snapshot that comes of it.

use crate::objects::Names;
use crate::registry::adoption::ListedPolicy;
use crate::registry::broker_policy::BrokerPolicies;

#[derive(Debug, Default, PartialEq)]
pub(super) struct Listed {
    pub(super) policies: Vec<ListedPolicy>,
    pub(super) operator_policies: Vec<ListedPolicy>,
}

// === impl Listed ===

impl Listed {
    /// The snapshot, and policies whose patterns the crate `regex` cannot read.
    pub(super) fn read(&self, names: &Names) -> (BrokerPolicies, Vec<String>) {
        let policies = self.policies.iter().map(|policy| policy.read(false));
        let operators = self.operator_policies.iter();
        let operators = operators.map(|policy| policy.read(true));
        let (policies, unreadable) = BrokerPolicies::new(policies.chain(operators), names);
        let unreadable = unreadable.into_iter().map(str::to_owned);
        (policies, unreadable.collect())
    }
}
