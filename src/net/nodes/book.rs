//! What is known of the addresses of the broker's nodes, and which of them is asked first: plain bookkeeping, with the time and a seed as
//! arguments.
//!
//! ```text
//!            failed                 the rest is over: one connection tries
//!  awake ──────────────▶ resting ─────────────────────────────────────────▶ on trial
//!    ▲                   ▲     ▲                                             │   │
//!    │                   │     └──── failed: the next rest is twice as long ─┘   │
//!    └───────────────────┴───────────────── the broker said something ───────────┘
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::{Address, Node, Order};
use crate::machine::Mono;

/// First rest of a failed address; doubles each time,
const FIRST: Duration = Duration::from_secs(1);
/// up to this. So at most one client per rest tries it, and waits a second at most for another
/// address.
const LONGEST: Duration = Duration::from_secs(30);
/// The first attempt after a rest is exclusive for this time.
const TRIAL: Duration = Duration::from_secs(5);
/// Addresses per name; more are no cluster.
const MOST_ADDRESSES: usize = 32;

#[derive(Debug)]
pub(super) struct Book {
    order: Order,
    turn: usize,
    random: u64,
    /// In the order of the settings. A name keeps its addresses while lookups fail.
    found: Vec<(Node, Vec<SocketAddr>)>,
    known: BTreeMap<Address, Standing>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) connections: usize,
    failures: u32,
    failed: Mono,
    since: Mono,
    why: String,
    rests_until: Mono,
}

// === impl Book ===

impl Book {
    pub(super) fn new(nodes: &[Node], order: Order, seed: u64) -> Book {
        let found = nodes.iter().map(|node| (node.clone(), Vec::new()));
        let mut book = Book {
            order,
            turn: 0,
            random: seed,
            found: found.collect(),
            known: BTreeMap::new(),
        };
        // Many proxies that start together do not all begin with the same node.
        book.turn = usize::try_from(book.draw() >> 1).unwrap_or_default();
        book
    }

    /// Result of a lookup. Forgets and returns old addresses without open connections.
    pub(super) fn found(&mut self, node: &Node, mut addresses: Vec<SocketAddr>) -> Vec<Address> {
        // Servers of names turn the order at each question; where the order is to count, the settings name the nodes one by one.
        addresses.sort_unstable();
        addresses.dedup();
        addresses.truncate(MOST_ADDRESSES);
        let Some((_, known)) = self.found.iter_mut().find(|(of, _)| of == node) else {
            return Vec::new();
        };
        *known = addresses;
        let gone = |(address, standing): (&Address, &Standing)| {
            let stays = address.node != *node || known.contains(&address.at);
            (!stays && standing.connections == 0).then(|| address.clone())
        };
        let gone: Vec<_> = self.known.iter().filter_map(gone).collect();
        for address in &gone {
            self.known.remove(address);
        }
        gone
    }

    pub(super) fn knows_any(&self) -> bool {
        self.found
            .iter()
            .any(|(_, addresses)| !addresses.is_empty())
    }

    /// Resting addresses come last, the soonest available first.
    pub(super) fn in_order(&mut self, now: Mono) -> Vec<Address> {
        let all = self.found.iter().flat_map(|(node, addresses)| {
            addresses.iter().map(|at| Address {
                node: node.clone(),
                at: *at,
            })
        });
        let until = |address: &Address| {
            let standing = self.known.get(address)?;
            standing.rests(now).then_some(standing.rests_until)
        };
        let (mut awake, mut resting): (Vec<_>, Vec<_>) =
            all.partition(|address| until(address).is_none());
        resting.sort_by_key(until);
        match self.order {
            Order::First => {}
            Order::RoundRobin => {
                self.turn = self.turn.wrapping_add(1);
                let first = self.turn % awake.len().max(1);
                awake.rotate_left(first);
            }
        }
        awake.append(&mut resting);
        awake
    }

    pub(super) fn tries(&mut self, address: &Address, now: Mono) {
        let standing = self.known.entry(address.clone()).or_default();
        if standing.failures > 0 && !standing.rests(now) {
            standing.rests_until = now.after(TRIAL);
        }
    }

    /// It refused, or was silent, to an attempt of `began`. True if that is news: it was healthy,
    /// or failed for another reason.
    pub(super) fn failed(&mut self, address: &Address, began: Mono, why: &str, now: Mono) -> bool {
        let jitter = self.draw() % 512;
        let Some(standing) = self.known.get_mut(address) else {
            return false;
        };
        // Many that tried at once are one failure.
        if standing.failures > 0 && began < standing.failed {
            return false;
        }
        let longest = FIRST
            .saturating_mul(1 << standing.failures.min(16))
            .min(LONGEST);
        // Less up to a half, so that many proxies do not come back at once.
        let rest = longest - longest.mul_f64(jitter as f64 / 1024.0);
        standing.failures = standing.failures.saturating_add(1);
        standing.failed = now;
        if standing.failures == 1 {
            standing.since = now;
        }
        standing.rests_until = now.after(rest);
        let is_news = standing.failures == 1 || standing.why != why;
        standing.why = why.to_owned();
        is_news
    }

    pub(super) fn answered(&mut self, address: &Address) -> bool {
        let Some(standing) = self.known.get_mut(address) else {
            return false;
        };
        standing.rests_until = Mono::default();
        std::mem::take(&mut standing.failures) > 0
    }

    pub(super) fn opened(&mut self, address: &Address) -> usize {
        let standing = self.known.entry(address.clone()).or_default();
        standing.connections += 1;
        standing.connections
    }

    /// Returns the number left; `None` if the address is forgotten.
    pub(super) fn closed(&mut self, address: &Address) -> Option<usize> {
        let standing = self.known.get_mut(address)?;
        standing.connections = standing.connections.saturating_sub(1);
        let left = standing.connections;
        let of = |(node, addresses): &(Node, Vec<SocketAddr>)| {
            *node == address.node && addresses.contains(&address.at)
        };
        if left == 0 && !self.found.iter().any(of) {
            self.known.remove(address);
            return None;
        }
        Some(left)
    }

    pub(super) fn failing(&self) -> impl Iterator<Item = &Address> {
        let failing = self
            .known
            .iter()
            .filter(|(_, standing)| standing.failures > 0);
        failing.map(|(address, _)| address)
    }

    pub(super) fn away(&self, now: Mono) -> Vec<String> {
        let known = self.known.iter();
        let failing = known.filter(|(_, standing)| standing.failures > 0);
        failing
            .map(|(address, Standing { since, why, .. })| {
                let seconds = since.until(now).as_secs();
                format!("node {address} has been away for {seconds} s ({why})")
            })
            .collect()
    }

    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

// === impl Standing ===

impl Standing {
    fn rests(&self, now: Mono) -> bool {
        now < self.rests_until
    }
}

#[cfg(test)]
mod tests;
