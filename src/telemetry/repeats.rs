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

    #[test]
    fn the_same_line_is_written_once_a_minute_with_the_number_between() {
        let (repeats, start) = (Repeats::default(), Instant::now());
        let at = |seconds| {
            let key = ("parked", "orders".to_owned(), "unroutable");
            repeats.write(Often::Minutely, key, start + Duration::from_secs(seconds))
        };
        assert_eq!(
            [at(0), at(1), at(59), at(60), at(61)],
            [Some(0), None, None, Some(2), None]
        );
    }

    #[test]
    fn a_line_that_is_never_repeated_is_written_once() {
        let (repeats, start) = (Repeats::default(), Instant::now());
        let at = |queue: &str, minutes| {
            let key = ("rejects only", queue.to_owned(), "");
            repeats
                .write(Often::Never, key, start + minutes * QUIET)
                .is_some()
        };
        assert_eq!(
            [at("a", 0), at("a", 0), at("b", 1), at("a", 9)],
            [true, false, true, false]
        );
    }

    #[test]
    fn another_queue_is_another_line() {
        let (repeats, now) = (Repeats::default(), Instant::now());
        for queue in ["a", "b"] {
            assert_eq!(
                repeats.write(
                    Often::Minutely,
                    ("parked", queue.to_owned(), "unroutable"),
                    now
                ),
                Some(0)
            );
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
