//! What can be wrong with a queue of the proxy's own.

use std::fmt::{self, Display, Formatter};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    Deleted,
    /// The broker lists the queue, but no process runs it.
    Dead,
    Silent,
    State(String),
    Bounded(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Witness {
    Amqp,
    Management,
}

// === impl Trouble ===

impl Trouble {
    pub fn advice(&self) -> &'static str {
        match self {
            Trouble::Deleted => {
                "the proxy makes it again, unless the broker refuses that: see the log"
            }
            Trouble::Dead => {
                "restart the node that has it; if that does not help, delete it with all that it holds: the proxy makes it again"
            }
            Trouble::Silent | Trouble::State(_) => {
                "bring the nodes back that have its members (rabbitmq-queues quorum_status), or restart the node of its leader"
            }
            Trouble::Bounded(_) => "`dlx-proxy doctor` names the policy to set instead",
        }
    }
}

impl Display for Trouble {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Deleted => f.write_str("was deleted"),
            Trouble::Dead => f.write_str("is dead: the broker has no process of it"),
            Trouble::Silent => {
                f.write_str("does not answer: it has no leader, or no majority of its members")
            }
            Trouble::State(state) => f.write_str(state),
            Trouble::Bounded(policy) => write!(f, "loses messages by {policy}"),
        }
    }
}
