//! What a session has for other machines.

use crate::amqp::ids::ShortStr;
use crate::machine::{Ensure, Publication, Ticket};
use crate::registry::redeclared::Entry;

/// For the links of its vhost.
#[derive(Debug, Default)]
pub struct Output {
    /// For the publisher: dead letters. Their originals stay withheld until its outcome names the ticket.
    pub dead: Vec<(Ticket, Publication)>,
    /// For the intake: exchanges that must exist; each is answered by one [`Ensured`](crate::machine::Ensured).
    pub ensure: Vec<Ensure>,
    /// For the recorder: queues for which something else counts from now on, the entry that says what, and whether a declare waits until that
    /// is recorded. If so, it is answered by one [`Recorded`](super::Input::Recorded).
    pub record: Vec<(ShortStr, Entry, bool)>,
    /// For the recorder: the declare that waited has gone on without that.
    pub gave_up: bool,
    /// For who reads the management API: queues that nobody knows. What it tells of them comes into the catalogue.
    pub unknown: Vec<ShortStr>,
}

/// All that it wants done.
pub type Effects = crate::machine::Effects<Output>;
