//! Entries of the record of declares (`recorder.rs`), read by a stranger.

use super::super::codec::frame::Frame;
use super::super::codec::value::{Bytes, Value};
use super::super::rulings::Target;

/// What the record says of a queue.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub queue: Bytes,
    pub said: Option<Target>,
    /// What the arguments of the queue say.
    pub argued: Option<Target>,
}

// === impl Entry ===

impl Entry {
    /// `None`: the message is none.
    pub(super) fn of(content: &Frame) -> Option<Entry> {
        let headers = content.headers()?;
        let bytes = |name| match headers.get(name)? {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        };
        let text = |name| Some(String::from_utf8_lossy(&bytes(name)?).into_owned());
        let argued = Target::argued(bytes("made-with-exchange"), text("made-with-routing-key"));
        let said = match text("said")?.as_str() {
            "arguments" => argued.clone(),
            "none" => None,
            _ => Some(Target {
                exchange: text("exchange")?,
                key: text("routing-key"),
            }),
        };
        Some(Entry {
            queue: bytes("queue")?,
            said,
            argued,
        })
    }
}
