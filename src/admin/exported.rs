//! Messages of a queue as lines of a file.

use std::io::{self, Write};

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
    /// The lines of messages have so many octets at most.
    room: usize,
    /// One did not fit.
    is_cut: bool,
}

/// Takes so many octets.
struct Room<'a> {
    lines: &'a mut Vec<u8>,
    left: usize,
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
    /// No line yet, and at most so many, with `room` for so many octets.
    pub(super) fn new(
        wanted: Wanted,
        most: Option<u64>,
        own_user: ShortStr,
        room: usize,
    ) -> Exported {
        Exported {
            wanted,
            most: most.unwrap_or(u64::MAX),
            own_user,
            matched: 0,
            lines: Vec::new(),
            room,
            is_cut: false,
        }
    }

    /// As many messages as have to be looked at, if that is known before.
    pub(super) fn messages(&self) -> Option<u64> {
        self.wanted.filter.is_all().then_some(self.most)
    }

    /// One message more. False when there are enough.
    pub(super) fn see(&mut self, letter: Letter) -> bool {
        if self.wants_more() && self.wanted.takes(&letter) {
            let line = Line::of(&letter, &self.wanted.errors, &self.own_user);
            self.is_cut = !self.write(&line, self.room);
            self.matched += u64::from(!self.is_cut);
        }
        self.wants_more()
    }

    fn wants_more(&self) -> bool {
        !self.is_cut && self.matched < self.most
    }

    /// All lines, the last one with how far the queue was looked at.
    pub(super) fn finish(mut self, place: Place, walked: Summary) -> Vec<u8> {
        let is_full = self.matched >= self.most;
        let mut end = Answer::new(place, &walked, is_full, self.matched, Nothing {});
        if self.is_cut {
            end.stopped = "octets";
            end.notes.push(format!(
                "more lines would have more than {} octets, twice `look-bytes`: choose messages by filters",
                self.room
            ));
        }
        self.write(&Last { end }, usize::MAX);
        self.lines
    }

    /// False: there is no room for it, so nothing of it was written.
    fn write(&mut self, line: &impl Serialize, room: usize) -> bool {
        let before = self.lines.len();
        let writer = Room {
            left: room.saturating_sub(before),
            lines: &mut self.lines,
        };
        // Neither names that are no text nor maps with other keys than text are in it, so nothing else can fail.
        let fits = serde_json::to_writer(writer, line).is_ok();
        match fits {
            true => self.lines.push(b'\n'),
            false => self.lines.truncate(before),
        }
        fits
    }
}

impl Write for Room<'_> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let left = self.left.checked_sub(octets.len());
        self.left = left.ok_or(io::ErrorKind::StorageFull)?;
        self.lines.extend_from_slice(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::amqp::ids::Vhost;
    use crate::letter::{BodyHash, Filter};
    use crate::walk::Stopped;

    /// A body of control characters: each is six octets of JSON.
    fn letter() -> Letter {
        Letter {
            position: 1,
            exchange: ShortStr::EMPTY,
            routing_key: ShortStr::EMPTY,
            redelivered: false,
            properties: vec![0, 0].into(),
            body: vec![b'\t'; 1000].into(),
            size: 1000,
            body_hash: BodyHash::of(&[b'\t'; 1000]),
        }
    }

    fn wanted() -> Wanted {
        Wanted {
            filter: Filter::default(),
            errors: Default::default(),
        }
    }

    fn exported(room: usize) -> Vec<Value> {
        let mut exported = Exported::new(wanted(), None, ShortStr::EMPTY, room);
        for _ in 0..3 {
            exported.see(letter());
        }
        let place = Place::new(Vhost::ROOT, ShortStr::EMPTY);
        let walked = Summary {
            ready: Some(3),
            seen: 3,
            stopped: Stopped::End,
            ..Summary::default()
        };
        let lines = exported.finish(place, walked);
        let lines = lines.split(|octet| *octet == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_slice(line).expect("JSON"))
            .collect()
    }

    /// The proxy ends in the middle: what it has is not all, and the command says so by its exit code.
    #[test]
    fn an_export_that_was_interrupted_does_not_say_that_it_has_all() {
        let stopped = |most, stopped| {
            let mut exported = Exported::new(wanted(), most, ShortStr::EMPTY, usize::MAX);
            exported.see(letter());
            let place = Place::new(Vhost::ROOT, ShortStr::EMPTY);
            let walked = Summary {
                ready: Some(3),
                seen: 1,
                stopped,
                ..Summary::default()
            };
            let lines = exported.finish(place, walked);
            let last = lines.split(|octet| *octet == b'\n').rev().nth(1);
            let last: Value = serde_json::from_slice(last.expect("a line")).expect("JSON");
            let end = &last["end"];
            assert_eq!(end["notes"][0], "the first 1 of 3 messages were looked at");
            end["stopped"].as_str().expect("a word").to_owned()
        };
        assert_eq!(stopped(Some(1), Stopped::Enough), "enough");
        assert_eq!(stopped(Some(2), Stopped::Enough), "interrupted");
        assert_eq!(stopped(None, Stopped::Enough), "interrupted");
        assert_eq!(stopped(None, Stopped::Messages), "messages");
        assert_eq!(stopped(None, Stopped::Time), "time");
    }

    #[test]
    fn what_has_no_room_is_left_out_and_the_last_line_says_so() {
        let all = exported(usize::MAX);
        assert_eq!(all.len(), 4);
        assert_eq!(all[3]["end"]["stopped"], "end");
        let line = all[0].to_string().len();
        let some = exported(2 * line + 10);
        assert_eq!(some.len(), 3, "{some:?}");
        let end = &some[2]["end"];
        assert_eq!(
            (&end["stopped"], &end["matched"]),
            (&"octets".into(), &2.into())
        );
        assert!(end["notes"].to_string().contains("more lines would have"));
    }
}
