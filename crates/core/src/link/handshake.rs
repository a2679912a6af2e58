//! The handshake: what we say, and what we make of what the broker says.

use bytes::Bytes;

use crate::amqp::ids::{ChannelId, Vhost};
use crate::amqp::method::{MethodId, Start, Tune};
use crate::amqp::reply;
use crate::amqp::table::{Table, TableBuilder, Value};
use crate::dead_letter::Dialect;
use crate::machine::{Effects, Event, Mono, Now, Role};

use super::{FRAME_MAX, HEARTBEAT, Link, Login, Loss, Reported, State};

const CAPABILITIES: [&str; 6] = [
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "authentication_failure_close",
];

impl Link {
    /// One step: whether the link is up; `None`: the broker is unsupported.
    pub(super) fn advance<O>(
        &mut self,
        id: MethodId,
        payload: &[u8],
        until: Mono,
        now: Now,
        fx: &mut Effects<O>,
    ) -> Option<bool> {
        let out = fx.broker.build(&[]);
        let awaits = match id {
            MethodId::CONNECTION_START => {
                let start = Start::parse(payload).ok()?;
                self.version = version(start.server_properties);
                self.dialect = Dialect::of_version(&self.version)?;
                start_ok(out, self.role, &self.login);
                MethodId::CONNECTION_TUNE
            }
            MethodId::CONNECTION_TUNE => {
                self.tune = agree(Tune::parse(payload).ok()?);
                tune_ok_and_open(out, &self.tune, &self.login.vhost);
                MethodId::CONNECTION_OPEN_OK
            }
            _ => {
                self.state = State::Up { since: now.mono };
                self.heard = now.mono;
                self.beat = now.mono.after(self.interval() / 2);
                if self.reported != Reported::Up {
                    self.reported = Reported::Up;
                    fx.events.push(Event::LinkUp {
                        role: self.role,
                        version: self.version.clone(),
                    });
                }
                return Some(true);
            }
        };
        self.state = State::Handshake { awaits, until };
        Some(false)
    }

    pub(super) fn handshake_failed<O>(&mut self, now: Now, fx: &mut Effects<O>) -> Loss {
        let version = &self.version;
        if !version.is_empty() && Dialect::of_version(version).is_none() {
            let version = version.escape_ascii();
            return self.refuse(format!("RabbitMQ {version} is older than 3.10"), now, fx);
        }
        self.lose("the broker's handshake cannot be read".into(), now, fx)
    }
}

fn start_ok(out: &mut Vec<u8>, role: Role, login: &Login) {
    let mut capabilities = TableBuilder::default();
    for name in CAPABILITIES {
        capabilities.boolean(name.as_bytes(), true);
    }
    let name = login.connection_name(role);
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

/// Our answer to the broker's `connection.tune`.
fn agree(offer: Tune) -> Tune {
    let limit = |offer: u32, ours: u32| if offer == 0 { ours } else { offer.min(ours) };
    Tune {
        channel_max: limit(offer.channel_max.into(), u16::MAX.into()) as u16,
        frame_max: limit(offer.frame_max, FRAME_MAX as u32),
        heartbeat: limit(offer.heartbeat.into(), HEARTBEAT.into()) as u16,
    }
}

/// Sends `connection.tune-ok`, and `connection.open` without waiting.
fn tune_ok_and_open(out: &mut Vec<u8>, tune: &Tune, vhost: &Vhost) {
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

/// `server-properties.version`; may be empty.
fn version(server_properties: &[u8]) -> Bytes {
    let version = Table(server_properties).get(b"version").ok().flatten();
    Bytes::copy_from_slice(version.and_then(Value::as_longstr).unwrap_or_default())
}
