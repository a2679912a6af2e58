//! What declares need of the connection beside what is theirs: the peers, what is known of queues, and the way to the broker.

use crate::amqp::ids::ChannelId;
use crate::machine::Mono;
use crate::registry::Registry;

use super::channel::Channels;
use super::declares::Declares;
use super::facts::Facts;
use super::frames::Handled;
use super::pause::Hold;
use super::peer::Peer;
use super::transit::Transit;
use super::{Session, Settings, Turn};

/// A session without its deliveries, during one call.
pub(super) struct Line<'s, 't> {
    pub(super) settings: &'s Settings,
    pub(super) peer: &'s Peer,
    pub(super) registry: &'s mut Registry,
    pub(super) channels: &'s mut Channels,
    pub(super) turn: &'s mut Turn<'t>,
    transit: &'s mut Transit,
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
            transit: &mut self.transit,
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
        let state = self.channels.get(&channel).map(|state| &**state);
        self.transit.inject(channel, state, self.turn, build);
    }

    /// The client waits for what is asked; the frame at its front is looked at again afterwards.
    pub(super) fn hold(&mut self) -> Handled {
        let now = self.now();
        self.transit
            .hold(Hold::Probe, self.settings, self.peer, now)
    }

    /// It waits no longer.
    pub(super) fn release(&mut self) {
        if self.transit.pause.hold() == Some(Hold::Probe) {
            self.transit.pause.end();
        }
    }

    pub(super) fn facts(&self) -> Facts<'_> {
        Facts::of(self.settings, self.peer, self.registry)
    }

    /// Whether a method with so many octets may be sent to the broker on this connection.
    pub(super) fn fits_frame(&self, octets: usize) -> bool {
        crate::amqp::frame::HEAD + octets < self.peer.frame_max()
    }
}
