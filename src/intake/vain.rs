//! A lap that brought no parked message to its target, and how long the broker is spared another one.
//!
//! Nobody tells what changes at the broker. So a lap comes again, but what it costs grows with the messages that are there, and so does the pause.

use std::time::Duration;

use crate::machine::Mono;

/// For each message that is there, ...
const FOR_EACH: Duration = Duration::from_millis(100);
/// ... and at most.
const LONGEST: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug)]
pub(super) struct Vain {
    ended: Mono,
    /// So many messages are all that it left, and none of them will ever go by itself.
    stay: Option<usize>,
}

// === impl Vain ===

impl Vain {
    /// One that put so many messages to the end: such as may go once, and such as stay.
    pub(super) fn new(waiting: usize, staying: usize, now: Mono) -> Vain {
        Vain {
            ended: now,
            stay: (waiting == 0).then_some(staying),
        }
    }

    /// Whether it is too early for another one, as so many are there.
    pub(super) fn spares(self, count: u32, now: Mono) -> bool {
        let same = self.stay == usize::try_from(count).ok();
        let pause = match same {
            true => LONGEST,
            false => FOR_EACH.saturating_mul(count).min(LONGEST),
        };
        now < self.ended.after(pause)
    }
}
