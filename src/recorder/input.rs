//! What a recorder is told besides the bytes of its link.

use crate::amqp::ids::ShortStr;
use crate::machine::Owner;

/// From the sessions of its vhost.
#[derive(Debug)]
pub enum Input {
    /// What counts for this queue has changed: it is to be recorded. A session that waits for that is told.
    Record(ShortStr, Option<Owner>),
    /// Perhaps one of them says `declares = "lenient"` now.
    PoliciesChanged,
}
