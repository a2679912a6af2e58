//! A letter as all faces show it: in a line of a list, and alone.
//!
//! What is not UTF-8 is replaced here, so nothing of this is good for moving a message: that takes its octets as they are.

use std::collections::BTreeMap;

use serde::Serialize;

use super::headers::Header;
use super::{ErrorHeaders, Letter};

/// A letter in a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Summary {
    /// Its place in the queue: 1 is the oldest message.
    pub position: u64,
    /// Its [`Id`](super::Id).
    pub id: String,
    /// The queue that it died in last.
    pub source_queue: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// When, in RFC 3339.
    pub died_at: Option<String>,
    /// How often it died, all queues and reasons together.
    pub deaths: u64,
    /// The exchange that it was last published to.
    pub exchange: String,
    /// The key that it was last published with.
    pub routing_key: String,
    /// Whether it was delivered before.
    pub redelivered: bool,
    /// Octets of its body.
    pub size: u64,
    /// The first line of its error, if an application wrote one.
    pub error: Option<String>,
    /// How often it was redriven.
    pub redriven: u64,
    /// Of a parked message: the exchange that it is meant for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked_for: Option<String>,
    /// Of a parked message: why it is parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked_cause: Option<String>,
    /// The first 80 characters of its body, if that is text.
    pub preview: Option<String>,
}

/// A letter alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Detail {
    /// What a list says of it.
    #[serde(flatten)]
    pub summary: Summary,
    /// Its properties by their names, but for the headers.
    pub properties: BTreeMap<&'static str, serde_json::Value>,
    /// Its headers, in their order.
    pub headers: Vec<Header>,
    /// There are more headers, or more in them, than what is shown.
    pub headers_cut: bool,
    /// Its properties or headers cannot be read to their end.
    pub malformed: bool,
    /// How it came here, a sentence for each death, the oldest first.
    pub story: Vec<String>,
    /// Its body.
    pub body: Body,
}

/// A body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Body {
    /// How to read it.
    pub encoding: Encoding,
    /// The body, or the first part of it.
    pub text: String,
    /// There is more of it.
    pub cut: bool,
}

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encoding {
    /// It is UTF-8.
    Text,
    /// It is UTF-8, and JSON.
    Json,
    /// It is something else, in hexadecimal digits.
    Hex,
}

impl Summary {
    /// What a list says of a letter.
    pub fn of(letter: &Letter, errors: &ErrorHeaders) -> Summary {
        Summary {
            position: letter.position,
            id: letter.id().to_string(),
            error: errors.first_line(letter),
            ..Summary::default()
        }
    }
}

impl Detail {
    /// All that there is to see of a letter.
    pub fn of(letter: &Letter, errors: &ErrorHeaders) -> Detail {
        Detail {
            summary: Summary::of(letter, errors),
            properties: BTreeMap::new(),
            headers: Vec::new(),
            headers_cut: false,
            malformed: false,
            story: Vec::new(),
            body: Body {
                encoding: Encoding::Text,
                text: String::new(),
                cut: false,
            },
        }
    }
}
