//! A letter as one line of JSON in a file, from which it can be made again.
//!
//! The line is all that `show` has, for people and for `jq`, and the properties as bytes, for whoever reads it back: those have what JSON cannot say
//! (types, names that are not UTF-8, two headers of one name).

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::amqp::content::Content;
use crate::dead_letter::hex;
use crate::dead_letter::imported::exported;

use super::view::{Body, Detail, Encoding};
use super::{ErrorHeaders, Letter};

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Line {
    #[serde(flatten)]
    detail: Detail,
    /// From the flags on, in hexadecimal digits, as a client of the proxy reads them.
    raw_properties: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Read {
    raw_properties: String,
    body: Body,
}

#[derive(Debug, Error)]
pub enum NoLine {
    #[error("this is no line of an export: {0}")]
    Json(#[from] serde_json::Error),
    #[error("`{0}` is not written in hexadecimal digits")]
    Hex(&'static str),
    /// The body was longer than its exported part.
    #[error("`body` was cut when it was exported")]
    Cut,
}

// === impl Line ===

impl Line {
    pub fn of(letter: &Letter, errors: &ErrorHeaders, own_user: &[u8]) -> Line {
        Line {
            detail: Detail::of(letter, errors),
            raw_properties: hex::digits(&exported(&letter.properties, own_user)),
        }
    }

    /// The message of a line. Its properties may be invalid.
    ///
    /// # Errors
    /// When the line holds no message.
    pub fn read(line: &[u8]) -> Result<Content, NoLine> {
        let Read {
            raw_properties,
            body,
        } = serde_json::from_slice(line)?;
        if body.cut {
            return Err(NoLine::Cut);
        }
        Ok(Content {
            properties: bytes("raw-properties", &raw_properties)?.into(),
            body: body.bytes()?,
        })
    }
}

fn bytes(name: &'static str, digits: &str) -> Result<Vec<u8>, NoLine> {
    hex::bytes(digits).ok_or(NoLine::Hex(name))
}

// === impl Body ===

impl Body {
    /// # Errors
    /// When its digits are none.
    pub(super) fn bytes(self) -> Result<Bytes, NoLine> {
        Ok(match self.encoding {
            Encoding::Text | Encoding::Json => Bytes::from(self.text),
            Encoding::Hex => bytes("body", &self.text)?.into(),
        })
    }
}
