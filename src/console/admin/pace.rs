//! How fast a peer has to send and to read.

use std::time::Duration;

/// Bytes a second. Slower peers hold resources that others wait for.
const SLOWEST: u64 = 64 << 10;

pub(super) fn time_for(bytes: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1000) / SLOWEST)
}
