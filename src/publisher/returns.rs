//! `basic.return` carries no tag (S8.2): it is matched with what was published, by exchange, key, body and headers.
//!
//! 4.x returns the headers re-encoded: sorted by name, without duplicates, `L` as `l`; and BCC is gone on every version. So headers are
//! compared as maps, and nested values by type and size where their bytes differ. Should even that find nothing, equal exchange, key and
//! body decide: such messages are routed alike.

use std::collections::BTreeMap;

use crate::amqp::content::{Assembly, Content};
use crate::amqp::ids::ShortStr;
use crate::amqp::method::Return;
use crate::amqp::properties::Properties;
use crate::amqp::table::{Table, Value};

/// A return whose content is still coming.
#[derive(Debug)]
pub(super) struct Returning {
    exchange: ShortStr,
    routing_key: ShortStr,
    assembly: Option<Assembly>,
}

/// A return, whole.
#[derive(Debug)]
pub(super) struct Returned {
    pub(super) exchange: ShortStr,
    pub(super) routing_key: ShortStr,
    pub(super) content: Content,
}

/// What contents whose headers are alike have in common. To find one among many, all others need not be compared, whatever size their headers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest(u64);

// === impl Returning ===

impl Returning {
    /// Begins with the method.
    pub(super) fn begin(payload: &[u8]) -> Option<Returning> {
        let view = Return::parse(payload).ok()?;
        Some(Returning {
            exchange: ShortStr::copy(view.exchange)?,
            routing_key: ShortStr::copy(view.routing_key)?,
            assembly: None,
        })
    }

    /// The content header. `limit`: no message that we have in flight is larger.
    pub(super) fn header(&mut self, payload: &[u8], limit: usize) -> bool {
        self.assembly = Assembly::begin(payload, limit);
        self.assembly.is_some()
    }

    /// A body frame.
    pub(super) fn body(&mut self, payload: &[u8]) {
        if let Some(assembly) = &mut self.assembly {
            assembly.push(payload);
        }
    }

    /// True when its last frame has come.
    pub(super) fn is_whole(&self) -> bool {
        self.assembly.as_ref().is_some_and(Assembly::is_complete)
    }

    /// The return.
    pub(super) fn finish(self) -> Option<Returned> {
        Some(Returned {
            exchange: self.exchange,
            routing_key: self.routing_key,
            content: self.assembly?.finish(),
        })
    }
}

// === impl Digest ===

impl Digest {
    /// That of a content; of headers that cannot be read, the same for all.
    pub(super) fn of(content: &Content) -> Digest {
        let properties = Properties::parse(&content.properties).ok();
        let headers = properties.and_then(|properties| map(properties.headers()));
        Digest(headers.map_or(0, |headers| digest(&headers)))
    }
}

// === impl Returned ===

impl Returned {
    /// Whether this was published to that exchange with that key and body.
    pub(super) fn fits(
        &self,
        exchange: &ShortStr,
        routing_key: &ShortStr,
        content: &Content,
    ) -> bool {
        self.routing_key == *routing_key
            && self.exchange == *exchange
            && self.content.body == content.body
    }

    /// Whether its headers are those of that content.
    pub(super) fn has_headers_of(&self, content: &Content) -> bool {
        if self.content.properties == content.properties {
            return true;
        }
        let ours = Properties::parse(&content.properties);
        let theirs = Properties::parse(&self.content.properties);
        let (Ok(ours), Ok(theirs)) = (ours, theirs) else {
            return false;
        };
        match (map(ours.headers()), map(theirs.headers())) {
            (Some(ours), Some(theirs)) => {
                ours.len() == theirs.len()
                    && ours
                        .iter()
                        .zip(&theirs)
                        .all(|(ours, theirs)| ours.0 == theirs.0 && alike(*ours.1, *theirs.1))
            }
            _ => false,
        }
    }
}

/// A header table as a map; of duplicates the first counts.
fn map(headers: Option<&[u8]>) -> Option<BTreeMap<&[u8], Value<'_>>> {
    let mut map = BTreeMap::new();
    for field in Table(headers.unwrap_or_default()).fields() {
        let field = field.ok()?;
        if field.name != b"BCC" {
            map.entry(field.name).or_insert(field.value);
        }
    }
    Some(map)
}

/// Nested values by type and size, the others by their bytes, as [`alike`].
fn digest(headers: &BTreeMap<&[u8], Value<'_>>) -> u64 {
    // FNV-1a
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            digest = (digest ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    };
    for (name, value) in headers {
        add(&name.len().to_be_bytes());
        add(name);
        add(&[plain(value.tag)]);
        add(&value.data.len().to_be_bytes());
        if !is_nested(value.tag) {
            add(value.data);
        }
    }
    digest
}

fn plain(tag: u8) -> u8 {
    if tag == b'L' { b'l' } else { tag }
}

fn is_nested(tag: u8) -> bool {
    matches!(tag, b'F' | b'A')
}

fn alike(ours: Value<'_>, theirs: Value<'_>) -> bool {
    plain(ours.tag) == plain(theirs.tag)
        && (ours.data == theirs.data || is_nested(ours.tag) && ours.data.len() == theirs.data.len())
}
