//! What a session waits for with a clock: each wait has a deadline while it is armed, and something that happens then.

use crate::machine::{Event, Limit, Mono};

use super::ledger::Books;
use super::lifecycle::Phase;
use super::pause::Hold;
use super::tx::Tx;
use super::{Session, Turn};

/// A deadline while armed, and its action.
type Timer = (
    fn(&Session) -> Option<Mono>,
    fn(&mut Session, &mut Turn<'_>),
);

/// Timers due at the same time fire in this order.
pub(super) const TIMERS: [Timer; 8] = [
    (
        |s| s.transit.pause.heartbeat_at(),
        |s, turn| s.transit.heartbeat(&s.peer, turn),
    ),
    (
        |s| s.transit.pause.until(),
        |s, turn| s.books(turn).hold_ends(),
    ),
    (
        |s| s.transit.life.until(),
        |s, turn| s.books(turn).phase_ends(),
    ),
    (
        |s| s.transit.handshake_until,
        |s, turn| {
            turn.event(Event::LimitMet(Limit::HandshakeTimeout));
            s.transit.life.enter(Phase::Done);
        },
    ),
    (
        |s| s.declares.until(),
        |s, turn| {
            let (declares, mut line) = s.line(turn);
            declares.timed_out(&mut line);
        },
    ),
    (
        |s| s.ledger.again.at(),
        |s, turn| s.books(turn).publish_again(),
    ),
    (
        |s| s.ledger.back.at(),
        |s, turn| s.books(turn).return_uncopied(),
    ),
    (|s| s.ledger.watch.at(), |s, turn| s.take_back_overdue(turn)),
];

impl Books<'_, '_> {
    /// The client has waited too long.
    fn hold_ends(&mut self) {
        match self.transit.pause.hold() {
            Some(Hold::Withheld(on)) => self.give_up(on),
            Some(Hold::Answers(channel)) => {
                self.give_up(Some(channel));
                if let Some(state) = self.channels.get_mut(&channel) {
                    state.impatient = true; // only this one goes on, as far as its tags are known
                }
            }
            Some(Hold::Commit(channel)) => {
                if let Some(state) = self.channels.get_mut(&channel) {
                    state.tx = Some(Tx::Plain);
                }
            }
            Some(
                Hold::Tickets
                | Hold::Replies
                | Hold::Confirms(_)
                | Hold::Exchange(_)
                | Hold::Probe
                | Hold::Swap,
            )
            | None => {}
        }
        self.transit.pause.end();
    }

    fn phase_ends(&mut self) {
        let life = &mut self.transit.life;
        match life.phase() {
            Phase::Leaving(_) => {
                self.give_up(None);
                self.transit.say_goodbye(self.turn);
            }
            Phase::Goodbye(_) | Phase::HalfClosed(_) => life.broker_is_gone(self.turn.now.mono),
            Phase::Parting(_) => life.enter(Phase::Done),
            Phase::Greeting | Phase::Watching | Phase::Raw | Phase::Done => {}
        }
    }
}
