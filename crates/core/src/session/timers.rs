//! What a session waits for with a clock: each wait has a name, a deadline while it is armed, and something that happens then.

use crate::amqp::frame;
use crate::machine::{Event, Leg, Limit, Mono};

use super::lifecycle::Phase;
use super::ordering::Channels;
use super::pause::Hold;
use super::tx::Tx;
use super::{Session, Turn};

/// A wait that ends at its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// The broker hears of the proxy while the client is not read.
    Heartbeat,
    /// The client waits for withheld rejects or for answers.
    Hold,
    /// The connection ends, in steps.
    Phase,
    /// The connection must be open.
    Handshake,
    /// What is asked of the broker must be decided.
    Probe,
    /// Rejects that are kept from the broker are published again.
    PublishAgain,
    /// Those of which there is no copy go back to their queues.
    ReturnUncopied,
}

impl Timer {
    /// In the order in which those fire that are due at the same time.
    pub(super) const ALL: [Timer; 7] = [
        Timer::Heartbeat,
        Timer::Hold,
        Timer::Phase,
        Timer::Handshake,
        Timer::Probe,
        Timer::PublishAgain,
        Timer::ReturnUncopied,
    ];
}

impl Session {
    /// The deadline of a timer, while it is armed.
    pub(super) fn due_at(&self, timer: Timer) -> Option<Mono> {
        match timer {
            Timer::Heartbeat => self.pause.heartbeat_at(),
            Timer::Hold => self.pause.until(),
            Timer::Phase => self.life.until(),
            Timer::Handshake => self.handshake_until,
            Timer::Probe => self.declares.until(),
            Timer::PublishAgain => self.again.at(),
            Timer::ReturnUncopied => self.back.at(),
        }
    }

    /// The deadline of a timer, which was `at`, has come.
    pub(super) fn fire(&mut self, timer: Timer, at: Mono, turn: &mut Turn<'_>) {
        match timer {
            Timer::Heartbeat => self.heartbeat_due(at, turn),
            Timer::Hold => self.hold_ends(turn),
            Timer::Phase => self.phase_ends(turn),
            Timer::Handshake => {
                turn.event(Event::LimitMet(Limit::HandshakeTimeout));
                self.life.enter(Phase::Done);
            }
            Timer::Probe => {
                let (declares, mut line) = self.line(turn);
                declares.timed_out(&mut line);
            }
            Timer::PublishAgain => self.publish_again(turn),
            Timer::ReturnUncopied => self.return_uncopied(turn),
        }
    }

    fn heartbeat_due(&mut self, at: Mono, turn: &mut Turn<'_>) {
        if !self.client.is_inside() {
            turn.build(Leg::Broker).extend_from_slice(&frame::HEARTBEAT);
        }
        let from = at.max(turn.now.mono);
        self.pause.keep_alive(self.peer.heartbeat(), from);
    }

    /// What the client waits for takes longer than it may.
    fn hold_ends(&mut self, turn: &mut Turn<'_>) {
        match self.pause.hold() {
            Some(Hold::Withheld(on, _)) => {
                turn.event(Event::LimitMet(Limit::CloseWait));
                self.give_up(on, turn);
                self.flush_acks(turn);
            }
            Some(Hold::Answers(channel, _)) => {
                turn.event(Event::LimitMet(Limit::CloseWait));
                self.give_up(Channels::One(channel), turn);
                self.flush_acks(turn);
                self.lose_patience(channel);
            }
            Some(Hold::Commit(channel, _)) => {
                if let Some(state) = self.channels.get_mut(&channel) {
                    state.tx = Some(Tx::Plain);
                }
            }
            Some(Hold::Tickets | Hold::Replies | Hold::Probe) | None => {}
        }
        self.pause.end();
    }

    fn phase_ends(&mut self, turn: &mut Turn<'_>) {
        match self.life.phase() {
            Phase::Leaving(_) => {
                turn.event(Event::LimitMet(Limit::CloseWait));
                self.give_up(Channels::All, turn);
                self.say_goodbye(turn);
            }
            Phase::Goodbye(_) | Phase::HalfClosed(_) => self.life.broker_is_gone(turn.now.mono),
            Phase::Parting(_) => self.life.enter(Phase::Done),
            Phase::Greeting | Phase::Watching | Phase::Raw | Phase::Done => {}
        }
    }
}
