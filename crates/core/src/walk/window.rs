//! How many messages a walk may hold at once: few at first, and more as it goes on. So what is found early, or limited to a few, takes few.
//!
//! A prefetch cannot be changed while its consumer is there. So a walk whose window is full cancels its consumer, which keeps what it holds, and
//! consumes again (S12.7). Nothing is on its way then (S12.6), and the tags sort by age, as a quorum queue puts back by consumers in the order of
//! their names: so the order stays.

pub(super) const LARGEST: u64 = u16::MAX as u64;

#[derive(Debug, Default)]
pub(super) struct Window {
    pub(super) number: u32,
    /// Messages that it may hold: its prefetch.
    room: u64,
    held: u64,
    /// The last delivery of the previous consumer.
    before: u64,
    last: u64,
    /// The broker was asked for it.
    pub(super) opens: bool,
}

// === impl Window ===

impl Window {
    pub(super) fn of(room: u64) -> Window {
        Window {
            room,
            ..Window::default()
        }
    }

    /// Full: none is in flight.
    pub(super) fn is_full(&self) -> bool {
        self.held >= self.room
    }

    /// Messages that may come, or are in flight.
    pub(super) fn awaited(&self) -> u64 {
        self.room.saturating_sub(self.held)
    }

    pub(super) fn shrink(&mut self, by: u64) {
        self.room = self.room.saturating_sub(by);
    }

    pub(super) fn came(&mut self, tag: u64) {
        self.held += 1;
        self.last = tag;
    }

    /// A message is acked. True: this makes room (previous consumers' do not).
    pub(super) fn acked(&mut self, tag: u64) -> bool {
        let makes_room = tag > self.before && self.held > 0;
        self.held -= u64::from(makes_room);
        makes_room
    }

    pub(super) fn prefetch(&self) -> u16 {
        u16::try_from(self.room).unwrap_or(u16::MAX)
    }

    pub(super) fn tag(&self) -> Vec<u8> {
        format!("dlx-proxy-{:04}", self.number).into_bytes()
    }

    /// Room for more; `consumes`: for a consumer to be opened.
    pub(super) fn widen(&mut self, room: u64, consumes: bool) {
        *self = Window {
            number: self.number + u32::from(consumes),
            before: self.last,
            last: self.last,
            opens: consumes,
            ..Window::of(room)
        };
    }
}
