//! The nodes that have a replica of the queue.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::refusal::Refusal;

/// The nodes of a quorum queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ListedMembers {
    #[serde(default)]
    pub members: BTreeSet<String>,
    #[serde(default)]
    pub online: BTreeSet<String>,
}

// === impl ListedMembers ===

impl ListedMembers {
    /// The broker waits 5 s for a node that is away before a queue is deleted (S12.13), and clients would wait, too.
    pub(super) fn against(&self) -> Option<Refusal> {
        let mut away = self.members.difference(&self.online);
        away.next().map(|node| Refusal::MemberAway(node.clone()))
    }
}
