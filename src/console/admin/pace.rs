//! How fast a peer has to send and to read.

use std::time::Duration;

/// Octets a second. Slower peers hold resources that others wait for.
const SLOWEST: u64 = 64 << 10;

pub(super) fn time_for(octets: u64) -> Duration {
    Duration::from_millis(octets.saturating_mul(1000) / SLOWEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_takes_a_second_for_so_many_octets() {
        assert_eq!(time_for(0), Duration::ZERO);
        assert_eq!(time_for(3 * SLOWEST / 2), Duration::from_millis(1500));
        assert!(time_for(u64::MAX) > Duration::from_secs(1 << 30));
    }
}
