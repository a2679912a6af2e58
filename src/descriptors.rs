//! How many files and sockets the process may have open. The limit is taken as far as the system lets it go, and told in clients. Whoever
//! has set a number of clients is warned if an engine or systemd gave less than they need, as neither of them says so.

use rustix::process::{Resource, getrlimit, setrlimit};
use serde::{Serialize, Serializer};
use tracing::{debug, warn};

/// Its own connection, and one to the broker.
const PER_CLIENT: usize = 2;
/// An admin connection, and one to the broker for a look.
const PER_ADMIN: usize = 2;
/// Listeners, pollers, links and redrives.
const OWN: usize = 64;

const MOST_BY_ITSELF: usize = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    Auto,
    Number(usize),
}

/// Raises the soft limit, often 1,024, to the hard one.
pub fn raise() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            debug!(%error, "the limit on file descriptors stays as it is");
        }
    }
}

pub fn warn_of_few(clients: Clients, max_admin_connections: usize) {
    let (limit, room) = room(max_admin_connections);
    if let Some(max_connections) = clients.without_room(room) {
        warn!(
            limit,
            clients = room,
            max_connections,
            "the limit on file descriptors is lower than `max-connections` needs: more clients than that wait. Raise the limit, or set `max-connections` to a lower number or to \"auto\""
        );
    }
}

/// Concurrent clients: as configured, but not more than fit. Others wait in the kernel's queue. A
/// client without a descriptor for its broker connection would have to be closed.
pub fn permits(clients: Clients, max_admin_connections: usize) -> usize {
    let most = match clients {
        Clients::Auto => MOST_BY_ITSELF,
        Clients::Number(number) => number,
    };
    // Somebody is always served.
    most.min(room(max_admin_connections).1.max(1))
}

pub fn room(max_admin_connections: usize) -> (usize, usize) {
    let limit = limit();
    (limit, clients(limit, max_admin_connections))
}

fn limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

fn clients(limit: usize, max_admin_connections: usize) -> usize {
    let others = max_admin_connections.saturating_mul(PER_ADMIN);
    limit.saturating_sub(OWN).saturating_sub(others) / PER_CLIENT
}

// === impl Clients ===

impl Clients {
    /// The configured number, if it does not fit.
    pub fn without_room(self, room: usize) -> Option<usize> {
        match self {
            Clients::Number(number) if number > room => Some(number),
            Clients::Auto | Clients::Number(_) => None,
        }
    }
}

impl Serialize for Clients {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Clients::Auto => serializer.serialize_str("auto"),
            Clients::Number(number) => number.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::clients;

    #[test]
    fn a_client_takes_two_beside_what_the_proxy_needs_itself() {
        assert_eq!(clients(1_024, 64), 416);
        assert_eq!(clients(65_536, 64), 32_672);
        assert_eq!(clients(100, 64), 0);
        assert_eq!(clients(usize::MAX, usize::MAX), 0);
    }
}
