//! `x-copy-id`: what the proxy publishes more than once has the same one each time, so a consumer can drop the double.
//!
//! A death gives a new one. A retry and a redrive keep the one that the message has, and only give one where there is none. So
//! nothing is derived from the content: two messages that look the same never share one.

use bytes::Bytes;
use memchr::memmem;
use ring::digest::{Context, SHA256};

use crate::amqp::properties::Properties;
use crate::amqp::table::Table;
use crate::machine::{Mono, Purpose};

use super::headers::HeaderEdit;
use super::hex;

pub const X_COPY_ID: &[u8] = b"x-copy-id";

/// Gives each id once. Its own part differs from those of other processes by their seeds, and
/// within a process by vhost and time.
#[derive(Debug)]
pub struct CopyIds {
    own: String,
    given: u64,
}

// === impl CopyIds ===

impl CopyIds {
    pub fn new(seed: u64, vhost: &[u8], now: Mono) -> CopyIds {
        let mut hash = Context::new(&SHA256);
        hash.update(&seed.to_be_bytes());
        hash.update(&now.0.to_be_bytes());
        hash.update(vhost);
        let hash = hash.finish();
        CopyIds {
            own: hex::digits(hash.as_ref().get(..8).unwrap_or_default()),
            given: 0,
        }
    }

    /// For what is published first. `None`: it stays as it is.
    pub fn put(&mut self, properties: &[u8], purpose: Purpose) -> Option<Bytes> {
        let is_death = match purpose {
            Purpose::Death | Purpose::Park(_) => true,
            Purpose::Delay(_) | Purpose::Return | Purpose::Unpark | Purpose::Redrive => false,
            Purpose::Tail => return None,
        };
        let parsed = Properties::parse(properties).ok()?;
        let table = Table(parsed.headers().unwrap_or_default());
        if !is_death && table.get(X_COPY_ID).ok()?.is_some() {
            return None;
        }
        self.given += 1;
        let id = format!("{}-{:x}", self.own, self.given);
        let mut edit = HeaderEdit::default();
        edit.longstr(X_COPY_ID, id.as_bytes());
        let headers = edit.apply(table, |name| name != X_COPY_ID).ok()?;
        Some(parsed.with_headers(headers))
    }
}

/// The same without an id. `None`: it has none.
pub fn without(properties: &[u8]) -> Option<Bytes> {
    memmem::find(properties, X_COPY_ID)?;
    let parsed = Properties::parse(properties).ok()?;
    let headers = Table(parsed.headers()?).without(|name| name == X_COPY_ID)?;
    Some(parsed.with_headers(headers))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_are_equal() {
        let mut ids = BTreeSet::new();
        for (seed, vhost, at) in [(1, "/", 0), (2, "/", 0), (1, "a", 0), (1, "/", 1)] {
            let mut given = CopyIds::new(seed, vhost.as_bytes(), Mono(at));
            ids.extend((0..100).filter_map(|_| given.put(&[0, 0], Purpose::Death)));
        }
        assert_eq!(ids.len(), 400);
    }
}
