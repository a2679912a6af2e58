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

use super::Turn;
use super::frames::{Handled, Method};
use super::lifecycle::{Farewell, Phase};
use super::presence;
use super::transit::Transit;

const EXTERNAL: &[u8] = b"EXTERNAL";
/// RabbitMQ's text for a refused login.
const REFUSED: &[u8] = b"ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL. For details see the broker logfile.";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum External {
    /// No TLS towards the broker: left to the broker.
    #[default]
    Passes,
    /// TLS without a certificate: EXTERNAL cannot work, so it is not offered, and refused.
    NotOffered,
    /// TLS with the proxy's own certificate: clients also may not use a protocol that hides the
    /// mechanism before the login.
    Guarded,
}

impl External {
    pub fn of(shows_certificate: Option<bool>) -> External {
        match shows_certificate {
            None => External::Passes,
            Some(false) => External::NotOffered,
            Some(true) => External::Guarded,
        }
    }

    /// Removes EXTERNAL; `None`: no change.
    fn without(self, payload: &[u8]) -> Option<Vec<u8>> {
        if self == External::Passes {
            return None;
        }
        let start = Start::parse(payload).ok()?;
        let offered = || start.mechanisms.split(|byte| *byte == b' ');
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

    /// Whether this `connection.start-ok` is refused.
    fn refuses(self, payload: &[u8]) -> bool {
        match (self, StartOk::parse(payload)) {
            (External::Passes, _) | (External::NotOffered, Err(_)) => false,
            (External::NotOffered | External::Guarded, Ok(ok)) => is_external(ok.mechanism),
            (External::Guarded, Err(_)) => true,
        }
    }
}

// === impl Transit ===

impl Transit {
    /// The broker's `connection.start`: without EXTERNAL, and with the proxy's property if the
    /// broker is known.
    pub(super) fn start(
        &mut self,
        method: Method<'_>,
        is_known: bool,
        turn: &mut Turn<'_>,
    ) -> Handled {
        let without = self.external.without(method.payload);
        let left = without.as_deref().unwrap_or(method.payload);
        let shown = is_known.then(|| presence::shown(left)).flatten();
        match shown.or(without) {
            Some(payload) => turn.replace(Leg::Broker, |out| {
                frame::put(out, 1, method.channel, |out| {
                    out.extend_from_slice(&payload)
                });
            }),
            None => turn.pass(Leg::Broker, method.range()),
        }
        Handled::Done
    }

    /// Checks the client's `connection.start-ok`. True: dropped, and the login is refused like
    /// RabbitMQ's, but at once.
    pub(super) fn refuses_start_ok(&mut self, payload: &[u8], turn: &mut Turn<'_>) -> bool {
        if !self.external.refuses(payload) {
            self.mechanism_is_chosen = true;
            return false;
        }
        turn.event(Event::ExternalRefused);
        self.handshake_until = None;
        if self.broker.is_inside() {
            self.life.enter(Phase::Done);
            return true;
        }
        let out = turn.build(Leg::Client);
        let failed = MethodId::CONNECTION_START_OK;
        reply::close(out, ChannelId::CONNECTION, ACCESS_REFUSED, REFUSED, failed);
        self.life.farewell = Farewell::Said;
        self.life.broker_is_gone(turn.now.mono);
        turn.mute = true;
        true
    }

    /// Called before bytes pass unparsed. True: they might choose EXTERNAL, so the session ends.
    /// The client gets RabbitMQ's answer to an unknown protocol: a protocol header, and the end.
    pub(super) fn guards_unseen(&mut self, turn: &mut Turn<'_>) -> bool {
        let guards = self.external == External::Guarded && !self.mechanism_is_chosen;
        if guards {
            turn.event(Event::ExternalRefused);
            self.handshake_until = None;
            if self.life.phase() == Phase::Greeting {
                turn.build(Leg::Client).extend_from_slice(&frame::PROTOCOL);
            }
            self.life.enter(Phase::Done);
        }
        guards
    }
}

fn is_external(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(EXTERNAL)
}
