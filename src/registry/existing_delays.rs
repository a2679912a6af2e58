//! Which delay queues a vhost has, as the management API tells: other proxies made some of them, or this one before it was restarted.

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

/// A cell with the milliseconds of each, replaced as a whole; no lock. Empty, while nothing is known. Clones are the same cell.
#[derive(Clone, Debug, Default)]
pub struct ExistingDelays(Arc<ArcSwap<BTreeSet<u64>>>);

// === impl ExistingDelays ===

impl ExistingDelays {
    /// The delays of the delay queues that existed when it was last told.
    pub fn now(&self) -> Guard<Arc<BTreeSet<u64>>> {
        self.0.load()
    }

    /// From now on there are these.
    pub fn set(&self, millis: BTreeSet<u64>) {
        self.0.store(Arc::new(millis));
    }
}
