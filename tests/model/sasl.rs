//! Who says that they are whom, by each mechanism that RabbitMQ has switched on.

use crate::codec::value::{Bytes, Table};

use super::call::string;

/// The user and the password, where the mechanism has one; none: it is unknown, or the response makes no sense.
pub(super) fn credentials(mechanism: &[u8], response: &[u8]) -> Option<(Bytes, Option<Bytes>)> {
    match mechanism {
        b"PLAIN" => plain(response),
        b"AMQPLAIN" => amqplain(response),
        b"ANONYMOUS" => Some((b"guest".to_vec(), None)),
        _ => None,
    }
}

fn plain(response: &[u8]) -> Option<(Bytes, Option<Bytes>)> {
    let mut parts = response.split(|octet| *octet == 0);
    let (other, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    // In nobody else's name.
    let right = other.is_empty() && parts.next().is_none();
    right.then(|| (user.to_vec(), Some(password.to_vec())))
}

fn amqplain(response: &[u8]) -> Option<(Bytes, Option<Bytes>)> {
    let table = Table::decode(response);
    let login = string(&table, "LOGIN")?;
    Some((login, Some(string(&table, "PASSWORD")?)))
}
