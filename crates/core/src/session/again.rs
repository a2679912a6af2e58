//! Growing pauses between tries.

use std::time::Duration;

use crate::machine::Mono;

/// The first pause; each further one is twice as long, up to the last.
pub(super) const FIRST_PAUSE: Duration = Duration::from_secs(1);
pub(super) const LAST_PAUSE: Duration = Duration::from_secs(60);

/// When something that has failed is done again: after growing pauses.
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

    /// Something waits for it, no longer than `most`.
    pub(super) fn arm(&mut self, now: Mono, most: Duration) {
        if self.at.is_none() {
            if self.last.until(now) > 2 * self.pause {
                self.pause = FIRST_PAUSE; // it was long ago that something failed
            }
            self.at = Some(now.after(self.pause));
        }
        self.at = self.at.min(Some(now.after(most)));
    }

    /// Its time has come: the next pause is longer.
    pub(super) fn fired(&mut self, now: Mono) {
        self.at = None;
        self.last = now;
        self.pause = (2 * self.pause).min(LAST_PAUSE);
    }

    /// It can be done again: the others that wait need not.
    pub(super) fn succeeds(&mut self, now: Mono) {
        self.pause = FIRST_PAUSE;
        self.at = self.at.map(|_| now);
    }
}
