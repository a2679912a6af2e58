//! What we say in the handshake.

use crate::amqp::ids::{ChannelId, Vhost};
use crate::amqp::method::{MethodId, Tune};
use crate::amqp::reply;
use crate::amqp::table::TableBuilder;
use crate::machine::Role;

use super::{FRAME_MAX, HEARTBEAT, Login};

/// RabbitMQ's names of what this client understands.
const CAPABILITIES: [&str; 6] = [
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "authentication_failure_close",
];

/// `connection.start-ok`.
pub(super) fn start_ok(out: &mut Vec<u8>, role: Role, login: &Login) {
    let mut capabilities = TableBuilder::default();
    for name in CAPABILITIES {
        capabilities.boolean(name.as_bytes(), true);
    }
    let name = format!("dlx-proxy {} {}", role.as_str(), login.vhost);
    let mut properties = TableBuilder::default();
    properties
        .longstr(b"product", b"dlx-proxy")
        .longstr(b"version", env!("CARGO_PKG_VERSION").as_bytes())
        .longstr(b"connection_name", name.as_bytes())
        .table(b"capabilities", &capabilities);
    let response = [b"\0", login.user.as_bytes(), b"\0", &login.password].concat();
    reply::method(out, ChannelId(0), MethodId::CONNECTION_START_OK, |a| {
        a.longstr(&properties.finish())
            .shortstr(b"PLAIN")
            .longstr(&response)
            .shortstr(b"en_US")
            .end();
    });
}

/// What we make of the broker's `connection.tune`.
pub(super) fn agree(offer: Tune) -> Tune {
    let limit = |offer: u32, ours: u32| if offer == 0 { ours } else { offer.min(ours) };
    Tune {
        channel_max: limit(offer.channel_max.into(), u16::MAX.into()) as u16,
        frame_max: limit(offer.frame_max, FRAME_MAX as u32),
        heartbeat: limit(offer.heartbeat.into(), HEARTBEAT.into()) as u16,
    }
}

/// `connection.tune-ok` and, without waiting, `connection.open`.
pub(super) fn tune_ok_and_open(out: &mut Vec<u8>, tune: &Tune, vhost: &Vhost) {
    reply::method(out, ChannelId(0), MethodId::CONNECTION_TUNE_OK, |a| {
        a.short(tune.channel_max)
            .long(tune.frame_max)
            .short(tune.heartbeat)
            .end();
    });
    reply::method(out, ChannelId(0), MethodId::CONNECTION_OPEN, |a| {
        a.shortstr(vhost).shortstr(b"").octet(0).end();
    });
}
