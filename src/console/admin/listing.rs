//! What is shown of a queue: a page of its messages, groups of them, or one; and how far it was looked at.

use std::time::UNIX_EPOCH;

use axum::http::StatusCode;
use humantime_serde::re::humantime::{parse_duration, parse_rfc3339_weak};
use serde::Serialize;
use utoipa::ToSchema;

use super::parameters::{Parameters, Place, bad};
use super::problem::Problem;
use crate::letter::{Detail, ErrorHeaders, Filter, Group, Groups, Id, Letter};
use crate::machine::{Reason, Wall};
use crate::walk::Summary;

mod answer;

pub(super) use answer::Answer;
use answer::notes;

/// Page size: the default and the maximum.
pub(super) const USUAL: usize = 100;
const MOST: usize = 1000;
/// Largest offset: the maximum of `browse-limit`.
const FARTHEST: u64 = 65_535;
const SHOWN: usize = 256 << 10;

pub(super) struct Wanted {
    pub(super) filter: Filter,
    pub(super) errors: ErrorHeaders,
}

pub(super) struct Page {
    wanted: Wanted,
    offset: u64,
    limit: usize,
    matched: u64,
    letters: Vec<crate::letter::Summary>,
}

pub(super) struct Counted {
    wanted: Wanted,
    matched: u64,
    groups: Groups,
}

/// One message, and its neighbours among those that are wanted.
pub(super) struct Found {
    id: Id,
    wanted: Wanted,
    previous: Option<Id>,
    detail: Option<Detail>,
    next: Option<Id>,
}

/// What a list answers.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Letters {
    pub(super) dead_letters: Vec<crate::letter::Summary>,
}

/// What groups answer.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Grouped {
    pub(super) groups: Vec<Group>,
}

/// What one message answers.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeadLetter)]
pub(super) struct Shown {
    #[serde(flatten)]
    pub(super) detail: Detail,
    /// The message before it, of those that match the filter.
    pub(super) previous: Option<String>,
    /// The message behind it, of those that match the filter.
    pub(super) next: Option<String>,
    pub(super) notes: Vec<String>,
}

pub(super) fn filter(parameters: &mut Parameters, now: Wall) -> Result<Filter, Problem> {
    let header = |pair: Vec<u8>| match pair.iter().position(|byte| *byte == b'=') {
        Some(at) => Ok((pair[..at].to_vec(), pair[at + 1..].to_vec())),
        None => Err(bad(format_args!(
            "header={}: write NAME=VALUE",
            String::from_utf8_lossy(&pair)
        ))),
    };
    let headers = parameters.all("header").into_iter().map(header);
    let ids = parameters.all("id");
    let ids = ids.iter().map(|id| one(id));
    let reason = |text: &str| {
        let all = || Reason::ALL.map(Reason::as_str).join(", ");
        let reason = Reason::parse(text.as_bytes());
        reason.ok_or_else(|| format!("write one of {}, or leave it out", all()))
    };
    let moment = |text: &str| moment(text, now);
    Ok(Filter {
        source: parameters.name("source")?,
        reason: parameters.read("reason", reason)?,
        error: None,
        exact: None,
        routing_key: parameters.key("routing-key")?,
        headers: headers.collect::<Result<_, _>>()?,
        body: parameters.bytes("body")?,
        died_by: parameters.read("older-than", moment)?,
        died_since: parameters.read("since", moment)?,
        ids: ids.collect::<Result<_, _>>()?,
        waits: None,
    })
}

pub(super) fn one(id: &[u8]) -> Result<Id, Problem> {
    let id = String::from_utf8_lossy(id).into_owned();
    id.parse()
        .map_err(|problem| bad(format_args!("id={id}: {problem}")))
}

