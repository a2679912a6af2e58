//! Time in which the broker could have answered: the link up, not blocked and not silent. `confirm-timeout` and `give-up-after` are counted in it;
//! in the time in which it could not, how long a session waits for us.

use std::time::Duration;

use crate::machine::Mono;

/// Time in which the broker could answer, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Uptime(u64);

/// Time in which the broker could not answer, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Downtime(u64);

#[derive(Debug)]
pub(super) struct Clock {
    begun: Mono,
    passed: u64,
    running: Option<Mono>,
}

// === impl Uptime ===

impl Uptime {
    pub(super) fn since(self, earlier: Uptime) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

// === impl Downtime ===

impl Downtime {
    pub(super) fn since(self, earlier: Downtime) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

// === impl Clock ===

impl Clock {
    pub(super) fn new(now: Mono) -> Clock {
        Clock {
            begun: now,
            passed: 0,
            running: None,
        }
    }

    pub(super) fn run(&mut self, runs: bool, now: Mono) {
        self.passed = self.at(now).0;
        self.running = runs.then_some(now);
    }

    pub(super) fn runs(&self) -> bool {
        self.running.is_some()
    }

    pub(super) fn stood(&self, now: Mono) -> Downtime {
        let all = now.0.saturating_sub(self.begun.0);
        Downtime(all.saturating_sub(self.at(now).0))
    }

    pub(super) fn at(&self, now: Mono) -> Uptime {
        let running = self
            .running
            .map_or(0, |since| now.0.saturating_sub(since.0));
        Uptime(self.passed + running)
    }
}
