//! Who rejected a message: facts that a session knows anyway, handed on without a copy.

use std::sync::Arc;
use std::time::Duration;

use crate::amqp::ids::ShortStr;

/// A client's connection, as people know it. One value for all that its session says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientConnection {
    /// Its `connection_name`, cut off at 255 octets.
    pub name: Option<ShortStr>,
    /// The user, when the mechanism of its login shows it.
    pub user: Option<ShortStr>,
    /// The client's address, without its port.
    pub host: ShortStr,
}

/// Who rejected a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejecter {
    pub connection: Arc<ClientConnection>,
    /// The tag of the consumer that had it; none: it was got by `basic.get`.
    pub consumer: Option<ShortStr>,
    /// From its delivery to the reject.
    pub held: Duration,
}
