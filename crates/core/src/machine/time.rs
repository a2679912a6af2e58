//! The two clocks, as plain numbers.

use std::time::Duration;

/// A point of the monotonic clock: microseconds since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mono(pub u64);

/// Both clocks at one moment, as plain numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    pub mono: Mono,
    /// For what outlives the process: `x-death.time`, the deadline of a message.
    pub wall: Wall,
}

/// A point of the clock on the wall: milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wall(pub u64);

impl Wall {
    /// Of so many seconds since 1970.
    pub fn of_seconds(seconds: u64) -> Wall {
        Wall(seconds.saturating_mul(1000))
    }

    /// Seconds since 1970, as AMQP's timestamps are.
    pub fn seconds(self) -> u64 {
        self.0 / 1000
    }

    /// The moment later by `wait`; the far end of time instead of an overflow.
    pub fn after(self, wait: Duration) -> Wall {
        Wall(
            self.0
                .saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        )
    }

    /// The moment earlier by `age`; 1970 where there is none.
    pub fn before(self, age: Duration) -> Wall {
        Wall(
            self.0
                .saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        )
    }

    /// How long from `self` until `later`; zero when that has passed.
    pub fn until(self, later: Wall) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }
}

impl Mono {
    /// The moment `micros` microseconds later; the far end of time instead of an overflow.
    pub fn after(self, wait: Duration) -> Mono {
        Mono(
            self.0
                .saturating_add(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)),
        )
    }

    /// How long from `self` until `later`; zero when that has passed.
    pub fn until(self, later: Mono) -> Duration {
        Duration::from_micros(later.0.saturating_sub(self.0))
    }
}
