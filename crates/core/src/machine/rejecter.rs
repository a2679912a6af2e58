//! Who rejected a message: facts that a session knows anyway, handed on without a copy.

use std::sync::Arc;
use std::time::Duration;

use crate::amqp::ids::ShortStr;

/// A client's connection, for logs and stamps. One value per session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientConnection {
    /// Its `connection_name`, cut at 255 bytes.
    pub name: Option<ShortStr>,
    /// Known when the mechanism of the login shows it.
    pub user: Option<ShortStr>,
    pub host: ShortStr,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejecter {
    pub connection: Arc<ClientConnection>,
    /// None: the message came by `basic.get`.
    pub consumer: Option<ShortStr>,
    /// From delivery to reject.
    pub held: Duration,
}
