//! How many may ask at once, and for what: some connections are kept for what is open to all, so that a load of other requests does not stand
//! before the question whether the process works.

use crate::net::permits::{Permit, Permits};

/// Connections for open paths, and for peers without a request yet; at most half of all.
const OPEN: usize = 8;

#[derive(Clone)]
pub struct Rooms {
    connections: Permits,
    requests: Permits,
}

// === impl Rooms ===

impl Rooms {
    pub fn new(connections: usize) -> Rooms {
        Rooms {
            connections: Permits::new(connections),
            requests: Permits::new(others(connections)),
        }
    }

    pub fn change(&self, connections: usize) {
        self.connections.resize(connections);
        self.requests.resize(others(connections));
    }

    /// Calls `met` if it has to wait.
    pub(super) async fn connection(&self, met: impl FnOnce()) -> Permit {
        self.connections.acquire(met).await
    }

    pub(super) fn request(&self) -> Permit {
        self.requests.try_acquire()
    }
}

fn others(connections: usize) -> usize {
    connections - OPEN.min(connections / 2)
}
