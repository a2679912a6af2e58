//! Time in which the broker could have answered: the link up, not blocked and not silent. `confirm-timeout` and `retry-for` are counted in it.

use std::time::Duration;

use crate::machine::Mono;

/// A point of that time: microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Uptime(u64);

/// Counts it.
#[derive(Debug, Default)]
pub(super) struct Clock {
    passed: u64,
    running: Option<Mono>,
}

// === impl Uptime ===

impl Uptime {
    /// How long ago `earlier` was.
    pub(super) fn since(self, earlier: Uptime) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

// === impl Clock ===

impl Clock {
    /// Runs, or stands.
    pub(super) fn run(&mut self, runs: bool, now: Mono) {
        self.passed = self.at(now).0;
        self.running = runs.then_some(now);
    }

    /// True while it runs.
    pub(super) fn runs(&self) -> bool {
        self.running.is_some()
    }

    /// What it shows.
    pub(super) fn at(&self, now: Mono) -> Uptime {
        let running = self
            .running
            .map_or(0, |since| now.0.saturating_sub(since.0));
        Uptime(self.passed + running)
    }
}
