//! Messages of a queue as lines of a file.

use std::collections::VecDeque;
use std::io::{self, Write};

use bytes::Bytes;
use serde::Serialize;

use super::listing::{Answer, Wanted};
use super::parameters::Place;
use super::room::{NO_ROOM, Taken};
use crate::amqp::ids::ShortStr;
use crate::letter::{Letter, Line};
use crate::walk::Summary;

/// Beginning of the last line, which is no message. A file without it is truncated.
pub(super) const END: &[u8] = br#"{"end":"#;

/// Bytes allocated and freed as one piece; a line may span more.
const KEPT: usize = 64 << 10;
/// Bytes handed over for writing at once; shows how far the reader is.
const PIECE: usize = 16 << 10;

pub(super) struct Exported {
    wanted: Wanted,
    most: u64,
    own_user: ShortStr,
    matched: u64,
    /// Full pieces, and the one being filled.
    pieces: VecDeque<Bytes>,
    lines: Vec<u8>,
    bytes: usize,
    room: usize,
    taken: Taken,
    cut: Option<Cut>,
}

#[derive(Clone, Copy)]
enum Cut {
    Bytes,
    Busy,
}

/// Frees memory as lines are read.
pub(super) struct Lines {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    taken: Taken,
}

struct Room<'a> {
    lines: &'a mut Vec<u8>,
    left: usize,
}

#[derive(Serialize)]
struct Last {
    end: Answer<Nothing>,
}

#[derive(Debug, Serialize)]
pub(super) struct Nothing {}

// === impl Exported ===

impl Exported {
    /// `most` messages and `room` bytes at most, while `taken` can grow.
    pub(super) fn new(
        wanted: Wanted,
        most: Option<u64>,
        own_user: ShortStr,
        (room, taken): (usize, Taken),
    ) -> Exported {
        Exported {
            wanted,
            most: most.unwrap_or(u64::MAX),
            own_user,
            matched: 0,
            pieces: VecDeque::new(),
            lines: Vec::new(),
            bytes: 0,
            room,
            taken,
            cut: None,
        }
    }

    pub(super) fn messages(&self) -> Option<u64> {
        self.wanted.filter.is_all().then_some(self.most)
    }

    /// Adds a message. False when the export is full.
    pub(super) fn see(&mut self, letter: Letter) -> bool {
        if self.wants_more() && self.wanted.takes(&letter) {
            let line = Line::of(&letter, &self.wanted.errors, &self.own_user);
            self.cut = self.write(&line).err();
            self.matched += u64::from(self.cut.is_none());
        }
        self.wants_more()
    }

    fn wants_more(&self) -> bool {
        self.cut.is_none() && self.matched < self.most
    }

    /// All lines; the last one says how far the queue was browsed.
    pub(super) fn finish(mut self, place: Place, walked: Summary) -> Lines {
        let is_full = self.matched >= self.most;
        let mut end = Answer::new(place, &walked, is_full, self.matched, Nothing {});
        if let Some(cut) = self.cut {
            let (stopped, note) = cut.said(self.room);
            end.stopped = stopped;
            end.notes.push(note);
        }
        let last = serde_json::to_vec(&Last { end }).unwrap_or_default();
        self.lines.extend([&last[..], b"\n"].concat());
        self.bytes += last.len() + 1;
        self.keep();
        Lines {
            pieces: self.pieces,
            bytes: self.bytes,
            taken: self.taken,
        }
    }

    fn write(&mut self, line: &impl Serialize) -> Result<(), Cut> {
        let before = self.lines.len();
        let mut writer = Room {
            left: self.room.saturating_sub(self.bytes),
            lines: &mut self.lines,
        };
        // Neither names that are no text nor maps with other keys than text are in it, so nothing else can fail.
        let fits =
            serde_json::to_writer(&mut writer, line).is_ok() && writer.write_all(b"\n").is_ok();
        let bytes = self.bytes + self.lines.len() - before;
        let written = match fits {
            true => self.taken.resize(bytes).map_err(|_| Cut::Busy),
            false => Err(Cut::Bytes),
        };
        match written {
            Ok(()) => self.bytes = bytes,
            Err(_) => self.lines.truncate(before),
        }
        if self.lines.len() >= KEPT {
            self.keep();
        }
        written
    }

