//! The bytes that all machines together may retain.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that all machines together may retain: a shared counter without a lock.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Bytes>);

#[derive(Debug)]
struct Bytes {
    limit: AtomicUsize,
    used: AtomicUsize,
}

impl Budget {
    pub fn new(limit: usize) -> Budget {
        Budget(Arc::new(Bytes {
            limit: AtomicUsize::new(limit),
            used: AtomicUsize::new(0),
        }))
    }

    pub fn set_limit(&self, limit: usize) {
        self.0.limit.store(limit, Ordering::Relaxed);
    }

    #[must_use]
    pub fn take(&self, bytes: usize) -> bool {
        let limit = self.0.limit.load(Ordering::Relaxed);
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit);
        self.0
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .is_ok()
    }

    pub fn give(&self, bytes: usize) {
        self.0.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }
}
