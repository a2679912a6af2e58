//! Values that must not be empty: what an unset variable of a shell leaves behind would else be a filter that takes everything.

use std::ffi::OsString;

use clap::builder::{OsStringValueParser, StringValueParser, TypedValueParser};

const EMPTY: &str = "it is empty";

/// Octets.
pub(super) fn octets() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(|octets| match octets.is_empty() {
        true => Err(EMPTY),
        false => Ok(octets),
    })
}

/// Text.
pub(super) fn text() -> impl TypedValueParser<Value = String> {
    StringValueParser::new().try_map(|text| match text.is_empty() {
        true => Err(EMPTY),
        false => Ok(text),
    })
}
