//! Basic properties: finds each in the raw bytes, and writes them anew with headers, expiration or user-id changed.
//!
//! An edit copies every other property as it is. Source: the specification's class `basic`; property flags per 4.2.6.1.

use std::ops::Range;

use bytes::Bytes;

use super::cursor::{Cursor, Malformed};
use super::table::Table;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    Headers = 13,
    Priority = 11,
    Expiration = 8,
    UserId = 4,
}

/// The wire type of each property, from the highest flag bit (15, content-type) to the lowest (2,
/// cluster-id).
const LAYOUT: [(u16, Type); 14] = [
    (15, Type::Shortstr),
    (14, Type::Shortstr),
    (13, Type::Table),
    (12, Type::Octet),
    (11, Type::Octet),
    (10, Type::Shortstr),
    (9, Type::Shortstr),
    (8, Type::Shortstr),
    (7, Type::Shortstr),
    (6, Type::Longlong),
    (5, Type::Shortstr),
    (4, Type::Shortstr),
    (3, Type::Shortstr),
    (2, Type::Shortstr),
];

/// Names in the order of [`LAYOUT`].
const NAMES: [&str; 14] = [
    "content-type",
    "content-encoding",
    "headers",
    "delivery-mode",
    "priority",
    "correlation-id",
    "reply-to",
    "expiration",
    "message-id",
    "timestamp",
    "type",
    "user-id",
    "app-id",
    "cluster-id",
];

#[derive(Clone, Copy)]
enum Type {
    Shortstr,
    Table,
    Octet,
    Longlong,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain<'a> {
    /// A shortstr, without its length octet.
    Text(&'a [u8]),
    Octet(u8),
    Time(u64),
    Table(Table<'a>),
}

/// Properties as they are on the wire: two octets of flags, then the values.
#[derive(Clone, Debug)]
pub struct Properties<'a> {
    raw: &'a [u8],
    flags: u16,
    /// Range of each [`Property`] in `raw`, with its length octets.
    spans: [Option<Range<usize>>; 4],
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Change {
    #[default]
    Keep,
    Remove,
    /// This value, without its length octets.
    Set(Vec<u8>),
}

#[derive(Clone, Debug, Default)]
pub struct Edit {
    pub headers: Change,
    pub priority: Change,
    pub expiration: Change,
    pub user_id: Change,
}

/// Whether these properties (from the flags on) include a header table. Parses nothing.
pub fn has_headers(properties: &[u8]) -> bool {
    properties
        .first()
        .is_some_and(|flags| flags & (1 << (Property::Headers as u8 - 8)) != 0)
}

// === impl Property ===

impl Property {
    const ALL: [Property; 4] = [
        Property::Headers,
        Property::Priority,
        Property::Expiration,
        Property::UserId,
    ];

    fn slot(self) -> usize {
        match self {
            Property::Headers => 0,
            Property::Priority => 1,
            Property::Expiration => 2,
            Property::UserId => 3,
        }
    }
}

// === impl Type ===

impl Type {
    fn skip(self, cursor: &mut Cursor<'_>) -> Result<(), Malformed> {
        match self {
            Type::Shortstr => cursor.shortstr().map(drop),
            Type::Table => cursor.longstr().map(drop),
            Type::Octet => cursor.octet().map(drop),
            Type::Longlong => cursor.longlong().map(drop),
        }
    }

    /// A value with its length octets.
    fn read(self, value: &[u8]) -> Option<Plain<'_>> {
        let mut cursor = Cursor::new(value);
        let plain = match self {
            Type::Shortstr => cursor.shortstr().map(Plain::Text),
            Type::Table => cursor.longstr().map(|members| Plain::Table(Table(members))),
            Type::Octet => cursor.octet().map(Plain::Octet),
            Type::Longlong => cursor.longlong().map(Plain::Time),
        };
        plain.ok()
    }
}

// === impl Properties ===

impl<'a> Properties<'a> {
    /// Parses properties: `raw` begins with the flags and ends with the last value.
    ///
    /// RabbitMQ ignores the two unused flags, even the one that should announce more flags, so this
    /// parser does too: 3.x delivers them unchanged.
    ///
    /// # Errors
    /// When a value is cut or bytes are left over.
    pub fn parse(raw: &'a [u8]) -> Result<Properties<'a>, Malformed> {
        let mut cursor = Cursor::new(raw);
        let flags = cursor.short()?;
        let mut spans = [const { None }; 4];
        for (bit, kind) in LAYOUT {
            if flags & (1 << bit) == 0 {
                continue;
            }
            let from = raw.len() - cursor.rest().len();
            kind.skip(&mut cursor)?;
            let span = from..raw.len() - cursor.rest().len();
            for property in Property::ALL {
                if bit == property as u16 {
                    spans[property.slot()] = Some(span.clone());
                }
            }
        }
        if !cursor.is_empty() {
            return Err(Malformed);
        }
        Ok(Properties { raw, flags, spans })
    }

    pub fn get(&self, property: Property) -> Option<&'a [u8]> {
        let span = self.spans[property.slot()].clone()?;
        let length = match property {
            Property::Headers => 4,
            Property::Priority => 0,
            Property::Expiration | Property::UserId => 1,
        };
        self.raw.get(span.start + length..span.end)
    }

