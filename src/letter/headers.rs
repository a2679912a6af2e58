//! Headers as JSON.

use serde::Serialize;
use serde_json::Value;

/// A header.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Header {
    /// Its name; what of it is not UTF-8 is replaced.
    pub name: String,
    /// The name that RabbitMQ has for its type: `longstr`, `long`, `bool`, `timestamp`, `table`, `array`, …
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Its value, with nested tables and arrays.
    pub value: Value,
}
