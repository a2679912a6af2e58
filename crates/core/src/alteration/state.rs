//! What an alteration is at.

use super::moving::Way;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Shut,
    Claiming,
    /// What other proxies say comes into the claim.
    Listening,
    /// Whether an order is still there, and bound: a message that leads to it does not come back.
    Finding,
    /// Whether it is this order: another one may have followed.
    Recognizing,
    Recording,
    /// The order is bound where other proxies look.
    Announcing,
    Comparing,
    Trying,
    Withdrawing,
    /// Binds as it is bound: a right that is missing shows before anything is changed.
    Testing(usize),
    Waiting,
    /// Makes the queue for a backlog.
    Storing,
    Holding,
    Draining,
    Settling,
    Cancelling,
    Counting,
    Keeping(usize),
    Unbinding(usize),
    Moving(Way),
    /// A quorum queue counts what it has written, and that may not be all that it was sent. A consumer is written itself, behind all of that. This one
    /// has the lowest priority and ends at once; what it is given goes back. `last`: in the place of
    /// `Getting`, which a single active consumer forbids.
    Proving {
        last: bool,
    },
    Ending {
        last: bool,
    },
    Recounting {
        last: bool,
    },
    /// A count of 0 may mean that a quorum queue did not answer in time (S12.12). `basic.get-empty` is the answer of the queue itself, behind all
    /// that it was sent.
    Getting,
    Deleting,
    /// A node may be about to end its replica of the old queue: a new one would not begin there (S12.14).
    Vanishing,
    Declaring {
        old: bool,
    },
    Binding(usize),
    /// An attempt has failed: what is unbound is bound again.
    Undoing(usize),
    /// Whether messages wait aside.
    Looking,
    /// Deletes the queue where they waited.
    Clearing,
    Cleaning,
    Ended,
}

// === impl State ===

impl State {
    /// Clients wait, and may go on with the queue as it is: the pause has a limit of its own.
    pub(super) fn is_within_pause(self) -> bool {
        matches!(
            self,
            State::Holding
                | State::Draining
                | State::Settling
                | State::Cancelling
                | State::Counting
                | State::Keeping(_)
                | State::Unbinding(_)
                | State::Proving { .. }
                | State::Ending { .. }
                | State::Recounting { .. }
                | State::Getting
        )
    }
}
