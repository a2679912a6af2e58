//! What a recorder is told besides the bytes of its link.

use crate::amqp::ids::ShortStr;
use crate::machine::Owner;
use crate::registry::redeclared::Entry;

/// From the sessions of its vhost.
#[derive(Debug)]
pub enum Input {
    /// A declare, or the end of the queue, has made this entry, which counts already: it is to be recorded. A session that waits for that is
    /// told.
    Record(ShortStr, Entry, Option<Owner>),
    /// This session has gone on, and waits no longer: other declares may follow that one.
    GaveUp(Owner),
    /// Perhaps one of them says `declares = "lenient"` now.
    PoliciesChanged,
}
