//! Headers as JSON and as text. Whatever somebody wrote into them, what comes of it is bounded, and so is the way there.

use serde::Serialize;
use serde_json::{Map, Number, Value as Json};
use utoipa::ToSchema;

use crate::amqp::table::{Array, Table, Value};
use crate::dead_letter::delivery_time::shown_name;
use crate::machine::Wall;

use super::time::rfc_3339;

const DEEPEST: usize = 32;
const MOST: usize = 64 * 1024;
/// Cost of a member beside its bytes, which bounds the number of empty ones.
const MEMBER: usize = 8;
const CUT: &str = "…";

/// A header.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Header {
    /// Its name; what of it is not UTF-8 is replaced.
    pub name: String,
    /// The name that RabbitMQ has for its type: `longstr`, `long`, `bool`, `timestamp`, `table`, `array`, …
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Its value, with nested tables and arrays. Where something was left out stands `…`.
    #[schema(value_type = Value)]
    pub value: Json,
    /// Something of its name or value is left out.
    #[serde(skip)]
    pub cut: bool,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Headers {
    pub(super) list: Vec<Header>,
    pub(super) cut: bool,
    pub(super) malformed: bool,
}

struct Reader {
    left: usize,
    cut: bool,
    malformed: bool,
}

pub(super) fn read(table: Table<'_>) -> Headers {
    let mut reader = Reader {
        left: MOST,
        cut: false,
        malformed: false,
    };
    let (mut list, mut cut) = (Vec::new(), false);
    for field in table.fields() {
        let Ok(field) = field else {
            reader.malformed = true;
            break;
        };
        if !reader.may_go_on() {
            break;
        }
        cut |= std::mem::take(&mut reader.cut);
        list.push(Header {
            name: reader.text(shown_name(field.name)),
            kind: field.value.kind(),
            value: reader.value(field.value, DEEPEST),
            cut: reader.cut,
        });
    }
    Headers {
        list,
        cut: cut | reader.cut,
        malformed: reader.malformed,
    }
}

pub(super) fn reads(value: &Value<'_>, wanted: &[u8]) -> bool {
    if let Some(text) = value.as_text() {
        return text == wanted;
    }
    let Ok(wanted) = std::str::from_utf8(wanted) else {
        return false;
    };
    if let Some(number) = float(value) {
        return wanted.parse() == Ok(number);
    }
    if value.as_timestamp().map(|time| time.to_string()).as_deref() == Some(wanted) {
        return true;
    }
    let text = match plain(value) {
        Some(Json::String(text)) => text,
        Some(Json::Null) => String::new(),
        Some(other) => other.to_string(),
        None => return false,
    };
    text == wanted
}

fn plain(value: &Value<'_>) -> Option<Json> {
    if let Some(integer) = value.as_integer() {
        return Some(integer.into());
    }
    if let Some(number) = float(value) {
        // JSON has neither infinity nor what is no number.
        let text = || Json::String(number.to_string());
        return Some(Number::from_f64(number).map_or_else(text, Json::Number));
    }
    if let Some(time) = value.as_timestamp() {
        return Some(Json::String(rfc_3339(Wall::of_seconds(time))));
    }
    match (value.tag, value.data) {
        (b't', [byte]) => Some((*byte != 0).into()),
        (b'V', _) => Some(Json::Null),
        (b'D', [scale, digits @ ..]) => {
            let digits = u32::from_be_bytes(digits.try_into().ok()?);
            Some(Json::String(decimal(*scale, digits)))
        }
        _ => None,
    }
}

fn float(value: &Value<'_>) -> Option<f64> {
    match value.tag {
        // By its text, so that 0.1 stays 0.1.
        b'f' => f32::from_be_bytes(value.data.try_into().ok()?)
            .to_string()
            .parse()
            .ok(),
        b'd' => Some(f64::from_be_bytes(value.data.try_into().ok()?)),
        _ => None,
    }
}

/// `scale`: digits after the point.
fn decimal(scale: u8, digits: u32) -> String {
    let scale = usize::from(scale);
    let digits = format!("{digits:0>width$}", width = scale + 1);
    match digits.split_at_checked(digits.len() - scale) {
        Some((whole, part)) if !part.is_empty() => format!("{whole}.{part}"),
        _ => digits,
    }
}

// === impl Reader ===

impl Reader {
    fn may_go_on(&mut self) -> bool {
        let room = self.left > 0;
        self.cut |= !room;
        self.left = self.left.saturating_sub(MEMBER);
        room
    }

    fn text(&mut self, bytes: &[u8]) -> String {
        let shown = bytes.get(..self.left).unwrap_or(bytes);
        self.left -= shown.len();
        let mut text = String::from_utf8_lossy(shown).into_owned();
        if shown.len() < bytes.len() {
            self.cut = true;
            text.push_str(CUT);
        }
        text
    }

    /// Ends at depth 0, long before the stack overflows.
    fn value(&mut self, value: Value<'_>, depth: usize) -> Json {
        match (value.as_text(), value.as_table(), value.as_array()) {
            (Some(text), ..) => Json::String(self.text(text)),
            (_, None, None) => plain(&value).unwrap_or_default(),
            _ if depth == 0 => {
                self.cut = true;
                CUT.into()
            }
            (_, Some(table), _) => self.table(table, depth - 1),
            (.., Some(array)) => self.array(array, depth - 1),
        }
    }

    /// The first of several members with one name counts, as in RabbitMQ.
    fn table(&mut self, table: Table<'_>, depth: usize) -> Json {
        let mut members = Map::new();
        for field in table.fields() {
            let Ok(field) = field else {
                self.malformed = true;
                break;
            };
            if !self.may_go_on() {
                members.insert(CUT.to_owned(), CUT.into());
                break;
            }
            let name = self.text(field.name);
            let value = self.value(field.value, depth);
            members.entry(name).or_insert(value);
        }
        Json::Object(members)
    }

    fn array(&mut self, array: Array<'_>, depth: usize) -> Json {
        let mut members = Vec::new();
        for value in array.values() {
            let Ok(value) = value else {
                self.malformed = true;
                break;
            };
            if !self.may_go_on() {
                members.push(CUT.into());
                break;
            }
            members.push(self.value(value, depth));
        }
        Json::Array(members)
    }
}
