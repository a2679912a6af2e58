//! Which letters are meant.

use memchr::memmem;

use crate::amqp::ids::ShortStr;
use crate::machine::{Reason, Wall};

use super::{ErrorHeaders, Id, Letter, beginning, headers};

/// Matches messages that fit all parts; with no parts, every message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub source: Option<ShortStr>,
    pub reason: Option<Reason>,
    /// A prefix of [`ErrorHeaders::first_line`] for these headers. Many errors differ only in their
    /// ends.
    pub error: Option<(ErrorHeaders, String)>,
    /// The current key, or the first one: a dead-letter routing key may have replaced it.
    pub routing_key: Option<ShortStr>,
    /// The first header of that name has that value. Texts compare by bytes, numbers and booleans
    /// by their usual text, timestamps in RFC 3339 or seconds; a void is empty. Tables and arrays
    /// never match. All pairs must match.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes in the first [`Filter::SEARCHED`] of the body.
    pub body: Option<Vec<u8>>,
    /// Died at this time or before, and was not redriven since. RabbitMQ keeps only the first death
    /// in a queue for a reason, so a redriven message that has just died again would seem old.
    /// Messages without a time do not match. A time instead of an age: the set must not change
    /// while a long redrive works.
    pub died_by: Option<Wall>,
    /// Died at this time or later, or was redriven since, and so has died again.
    pub died_since: Option<Wall>,
    /// Any of these; empty: no condition.
    pub ids: Vec<Id>,
    /// A group: `source`, `reason` and the whole of `error` are as given, and a part that is not given is missing.
    pub exact: Option<ErrorHeaders>,
    /// It waits for a retry, in any queue or in this one.
    pub waits: Option<Option<ShortStr>>,
}

// === impl Filter ===

impl Filter {
    /// Bytes of a body that are searched. The same everywhere, so that all commands match the same
    /// messages.
    pub const SEARCHED: usize = 1 << 20;

    pub fn is_all(&self) -> bool {
        *self == Filter::default()
    }

    pub fn takes(&self, letter: &Letter) -> bool {
        (self.ids.is_empty() || self.ids.contains(&letter.id()))
            && self.takes_last_death(letter)
            && self.takes_error(letter)
            && self.takes_headers(letter)
            && self.takes_body(&letter.body)
            && self.takes_waiting(letter)
            && self.takes_group(letter)
    }

    fn takes_group(&self, letter: &Letter) -> bool {
        self.exact.as_ref().is_none_or(|headers| {
            let last = letter.last_death();
            let line = headers.first_line(letter);
            let line = line.and_then(|line| beginning(line.as_bytes()));
            self.source == last.source
                && self.reason.map(Reason::as_str) == last.reason.as_deref()
                && self.error.as_ref().map(|(_, line)| line) == line.as_ref()
        })
    }

    fn takes_waiting(&self, letter: &Letter) -> bool {
        let wanted = self.waits.as_ref();
        wanted.is_none_or(|queue| {
            let waiting = letter.waiting();
            waiting.is_some_and(|it| queue.as_ref().is_none_or(|queue| it.queue == *queue))
        })
    }

    fn takes_last_death(&self, letter: &Letter) -> bool {
        let Filter {
            source,
            reason,
            routing_key,
            died_by,
            died_since,
            ..
        } = self;
        let is_timed = died_by.is_some() || died_since.is_some();
        if source.is_none() && reason.is_none() && routing_key.is_none() && !is_timed {
            return true;
        }
        let last = letter.last_death();
        let has_key = |key: &ShortStr| {
            let first = last.deaths.iter().rev().min_by_key(|death| death.time);
            *key == letter.routing_key
                || first.is_some_and(|death| death.routing_keys.first() == Some(key))
        };
        let died_at = last
            .died_at
            .map(|died| died.max(letter.redriven_at().unwrap_or(died)));
        (source.is_none() || *source == last.source)
            && reason.is_none_or(|reason| last.reason.as_deref() == Some(reason.as_str()))
            && routing_key.as_ref().is_none_or(has_key)
            && died_by.is_none_or(|by| died_at.is_some_and(|died| died <= by))
            && died_since.is_none_or(|since| died_at.is_some_and(|died| died >= since))
    }

    fn takes_error(&self, letter: &Letter) -> bool {
        let has = |(headers, line): &(ErrorHeaders, String)| {
            let found = headers.first_line(letter);
            found.is_some_and(|found| found.starts_with(line))
        };
        self.error.as_ref().is_none_or(has)
    }

    fn takes_headers(&self, letter: &Letter) -> bool {
        self.headers.iter().all(|(name, wanted)| {
            let header = letter.header(name);
            header.is_some_and(|value| headers::reads(&value, wanted))
        })
    }

    fn takes_body(&self, body: &[u8]) -> bool {
        let body = body.get(..Filter::SEARCHED).unwrap_or(body);
        let holds = |part: &Vec<u8>| memmem::find(body, part).is_some();
        self.body.as_ref().is_none_or(holds)
    }
}
