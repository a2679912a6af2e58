//! A no, in the broker's words.

use std::borrow::Cow;

use crate::codec::value::Bytes;

use super::broker::Broker;

/// Closes a channel or a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub code: u16,
    /// Without the name of the code.
    pub text: Bytes,
}

/// How a request ends.
pub(super) type Answer<T> = Result<T, Refusal>;

/// Code, name, does it close the connection?
const CODES: &[(u16, &str, bool)] = &[
    (311, "CONTENT_TOO_LARGE", false),
    (320, "CONNECTION_FORCED", true),
    (403, "ACCESS_REFUSED", false),
    (404, "NOT_FOUND", false),
    (405, "RESOURCE_LOCKED", false),
    (406, "PRECONDITION_FAILED", false),
    (501, "FRAME_ERROR", true),
    (502, "SYNTAX_ERROR", true),
    (503, "COMMAND_INVALID", true),
    (504, "CHANNEL_ERROR", true),
    (505, "UNEXPECTED_FRAME", true),
    (506, "RESOURCE_ERROR", true),
    (530, "NOT_ALLOWED", true),
    (540, "NOT_IMPLEMENTED", true),
    (541, "INTERNAL_ERROR", true),
];

/// `Err` of a refusal: `refuse(404, format!(…))?`.
pub(super) fn refuse<T>(code: u16, text: impl AsRef<[u8]>) -> Answer<T> {
    Err(Refusal {
        code,
        text: text.as_ref().to_vec(),
    })
}

/// Octets in a text. What is not UTF-8 is taken for Latin-1.
pub(super) fn show(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) => text.into(),
        Err(_) => name.iter().copied().map(char::from).collect(),
    }
}

impl Refusal {
    pub(super) fn closes_connection(&self) -> bool {
        CODES
            .iter()
            .any(|(code, _, hard)| *code == self.code && *hard)
    }

    /// As in a close: with the name in front, cut at 255 octets.
    pub(super) fn reply_text(&self) -> Bytes {
        let name = CODES.iter().find(|(code, ..)| *code == self.code);
        let mut text = name.map_or(Bytes::new(), |(_, name, _)| {
            format!("{name} - ").into_bytes()
        });
        // An internal error is not explained.
        if self.code == 541 && self.text.is_empty() {
            text.truncate(text.len() - 3);
        }
        text.extend(&self.text);
        if text.len() > 255 {
            text.truncate(252);
            text.extend(b"...");
        }
        text
    }
}

impl Broker {
    /// `queue 'q' in vhost '/'`
    pub(super) fn rs(&self, kind: &str, name: &[u8]) -> String {
        format!("{kind} '{}' in vhost '{}'", show(name), self.options.vhost)
    }

    pub(super) fn no_queue<T>(&self, name: &[u8]) -> Answer<T> {
        refuse(404, format!("no {}", self.rs("queue", name)))
    }

    pub(super) fn no_exchange<T>(&self, name: &[u8]) -> Answer<T> {
        refuse(404, format!("no {}", self.rs("exchange", name)))
    }
}
