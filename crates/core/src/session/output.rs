//! What a session has for other machines.

use crate::amqp::ids::ShortStr;
use crate::machine::{Ensure, Publication, Ticket};
use crate::registry::redeclared::Entry;

use super::Ready;

/// For the links of the vhost.
#[derive(Debug, Default)]
pub struct Output {
    /// For the publisher. Originals stay withheld until the outcome of their ticket.
    pub dead: Vec<(Ticket, Publication)>,
    /// For the intake: required exchanges, each answered by an
    /// [`Ensured`](crate::machine::Ensured).
    pub ensure: Vec<Ensure>,
    /// For the recorder: changed queues with their entries, and whether a declare waits. If so,
    /// answered by a [`Recorded`](super::Input::Recorded).
    pub record: Vec<(ShortStr, Entry, bool)>,
    /// For the recorder: the waiting declare has gone on.
    pub gave_up: bool,
    /// For the reader of the management API: unknown queues. Answers go to the catalogue.
    pub unknown: Vec<ShortStr>,
    /// For who makes a queue anew.
    pub swap: Option<Ready>,
}

pub type Effects = crate::machine::Effects<Output>;
