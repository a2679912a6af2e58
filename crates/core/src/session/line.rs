//! What declares need of the connection beside what is theirs: the peers, what is known of queues, and the way to the broker.

use std::collections::BTreeMap;

use crate::amqp::ids::ChannelId;
use crate::machine::{Leg, Mono};
use crate::registry::Registry;

use super::channel::Channel;
use super::declares::Declares;
use super::frames::Handled;
use super::outbox::Outbox;
use super::pause::{Hold, Pause};
use super::peer::Peer;
use super::{Session, Settings, Turn};

/// A session without its deliveries, during one call.
pub(super) struct Line<'s, 't> {
    pub(super) settings: &'s Settings,
    pub(super) peer: &'s Peer,
    pub(super) registry: &'s mut Registry,
    pub(super) channels: &'s mut BTreeMap<ChannelId, Box<Channel>>,
    pub(super) turn: &'s mut Turn<'t>,
    pause: &'s mut Pause,
    outbox: &'s mut Outbox,
    inside_frame: bool,
}

impl Session {
    /// Its declares, and what they need of the rest.
    pub(super) fn line<'s, 't>(
        &'s mut self,
        turn: &'s mut Turn<'t>,
    ) -> (&'s mut Declares, Line<'s, 't>) {
        let line = Line {
            settings: &self.settings,
            peer: &self.peer,
            registry: &mut self.registry,
            channels: &mut self.channels,
            turn,
            pause: &mut self.pause,
            outbox: &mut self.outbox,
            inside_frame: self.client.is_inside(),
        };
        (&mut self.declares, line)
    }
}

// === impl Line ===

impl Line<'_, '_> {
    pub(super) fn now(&self) -> Mono {
        self.turn.now.mono
    }

    /// When what is asked now must have been decided.
    pub(super) fn deadline(&self) -> Mono {
        self.now().after(self.settings.limits.now().probe_timeout)
    }

    /// Sends a method of our own to the broker, now or at the next boundary.
    pub(super) fn inject(&mut self, channel: ChannelId, build: impl FnOnce(&mut Vec<u8>)) {
        let state = self.channels.get(&channel);
        let is_idle = state.is_none_or(|state| state.publishing.is_idle());
        if is_idle && !self.inside_frame {
            return build(self.turn.build(Leg::Broker));
        }
        let mut frame = Vec::new();
        build(&mut frame);
        self.outbox.push(channel, frame);
    }

    /// The client waits for what is asked; the frame at its front is looked at again afterwards.
    pub(super) fn hold(&mut self) -> Handled {
        let now = self.now();
        self.pause.begin(Hold::Probe, self.peer.heartbeat(), now);
        Handled::Wait
    }

    /// It waits no longer.
    pub(super) fn release(&mut self) {
        if self.pause.hold() == Some(Hold::Probe) {
            self.pause.end();
        }
    }

    /// Whether a method with so many octets may be sent to the broker on this connection.
    pub(super) fn fits_frame(&self, octets: usize) -> bool {
        crate::amqp::frame::HEAD + octets < self.peer.frame_max()
    }
}
