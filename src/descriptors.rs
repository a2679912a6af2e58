//! How many files and sockets the process may have open. The limit is taken as far as the system lets it go, and told in clients. Whoever
//! has set a number of clients is warned if an engine or systemd gave less than they need, as neither of them says so.

use rustix::process::{Resource, getrlimit, setrlimit};
use serde::{Serialize, Serializer};
use tracing::{debug, warn};

/// Its own connection, and one to the broker.
const PER_CLIENT: usize = 2;
/// The same for somebody at the admin port, who may have a queue looked into.
const PER_ADMIN: usize = 2;
/// Listeners, pollers, links and redrives.
const OWN: usize = 64;

/// Clients that are accepted where nobody has set a number, though more had room.
const MOST_BY_ITSELF: usize = 20_000;

/// How many clients may be connected at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    Auto,
    /// So many, as somebody has set it.
    Number(usize),
}

/// Raises the soft limit, which is 1,024 in many places, to the hard one.
pub fn raise() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            debug!(%error, "the limit on file descriptors stays as it is");
        }
    }
}

/// Warns if fewer clients fit than somebody has asked for.
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

/// How many clients are accepted at once: as many as the settings allow, but no more than have room. The others wait in the kernel's queue:
/// whoever was accepted without a descriptor for its connection to the broker would be closed.
pub fn permits(clients: Clients, max_admin_connections: usize) -> usize {
    let most = match clients {
        Clients::Auto => MOST_BY_ITSELF,
        Clients::Number(number) => number,
    };
    // Somebody is always served.
    most.min(room(max_admin_connections).1.max(1))
}

/// The limit, and how many clients have room beside all else.
pub fn room(max_admin_connections: usize) -> (usize, usize) {
    let limit = limit();
    (limit, clients(limit, max_admin_connections))
}

fn limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// How many clients have room beside all else.
fn clients(limit: usize, max_admin_connections: usize) -> usize {
    let others = max_admin_connections.saturating_mul(PER_ADMIN);
    limit.saturating_sub(OWN).saturating_sub(others) / PER_CLIENT
}

// === impl Clients ===

impl Clients {
    /// The number that somebody has set, if fewer have room.
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
