//! The two clocks, as plain numbers.

use std::time::Duration;

/// Monotonic microseconds since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mono(pub u64);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    pub mono: Mono,
    /// For times that outlive the process: `x-death.time`, the deadline of a message.
    pub wall: Wall,
}

/// Wall clock milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wall(pub u64);

impl Wall {
    pub fn of_seconds(seconds: u64) -> Wall {
        Wall(seconds.saturating_mul(1000))
    }

    pub fn seconds(self) -> u64 {
        self.0 / 1000
    }

    pub fn after(self, wait: Duration) -> Wall {
        Wall(
            self.0
                .saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        )
    }

    pub fn before(self, age: Duration) -> Wall {
        Wall(
            self.0
                .saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        )
    }

    /// Zero when `later` has passed.
    pub fn until(self, later: Wall) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }
}

impl Mono {
    pub fn after(self, wait: Duration) -> Mono {
        Mono(
            self.0
                .saturating_add(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)),
        )
    }

    /// Zero when `later` has passed.
    pub fn until(self, later: Mono) -> Duration {
        Duration::from_micros(later.0.saturating_sub(self.0))
    }
}
