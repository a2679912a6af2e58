//! A letter as all faces show it: in a line of a list, and alone.
//!
//! What is not UTF-8 is replaced here, so nothing of this is good for moving a message: that takes its bytes as they are.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::amqp::properties::{Plain, Properties};
use crate::dead_letter::hex;
use crate::dead_letter::proof::{PARKED_CAUSE, PARKED_EXCHANGE};
use crate::dead_letter::redrive::Mark;
use crate::machine::Wall;

use super::deaths::{Death, LastDeath};
use super::headers::{self, Header};
use super::history::{history, oldest_first};
use super::text::{self, name};
use super::time::rfc_3339;
use super::{ErrorHeaders, Letter};

/// Characters of a body in a list.
const PREVIEW: usize = 80;

/// A letter in a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Summary {
    /// Its place in the queue: 1 is the oldest message.
    pub position: u64,
    /// Its [`Id`](super::Id).
    pub id: String,
    /// The queue that it died in last.
    pub source_queue: Option<String>,
    /// Why it died.
    pub reason: Option<String>,
    /// When it died, as in RFC 3339.
    pub died_at: Option<String>,
    /// How often it died, all queues and reasons together.
    pub deaths: u64,
    /// The exchange that it was last published to.
    pub exchange: String,
    /// The key that it was last published with.
    pub routing_key: String,
    /// Whether it was delivered before.
    pub redelivered: bool,
    /// Bytes of its body.
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
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Detail {
    /// What a list says of it.
    #[serde(flatten)]
    pub summary: Summary,
    /// Its properties by their names, but for the headers.
    #[schema(value_type = BTreeMap<String, Value>)]
    pub properties: BTreeMap<&'static str, Value>,
    /// Its headers, in their order.
    pub headers: Vec<Header>,
    /// There are more headers, or more in them, than what is shown.
    pub headers_cut: bool,
    /// Its properties or headers cannot be read to their end.
    pub malformed: bool,
    /// How it came here, a sentence for each death, the oldest first.
    pub history: Vec<String>,
    /// The same, for pages. In the API it is `x-death` among the headers.
    #[serde(skip)]
    pub timeline: Vec<Death>,
    /// Its body.
    pub body: Body,
}

/// A body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Body {
    /// How to read it.
    pub encoding: Encoding,
    /// The body, or the part of it that was kept.
    pub text: String,
    /// There is more of it.
    #[serde(default)]
    pub cut: bool,
}

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Encoding {
    /// The body is UTF-8.
    Text,
    /// The body is UTF-8, and JSON.
    Json,
    /// It is something else, in hexadecimal digits.
    Hex,
}

// === impl Summary ===

impl Summary {
    pub fn of(letter: &Letter, errors: &ErrorHeaders) -> Summary {
        Summary::with(letter, &letter.last_death(), errors)
    }

    fn with(letter: &Letter, last: &LastDeath, errors: &ErrorHeaders) -> Summary {
        let said = |header: &[u8]| letter.header(header)?.as_text().map(name);
        Summary {
            position: letter.position,
            id: letter.id().to_string(),
            source_queue: last.source.as_deref().map(name),
            reason: last.reason.clone(),
            died_at: last.died_at.map(rfc_3339),
            deaths: last.number(),
            exchange: name(&letter.exchange),
            routing_key: name(&letter.routing_key),
            redelivered: letter.redelivered,
            size: letter.size,
            error: errors.first_line(letter),
            redriven: letter.redriven(),
            parked_for: said(PARKED_EXCHANGE),
            parked_cause: said(PARKED_CAUSE),
            preview: letter.preview(),
        }
    }
}

// === impl Detail ===

impl Detail {
    pub fn of(letter: &Letter, errors: &ErrorHeaders) -> Detail {
        let mut last = letter.last_death();
        let summary = Summary::with(letter, &last, errors);
        oldest_first(&mut last.deaths);
        let parsed = letter.parsed();
        let headers = headers::read(letter.headers());
        Detail {
            summary,
            malformed: parsed.is_none() || headers.malformed,
            properties: parsed
                .iter()
                .flat_map(Properties::named)
                .filter_map(|(name, value)| Some((name, property(value)?)))
                .collect(),
            headers: headers.list,
            headers_cut: headers.cut,
            history: history(&last.deaths),
            timeline: last.deaths,
            body: Body::of(letter),
        }
    }
}

fn property(value: Plain<'_>) -> Option<Value> {
    match value {
        Plain::Text(text) => Some(text::name(text).into()),
        Plain::Octet(byte) => Some(byte.into()),
        Plain::Time(seconds) => Some(rfc_3339(Wall::of_seconds(seconds)).into()),
        Plain::Table(_) => None,
    }
}

// === impl Body ===

impl Body {
    fn of(letter: &Letter) -> Body {
        let cut = letter.is_cut();
        let (encoding, text) = match text::of_body(&letter.body, cut) {
            Some(text) if !cut && is_json(text) => (Encoding::Json, text.to_owned()),
            Some(text) => (Encoding::Text, text.to_owned()),
            None => (Encoding::Hex, hex::digits(&letter.body)),
        };
        Body {
            encoding,
            text,
            cut,
        }
    }
}

/// Numbers and words alone are valid JSON, but not meant as such.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

// === impl Letter ===

impl Letter {
    fn is_cut(&self) -> bool {
        (self.body.len() as u64) < self.size
    }

    pub(super) fn redriven_at(&self) -> Option<Wall> {
        let mark = Mark::read(self.headers());
        mark.and_then(|mark| mark.time).map(Wall::of_seconds)
    }

    fn redriven(&self) -> u64 {
        Mark::read(self.headers()).map_or(0, |mark| mark.count)
    }

    fn preview(&self) -> Option<String> {
        let text = text::of_body(&self.body, self.is_cut())?;
        let line = text::line(text.as_bytes(), PREVIEW);
        (!line.is_empty()).then_some(line)
    }
}
