//! What a recorder has for other machines.

use crate::amqp::ids::ShortStr;
use crate::machine::Owner;

/// For the sessions and the intake of its vhost.
#[derive(Debug, Default)]
pub struct Output {
    /// For the sessions that wait: whether that is recorded, or cannot be now.
    pub recorded: Vec<(Owner, ShortStr, bool)>,
    /// For the intake: whether all counts that was recorded before.
    pub current: Option<bool>,
}

/// All that it wants done.
pub type Effects = crate::machine::Effects<Output>;
