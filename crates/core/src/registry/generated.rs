//! Names that the broker makes for a `queue.declare` without one: how they begin, and whether a pattern needs more than that (S13.4).
//!
//! ```text
//! amq.gen-ik-CzswCUiRtfNMWDAS6rQ        the beginning, a hyphen, 22 random characters (`rabbit_guid`)
//! orders-ik-CzswCUiRtfNMWDAS6rQ         from 4.4 on, with x-name-prefix = "orders"
//! ```

use regex::bytes::Regex;

use crate::amqp::table::{Table, Value};
use crate::amqp::version::Version;

const NAME_PREFIX: &[u8] = b"x-name-prefix";
/// First version that uses it; earlier ones ignore it (tested: 3.10.8, 4.3.6).
const SINCE: Version = Version(4, 4, 0);
/// Longer prefixes are refused.
const LONGEST: usize = 64;
/// The default prefix.
const ORDINARY: &[u8] = b"amq.gen-";
/// Random characters that follow ...
const RANDOM: usize = 22;
const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Whether the broker generates the name: it removes line breaks (`strip_cr_lf`).
pub fn is_made(name: &[u8]) -> bool {
    name.iter().all(|byte| b"\r\n".contains(byte))
}

/// The requested prefix, if the broker supports it.
pub fn prefix(arguments: &[u8], version: Option<Version>) -> Option<&[u8]> {
    let said = Table(arguments).get(NAME_PREFIX).ok().flatten();
    let said = said.and_then(Value::as_longstr)?;
    let counts = version >= Some(SINCE) && (1..=LONGEST).contains(&said.len());
    counts.then_some(said)
}

/// The prefix for a declare with these arguments.
pub fn start(arguments: &[u8], version: Option<Version>) -> Vec<u8> {
    let Some(said) = prefix(arguments, version) else {
        return ORDINARY.to_vec();
    };
    let mut start = said.to_vec();
    start.retain(|byte| !b"\r\n".contains(byte));
    start.push(b'-');
    start
}

/// A possible name with that prefix.
pub fn sample(start: &[u8]) -> Vec<u8> {
    [start, &ALPHABET[..RANDOM]].concat()
}

/// Whether the pattern matches all names with that prefix, or none except by accident: a word
/// spelled by the random characters. `None`: some. Each sample has another last character, so that
/// patterns for a character differ.
pub(super) fn decided(pattern: &Regex, start: &[u8]) -> Option<bool> {
    let names = ALPHABET
        .iter()
        .map(|byte| [start, &[*byte; RANDOM]].concat());
    let found = names.filter(|name| pattern.is_match(name)).count();
    match (found, pattern.is_match(&sample(start))) {
        (0, false) => Some(false),
        (found, true) if found == ALPHABET.len() => Some(true),
        _ => None,
    }
}
