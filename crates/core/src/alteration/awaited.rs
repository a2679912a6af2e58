//! The sessions and the publisher of one proxy: who was told something, and was not heard of since.

use std::collections::BTreeSet;

use crate::machine::Owner;
use crate::session::Ready;

use super::{Input, Told};

#[derive(Debug, Default)]
pub(super) struct Awaited {
    pub(super) wanted: Option<Ready>,
    /// `None`: it is not known yet who was told.
    sessions: Option<BTreeSet<Owner>>,
    publisher_pauses: bool,
}

// === impl Awaited ===

impl Awaited {
    /// All are told this.
    pub(super) fn begin(&mut self, told: Told) {
        (self.wanted, self.sessions) = (told.wanted(), None);
        if told == Told::Hold {
            self.publisher_pauses = false;
        }
    }

    pub(super) fn hear(&mut self, input: Input) {
        match input {
            Input::Told(owners) => self.sessions = Some(owners),
            Input::Ready(owner, ready) if self.wanted == Some(ready) => self.heard_of(owner),
            // An answer to something earlier.
            Input::Ready(..) => {}
            Input::Gone(owner) => self.heard_of(owner),
            Input::Paused => self.publisher_pauses = true,
        }
    }

    fn heard_of(&mut self, owner: Owner) {
        if let Some(sessions) = &mut self.sessions {
            sessions.remove(&owner);
        }
    }

    pub(super) fn sessions(&self) -> usize {
        self.sessions.as_ref().map_or(0, BTreeSet::len)
    }

    /// What all have become.
    pub(super) fn done(&self) -> Option<Ready> {
        let are_ready = self.sessions.as_ref().is_some_and(BTreeSet::is_empty);
        let pauses = self.publisher_pauses || self.wanted != Some(Ready::Cancelled);
        self.wanted.filter(|_| are_ready && pauses)
    }
}

// === impl Told ===

impl Told {
    /// What it makes of a session. `None`: nobody waits for that.
    fn wanted(self) -> Option<Ready> {
        match self {
            Told::Hold => Some(Ready::Held),
            Told::Settle => Some(Ready::Settled),
            Told::Cancel => Some(Ready::Cancelled),
            Told::Moving | Told::Over(_) => None,
        }
    }
}
