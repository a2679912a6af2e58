//! What letters have in common: where they died, why, and of which error.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use crate::amqp::ids::ShortStr;
use crate::machine::Wall;

use super::deaths::LastDeath;
use super::text::name;
use super::time::rfc_3339;
use super::{ErrorHeaders, Letter};

/// A bound, because senders can make any number of groups.
const MOST: usize = 1000;

#[derive(Debug, Default)]
pub struct Groups {
    errors: ErrorHeaders,
    groups: BTreeMap<Key, Sum>,
    rest: Sum,
}

type Key = (Option<ShortStr>, Option<String>, Option<String>);

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    messages: u64,
    died: Option<[Wall; 2]>,
}

/// Letters with the same source, reason and error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Group {
    /// The queue that they died in last, in its bytes.
    #[serde(skip)]
    pub of: Option<ShortStr>,
    /// The queue in which they died last, as text.
    pub source: Option<String>,
    /// Why they died.
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

// === impl Groups ===

impl Groups {
    pub fn new(errors: ErrorHeaders) -> Groups {
        Groups {
            errors,
            ..Groups::default()
        }
    }

    pub fn add(&mut self, letter: &Letter) {
        let LastDeath {
            source,
            reason,
            died_at,
            ..
        } = letter.last_death();
        let key = (source, reason, self.errors.first_line(letter));
        let sum = match self.groups.len() < MOST || self.groups.contains_key(&key) {
            true => self.groups.entry(key).or_default(),
            false => &mut self.rest,
        };
        sum.add(died_at);
    }

    /// The largest first. Groups beyond 1,000 are combined into one, the last.
    pub fn finish(self) -> Vec<Group> {
        let of = |((source, reason, error), sum): (Key, Sum)| Group {
            source: source.as_deref().map(name),
            of: source,
            reason,
            error,
            ..sum.group()
        };
        let mut groups: Vec<_> = self.groups.into_iter().map(of).collect();
        groups.sort_by_key(|group| Reverse(group.messages));
        if self.rest.messages > 0 {
            groups.push(Group {
                is_rest: true,
                ..self.rest.group()
            });
        }
        groups
    }
}

// === impl Sum ===

impl Sum {
    fn add(&mut self, died: Option<Wall>) {
        self.messages += 1;
        if let Some(died) = died {
            let [oldest, newest] = self.died.unwrap_or([died, died]);
            self.died = Some([oldest.min(died), newest.max(died)]);
        }
    }

    fn group(self) -> Group {
        Group {
            messages: self.messages,
            oldest: self.died.map(|[oldest, _]| rfc_3339(oldest)),
            newest: self.died.map(|[_, newest]| rfc_3339(newest)),
            ..Group::default()
        }
    }
}
