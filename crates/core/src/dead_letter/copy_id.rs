//! `x-copy-id`: what the proxy publishes more than once has the same one each time, so a consumer can drop the double.
//!
//! A death gives a new one. A retry and a redrive keep the one that the message has, and only give one where there is none. So
//! nothing is derived from the content: two messages that look the same never share one.

use bytes::Bytes;
use ring::digest::{Context, SHA256};

use crate::amqp::cursor::Malformed;
use crate::amqp::properties::Properties;
use crate::amqp::table::Table;
use crate::machine::{Mono, Publication, Purpose};

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

    /// For what is published first. Without room in its frame (`frame_max`, 0: no limit) it gets
    /// none.
    pub fn put(&mut self, publication: &mut Publication, frame_max: usize) {
        let is_death = match publication.purpose {
            Purpose::Death | Purpose::Park(_) => true,
            Purpose::Delay(_)
            | Purpose::Publish
            | Purpose::Return
            | Purpose::Unpark
            | Purpose::Redrive => false,
            Purpose::Tail => return,
        };
        let content = &mut publication.content;
        // What it has stays; and what cannot be read is the broker's to judge.
        let Ok(Some(named)) = self.named(&content.properties, is_death) else {
            return;
        };
        let named = content.with_properties(named);
        if frame_max == 0 || named.header_frame() <= frame_max {
            *content = named;
        } else if let Some(without) = without(&content.properties) {
            // The id of an earlier death would be wrong.
            content.properties = without;
        }
    }

    fn named(&mut self, properties: &[u8], is_death: bool) -> Result<Option<Bytes>, Malformed> {
        let parsed = Properties::parse(properties)?;
        let table = Table(parsed.headers().unwrap_or_default());
        if !is_death && table.get(X_COPY_ID)?.is_some() {
            return Ok(None);
        }
        self.given += 1;
        let id = format!("{}-{:x}", self.own, self.given);
        let mut edit = HeaderEdit::default();
        edit.longstr(X_COPY_ID, id.as_bytes());
        let headers = edit.apply(table, |name| name != X_COPY_ID)?;
        Ok(Some(parsed.with_headers(headers)))
    }
}

fn without(properties: &[u8]) -> Option<Bytes> {
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
            ids.extend((0..100).filter_map(|_| given.named(&[0, 0], true).expect("sound")));
        }
        assert_eq!(ids.len(), 400);
    }
}
