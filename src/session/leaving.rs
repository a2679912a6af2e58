//! A client that vanishes with rejects withheld: they are settled first, within `close-wait`.

use std::time::Duration;

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::machine::Leg;

use super::channel::Consumer;
use super::{Phase, Session, Turn};

const REPLY_SUCCESS: u16 = 200;
const CONNECTION_FORCED: u16 = 320;
/// How long `connection.close-ok` is waited for.
const GOODBYE: Duration = Duration::from_secs(2);

impl Session {
    /// The client is gone. What the broker still sends is read and goes nowhere.
    pub(super) fn leave(&mut self, turn: &mut Turn<'_>) {
        if matches!(
            self.phase,
            Phase::Leaving(_) | Phase::Goodbye(_) | Phase::HalfClosed(_) | Phase::Done
        ) {
            return;
        }
        self.hold = None;
        self.handshake_until = None;
        let inside_frame = self.client.owed > 0;
        if self.phase != Phase::Watching || self.tickets.is_empty() || inside_frame {
            // Nothing to settle, or the broker waits for the end of a frame that will never come: it returns all to the queues.
            let until = turn.now.mono.after(self.settings.close_wait);
            self.broker.raw |= self.phase != Phase::Watching;
            self.phase = Phase::HalfClosed(until);
            return;
        }
        self.phase = Phase::Leaving(turn.now.mono.after(self.settings.close_wait));
        self.heartbeat_at = self.peer.heartbeat().map(|half| turn.now.mono.after(half));
        let channels: Vec<ChannelId> = self
            .channels
            .iter()
            .filter(|(_, state)| !state.closing)
            .map(|(channel, _)| *channel)
            .collect();
        for channel in channels {
            self.leave_channel(channel, turn);
        }
    }

    /// Nothing more shall be delivered: what was, and is not withheld, goes back.
    fn leave_channel(&mut self, channel: ChannelId, turn: &mut Turn<'_>) {
        let Some(state) = self.channels.get(&channel) else {
            return;
        };
        if state.unacked.any_withheld() {
            // An auto-delete queue would go with its last consumer, and a reject that had to be forwarded would find nothing.
            let stays = |consumer: &Consumer| !self.registry.is_auto_delete(&consumer.queue);
            let consumers: Vec<ShortStr> = state
                .consumers
                .iter()
                .filter(|(_, consumer)| stays(consumer))
                .map(|(tag, _)| tag.clone())
                .collect();
            for consumer in consumers {
                self.inject(channel, turn, |out| {
                    reply::method(out, channel, MethodId::BASIC_CANCEL, |a| {
                        a.shortstr(&consumer).octet(1).end()
                    });
                });
            }
        } else if self.may_inject(channel) {
            reply::close(
                turn.build(Leg::Broker),
                channel,
                REPLY_SUCCESS,
                b"",
                MethodId(0, 0),
            );
            self.abandon(channel);
        }
    }

    /// The last withheld reject of a client that is gone has been settled.
    pub(super) fn leave_when_settled(&mut self, turn: &mut Turn<'_>) {
        if matches!(self.phase, Phase::Leaving(_)) && self.tickets.is_empty() {
            self.say_goodbye(turn);
        }
    }

    /// Closes the connection in order: the broker carries out what was sent last only if the connection does not break behind it.
    pub(super) fn say_goodbye(&mut self, turn: &mut Turn<'_>) {
        let nobody = MethodId(0, 0);
        let out = turn.build(Leg::Broker);
        reply::close(out, ChannelId(0), REPLY_SUCCESS, b"", nobody);
        self.heartbeat_at = None;
        self.phase = Phase::Goodbye(turn.now.mono.after(GOODBYE));
    }

    /// The process is ending: the client is told so, and its rejects are settled. Both connections end in order, not by a reset.
    pub(super) fn drain(&mut self, turn: &mut Turn<'_>) {
        let watching = self.phase == Phase::Watching && !self.client.raw;
        if watching && self.broker.owed == 0 {
            reply::close(
                turn.build(Leg::Client),
                ChannelId(0),
                CONNECTION_FORCED,
                b"CONNECTION_FORCED - dlx-proxy is shutting down",
                MethodId(0, 0),
            );
        }
        if watching && self.tickets.is_empty() && self.client.owed == 0 {
            self.hold = None;
            self.handshake_until = None;
            self.say_goodbye(turn);
        } else {
            self.leave(turn);
        }
    }
}
