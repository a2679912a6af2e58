//! Which delay queues a vhost has: those of which the management API tells, as other proxies made some of them, or this one before it was restarted;
//! and those that this proxy has used.

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwap;

/// Milliseconds per vhost, replaced as a whole without a lock. Empty while unknown. Clones share
/// them.
#[derive(Clone, Debug, Default)]
pub struct ExistingDelays {
    told: Arc<ArcSwap<BTreeSet<u64>>>,
    used: Arc<ArcSwap<BTreeSet<u64>>>,
}

// === impl ExistingDelays ===

impl ExistingDelays {
    pub fn set(&self, millis: BTreeSet<u64>) {
        self.told.store(Arc::new(millis));
    }

    pub fn used(&self, millis: u64) {
        self.change(|used| used.insert(millis));
    }

    pub fn deleted(&self, millis: u64) {
        self.change(|used| used.remove(&millis));
    }

    pub fn all(&self) -> BTreeSet<u64> {
        &**self.told.load() | &**self.used.load()
    }

    fn change(&self, change: impl Fn(&mut BTreeSet<u64>) -> bool) {
        self.used.rcu(|used| {
            let mut used = BTreeSet::clone(used);
            change(&mut used);
            used
        });
    }
}
