//! `basic.return` carries no tag (S8.2): it is matched with what was published, by exchange, key, properties, headers and body.
//!
//! 4.x returns the headers re-encoded, at every depth: sorted by name, without duplicates, `L` as `l`; and BCC is gone on every version. So tables
//! are compared as maps. What a broker can be told to add to each message (its interceptors for time and node) is left out on both sides. Should nothing
//! fit, the broker changed the message in a way that nobody here knows: then whatever it may have been counts as returned ([`mark`]).

use std::collections::BTreeMap;

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::amqp::incoming::Incoming;
use crate::amqp::method::Return;
use crate::amqp::properties::{Properties, Property};
use crate::amqp::table::{Array, Table, Value};

use super::channel::Attempt;
use super::item::Item;
use super::store::Store;

/// Arrival time and node: `message_interceptors.incoming` of 4.x, `incoming_message_interceptors`
/// since 3.12, plugins before. The first also sets the property `timestamp`.
const TIME: &[u8] = b"timestamp_in_ms";
const NODE: &[u8] = b"x-routed-by";
const TIMESTAMP: u16 = 6;
/// Deeper tables are compared by type and size.
const DEEPEST: usize = 16;

#[derive(Debug)]
pub(super) struct Returning {
    exchange: ShortStr,
    routing_key: ShortStr,
}

#[derive(Debug)]
pub(super) struct Returned {
    pub(super) exchange: ShortStr,
    pub(super) routing_key: ShortStr,
    pub(super) content: Content,
}

/// Equal for contents with equal headers. Finds one among many without comparing the others,
/// however large their headers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest(u64);

/// After a complete return: marks the returned publish. If none matches, the broker has changed it
/// (an interceptor, an exchange): then all candidates count as returned, by what can still be
/// compared. So some may be parked that did arrive, and none is lost.
pub(super) fn mark(store: &mut Store, at: usize, parking: &ShortStr) {
    let channel = store.channels.get(at);
    let whole = channel.returning.take_if(|returning| returning.is_whole());
    let Some(returned) = whole.and_then(Returned::new) else {
        return;
    };
    let went_to = |item: &Item, attempt: &Attempt| {
        let exchange = item.exchange(attempt.stage, parking);
        returned.went_to(exchange, &item.publication.routing_key)
    };
    let digest = Digest::of(&returned.content);
    let items = &mut store.items;
    let found = channel.mark_returned(|attempt| {
        let item = items.get_mut(attempt.key);
        item.is_some_and(|item| {
            item.digest() == digest
                && went_to(item, attempt)
                && returned.is(&item.publication.content)
        })
    });
    if found {
        return;
    }
    let same_body = |item: &Item, attempt: &Attempt| {
        let content = &item.publication.content;
        content.body == returned.content.body && went_to(item, attempt)
    };
    let mut mark = |fits: &dyn Fn(&Item, &Attempt) -> bool| {
        channel.mark_all_returned(|attempt| {
            let item = items.get(attempt.key);
            item.is_some_and(|item| fits(item, attempt))
        })
    };
    let _ = mark(&same_body) || mark(&went_to) || mark(&|_, _| true);
}

// === impl Returning ===

impl Returning {
    pub(super) fn parse(payload: &[u8]) -> Option<Returning> {
        let view = Return::parse(payload).ok()?;
        Some(Returning {
            exchange: ShortStr::copy(view.exchange)?,
            routing_key: ShortStr::copy(view.routing_key)?,
        })
    }
}

// === impl Digest ===

impl Digest {
    /// Equal for all contents with unreadable headers.
    pub(super) fn of(content: &Content) -> Digest {
        let properties = Properties::parse(&content.properties).ok();
        let headers = properties.as_ref().and_then(headers);
        Digest(headers.map_or(0, |headers| digest(&headers)))
    }
}

// === impl Returned ===

impl Returned {
    pub(super) fn new(incoming: Incoming<Returning>) -> Option<Returned> {
        let (
            Returning {
                exchange,
                routing_key,
            },
            content,
        ) = incoming.finish();
        Some(Returned {
            exchange,
            routing_key,
            content: content?,
        })
    }

    pub(super) fn went_to(&self, exchange: &ShortStr, routing_key: &ShortStr) -> bool {
        self.routing_key == *routing_key && self.exchange == *exchange
    }

    /// Whether it is that content, apart from what brokers change and add.
    pub(super) fn is(&self, content: &Content) -> bool {
        if self.content.body != content.body {
            return false;
        }
        if self.content.properties == content.properties {
            return true;
        }
        let ours = Properties::parse(&content.properties);
        let theirs = Properties::parse(&self.content.properties);
        let (Ok(ours), Ok(theirs)) = (ours, theirs) else {
            return false;
        };
        let stamped = Table(theirs.headers().unwrap_or_default())
            .get(TIME)
            .is_ok_and(|time| time.is_some());
        let compared = |&(bit, _): &(u16, &[u8])| {
            bit != Property::Headers as u16 && !(stamped && bit == TIMESTAMP)
        };
        ours.values()
            .filter(compared)
            .eq(theirs.values().filter(compared))
            && match (headers(&ours), headers(&theirs)) {
                (Some(ours), Some(theirs)) => alike_maps(&ours, &theirs, 0),
                _ => false,
            }
    }
}

type Map<'a> = BTreeMap<&'a [u8], Value<'a>>;

fn headers<'a>(properties: &Properties<'a>) -> Option<Map<'a>> {
    let mut map = map(properties.headers().unwrap_or_default())?;
    map.retain(|name, _| !matches!(*name, b"BCC" | TIME | NODE));
    Some(map)
}

/// The first of duplicate names counts.
fn map(table: &[u8]) -> Option<Map<'_>> {
    let mut map = BTreeMap::new();
    for field in Table(table).fields() {
        let field = field.ok()?;
        map.entry(field.name).or_insert(field.value);
    }
    Some(map)
}

/// Nested values count by type, others by their bytes.
fn digest(headers: &Map<'_>) -> u64 {
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
        if !matches!(value.tag, b'F' | b'A') {
            add(&value.data.len().to_be_bytes());
            add(value.data);
        }
    }
    digest
}

fn plain(tag: u8) -> u8 {
    if tag == b'L' { b'l' } else { tag }
}

fn alike_maps(ours: &Map<'_>, theirs: &Map<'_>, depth: usize) -> bool {
    let both = ours.iter().zip(theirs);
    ours.len() == theirs.len()
        && both
            .into_iter()
            .all(|(ours, theirs)| ours.0 == theirs.0 && alike(*ours.1, *theirs.1, depth))
}

fn alike(ours: Value<'_>, theirs: Value<'_>, depth: usize) -> bool {
    if plain(ours.tag) != plain(theirs.tag) {
        return false;
    }
    if ours.data == theirs.data {
        return true;
    }
    match ours.tag {
        b'F' | b'A' if depth >= DEEPEST => ours.data.len() == theirs.data.len(),
        b'F' => match (map(ours.data), map(theirs.data)) {
            (Some(ours), Some(theirs)) => alike_maps(&ours, &theirs, depth + 1),
            _ => false,
        },
        b'A' => {
            let mut theirs = Array(theirs.data).values();
            Array(ours.data)
                .values()
                .all(|ours| match (ours, theirs.next()) {
                    (Ok(ours), Some(Ok(theirs))) => alike(ours, theirs, depth + 1),
                    _ => false,
                })
                && theirs.next().is_none()
        }
        _ => false,
    }
}
