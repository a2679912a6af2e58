//! What a session asks of intake before a declare goes on.

use crate::amqp::ids::ShortStr;

/// Requests an intake exchange with its bindings before a declare goes on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ensure {
    pub exchange: ShortStr,
    /// The client's user, whose share of the exchanges is limited.
    pub user: Option<ShortStr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ensured {
    pub exchange: ShortStr,
    /// False: the exchange cannot be had; the broker gets the declare unchanged.
    pub ready: bool,
}
