//! What the proxy itself has to say to the broker, and cannot say yet: a frame may only go where the client's ends, and a method not
//! between the frames of a content on its channel.

use std::collections::BTreeSet;

use crate::amqp::ids::ChannelId;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// In order, with their channels.
    frames: Vec<(ChannelId, Vec<u8>)>,
    acks: BTreeSet<ChannelId>,
}

// === impl Outbox ===

impl Outbox {
    pub(super) fn push(&mut self, channel: ChannelId, frame: Vec<u8>) {
        self.frames.push((channel, frame));
    }

    /// Which tags is decided when they are sent.
    pub(super) fn ack(&mut self, channel: ChannelId) {
        self.acks.insert(channel);
    }

    /// Its acks were sent by other means.
    pub(super) fn acked(&mut self, channel: ChannelId) {
        self.acks.remove(&channel);
    }

    pub(super) fn forget(&mut self, channel: ChannelId) {
        self.acks.remove(&channel);
        self.frames.retain(|(waiting, _)| *waiting != channel);
    }

    pub(super) fn take_frames(&mut self, may_go: impl Fn(ChannelId) -> bool) -> Vec<Vec<u8>> {
        let ready = self.frames.extract_if(.., |(channel, _)| may_go(*channel));
        ready.map(|(_, frame)| frame).collect()
    }

    pub(super) fn take_acks(&mut self, may_go: impl Fn(ChannelId) -> bool) -> BTreeSet<ChannelId> {
        let (ready, left) = std::mem::take(&mut self.acks)
            .into_iter()
            .partition(|channel| may_go(*channel));
        self.acks = left;
        ready
    }

    pub(super) fn has_acks(&self) -> bool {
        !self.acks.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.acks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ChannelId = ChannelId(1);
    const TWO: ChannelId = ChannelId(2);

    #[test]
    fn frames_go_in_order_and_those_of_a_busy_channel_stay() {
        let mut outbox = Outbox::default();
        outbox.push(ONE, vec![1]);
        outbox.push(TWO, vec![2]);
        outbox.push(ONE, vec![3]);
        assert_eq!(outbox.take_frames(|channel| channel == ONE), [[1], [3]]);
        assert!(!outbox.is_empty());
        assert_eq!(outbox.take_frames(|_| true), [[2]]);
        assert!(outbox.is_empty());
    }

    #[test]
    fn acks_wait_for_their_channel() {
        let mut outbox = Outbox::default();
        outbox.ack(ONE);
        outbox.ack(TWO);
        outbox.ack(TWO);
        assert_eq!(outbox.take_acks(|channel| channel == TWO), [TWO].into());
        assert!(outbox.has_acks());
        outbox.acked(ONE);
        assert!(!outbox.has_acks() && outbox.is_empty());
    }

    #[test]
    fn nothing_goes_to_a_channel_that_closes() {
        let mut outbox = Outbox::default();
        outbox.push(ONE, vec![1]);
        outbox.ack(ONE);
        outbox.push(TWO, vec![2]);
        outbox.forget(ONE);
        assert!(!outbox.has_acks());
        assert_eq!(outbox.take_frames(|_| true), [[2]]);
    }
}
