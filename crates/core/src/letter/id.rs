//! What a letter is called by those who mean that one and no other.

use std::fmt;
use std::str::FromStr;

use ring::digest::{Context, SHA256};
use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::amqp::properties::{Properties, Property};
use crate::amqp::table::Table;
use crate::dead_letter::unparked;

use super::Letter;

/// A fingerprint of a message: the first 64 bits of a SHA-256 of exchange, routing key, properties
/// and body.
///
/// It is stable across looks, processes and versions. It excludes what the broker changes from look
/// to look: the position, the mark `redelivered`, and the headers in which a quorum queue counts
/// deliveries. Messages equal in all this share one id, which means all of them. Forging the id of
/// a given message takes 2⁶⁴ attempts. With a weaker hash, any publisher could have somebody else's
/// message removed together with its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an id has 16 hexadecimal digits")]
pub struct NoId;

/// The hash of a body, calculated piece by piece, so that the body need not be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyHash([u8; 32]);

pub struct Hash(Context);

// === impl Letter ===

impl Letter {
    pub fn id(&self) -> Id {
        let mut hash = Hash::default();
        hash.text(&self.exchange);
        hash.text(&self.routing_key);
        let properties = unparked::of_itself(&self.properties);
        match Properties::parse(&properties) {
            // A queue that counts deliveries gives a message the headers that it did not have before, so none is as good as an empty table.
            Ok(parsed) => {
                for (bit, value) in parsed.values() {
                    match value.get(4..).filter(|_| bit == Property::Headers as u16) {
                        Some([]) => {}
                        Some(headers) => hash.headers(headers),
                        None => {
                            hash.bytes(&bit.to_be_bytes());
                            hash.bytes(value);
                        }
                    }
                }
            }
            Err(_) => hash.bytes(&properties),
        }
        hash.bytes(&[0]);
        hash.bytes(&self.body_hash.0);
        let BodyHash([a, b, c, d, e, f, g, h, ..]) = hash.finish();
        Id(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }
}

// === impl Id ===

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Id {
    type Err = NoId;

    fn from_str(text: &str) -> Result<Id, NoId> {
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u64::from_str_radix(text, 16) {
            Ok(number) if digits => Ok(Id(number)),
            _ => Err(NoId),
        }
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

// === impl Hash ===

impl Hash {
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> BodyHash {
        let mut hash = [0; 32];
        hash.copy_from_slice(self.0.finish().as_ref());
        BodyHash(hash)
    }

    /// In any order: 3.x sorts the headers when it adds its count.
    fn headers(&mut self, table: &[u8]) {
        let fields: Result<Vec<_>, _> = Table(table).fields().collect();
        match fields {
            Ok(fields) => {
                let mut raw: Vec<_> = fields.iter().map(|field| field.raw).collect();
                raw.sort_unstable();
                raw.iter().for_each(|field| self.text(field));
            }
            Err(_) => self.text(table),
        }
    }

    /// With its length, so that two adjacent names cannot be mistaken for two others.
    fn text(&mut self, bytes: &[u8]) {
        self.bytes(&(bytes.len() as u64).to_be_bytes());
        self.bytes(bytes);
    }
}

impl Default for Hash {
    fn default() -> Hash {
        Hash(Context::new(&SHA256))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash")
    }
}

// === impl BodyHash ===

impl BodyHash {
    pub fn of(body: &[u8]) -> BodyHash {
        let mut hash = Hash::default();
        hash.bytes(body);
        hash.finish()
    }
}
