//! What waits in the queue, and how long clients would wait for it to be moved aside and back.

use std::time::Duration;

use serde::Deserialize;

use super::super::Backlog;
use super::refusal::Refusal;

/// Messages and bytes per second and direction, measured with some reserve (`make bench-fleet`).
const MESSAGES: f64 = 5_000.0;
const BYTES: f64 = 20_000_000.0;
/// For all but that.
const REST: Duration = Duration::from_secs(1);
/// On their way at a time.
const BYTES_AWAY: u64 = 4 << 20;
const MOST_AWAY: u64 = 500;

/// As the management API counts it: up to 5 s late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ListedBacklog {
    #[serde(default, rename = "messages_ready")]
    pub messages: u64,
    #[serde(default, rename = "message_bytes_ready")]
    pub bytes: u64,
    #[serde(default)]
    pub consumers: u64,
}

// === impl ListedBacklog ===

impl ListedBacklog {
    /// Of a message, in bytes.
    fn usual(self) -> u64 {
        self.bytes.checked_div(self.messages).unwrap_or(0)
    }

    /// There and back.
    fn seconds_each(self) -> f64 {
        2.0 * (1.0 / MESSAGES + self.usual() as f64 / BYTES)
    }

    pub(super) fn pause(self) -> Duration {
        let seconds = (self.messages as f64 * self.seconds_each()).ceil();
        REST + Duration::from_secs(seconds as u64)
    }

    pub(super) fn within(self, max_pause: Duration) -> Backlog {
        let moving = max_pause.saturating_sub(REST).as_secs_f64();
        let window = BYTES_AWAY / self.usual().max(1);
        Backlog {
            most: (moving / self.seconds_each()) as u32,
            window: window.clamp(1, MOST_AWAY) as u16,
        }
    }

    /// Nobody reads them, and they are too many to be moved.
    pub(super) fn against(self, max_pause: Duration) -> Option<Refusal> {
        let too_many = self.messages > self.within(max_pause).most.into();
        (self.consumers == 0 && too_many).then(|| Refusal::Backlog {
            messages: self.messages,
            pause: self.pause(),
            max_pause,
        })
    }
}
