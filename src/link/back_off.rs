//! How long to wait before the next connection: 100 ms, doubled up to 10 s, less up to a quarter so that many proxies do not come at once.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// The waits of one link.
#[derive(Debug)]
pub(super) struct BackOff {
    failures: u32,
    random: u64,
}

// === impl BackOff ===

impl BackOff {
    /// The core draws no random numbers: the seed comes from outside.
    pub(super) fn new(seed: u64) -> BackOff {
        BackOff {
            failures: 0,
            random: seed,
        }
    }

    /// Begins at the shortest wait again.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// The next wait.
    pub(super) fn next(&mut self) -> Duration {
        let wait = FIRST
            .saturating_mul(1 << self.failures.min(16))
            .min(LONGEST);
        self.failures = self.failures.saturating_add(1);
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
