//! Which letters are meant.

use memchr::memmem;

use crate::amqp::ids::ShortStr;
use crate::machine::{Reason, Wall};

use super::{ErrorHeaders, Id, Letter, headers};

/// Takes the letters that are as each of its parts says; all, if none says anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The queue that it died in last: [`Letter::source`].
    pub source: Option<ShortStr>,
    /// Why it died last: [`Letter::reason`].
    pub reason: Option<Reason>,
    /// How the first line of its error begins, by these headers: [`ErrorHeaders::first_line`]. Of many errors only the beginning is the same.
    pub error: Option<(ErrorHeaders, String)>,
    /// The key that it has now, as lists show it, or the one that it was first published with: a dead-letter routing key may have hidden that.
    pub routing_key: Option<ShortStr>,
    /// The first header of that name has that value: octets of a text as they are, numbers and booleans in their usual text, a timestamp in
    /// RFC 3339 or in seconds, nothing for a void. Tables and arrays have no such text. Of several each.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// These octets are in the body, in the first [`Filter::SEARCHED`] of it.
    pub body: Option<Vec<u8>>,
    /// It died then or before, and was not sent back since: RabbitMQ keeps when it first died in a queue for a reason, so that one that was
    /// sent back, and died there again a minute ago, seems old. What does not say when it died is not taken. A time, and no age: what takes hours
    /// takes at its end no other messages than at its beginning.
    pub died_by: Option<Wall>,
    /// It has one of these; none: no matter which.
    pub ids: Vec<Id>,
    /// It waits for a retry, in any queue or in this one.
    pub waits: Option<Option<ShortStr>>,
}

// === impl Filter ===

impl Filter {
    /// Octets of a body that are searched for others, whoever searches: so all see the same messages, also where more of a body is kept.
    pub const SEARCHED: usize = 1 << 20;

    /// Whether it takes everything.
    pub fn is_all(&self) -> bool {
        *self == Filter::default()
    }

    /// Whether it takes this one.
    pub fn takes(&self, letter: &Letter) -> bool {
        (self.ids.is_empty() || self.ids.contains(&letter.id()))
            && self.takes_fate(letter)
            && self.takes_error(letter)
            && self.takes_headers(letter)
            && self.takes_body(&letter.body)
            && self.takes_waiting(letter)
    }

    fn takes_waiting(&self, letter: &Letter) -> bool {
        let wanted = self.waits.as_ref();
        wanted.is_none_or(|queue| {
            let waiting = letter.waiting();
            waiting.is_some_and(|it| queue.as_ref().is_none_or(|queue| it.queue == *queue))
        })
    }

    fn takes_fate(&self, letter: &Letter) -> bool {
        let Filter {
            source,
            reason,
            routing_key,
            died_by,
            ..
        } = self;
        if source.is_none() && reason.is_none() && routing_key.is_none() && died_by.is_none() {
            return true;
        }
        let fate = letter.fate();
        let has_key = |key: &ShortStr| {
            let first = fate.deaths.iter().rev().min_by_key(|death| death.time);
            *key == letter.routing_key
                || first.is_some_and(|death| death.routing_keys.first() == Some(key))
        };
        let is_old = |by: Wall| {
            let last = fate
                .died_at
                .map(|died| died.max(letter.redriven_at().unwrap_or(died)));
            last.is_some_and(|last| last <= by)
        };
        (source.is_none() || *source == fate.source)
            && reason.is_none_or(|reason| fate.reason.as_deref() == Some(reason.as_str()))
            && routing_key.as_ref().is_none_or(has_key)
            && died_by.is_none_or(is_old)
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
