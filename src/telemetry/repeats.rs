//! One line where thousands would say the same: a missing dead-letter exchange shows once a minute, with the number of times since.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::facts::Repeats as Often;

const QUIET: Duration = Duration::from_secs(60);
/// Different lines. Above this number all are dropped, which costs a line too many.
const MAX_LINES: usize = 1_000;

type Key = (&'static str, String, &'static str);

#[derive(Debug, Default)]
pub(super) struct Repeats(Mutex<HashMap<Key, Line>>);

#[derive(Debug)]
struct Line {
    written: Instant,
    held_back: u64,
}

// === impl Repeats ===

impl Repeats {
    /// `Some`: write the line, with the number suppressed since the last one.
    pub(super) fn write(&self, repeats: Often, key: Key, now: Instant) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get_mut(&key) {
            if repeats == Often::Never || now.duration_since(line.written) < QUIET {
                line.held_back += 1;
                return None;
            }
            line.written = now;
            return Some(std::mem::take(&mut line.held_back));
        }
        if lines.len() >= MAX_LINES {
            lines.clear();
        }
        lines.insert(
            key,
            Line {
                written: now,
                held_back: 0,
            },
        );
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By second and queue; with the number held back between.
    #[test]
    fn a_line_is_written_once_a_minute_or_once_at_all() {
        let minutely = &[
            (0, "a", Some(0)),
            (1, "a", None),
            (2, "b", Some(0)),
            (59, "a", None),
            (60, "a", Some(2)),
            (61, "a", None),
        ];
        let once = &[
            (0, "a", Some(0)),
            (0, "a", None),
            (60, "b", Some(0)),
            (540, "a", None),
        ];
        for (often, lines) in [(Often::Minutely, &minutely[..]), (Often::Never, once)] {
            let (repeats, start) = (Repeats::default(), Instant::now());
            for (second, queue, written) in lines {
                let key = ("parked", queue.to_string(), "unroutable");
                let now = start + Duration::from_secs(*second);
                assert_eq!(repeats.write(often, key, now), *written, "{second} {queue}");
            }
        }
    }

    #[test]
    fn memory_is_bounded() {
        let (repeats, now) = (Repeats::default(), Instant::now());
        for queue in 0..3 * MAX_LINES {
            repeats.write(
                Often::Minutely,
                ("parked", queue.to_string(), "unroutable"),
                now,
            );
        }
        assert!(repeats.0.lock().expect("no test panics").len() <= MAX_LINES);
    }
}