    fn keep(&mut self) {
        let mut lines = std::mem::take(&mut self.lines);
        lines.shrink_to_fit();
        self.pieces.push_back(lines.into());
    }
}

// === impl Cut ===

impl Cut {
    fn said(self, room: usize) -> (&'static str, String) {
        match self {
            Cut::Bytes => (
                "bytes",
                format!(
                    "more lines would have more than {room} bytes, twice `browse-bytes`: choose messages by filters"
                ),
            ),
            Cut::Busy => ("busy", NO_ROOM.to_owned()),
        }
    }
}

// === impl Lines ===

impl Iterator for Lines {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let first = self.pieces.front_mut()?;
        let piece = first.split_to(first.len().min(PIECE));
        self.bytes -= piece.len();
        if first.is_empty() {
            self.pieces.pop_front();
            // Less is always there.
            let _ = self.taken.resize(self.bytes);
        }
        Some(piece)
    }
}

// === impl Room ===

impl Write for Room<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left.checked_sub(bytes.len());
        self.left = left.ok_or(io::ErrorKind::StorageFull)?;
        self.lines.extend_from_slice(bytes);
        Ok(bytes.len())
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
    use crate::console::admin::listing;
    use crate::console::admin::room::tests::{begun, room as room_for};
    use crate::letter::{BodyHash, Filter};
    use crate::walk::Stopped;

    const ALL: usize = 3 << 20;

    fn letter() -> Letter {
        let body = vec![b'\t'; 1000];
        Letter {
            body_hash: BodyHash::of(&body),
            body: body.into(),
            size: 1000,
            ..listing::tests::letter(1)
        }
    }

    fn export(room: usize, all: usize) -> Exported {
        let wanted = Wanted {
            filter: Filter::default(),
            errors: Default::default(),
        };
        Exported::new(wanted, None, ShortStr::EMPTY, (room, begun(&room_for(all))))
    }

    /// The number of lines with messages, the last line, and how long one is.
    fn read(mut exported: Exported, seen: u64) -> (usize, Value, usize) {
        for _ in 0..seen {
            exported.see(letter());
        }
        let walked = Summary {
            ready: Some(3),
            seen,
            stopped: Stopped::End,
            ..Summary::default()
        };
        let place = Place::new(Vhost::ROOT, ShortStr::EMPTY);
        let lines: Vec<Bytes> = exported.finish(place, walked).collect();
        let lines = String::from_utf8(lines.concat()).expect("UTF-8");
        let (first, last) = (lines.lines().next(), lines.lines().last());
        let last: Value = serde_json::from_str(last.expect("a line")).expect("JSON");
        let messages = lines.lines().count() - 1;
        (messages, last["end"].clone(), first.map_or(0, str::len))
    }

    #[test]
    fn what_has_no_room_is_left_out_and_the_last_line_says_so() {
        let (_, _, line) = read(export(usize::MAX, ALL), 1);
        let two = 2 * line + 10;
        for (room, all, messages, stopped, note) in [
            (usize::MAX, ALL, 3, "end", "[]"),
            (two, ALL, 2, "bytes", "more lines would have"),
            (usize::MAX, two, 2, "busy", NO_ROOM),
        ] {
            let (found, end, _) = read(export(room, all), 3);
            assert_eq!((found, &end["matched"]), (messages, &messages.into()));
            assert_eq!(end["stopped"], stopped);
            assert!(end["notes"].to_string().contains(note), "{end}");
        }
    }

    #[test]
    fn what_was_read_gives_its_memory_back() {
        let all = room_for(ALL);
        let mut exported = export(usize::MAX, ALL);
        exported.taken = begun(&all);
        while exported.bytes < ALL / 2 {
            exported.see(letter());
        }
        let place = Place::new(Vhost::ROOT, ShortStr::EMPTY);
        let mut lines = exported.finish(place, Summary::default());
        let mut other = begun(&all);
        assert!(other.resize(ALL * 3 / 4).is_err());
        while lines.bytes > ALL / 8 {
            lines.next();
        }
        assert!(other.resize(ALL * 3 / 4).is_ok());
    }
}
