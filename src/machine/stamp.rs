//! What dead letters say of who rejected their messages.

use serde::{Deserialize, Serialize, Serializer};

/// One thing to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StampField {
    /// The consumer's tag.
    Consumer,
    /// The connection's name.
    Connection,
    /// The user.
    User,
    /// The client's address.
    Host,
}

/// All that is to be said; nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(u8);

// === impl StampField ===

impl StampField {
    /// All of them, in the order in which they are said.
    pub const ALL: [StampField; 4] = [
        StampField::Consumer,
        StampField::Connection,
        StampField::User,
        StampField::Host,
    ];

    /// As in the setting and in the header.
    pub fn as_str(self) -> &'static str {
        match self {
            StampField::Consumer => "consumer",
            StampField::Connection => "connection",
            StampField::User => "user",
            StampField::Host => "host",
        }
    }
}

// === impl Stamp ===

impl Stamp {
    /// Whether nothing is to be said: dead letters are as RabbitMQ would write them.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this is to be said.
    pub fn has(self, field: StampField) -> bool {
        self.0 & 1 << field as u8 != 0
    }
}

impl FromIterator<StampField> for Stamp {
    fn from_iter<I: IntoIterator<Item = StampField>>(fields: I) -> Stamp {
        let bits = fields.into_iter().map(|field| 1 << field as u8);
        Stamp(bits.fold(0, |all, bit: u8| all | bit))
    }
}

/// As a list, for settings.
impl Serialize for Stamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(StampField::ALL.into_iter().filter(|field| self.has(*field)))
    }
}
