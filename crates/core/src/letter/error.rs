//! The header in which an application said what went wrong.

use serde::{Deserialize, Serialize};

use super::Letter;
use super::text::line;

const LONGEST: usize = 200;

/// Header names. The first one with a text counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorHeaders(pub Vec<String>);

// === impl ErrorHeaders ===

impl ErrorHeaders {
    /// The first line that is not empty, trimmed, with spaces for control characters; at most 200
    /// characters.
    pub fn first_line(&self, letter: &Letter) -> Option<String> {
        let of = |name: &String| first_line(letter.header(name.as_bytes())?.as_text()?);
        self.0.iter().find_map(of)
    }
}

/// Headers of Spring, MassTransit and NServiceBus: messages before stack traces.
impl Default for ErrorHeaders {
    fn default() -> ErrorHeaders {
        let names = [
            "x-exception-message",
            "MT-Fault-Message",
            "NServiceBus.ExceptionInfo.Message",
            "x-exception-stacktrace",
            "MT-Fault-ExceptionType",
        ];
        ErrorHeaders(names.map(str::to_owned).to_vec())
    }
}

/// The beginning of a line as a user typed it: cut and spaced like lines, without the `…` of a
/// table.
pub fn beginning(text: &[u8]) -> Option<String> {
    let line = first_line(text)?;
    let line = line.trim_end_matches('…').trim_end();
    (!line.is_empty()).then(|| line.to_owned())
}

fn first_line(text: &[u8]) -> Option<String> {
    let mut lines = text.split(|byte| b"\r\n".contains(byte));
    let first = lines.find(|line| !line.trim_ascii().is_empty())?;
    let line = line(first.trim_ascii(), LONGEST);
    (!line.is_empty()).then_some(line)
}
