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

/// How closely a publication must resemble a return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Likeness {
    /// Headers too.
    Whole,
    /// Exchange, key and body.
    Route,
}

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

// === impl Returned ===

impl Returned {
    /// Whether this was published to that exchange with that key and content. The cheap comparisons come first.
    pub(super) fn fits(
        &self,
        exchange: &ShortStr,
        routing_key: &ShortStr,
        content: &Content,
        likeness: Likeness,
    ) -> bool {
        self.routing_key == *routing_key
            && self.exchange == *exchange
            && self.content.body == content.body
            && (likeness == Likeness::Route || self.has_headers_of(content))
    }

    fn has_headers_of(&self, content: &Content) -> bool {
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

fn alike(ours: Value<'_>, theirs: Value<'_>) -> bool {
    let tag = |tag| if tag == b'L' { b'l' } else { tag };
    let nested = matches!(ours.tag, b'F' | b'A');
    tag(ours.tag) == tag(theirs.tag)
        && (ours.data == theirs.data || nested && ours.data.len() == theirs.data.len())
}
