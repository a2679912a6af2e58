//! Which publishes the proxy delays, and the exchanges that were declared as `x-delayed-message` where the broker does not know that type.
//!
//! Such an exchange has the type that its argument `x-delayed-type` names, and keeps that argument at the broker. So the management API
//! shows it, also after a restart and to other proxies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};

use crate::amqp::ids::{ShortStr, Vhost};
use crate::amqp::table::{Table, Value};

pub const TYPE: &[u8] = b"x-delayed-message";
pub const ARGUMENT: &[u8] = b"x-delayed-type";
/// Declared exchanges of all vhosts that are remembered. Above this number a declare is refused.
const MOST: usize = 10_000;

/// A header that delays a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DelayHeader {
    XDelay,
    XOptDeliveryTime,
}

/// The setting `delayed-publish`, and what is known of exchanges. Clones share that.
#[derive(Clone, Debug, Default)]
pub struct DelayedPublish {
    /// The header counts on delayed exchanges.
    pub x_delay: bool,
    /// The header `x-opt-delivery-time` counts on all exchanges.
    pub delivery_time: bool,
    pub exchanges: DelayedExchanges,
}

/// Replaced as a whole, without a lock.
#[derive(Clone, Debug, Default)]
pub struct DelayedExchanges {
    declared: Arc<ArcSwap<ByName>>,
    told: Arc<ArcSwap<ByName>>,
    has_plugin: Arc<AtomicBool>,
}

pub type ByName = BTreeMap<Vhost, BTreeMap<ShortStr, Routing>>;

/// How an exchange uses a routing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// By its words, for which a user needs a permission.
    Topic,
    Other,
}

// === impl DelayedPublish ===

impl DelayedPublish {
    pub fn of(headers: &[DelayHeader]) -> DelayedPublish {
        DelayedPublish {
            x_delay: headers.contains(&DelayHeader::XDelay),
            delivery_time: headers.contains(&DelayHeader::XOptDeliveryTime),
            exchanges: DelayedExchanges::default(),
        }
    }

    pub fn is_on(&self) -> bool {
        self.x_delay || self.delivery_time
    }

    /// Whether a publish there may have to be delayed.
    pub fn concerns(&self, vhost: &Vhost, exchange: &[u8]) -> bool {
        self.delivery_time || self.x_delay && self.exchanges.get(vhost, exchange).is_some()
    }
}

// === impl DelayedExchanges ===

impl DelayedExchanges {
    pub fn get(&self, vhost: &Vhost, exchange: &[u8]) -> Option<Routing> {
        let find = |all: &ByName| all.get(vhost)?.get(exchange).copied();
        find(&self.declared.load()).or_else(|| find(&self.told.load()))
    }

    /// False: there is no room for another one.
    pub fn has_room(&self, vhost: &Vhost, exchange: &[u8]) -> bool {
        let count = |all: &ByName| all.values().map(BTreeMap::len).sum::<usize>();
        self.get(vhost, exchange).is_some() || count(&self.declared.load()) < MOST
    }

    /// The broker has accepted a declare. `None`: of an ordinary exchange.
    pub fn declared(&self, vhost: &Vhost, exchange: &ShortStr, routing: Option<Routing>) {
        if self.get(vhost, exchange) == routing {
            return;
        }
        let change = |all: &Arc<ByName>| {
            let mut all = ByName::clone(all);
            let of_vhost = all.entry(vhost.clone()).or_default();
            match routing {
                Some(routing) => of_vhost.insert(exchange.clone(), routing),
                None => of_vhost.remove(exchange.as_bytes()),
            };
            all
        };
        self.declared.rcu(change);
        if routing.is_none() {
            self.told.rcu(change);
        }
    }

    /// By the management API. `has_plugin`: the broker knows the type, and delays by itself.
    pub fn told(&self, all: ByName, has_plugin: bool) {
        self.told.store(Arc::new(all));
        self.has_plugin.store(has_plugin, Ordering::Relaxed);
    }

    pub fn has_plugin(&self) -> bool {
        self.has_plugin.load(Ordering::Relaxed)
    }
}

// === impl Routing ===

impl Routing {
    /// From the type of the exchange.
    pub fn of(kind: &[u8]) -> Routing {
        match kind {
            b"topic" => Routing::Topic,
            _ => Routing::Other,
        }
    }
}

/// The type that such an exchange has in truth. `None`: the declare is invalid.
pub fn real_type(arguments: &[u8]) -> Option<&[u8]> {
    let value = Table(arguments).get(ARGUMENT).ok()??;
    Value::as_longstr(value).filter(|kind| !kind.is_empty() && *kind != TYPE)
}
