//! What declares need of the connection beside what is theirs: the peers, what is known of queues, and the way to the broker.

use crate::amqp::ids::ChannelId;
use crate::machine::Mono;
use crate::registry::Registry;

use super::channel::Channels;
use super::facts::Facts;
use super::frames::Handled;
use super::pause::Hold;
use super::peer::Peer;
use super::transit::Transit;
use super::{Settings, Turn};

/// A session without its deliveries, during one call.
pub(super) struct Line<'s, 't> {
    pub(super) settings: &'s Settings,
    pub(super) peer: &'s Peer,
    pub(super) registry: &'s mut Registry,
    pub(super) channels: &'s mut Channels,
    pub(super) turn: &'s mut Turn<'t>,
    pub(super) transit: &'s mut Transit,
}

// === impl Line ===

impl Line<'_, '_> {
    pub(super) fn now(&self) -> Mono {
        self.turn.now.mono
    }

    /// Deadline of the current question.
    pub(super) fn deadline(&self) -> Mono {
        self.now().after(self.settings.limits.now().probe_timeout)
    }

    /// Sends a method of the proxy to the broker, now or at the next frame boundary.
    pub(super) fn inject(&mut self, channel: ChannelId, build: impl FnOnce(&mut Vec<u8>)) {
        let state = self.channels.get(&channel).map(|state| &**state);
        self.transit.inject(channel, state, self.turn, build);
    }

    /// The client waits for the answer; its front frame is processed again afterwards.
    pub(super) fn hold(&mut self) -> Handled {
        let now = self.now();
        self.transit
            .hold(Hold::Probe, self.settings, self.peer, now)
    }

    pub(super) fn release(&mut self) {
        if self.transit.pause.hold() == Some(Hold::Probe) {
            self.transit.pause.end();
        }
    }

    pub(super) fn facts(&self) -> Facts<'_> {
        Facts::of(self.settings, self.peer, self.registry)
    }

    /// Whether a method of this size fits a frame towards the broker.
    pub(super) fn fits_frame(&self, bytes: usize) -> bool {
        crate::amqp::frame::HEAD + bytes < self.peer.frame_max()
    }
}
