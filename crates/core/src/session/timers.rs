//! What a session waits for with a clock: each wait has a deadline while it is armed, and something that happens then.

use crate::amqp::frame;
use crate::machine::{Event, Leg, Limit, Mono};

use super::channel::Which;
use super::lifecycle::Phase;
use super::pause::Hold;
use super::tx::Tx;
use super::{Session, Turn};

impl Session {
    /// The deadlines of all that it waits for.
    pub(super) fn deadlines(&self) -> [Option<Mono>; 7] {
        [
            self.transit.pause.heartbeat_at(),
            self.transit.pause.until(),
            self.transit.life.until(),
            self.transit.handshake_until,
            self.declares.until(),
            self.ledger.again.at(),
            self.ledger.back.at(),
        ]
    }

    /// What is due is done, in this order.
    pub(super) fn deadlines_come(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        let is_due = |at: Option<Mono>| at.is_some_and(|at| at <= now);
        if is_due(self.transit.pause.heartbeat_at()) {
            if !self.transit.client.is_inside() {
                turn.build(Leg::Broker).extend_from_slice(&frame::HEARTBEAT);
            }
            self.transit.pause.keep_alive(self.peer.heartbeat(), now);
        }
        if is_due(self.transit.pause.until()) {
            self.hold_ends(turn);
        }
        if is_due(self.transit.life.until()) {
            self.phase_ends(turn);
        }
        if is_due(self.transit.handshake_until) {
            turn.event(Event::LimitMet(Limit::HandshakeTimeout));
            self.transit.life.enter(Phase::Done);
        }
        if is_due(self.declares.until()) {
            let (declares, mut line) = self.line(turn);
            declares.timed_out(&mut line);
        }
        if is_due(self.ledger.again.at()) {
            self.books(turn).publish_again();
        }
        if is_due(self.ledger.back.at()) {
            self.books(turn).return_uncopied();
        }
    }

    /// What the client waits for takes longer than it may.
    fn hold_ends(&mut self, turn: &mut Turn<'_>) {
        match self.transit.pause.hold() {
            Some(Hold::Withheld(on)) => {
                self.give_up(on, turn);
            }
            Some(Hold::Answers(channel)) => {
                self.give_up(Which::One(channel), turn);
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

    /// The bound on waiting for rejects has passed.
    fn give_up(&mut self, on: Which, turn: &mut Turn<'_>) {
        turn.event(Event::LimitMet(Limit::CloseWait));
        self.books(turn).give_up(on);
        self.transit.flush_acks(&mut self.channels, turn);
    }

    fn phase_ends(&mut self, turn: &mut Turn<'_>) {
        match self.transit.life.phase() {
            Phase::Leaving(_) => {
                self.give_up(Which::All, turn);
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
