//! What is told of the broker's nodes: how many connections each has, and which of them failed. The number of series is bounded, as the
//! number of known addresses is (`net/nodes/book.rs`).

use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tracing::{info, warn};

use super::Metrics;
use crate::net::nodes::Address;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct AddressLabels {
    node: String,
    address: String,
}

pub(super) type AddressGauge = Family<AddressLabels, Gauge>;
pub(super) type AddressCounter = Family<AddressLabels, Counter>;

impl Metrics {
    /// Sets how many connections are open to an address; `None`: nobody will connect to it again.
    pub fn upstream_connections(&self, address: &Address, open: Option<usize>) {
        match open {
            Some(open) => {
                let open = i64::try_from(open).unwrap_or(i64::MAX);
                let connections = &self.inner().upstream_connections;
                connections.get_or_create(&labels(address)).set(open);
            }
            None => self.upstream_forgotten(address),
        }
    }

    /// An attempt failed there; `news`: it was thought well of, or failed for another reason.
    pub fn upstream_failed(&self, address: &Address, news: bool, why: &str) {
        let inner = self.inner();
        let labels = labels(address);
        inner.upstream_failures.get_or_create(&labels).inc();
        inner.upstream_up.get_or_create(&labels).set(0);
        let what = "a node of the broker does not answer";
        if news
            && let Some(held_back) = inner
                .repeats
                .write((what, format!("{address} {why}"), ""), Instant::now())
        {
            let held_back = (held_back > 0).then_some(held_back);
            warn!(node = %address, cause = why, held_back, "{what}");
        }
    }

    /// The broker said something there; `news`: it had failed before.
    pub fn upstream_answered(&self, address: &Address, news: bool) {
        let up = &self.inner().upstream_up;
        up.get_or_create(&labels(address)).set(1);
        if news {
            info!(node = %address, "a node of the broker answers again");
        }
    }

    /// Its name no longer leads there.
    pub fn upstream_forgotten(&self, address: &Address) {
        let (inner, labels) = (self.inner(), labels(address));
        inner.upstream_connections.remove(&labels);
        inner.upstream_failures.remove(&labels);
        inner.upstream_up.remove(&labels);
    }
}

fn labels(address: &Address) -> AddressLabels {
    AddressLabels {
        node: address.node.to_string(),
        address: address.at.to_string(),
    }
}
