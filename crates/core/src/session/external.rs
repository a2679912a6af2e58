//! EXTERNAL: a client that logs in by the certificate of its connection. RabbitMQ takes that from *its* socket, where with TLS the certificate is
//! the proxy's, or none. So the proxy leaves EXTERNAL out of what the broker offers, and refuses who chooses it all the same, before the broker
//! hears of it. Where the proxy shows a certificate there, nobody gets into a connection in a way that the proxy does not understand. Whether it
//! does is a matter of each connection: certificates come and go while the proxy runs.

use crate::amqp::frame;
use crate::amqp::ids::ChannelId;
use crate::amqp::method::{MethodId, Start, StartOk};
use crate::amqp::reply;
use crate::amqp::reply_code::ACCESS_REFUSED;
use crate::machine::{Event, Leg};

use super::frames::{Handled, Method};
use super::lifecycle::{Farewell, Phase};
use super::{Session, Turn};

const EXTERNAL: &[u8] = b"EXTERNAL";
/// What RabbitMQ says to whom it does not let in.
const REFUSED: &[u8] = b"ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL. For details see the broker logfile.";

/// What becomes of EXTERNAL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum External {
    /// The broker's affair: there is no TLS on its leg.
    #[default]
    Passes,
    /// There is, so that EXTERNAL cannot work: it is not offered, and refused.
    NotOffered,
    /// There is, with a certificate of the proxy's own: nor may a client speak what is not looked at, before it has logged in.
    Guarded,
}

impl External {
    /// Of one connection to the broker; `None`: without TLS.
    pub fn of(shows_certificate: Option<bool>) -> External {
        match shows_certificate {
            None => External::Passes,
            Some(false) => External::NotOffered,
            Some(true) => External::Guarded,
        }
    }

    /// The same payload without EXTERNAL; `None` if it can stay as it is.
    fn without(self, payload: &[u8]) -> Option<Vec<u8>> {
        if self == External::Passes {
            return None;
        }
        let start = Start::parse(payload).ok()?;
        let offered = || start.mechanisms.split(|octet| *octet == b' ');
        if !offered().any(is_external) {
            return None;
        }
        let others: Vec<_> = offered().filter(|name| !is_external(name)).collect();
        let others = others.join(&b' ');
        // Class and method, version, a table with its length.
        let before = 4 + 2 + 4 + start.server_properties.len();
        let behind = before + 4 + start.mechanisms.len();
        let length = u32::try_from(others.len()).ok()?;
        let parts = [
            payload.get(..before)?,
            &length.to_be_bytes(),
            &others,
            payload.get(behind..)?,
        ];
        Some(parts.concat())
    }

    /// Whether a login is refused with this `connection.start-ok`.
    fn refuses(self, payload: &[u8]) -> bool {
        match (self, StartOk::parse(payload)) {
            (External::Passes, _) | (External::NotOffered, Err(_)) => false,
            (External::NotOffered | External::Guarded, Ok(ok)) => is_external(ok.mechanism),
            (External::Guarded, Err(_)) => true,
        }
    }
}

impl Session {
    /// `connection.start` of the broker, without EXTERNAL.
    pub(super) fn start(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> Handled {
        match self.external.without(method.payload) {
            Some(payload) => turn.replace(Leg::Broker, |out| {
                frame::put(out, 1, method.channel, |out| {
                    out.extend_from_slice(&payload)
                });
            }),
            None => turn.pass(Leg::Broker, method.range()),
        }
        Handled::Done
    }

    /// `connection.start-ok` of the client. True: it goes nowhere, and the login is refused as by RabbitMQ, but at once.
    pub(super) fn refuses_start_ok(&mut self, payload: &[u8], turn: &mut Turn<'_>) -> bool {
        if !self.external.refuses(payload) {
            self.mechanism_is_chosen = true;
            return false;
        }
        turn.event(Event::ExternalRefused);
        self.transit.handshake_until = None;
        if self.transit.broker.is_inside() {
            self.transit.life.enter(Phase::Done);
            return true;
        }
        let out = turn.build(Leg::Client);
        let failed = MethodId::CONNECTION_START_OK;
        reply::close(out, ChannelId::CONNECTION, ACCESS_REFUSED, REFUSED, failed);
        self.transit.life.farewell = Farewell::Said;
        self.transit.life.broker_is_gone(turn.now.mono);
        turn.mute = true;
        true
    }

    /// Called before bytes would pass without being looked at. True: they must not, as they could choose EXTERNAL, and the session is over. The
    /// client is answered as RabbitMQ answers a protocol that it does not speak: with its own protocol header, and the end.
    pub(super) fn guards_unseen(&mut self, turn: &mut Turn<'_>) -> bool {
        let guards = self.external == External::Guarded && !self.mechanism_is_chosen;
        if guards {
            turn.event(Event::ExternalRefused);
            self.transit.handshake_until = None;
            if self.transit.life.phase() == Phase::Greeting {
                turn.build(Leg::Client).extend_from_slice(&frame::PROTOCOL);
            }
            self.transit.life.enter(Phase::Done);
        }
        guards
    }
}

fn is_external(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(EXTERNAL)
}
