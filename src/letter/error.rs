//! The header in which an application said what went wrong.

use serde::{Deserialize, Serialize};

use super::Letter;

/// The names of such headers. The first one that a letter has counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorHeaders(pub Vec<String>);

impl ErrorHeaders {
    /// The first line that is not empty, without white space around it; at most 200 characters.
    pub fn first_line(&self, _letter: &Letter) -> Option<String> {
        None
    }
}

/// Those of Spring, MassTransit and NServiceBus: messages before stack traces.
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
