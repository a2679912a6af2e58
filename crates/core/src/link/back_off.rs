//! How long to wait before the next connection: 100 ms, doubled up to 4 s, less up to a quarter so that many proxies do not come at once.
//!
//! A broker that closed the connection over a message is there, and only more attempts lead past it: a delivery that it cannot make is
//! counted by the intake queue 21 times (S10.2), and all dead letters of the vhost wait meanwhile. So these waits grow slowly: some five
//! seconds for 21 of them.
//!
//! A broker that refuses the proxy's user will do so until somebody changes that, often while both are being set up: soon at first, then seldom, as
//! the broker logs each attempt.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
/// Shorter than a dead letter waits for a link, so that a restarted broker is found in time.
const LONGEST: Duration = Duration::from_secs(4);
/// Faults per doubling of the wait,
const FAULTS: u32 = 8;
/// with at most this many doublings: 800 ms.
const MOST_DOUBLED: u32 = 3;
/// After the first refusal; doubles,
const REFUSED: Duration = Duration::from_secs(1);
const REFUSED_AT_MOST: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct BackOff {
    failures: u32,
    faults: u32,
    refusals: u32,
    random: u64,
}

// === impl BackOff ===

impl BackOff {
    /// The core has no random numbers, so the seed is given.
    pub(super) fn new(seed: u64) -> BackOff {
        BackOff {
            failures: 0,
            faults: 0,
            refusals: 0,
            random: seed,
        }
    }

    pub(super) fn reset(&mut self) {
        self.failures = 0;
        self.faults = 0;
        self.refusals = 0;
    }

    /// After the broker closed an open connection because of our bytes.
    pub(super) fn next_after_fault(&mut self) -> Duration {
        let doubled = (self.faults / FAULTS).min(MOST_DOUBLED);
        self.faults = self.faults.saturating_add(1);
        self.spread(FIRST * (1 << doubled))
    }

    pub(super) fn next(&mut self) -> Duration {
        let wait = FIRST
            .saturating_mul(1 << self.failures.min(16))
            .min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        self.spread(wait)
    }

    /// After the broker refused the user.
    pub(super) fn next_after_refusal(&mut self) -> Duration {
        let wait = REFUSED.saturating_mul(1 << self.refusals.min(16));
        self.refusals = self.refusals.saturating_add(1);
        self.spread(wait.min(REFUSED_AT_MOST))
    }

    fn spread(&mut self, wait: Duration) -> Duration {
        wait - wait.mul_f64(self.draw() / 4.0)
    }

    /// SplitMix64, as a number in 0..1.
    fn draw(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        (z >> 11) as f64 / (1u64 << 53) as f64
    }
}
