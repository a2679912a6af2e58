//! What is drawn at random, and drawn again by its seed.

/// A stream of numbers that one number decides (SplitMix64).
pub(crate) struct Random(pub u64);

/// The seed of this run: `DLX_TEST_SEED`, or another each time. Printed, as a failure is worth no more than its seed.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("DLX_TEST_SEED") {
        Ok(seed) => seed.parse().expect("DLX_TEST_SEED is a number"),
        Err(_) => std::time::UNIX_EPOCH
            .elapsed()
            .expect("after 1970")
            .as_micros() as u64,
    };
    println!("DLX_TEST_SEED={seed}");
    seed
}

// === impl Random ===

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True in this many of a hundred cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
