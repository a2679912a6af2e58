//! A link that is opened once, for a task in the name of a user: it ends with an answer, or with the reason why there is none.

use crate::link::Link;
use crate::machine::{Effects, Event, Flow, Now};

use super::Failure;

#[derive(Debug, Default)]
pub(crate) struct Once {
    failure: Option<Failure>,
    has_ended: bool,
    told: bool,
}

// === impl Once ===

impl Once {
    /// The first reason counts.
    pub(crate) fn fails(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub(crate) fn end<O>(&mut self, link: &mut Link, now: Now, fx: &mut Effects<O>) {
        self.has_ended = true;
        link.goodbye(now, fx);
    }

    /// Ends every call: reports the result once. Events of its link are for the user, not for the
    /// log.
    pub(crate) fn over<O>(&mut self, fx: &mut Effects<O>) -> Option<Result<(), Failure>> {
        for event in fx.events.drain(..) {
            if let Event::LinkDown { cause, .. } | Event::VhostNative { cause } = event
                && !self.has_ended
            {
                self.fails(Failure::of_connection(cause));
                self.has_ended = true;
            }
        }
        let is_news = self.has_ended && !std::mem::replace(&mut self.told, true);
        is_news.then(|| self.failure.take().map_or(Ok(()), Err))
    }

    /// Never reconnects.
    pub(crate) fn course(&self, link: &Link) -> Flow {
        match link.flow() {
            Flow::Reconnect(_) if self.told => Flow::Finish,
            flow => flow,
        }
    }
}
