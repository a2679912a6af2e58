//! The nodes of the broker: where their names lead, which is asked first, and what is known of them. `book` has the rules.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, join_all};
use serde::{Deserialize, Serialize};
use tokio::net::lookup_host;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use self::book::Book;
use super::clock::{Clock, SystemClock};
use crate::machine::Mono;
use crate::telemetry::Metrics;

mod book;

const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);
/// For a name with known addresses, which are kept on failure.
const REFRESH_TIMEOUT: Duration = Duration::from_millis(200);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    /// An IPv6 address has no brackets. A name may have several addresses.
    pub host: String,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    pub node: Node,
    pub at: SocketAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    RoundRobin,
    First,
}

pub type Resolver = Arc<dyn Fn(Node) -> LookingUp + Send + Sync>;
pub type LookingUp = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

#[derive(Clone)]
pub struct Nodes(Arc<Inner>);

struct Inner {
    all: Vec<Node>,
    resolver: Resolver,
    lookups: Mutex<BTreeMap<Node, Lookup>>,
    book: Mutex<Book>,
    metrics: Metrics,
    clock: SystemClock,
}

pub fn resolver() -> Resolver {
    Arc::new(|node: Node| {
        Box::pin(async move {
            let found = lookup_host((node.host.as_str(), node.port)).await;
            found.map(Iterator::collect)
        })
    })
}

/// Shared by all that wait: a resolver that hangs has one thread, not one per client.
#[derive(Clone)]
struct Lookup {
    since: Instant,
    answer: Shared<BoxFuture<'static, Result<(), Arc<io::Error>>>>,
}

// === impl Node ===

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

// === impl Address ===

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node.host.parse::<IpAddr>() {
            Ok(_) => self.node.fmt(f),
            Err(_) => write!(f, "{}({})", self.node, self.at.ip()),
        }
    }
}

// === impl Nodes ===

impl Nodes {
    pub fn new(all: &[Node], order: Order, metrics: Metrics) -> Nodes {
        Nodes::resolved_by(resolver(), all, order, metrics)
    }

    pub fn resolved_by(resolver: Resolver, all: &[Node], order: Order, metrics: Metrics) -> Nodes {
        let seed = RandomState::new().hash_one(std::process::id());
        Nodes(Arc::new(Inner {
            all: all.to_vec(),
            resolver,
            lookups: Mutex::default(),
            book: Mutex::new(Book::new(all, order, seed)),
            metrics,
            clock: SystemClock::start(),
        }))
    }

    /// Addresses in the order of attempts. Looks names up, and returns the failure of a lookup.
    pub(super) async fn in_order(&self) -> (Vec<Address>, Option<(Node, io::Error)>) {
        let nodes = self.0.all.iter();
        let lookups: Vec<_> = nodes.map(|node| (node, self.look_up(node))).collect();
        let any_known = self.book().knows_any();
        let answers = lookups.into_iter().map(|(node, lookup)| async move {
            let until = match any_known {
                true => lookup.since + REFRESH_TIMEOUT,
                false => Instant::now() + LOOKUP_TIMEOUT,
            };
            (node, lookup.answer(until).await)
        });
        let mut refused = None;
        for (node, answer) in join_all(answers).await {
            if let Err(error) = answer {
                debug!(%node, %error, "its name leads nowhere");
                refused = Some((node.clone(), error));
            }
        }
        let now = self.now();
        (self.book().in_order(now), refused)
    }

    fn look_up(&self, node: &Node) -> Lookup {
        let mut lookups = self.lookups();
        let going_on = |lookup: &&Lookup| lookup.answer.peek().is_none();
        if let Some(lookup) = lookups.get(node).filter(going_on) {
            return lookup.clone();
        }
        let found = (self.0.resolver)(node.clone());
        let (nodes, of) = (self.clone(), node.clone());
        let answer = async move { nodes.found(&of, found.await) };
        let lookup = Lookup {
            since: Instant::now(),
            answer: answer.boxed().shared(),
        };
        // An address needs no resolver, and so no task.
        if lookup.answer.clone().now_or_never().is_none() {
            tokio::spawn(lookup.answer.clone());
            lookups.insert(node.clone(), lookup.clone());
        }
        lookup
    }

    fn found(&self, node: &Node, found: io::Result<Vec<SocketAddr>>) -> Result<(), Arc<io::Error>> {
        for address in self.book().found(node, found?) {
            self.0.metrics.upstream_forgotten(&address);
        }
        Ok(())
    }

    pub(super) fn tries(&self, address: &Address) -> Mono {
        let now = self.now();
        self.book().tries(address, now);
        now
    }

    /// It refused, or was silent. `began`: from [`Nodes::tries`].
    pub(super) fn failed(&self, address: &Address, began: Mono, why: &dyn fmt::Display) {
        let now = self.now();
        let why = why.to_string();
        let news = self.book().failed(address, began, &why, now);
        self.0.metrics.upstream_failed(address, news, &why);
    }

    pub(super) fn answered(&self, address: &Address) {
        let news = self.book().answered(address);
        self.0.metrics.upstream_answered(address, news);
    }

    pub(super) fn opened(&self, address: &Address) {
        // Numbers are told in the order in which they were counted.
        let mut book = self.book();
        let open = book.opened(address);
        self.0.metrics.upstream_connections(address, Some(open));
    }

    pub(super) fn closed(&self, address: &Address) {
        let mut book = self.book();
        let left = book.closed(address);
        self.0.metrics.upstream_connections(address, left);
    }

    pub fn failing(&self) -> Vec<Address> {
        self.book().failing().cloned().collect()
    }

    pub(super) fn away(&self) -> Vec<String> {
        let now = self.now();
        self.book().away(now)
    }

    pub(super) fn now(&self) -> Mono {
        self.0.clock.now().mono
    }

    fn lookups(&self) -> MutexGuard<'_, BTreeMap<Node, Lookup>> {
        let lookups = &self.0.lookups;
        lookups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Lookup ===

impl Lookup {
    async fn answer(self, until: Instant) -> io::Result<()> {
        match timeout_at(until, self.answer).await {
            Ok(answer) => answer.map_err(|error| io::Error::new(error.kind(), error.to_string())),
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "no answer to its name",
            )),
        }
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Nodes").field(&self.0.all).finish()
    }
}
