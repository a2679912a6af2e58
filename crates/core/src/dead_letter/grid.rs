//! The delays for which there are delay queues.
//!
//! Any client can ask for any delay, so there are only those of a grid: a delay is rounded up to the next one, by a quarter at most.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::retries::LONGEST_DELAY;

/// The grid within one unit, in hundredths. Each step is at most a quarter longer than the one
/// before.
const STEPS: [u64; 23] = [
    100, 125, 150, 175, 200, 250, 300, 350, 400, 500, 600, 700, 800, 1000, 1200, 1500, 1750, 2000,
    2500, 3000, 3500, 4000, 5000,
];
/// Each unit in milliseconds, and where the next one begins: 10 ms, 100 ms, seconds, minutes,
/// hours, days.
const UNITS: [(u64, u64); 6] = [
    (10, 10),
    (100, 10),
    (1000, 60),
    (60_000, 60),
    (3_600_000, 24),
    (86_400_000, 8),
];

/// By how much a delay may become longer: a part of it, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter(NonZeroU32);

/// The next delay of the grid, in milliseconds. Only a changed clock makes longer delays than the
/// longest: such a message comes back and is delayed again.
pub fn next(delay: Duration) -> u64 {
    let wanted = delay.min(LONGEST_DELAY).as_millis();
    let mut steps = steps();
    let next = steps.find(|step| u128::from(*step) >= wanted);
    next.expect("seven days are on the grid")
}

/// The last delay of the grid that is not longer, in milliseconds; at least the first.
pub(super) fn before(delay: Duration) -> u64 {
    let most = delay.min(LONGEST_DELAY).as_millis();
    let fits = |step: &u64| u128::from(*step) <= most;
    let before = steps().take_while(fits).last();
    before.unwrap_or_else(|| next(Duration::ZERO))
}

/// One of the delays of the grid from this delay to the longest that the jitter allows. `draw`
/// chooses; without such a delay it is the same.
pub(super) fn spread(delay: Duration, jitter: Jitter, draw: u64) -> Duration {
    let count = within(delay, jitter).count() as u128;
    // All values of `draw`, in as many equal parts.
    let at = (u128::from(draw) * count) >> 64;
    let chosen = within(delay, jitter).nth(at as usize);
    chosen.map_or(delay, Duration::from_millis)
}

/// Whether the jitter reaches more than one delay of the grid.
pub(super) fn spreads(delay: Duration, jitter: Jitter) -> bool {
    within(delay, jitter).nth(1).is_some()
}

fn within(delay: Duration, jitter: Jitter) -> impl Iterator<Item = u64> {
    let least = delay.as_millis();
    let range = least..=jitter.longest(delay).as_millis();
    steps().filter(move |step| range.contains(&u128::from(*step)))
}

fn steps() -> impl Iterator<Item = u64> {
    UNITS.into_iter().flat_map(|(unit, end)| {
        let steps = STEPS.iter().take_while(move |step| **step < 100 * end);
        steps.map(move |step| (unit * step).div_ceil(100))
    })
}

// === impl Jitter ===

impl Jitter {
    const ONE: u32 = 1_000_000;

    /// `None`: not a number from 0 to 1. `Some(None)`: there is no jitter.
    pub fn parse(text: &str) -> Option<Option<Jitter>> {
        let part: f64 = text.parse().ok()?;
        let valid = (0.0..=1.0).contains(&part);
        let millionths = (part * f64::from(Jitter::ONE)).round() as u32;
        valid.then(|| NonZeroU32::new(millionths).map(Jitter))
    }

    fn longest(self, delay: Duration) -> Duration {
        let longest = delay + delay * self.0.get() / Jitter::ONE;
        longest.min(LONGEST_DELAY)
    }
}

impl Serialize for Jitter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0.get()) / f64::from(Jitter::ONE))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const DAY: u64 = 24 * 3600 * 1000;

    fn takes(millis: u64) -> u64 {
        next(Duration::from_millis(millis))
    }

    fn jitter_of(part: f64) -> Jitter {
        Jitter::parse(&part.to_string()).unwrap().unwrap()
    }

    /// All values of `draw` that one needs to know, evenly.
    fn draws(count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(move |at| at * (u64::MAX / count))
    }

    #[test]
    fn a_delay_is_rounded_up_by_a_quarter_at_most() {
        for wanted in (10..20_000).chain((20_000..=7 * DAY).step_by(7919)) {
            let taken = takes(wanted);
            assert!(
                taken >= wanted && 4 * taken <= 5 * wanted,
                "{wanted}: {taken}"
            );
        }
        assert_eq!((takes(0), takes(1), takes(9)), (10, 10, 10));
        assert_eq!((takes(7 * DAY), takes(u64::MAX)), (7 * DAY, 7 * DAY));
    }

    #[test]
    fn what_people_say_is_on_the_grid() {
        for unit in [1000, 60 * 1000, 3600 * 1000] {
            for of in [1, 2, 3, 5, 10, 15, 20, 30] {
                assert_eq!(takes(of * unit), of * unit);
            }
        }
    }

    #[test]
    fn there_are_few() {
        assert_eq!(steps().filter(|step| *step <= 7 * DAY).count(), 102);
    }

    #[test]
    fn none_is_spread_beyond_its_bounds() {
        for millis in (1..3000).chain((3000..=7 * DAY).step_by(100_003)) {
            let delay = Duration::from_millis(millis);
            for jitter in [0.2, 0.6, 1.0] {
                let jitter = jitter_of(jitter);
                let most = jitter.longest(delay);
                for draw in draws(7).chain([u64::MAX]) {
                    let spread = spread(delay, jitter, draw);
                    assert!(delay <= spread && spread <= most, "{delay:?}: {spread:?}");
                }
            }
            let enough = jitter_of(0.6);
            let fits = (10..LONGEST_DELAY.as_millis() as u64 / 2).contains(&millis);
            assert!(spreads(delay, enough) || !fits, "{delay:?}");
        }
    }

    #[test]
    fn each_delay_within_the_bounds_is_taken_as_often() {
        for (jitter, expected) in [
            (0.1, &[10_000][..]),
            (0.2, &[10_000, 12_000]),
            (0.5, &[10_000, 12_000, 15_000]),
            (1.0, &[10_000, 12_000, 15_000, 17_500, 20_000]),
        ] {
            let mut taken = BTreeMap::<u128, u64>::new();
            for draw in draws(1000) {
                let spread = spread(Duration::from_secs(10), jitter_of(jitter), draw);
                *taken.entry(spread.as_millis()).or_default() += 1;
            }
            assert!(taken.keys().eq(expected), "{jitter}: {taken:?}");
            let share = 1000 / expected.len() as u64;
            assert!(taken.values().all(|of| of.abs_diff(share) <= 1));
        }
    }
}
