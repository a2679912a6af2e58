//! How far a session is between its beginning and its end, and what its client has been told of the end.
//!
//! ```text
//!            "AMQP 0-0-9-1"           open-ok                  close in either direction
//!   Greeting ─────────────▶ Watching ────────▶ Watching, open ───────────────────────▶ Raw
//!      │ any other header                           │ the client is gone, or the process ends
//!      ▼                                            ▼
//!     Raw                                        Leaving ── settled, or close-wait passed ──▶ Goodbye ──▶ (Parting) ──▶ Done
//! ```

use std::time::Duration;

use crate::machine::{Flow, Mono};

/// How long `connection.close-ok` is awaited.
pub(super) const GOODBYE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Greeting,
    /// AMQP 0-9-1: frames are parsed.
    Watching,
    Raw,
    /// The client is gone; rejects are withheld until then.
    Leaving(Mono),
    /// `connection.close` was sent for the client; its answer is awaited until then.
    Goodbye(Mono),
    /// The client has ended its stream, so ours to the broker ends too; the broker's end is awaited
    /// until then.
    HalfClosed(Mono),
    /// The broker leg is closed; the client's answer to our `connection.close` is awaited until
    /// then.
    Parting(Mono),
    Done,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Farewell {
    #[default]
    None,
    /// Send `connection.close` after the passing frame.
    Due,
    Said,
    /// Answered, or the client's stream has ended.
    Answered,
}

#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    phase: Phase,
    pub(super) farewell: Farewell,
}

// === impl Lifecycle ===

impl Lifecycle {
    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn until(&self) -> Option<Mono> {
        match self.phase {
            Phase::Leaving(until)
            | Phase::Goodbye(until)
            | Phase::HalfClosed(until)
            | Phase::Parting(until) => Some(until),
            Phase::Greeting | Phase::Watching | Phase::Raw | Phase::Done => None,
        }
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        self.phase = phase;
    }

    pub(super) fn is_watching(&self) -> bool {
        self.phase == Phase::Watching
    }

    /// The client is gone or being closed, while the rest is settled.
    pub(super) fn is_raw(&self) -> bool {
        self.phase == Phase::Raw
    }

    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Leaving(_))
    }

    /// The end has not begun: the client's methods count.
    pub(super) fn hears_client(&self) -> bool {
        matches!(self.phase, Phase::Greeting | Phase::Watching | Phase::Raw)
    }

    pub(super) fn connection_closes(&mut self) {
        self.phase = match self.phase {
            // Without its client it ends within the time that it has, whatever the broker still does.
            Phase::Leaving(until) | Phase::HalfClosed(until) => Phase::HalfClosed(until),
            ending @ (Phase::Goodbye(_) | Phase::Parting(_) | Phase::Done) => ending,
            Phase::Greeting | Phase::Watching | Phase::Raw => Phase::Raw,
        };
    }

    /// The broker leg is closed. A notified client may still answer: with unread bytes, the system
    /// would reset the connection, and the client might lose the notice.
    pub(super) fn broker_is_gone(&mut self, now: Mono) {
        self.phase = match self.phase {
            Phase::Parting(until) => Phase::Parting(until),
            _ if self.farewell == Farewell::Said => Phase::Parting(now.after(GOODBYE)),
            _ => Phase::Done,
        };
    }

    pub(super) fn answered(&mut self) {
        self.farewell = Farewell::Answered;
        if let Phase::Parting(_) = self.phase {
            self.phase = Phase::Done;
        }
    }

    /// Nothing more of the broker passes.
    pub(super) fn is_mute(&self) -> bool {
        match self.farewell {
            Farewell::Due => false,
            // Whatever the phase: nothing follows `connection.close`.
            Farewell::Said | Farewell::Answered => true,
            Farewell::None => matches!(
                self.phase,
                Phase::Leaving(_) | Phase::Goodbye(_) | Phase::Parting(_)
            ),
        }
    }

    /// The client was notified of the shutdown.
    pub(super) fn knows_of_the_end(&self) -> bool {
        self.farewell != Farewell::None
    }

    /// The client's answer to that is awaited.
    pub(super) fn is_answer_awaited(&self) -> bool {
        matches!(self.farewell, Farewell::Due | Farewell::Said)
    }

    pub(super) fn flow(&self) -> Flow {
        match self.phase {
            Phase::Done => Flow::Finish,
            Phase::HalfClosed(_) => Flow::HalfClosed,
            Phase::Greeting
            | Phase::Watching
            | Phase::Raw
            | Phase::Leaving(_)
            | Phase::Goodbye(_)
            | Phase::Parting(_) => Flow::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::default().after(Duration::from_secs(seconds))
    }

    fn in_phase(phase: Phase) -> Lifecycle {
        let mut life = Lifecycle::default();
        life.enter(phase);
        life
    }

    #[test]
    fn a_client_that_is_told_the_end_is_waited_for() {
        let mut life = in_phase(Phase::Watching);
        life.farewell = Farewell::Due;
        assert!(life.is_answer_awaited() && !life.is_mute());
        life.farewell = Farewell::Said;
        assert!(life.is_answer_awaited() && life.is_mute());
        life.broker_is_gone(at(5));
        assert_eq!((life.flow(), life.until()), (Flow::Open, Some(at(7))));
        life.broker_is_gone(at(6));
        assert_eq!(life.until(), Some(at(7)), "the time does not begin anew");
        life.answered();
        assert_eq!((life.flow(), life.until()), (Flow::Finish, None));
    }

    #[test]
    fn who_has_answered_before_is_not_waited_for() {
        let mut life = in_phase(Phase::Goodbye(at(9)));
        life.farewell = Farewell::Due;
        life.farewell = Farewell::Said;
        life.answered();
        assert_eq!(life.phase(), Phase::Goodbye(at(9)));
        life.broker_is_gone(at(5));
        assert_eq!(life.flow(), Flow::Finish);
    }

    #[test]
    fn a_close_is_passed_on_or_ends_a_session_without_its_client() {
        let after = |phase| {
            let mut life = in_phase(phase);
            life.connection_closes();
            life.phase()
        };
        assert_eq!(after(Phase::Watching), Phase::Raw);
        assert_eq!(after(Phase::Leaving(at(3))), Phase::HalfClosed(at(3)));
        assert_eq!(after(Phase::HalfClosed(at(3))), Phase::HalfClosed(at(3)));
        for ending in [Phase::Goodbye(at(3)), Phase::Parting(at(3)), Phase::Done] {
            assert_eq!(after(ending), ending);
        }
    }

    #[test]
    fn nothing_is_passed_to_a_client_that_is_gone() {
        assert!(!in_phase(Phase::Watching).is_mute());
        assert!(in_phase(Phase::Leaving(at(1))).is_mute());
        assert!(in_phase(Phase::Goodbye(at(1))).is_mute());
        assert!(!in_phase(Phase::HalfClosed(at(1))).is_mute());
        assert!(!in_phase(Phase::Leaving(at(1))).hears_client());
    }
}