    pub fn headers(&self) -> Option<&'a [u8]> {
        self.get(Property::Headers)
    }

    /// Flag bit and value (with length octets) of each property that is present.
    pub fn values(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        let (mut cursor, flags) = (Cursor::new(self.raw), self.flags);
        let mut rest = cursor.take(2).map(|_| cursor.rest()).unwrap_or_default();
        let there = LAYOUT
            .into_iter()
            .filter(move |(bit, _)| flags & (1 << bit) != 0);
        there.map_while(move |(bit, kind)| {
            let mut cursor = Cursor::new(rest);
            kind.skip(&mut cursor).ok()?;
            let (value, behind) = rest.split_at_checked(rest.len() - cursor.rest().len())?;
            rest = behind;
            Some((bit, value))
        })
    }

    pub fn named(&self) -> impl Iterator<Item = (&'static str, Plain<'a>)> + use<'a> {
        self.values().filter_map(|(bit, value)| {
            let at = LAYOUT.iter().position(|(of, _)| *of == bit)?;
            let (_, kind) = LAYOUT.get(at)?;
            Some((*NAMES.get(at)?, kind.read(value)?))
        })
    }

    pub fn with_headers(&self, headers: Vec<u8>) -> Bytes {
        self.edit(&Edit {
            headers: Change::Set(headers),
            ..Edit::default()
        })
    }

    /// The edited properties. Cuts a shortstr at 255 octets; callers set none that long.
    pub fn edit(&self, edit: &Edit) -> Bytes {
        let changes = [
            (Property::Headers, &edit.headers),
            (Property::Priority, &edit.priority),
            (Property::Expiration, &edit.expiration),
            (Property::UserId, &edit.user_id),
        ];
        let grown: usize = changes
            .iter()
            .map(|(_, change)| {
                if let Change::Set(value) = change {
                    value.len() + 4
                } else {
                    0
                }
            })
            .sum();
        let mut out = Vec::with_capacity(self.raw.len() + grown);
        let mut flags = self.flags;
        for (property, change) in changes {
            match change {
                Change::Keep => {}
                Change::Remove => flags &= !(1 << property as u16),
                Change::Set(_) => flags |= 1 << property as u16,
            }
        }
        // RabbitMQ writes the properties of a dead letter anew, without flags that no property has.
        if matches!(edit.headers, Change::Set(_)) {
            flags &= !0b11;
        }
        out.extend_from_slice(&flags.to_be_bytes());
        let mut at = 2;
        for (property, change) in changes {
            let span = self.spans[property.slot()].clone();
            let until = span
                .as_ref()
                .map_or_else(|| self.before(property), |span| span.start);
            out.extend_from_slice(self.raw.get(at..until).unwrap_or_default());
            at = span.as_ref().map_or(until, |span| span.end);
            match (change, property) {
                (Change::Keep, _) => {
                    out.extend_from_slice(self.raw.get(until..at).unwrap_or_default())
                }
                (Change::Remove, _) => {}
                (Change::Set(value), Property::Headers) => {
                    out.extend_from_slice(&(value.len() as u32).to_be_bytes());
                    out.extend_from_slice(value);
                }
                (Change::Set(value), Property::Priority) => out.extend_from_slice(value),
                (Change::Set(value), Property::Expiration | Property::UserId) => {
                    let value = value.get(..255).unwrap_or(value);
                    out.push(value.len() as u8);
                    out.extend_from_slice(value);
                }
            }
        }
        out.extend_from_slice(self.raw.get(at..).unwrap_or_default());
        Bytes::from(out)
    }

    /// Where an absent property belongs: behind all with a higher flag bit.
    fn before(&self, property: Property) -> usize {
        let mut cursor = Cursor::new(self.raw);
        let mut skip = || -> Result<(), Malformed> {
            cursor.short()?;
            for (bit, kind) in LAYOUT {
                if bit <= property as u16 {
                    break;
                }
                if self.flags & (1 << bit) != 0 {
                    kind.skip(&mut cursor)?;
                }
            }
            Ok(())
        };
        // It was walked once already, when it was parsed.
        let _ = skip();
        self.raw.len() - cursor.rest().len()
    }
}
