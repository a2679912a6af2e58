//! How many may ask at once, and for what: some connections are kept for what is open to all, so that a load of other requests does not stand
//! before the question whether the process works.

use crate::net::permits::{Permit, Permits};

/// Connections for those who ask what is open to all, and for those who have not asked yet; half of all at most.
const OPEN: usize = 8;

#[derive(Clone)]
pub struct Rooms {
    connections: Permits,
    requests: Permits,
}

// === impl Rooms ===

impl Rooms {
    /// For so many connections.
    pub fn new(connections: usize) -> Rooms {
        Rooms {
            connections: Permits::new(connections),
            requests: Permits::new(others(connections)),
        }
    }

    /// Changes how many there may be.
    pub fn change(&self, connections: usize) {
        self.connections.resize(connections);
        self.requests.resize(others(connections));
    }

    /// For a connection; `met` is called if it has to be waited for.
    pub(super) async fn connection(&self, met: impl FnOnce()) -> Permit {
        self.connections.acquire(met).await
    }

    /// For a request of another kind than those that are open to all, if there is one.
    pub(super) fn request(&self) -> Permit {
        self.requests.try_acquire()
    }
}

fn others(connections: usize) -> usize {
    connections - OPEN.min(connections / 2)
}
