//! Growing pauses between tries.

use std::time::Duration;

use crate::machine::Mono;

/// The first pause; doubles up to a maximum.
pub(super) const FIRST_PAUSE: Duration = Duration::from_secs(1);
pub(super) const LAST_PAUSE: Duration = Duration::from_secs(60);

/// Retries a failed action after growing pauses.
#[derive(Debug)]
pub(super) struct Again {
    at: Option<Mono>,
    pause: Duration,
    last: Mono,
}

// === impl Again ===

impl Default for Again {
    fn default() -> Again {
        Again {
            at: None,
            pause: FIRST_PAUSE,
            last: Mono::default(),
        }
    }
}

impl Again {
    pub(super) fn at(&self) -> Option<Mono> {
        self.at
    }

    /// Starts the timer, for at most `most`.
    pub(super) fn arm(&mut self, now: Mono, most: Duration) {
        if self.at.is_none() {
            if self.last.until(now) > 2 * self.pause {
                self.pause = FIRST_PAUSE; // it was long ago that something failed
            }
            self.at = Some(now.after(self.pause));
        }
        self.at = self.at.min(Some(now.after(most)));
    }

    pub(super) fn fired(&mut self, now: Mono) {
        self.at = None;
        self.last = now;
        self.pause = (2 * self.pause).min(LAST_PAUSE);
    }

    /// The action works again: all waiting ones may be done at once.
    pub(super) fn succeeds(&mut self, now: Mono) {
        self.pause = FIRST_PAUSE;
        self.at = self.at.map(|_| now);
    }
}
