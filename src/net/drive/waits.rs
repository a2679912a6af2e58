//! What a driver waits for; for those who watch that it does not do so in vain.

use crate::machine::{Leg, Machine, Mono};

use super::super::clock::Clock;
use super::super::stream::Stream;
use super::{Drive, Outlet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// By leg: the client's, the broker's.
    pub read: [bool; 2],
    /// By leg: something is buffered.
    pub write: [bool; 2],
    pub inbox: bool,
    pub until: Option<Mono>,
}

// === impl Drive ===

impl<M: Machine, O: Outlet<M>, S: Stream, C: Clock> Drive<M, O, S, C> {
    pub fn waits(&self) -> Waits {
        let ended = self.last_words.is_some();
        let legs = [Leg::Client, Leg::Broker];
        let buffered = [self.fx.client.buffered(), self.fx.broker.buffered()];
        let read = legs.map(|leg| {
            let pipe = self.pipe(leg).filter(|pipe| !pipe.read_to_end);
            !ended && pipe.is_some() && self.wants_read(leg)
        });
        let write = legs.map(|leg| buffered[leg as usize] > 0);
        Waits {
            read,
            write,
            inbox: !ended
                && (self.machine.accepts() && !self.inbox.is_empty()
                    || self
                        .answers
                        .as_ref()
                        .is_some_and(|answers| !answers.is_empty())),
            until: self.due(),
        }
    }
}
