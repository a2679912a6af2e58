//! Messages of a queue as lines of a file.

use serde::Serialize;

use super::listing::{Answer, Wanted};
use super::parameters::Place;
use crate::amqp::ids::ShortStr;
use crate::letter::{Letter, Line};
use crate::walk::Summary;

/// With what the last line begins, which is no message: whoever does not find it knows that the file is cut.
pub(super) const END: &[u8] = br#"{"end":"#;

/// Lines, while they are written.
pub(super) struct Exported {
    wanted: Wanted,
    most: u64,
    own_user: ShortStr,
    matched: u64,
    lines: Vec<u8>,
}

/// The last line.
#[derive(Serialize)]
struct Last {
    end: Answer<Nothing>,
}

/// An answer that has nothing but how far the queue was looked at.
#[derive(Debug, Serialize)]
pub(super) struct Nothing {}

// === impl Exported ===

impl Exported {
    /// No line yet, and at most so many.
    pub(super) fn new(wanted: Wanted, most: Option<u64>, own_user: ShortStr) -> Exported {
        Exported {
            wanted,
            most: most.unwrap_or(u64::MAX),
            own_user,
            matched: 0,
            lines: Vec::new(),
        }
    }

    /// As many messages as have to be looked at, if that is known before.
    pub(super) fn messages(&self) -> Option<u64> {
        self.wanted.filter.is_all().then_some(self.most)
    }

    /// One message more. False when there are enough.
    pub(super) fn see(&mut self, letter: Letter) -> bool {
        if self.matched < self.most && self.wanted.takes(&letter) {
            self.matched += 1;
            self.write(&Line::of(&letter, &self.wanted.errors, &self.own_user));
        }
        self.matched < self.most
    }

    /// All lines, the last one with how far the queue was looked at.
    pub(super) fn finish(mut self, place: Place, walked: Summary) -> Vec<u8> {
        let is_full = self.matched >= self.most;
        let end = Answer::new(place, &walked, is_full, self.matched, Nothing {});
        self.write(&Last { end });
        self.lines
    }

    fn write(&mut self, line: &impl Serialize) {
        // Neither names that are no text nor maps with other keys than text are in it, so it can always be written.
        let _ = serde_json::to_writer(&mut self.lines, line);
        self.lines.push(b'\n');
    }
}
