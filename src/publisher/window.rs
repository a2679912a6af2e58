//! How many of the intake's dead letters of one target may wait for a retry: beyond that, new ones of it are parked at once.
//!
//! The intake consumes with one prefetch for all targets; a target that answers nothing would otherwise hold all of it. The rule is here,
//! and not in the intake, because only the publisher knows who waits for a retry. Sessions do not need it: a stuck target holds their
//! own consumers only, as it should.

use std::collections::BTreeMap;

use crate::amqp::ids::ShortStr;
use crate::machine::{Owner, Publication};

/// Behind the default exchange each key is a target of its own; behind others, the exchange is.
type Target = (ShortStr, ShortStr);

/// Counts who waits.
#[derive(Debug)]
pub(super) struct Window {
    intake: Option<Owner>,
    limit: usize,
    late: BTreeMap<Target, usize>,
}

// === impl Window ===

impl Window {
    /// For dead letters of that owner, at most so many per target.
    pub(super) fn new(intake: Option<Owner>, limit: usize) -> Window {
        Window {
            intake,
            limit: limit.max(1),
            late: BTreeMap::new(),
        }
    }

    /// Whether a new one of it must not wait.
    pub(super) fn is_full(&self, owner: Owner, publication: &Publication) -> bool {
        self.intake == Some(owner)
            && !self.late.is_empty()
            && self.late.get(&target(publication)) >= Some(&self.limit)
    }

    /// One waits from now on; whether it is counted.
    pub(super) fn enter(&mut self, owner: Owner, publication: &Publication) -> bool {
        let counts = self.intake == Some(owner);
        if counts {
            *self.late.entry(target(publication)).or_default() += 1;
        }
        counts
    }

    /// One that was counted waits no more.
    pub(super) fn leave(&mut self, publication: &Publication) {
        let target = target(publication);
        if let Some(count) = self.late.get_mut(&target) {
            *count -= 1;
            if *count == 0 {
                self.late.remove(&target);
            }
        }
    }
}

fn target(publication: &Publication) -> Target {
    let key = if publication.exchange.is_empty() {
        publication.routing_key.clone()
    } else {
        ShortStr::EMPTY
    };
    (publication.exchange.clone(), key)
}
