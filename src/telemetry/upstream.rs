//! What is told of the broker's nodes: how many connections each has, and which of them failed. The number of series is bounded, as the
//! number of known addresses is (`net/nodes/book.rs`).

use std::io;

use super::Metrics;
use super::metrics::number;
use super::series::Label;
use crate::net::nodes::Address;

impl Metrics {
    /// `open`: `None` removes the address.
    pub fn upstream_connections(&self, address: &Address, open: Option<usize>) {
        match open {
            Some(open) => {
                let connections = self.upstream_connections.with(labels(address));
                connections.set(number(open));
            }
            None => self.upstream_forgotten(address),
        }
    }

    /// `news`: it was healthy, or failed for another reason.
    pub fn upstream_failed(&self, address: &Address, news: bool, why: &str) {
        self.upstream_failures.with(labels(address)).inc();
        self.upstream_up.with(labels(address)).set(0);
        if news {
            line!(self, NODE_SILENT, format!("{address} {why}"), "", node = %address, cause = why);
        }
    }

    /// `news`: it had failed before.
    pub fn upstream_answered(&self, address: &Address, news: bool) {
        self.upstream_up.with(labels(address)).set(1);
        if news {
            line!(self, NODE_ANSWERS, String::new(), "", node = %address);
        }
    }

    pub fn upstream_forgotten(&self, address: &Address) {
        self.upstream_connections.remove(labels(address));
        self.upstream_failures.remove(labels(address));
        self.upstream_up.remove(labels(address));
    }

    pub fn upstream_tls_failed(&self, error: &io::Error) {
        line!(self, UPSTREAM_TLS_FAILED, error.to_string(), "", %error);
    }

    /// The system refused to accept waiting connections.
    pub fn cannot_accept(&self, error: &io::Error) {
        line!(self, CANNOT_ACCEPT, error.to_string(), "", %error);
    }
}

fn labels(address: &Address) -> [Label; 2] {
    [
        address.node.to_string().into(),
        address.at.to_string().into(),
    ]
}
