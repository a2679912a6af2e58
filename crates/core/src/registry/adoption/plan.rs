//! What an adoption or a release does: policies of the broker that change, and queues that stay as they are.

use std::collections::BTreeMap;

use super::{ListedPolicy, ListedQueue, Meant, Refusal};

/// What adopting or releasing will change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub changes: Vec<Change>,
    /// Queues that stay as they are, by cause.
    pub left: BTreeMap<Refusal, Vec<String>>,
}

/// One policy of ours, to be put or deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The name of the user's.
    pub source: String,
    pub ours: ListedPolicy,
    /// The queues whose deaths it moves.
    pub queues: Vec<String>,
}

// === impl Plan ===

impl Plan {
    pub(super) fn leave(&mut self, why: Refusal, queue: &str) {
        self.left.entry(why).or_default().push(queue.to_owned());
    }

    /// A policy of the user, with the queues that have it.
    pub(super) fn adopt(
        &mut self,
        source: &ListedPolicy,
        mine: Vec<&(&ListedQueue, Result<&ListedPolicy, Refusal>)>,
        meant: &Meant,
        make: impl FnOnce() -> Result<ListedPolicy, Refusal>,
    ) {
        // It would take the neighbours along that the broker confirms.
        let is_confirmed = |judged: &Result<_, Refusal>| *judged == Err(Refusal::ConfirmedByBroker);
        let made = match mine.iter().any(|(_, judged)| is_confirmed(judged)) {
            true => Err(Refusal::ConfirmedByBroker),
            false => make(),
        };
        let reached = mine.iter().filter(|(_, judged)| judged.is_ok());
        let reached = reached.map(|(queue, _)| queue.name.clone());
        match made {
            Ok(ours) => {
                self.changes.push(Change {
                    source: source.name.clone(),
                    ours,
                    queues: reached.collect(),
                });
                for (queue, judged) in mine.iter().filter(|(queue, _)| !meant.is(&queue.name)) {
                    if let Err(refusal) = judged {
                        self.leave(refusal.clone(), &queue.name);
                    }
                }
            }
            Err(refusal) => {
                for queue in reached.filter(|queue| meant.is(queue)) {
                    self.leave(refusal.clone(), &queue);
                }
            }
        }
    }
}
