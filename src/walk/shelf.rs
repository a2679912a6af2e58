//! No message is held for long: RabbitMQ cuts a channel that holds one for half an hour (`consumer_timeout`), and nobody else sees it meanwhile.
//! A queue, a policy or the broker's settings may say less. From 4.3 on a walk of a quorum queue asks for the half hour; before, a shorter one ends it.
//!
//! ```text
//! Walking ─ paused for PAUSED, or holds one for HELD ─▶ Settling ─▶ … ─▶ Closing ─▶ Shelved ─ may go on ─▶ Asking ─▶ Walking
//!                                                                                   └─ paused for FORGOTTEN ─▶ Ended
//! ```
//! What lies in front of the messages that are meant has to be held again each time. So a walk that has moved nothing in [`HELD`] ends: it would meet the
//! same messages for ever.

use std::time::Duration;

use crate::machine::Now;

use super::moving::Moving;
use super::{BEGINNING, Effects, State, Stopped, Walk};

/// A pause of so long puts back what is held.
const PAUSED: Duration = Duration::from_secs(5 * 60);
/// What is paused for so long ends: it has a place, of which there are few, and a connection.
const FORGOTTEN: Duration = Duration::from_secs(60 * 60);
/// RabbitMQ's default, which a walk asks for where it may: then no shorter one ends it.
pub(super) const HOLDS: Duration = Duration::from_secs(30 * 60);
/// What is held for so long is put back, and met again.
pub(super) const HELD: Duration = Duration::from_secs(20 * 60);
/// Memory of the broker for what is held, at most, ...
const HEAVIEST: u64 = 1 << 30;
/// ... and while the broker may have an alarm about its memory, if that lasts for so long.
const HEAVY: u64 = 64 << 20;
const ALARM: Duration = Duration::from_secs(30);

impl Walk {
    /// Takes nothing more for a while, or goes on.
    pub(super) fn pause(&mut self, pause: bool, now: Now, fx: &mut Effects) {
        if pause == self.paused.is_some() {
            return;
        }
        self.paused = pause.then(|| now.mono.after(FORGOTTEN));
        match self.state {
            State::Shelved if !pause => self.begin_anew(now, fx),
            State::Walking => {
                self.since = now.mono;
                self.shelf_later(now);
            }
            _ => {}
        }
    }

    /// When what is held has to be put back, if messages move.
    pub(super) fn shelf_later(&mut self, now: Now) {
        let at = self.began.after(HELD);
        let at = match self.paused.is_some() {
            true => at.min(now.mono.after(PAUSED)),
            false => at,
        };
        self.shelf = self.moving.is_some().then_some(at);
    }

    /// What is held is held for long.
    pub(super) fn shelf_is_due(&mut self, now: Now, fx: &mut Effects) {
        let stays = self.moving.as_ref().is_some_and(Moving::holds_any);
        let gets_on = self.moving.as_ref().is_some_and(Moving::gets_on);
        match self.paused.is_some() || stays {
            true if self.paused.is_some() || gets_on || self.summary.starves => self.put_down(),
            true => self.stop(Stopped::Time, now, fx),
            // All that it has comes and goes.
            false => {
                self.began = now.mono;
                self.shelf_later(now);
            }
        }
    }

    /// What is held takes too much of the broker's memory.
    pub(super) fn is_too_heavy(&self) -> bool {
        self.moving.is_some() && self.weight() >= HEAVIEST
    }

    /// In an alarm, which may be about the memory for what is held, not much of that is held for long.
    pub(super) fn lighten(&mut self, now: Now, fx: &mut Effects) {
        let waits = self.moving.as_ref().and_then(Moving::waits_since);
        let for_long = waits.is_some_and(|since| since.after(ALARM) <= now.mono);
        if for_long && self.state == State::Walking && self.weight() >= HEAVY {
            self.cancel(Stopped::Octets, now, fx);
        }
    }

    /// Puts back what is held, and then goes on.
    fn put_down(&mut self) {
        let Some(moving) = self
            .moving
            .as_mut()
            .filter(|_| self.state == State::Walking)
        else {
            return;
        };
        moving.put_down();
        self.state = State::Settling;
        self.restarts = true;
        (self.until, self.quiet) = (None, None);
    }

    pub(super) fn shelve(&mut self, now: Now, fx: &mut Effects) {
        self.restarts = false;
        self.state = State::Shelved;
        (self.until, self.quiet) = (None, None);
        // What has gone was met; what was put back is met again.
        self.delivered = self.acked;
        self.summary.seen = self.acked;
        if let Some(moving) = &mut self.moving {
            moving.begin_anew();
        }
        if self.paused.is_none() {
            self.begin_anew(now, fx);
        }
    }

    fn begin_anew(&mut self, now: Now, fx: &mut Effects) {
        self.until = Some(now.mono.after(BEGINNING));
        self.open_channel(fx);
        self.begin(now, fx);
    }
}
