//! What a session waits for with a clock: each wait has a deadline while it is armed, and something that happens then.

use crate::amqp::frame;
use crate::amqp::ids::ChannelId;
use crate::machine::{Event, Leg, Limit, Mono};

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
pub(super) const TIMERS: [Timer; 7] = [
    (|s| s.transit.pause.heartbeat_at(), Session::heartbeat_due),
    (|s| s.transit.pause.until(), Session::hold_ends),
    (|s| s.transit.life.until(), Session::phase_ends),
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
];

impl Session {
    /// Heartbeat to the broker while the client is not read.
    fn heartbeat_due(&mut self, turn: &mut Turn<'_>) {
        if !self.transit.client.is_inside() {
            turn.build(Leg::Broker).extend_from_slice(&frame::HEARTBEAT);
        }
        self.transit
            .pause
            .keep_alive(self.peer.heartbeat(), turn.now.mono);
    }

    /// The client has waited too long.
    fn hold_ends(&mut self, turn: &mut Turn<'_>) {
        match self.transit.pause.hold() {
            Some(Hold::Withheld(on)) => {
                self.give_up(on, turn);
            }
            Some(Hold::Answers(channel)) => {
                self.give_up(Some(channel), turn);
                if let Some(mut page) = self.books(turn).page(channel) {
                    page.lose_patience();
                }
            }
            Some(Hold::Commit(channel)) => {
                if let Some(state) = self.channels.get_mut(&channel) {
                    state.tx = Some(Tx::Plain);
                }
            }
            Some(Hold::Tickets | Hold::Replies | Hold::Probe) | None => {}
        }
        self.transit.pause.end();
    }

    fn give_up(&mut self, on: Option<ChannelId>, turn: &mut Turn<'_>) {
        turn.event(Event::LimitMet(Limit::CloseWait));
        self.books(turn).give_up(on);
        self.transit.flush_acks(&mut self.channels, turn);
    }

    fn phase_ends(&mut self, turn: &mut Turn<'_>) {
        match self.transit.life.phase() {
            Phase::Leaving(_) => {
                self.give_up(None, turn);
                self.transit.say_goodbye(turn);
            }
            Phase::Goodbye(_) | Phase::HalfClosed(_) => {
                self.transit.life.broker_is_gone(turn.now.mono)
            }
            Phase::Parting(_) => self.transit.life.enter(Phase::Done),
            Phase::Greeting | Phase::Watching | Phase::Raw | Phase::Done => {}
        }
    }
}