/// So long ago, or a time in UTC, which may end after the minutes or the day.
fn moment(text: &str, now: Wall) -> Result<Wall, &'static str> {
    if let Ok(age) = parse_duration(text) {
        return Ok(now.before(age));
    }
    let text = text.trim_end_matches('Z');
    let ends = ["", ":00", "T00:00:00"];
    let read = |end| parse_rfc3339_weak(&format!("{text}{end}")).ok();
    let time = ends.into_iter().find_map(read);
    let time = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    time.map(|time| Wall::of_seconds(time.as_secs())).ok_or(
        "write a time with its unit, like 90s, 15m, 2h or 7d, or a time in UTC, like 2026-11-28T02:00Z",
    )
}

// === impl Wanted ===

impl Wanted {
    pub(super) fn takes(&self, letter: &Letter) -> bool {
        self.filter.takes(letter)
    }
}

// === impl Page ===

impl Page {
    pub(super) fn new(wanted: Wanted, parameters: &mut Parameters) -> Result<Page, Problem> {
        Ok(Page {
            wanted,
            offset: parameters.number("offset", 0..=FARTHEST)?.unwrap_or(0),
            limit: parameters.number("limit", 1..=MOST)?.unwrap_or(USUAL),
            matched: 0,
            letters: Vec::new(),
        })
    }

    pub(super) fn messages(&self) -> Option<u64> {
        let all = self.wanted.filter.is_all();
        all.then_some(self.offset + self.limit as u64)
    }

    /// Adds a message. False when the page is full; further messages are ignored.
    pub(super) fn see(&mut self, letter: Letter) -> bool {
        if self.letters.len() < self.limit && self.wanted.takes(&letter) {
            self.matched += 1;
            if self.matched > self.offset {
                let summary = crate::letter::Summary::of(&letter, &self.wanted.errors);
                self.letters.push(summary);
            }
        }
        self.letters.len() < self.limit
    }

    pub(super) fn answer(self, place: Place, walked: Summary) -> Answer<Letters> {
        let is_full = self.letters.len() >= self.limit;
        let found = Letters {
            dead_letters: self.letters,
        };
        Answer::new(place, &walked, is_full, self.matched, found)
    }
}

// === impl Counted ===

impl Counted {
    pub(super) fn new(wanted: Wanted) -> Counted {
        Counted {
            groups: Groups::new(wanted.errors.clone()),
            wanted,
            matched: 0,
        }
    }

    pub(super) fn see(&mut self, letter: Letter) -> bool {
        if self.wanted.takes(&letter) {
            self.matched += 1;
            self.groups.add(&letter);
        }
        true
    }

    pub(super) fn answer(self, place: Place, walked: Summary) -> Answer<Grouped> {
        let found = Grouped {
            groups: self.groups.finish(),
        };
        Answer::new(place, &walked, false, self.matched, found)
    }
}

// === impl Found ===

impl Found {
    pub(super) fn new(id: &[u8], wanted: Wanted) -> Result<Found, Problem> {
        Ok(Found {
            id: one(id)?,
            wanted,
            previous: None,
            detail: None,
            next: None,
        })
    }

    pub(super) fn see(&mut self, mut letter: Letter) -> bool {
        let id = letter.id();
        match &self.detail {
            None if id == self.id => {
                letter.body.truncate(SHOWN);
                self.detail = Some(Detail::of(&letter, &self.wanted.errors));
            }
            // An equal message has the same page.
            _ if id == self.id || !self.wanted.takes(&letter) => {}
            None => self.previous = Some(id),
            Some(_) => self.next = Some(id),
        }
        self.next.is_none()
    }

    pub(super) fn answer(self, walked: Summary) -> Result<Shown, Problem> {
        let notes = notes(&walked, self.detail.is_some());
        match self.detail {
            Some(detail) => Ok(Shown {
                detail,
                previous: self.previous.map(|id| id.to_string()),
                next: self.next.map(|id| id.to_string()),
                notes,
            }),
            None => {
                let detail = [&["No message has this id.".to_owned()], &notes[..]].concat();
                Err(Problem::new(StatusCode::NOT_FOUND, detail.join(" ")))
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
