//! A declare of an exchange with the type `x-delayed-message`, which the broker does not know: it becomes one of its `x-delayed-type`.

use crate::amqp::ids::ShortStr;
use crate::amqp::method::{ExchangeDeclare, MethodId, Publish};
use crate::amqp::reply;
use crate::amqp::reply_code::PRECONDITION_FAILED;
use crate::machine::Leg;
use crate::registry::delayed_exchanges::{Routing, TYPE, real_type};

use super::channel::Channel;
use super::frames::Method;
use super::replies::Expected;
use super::{Session, Turn};

const NO_WAIT: u8 = 16;
/// The plugin's words (S14.1).
const NO_TYPE: &str =
    "PRECONDITION_FAILED - Invalid argument, 'x-delayed-type' must be an existing exchange type";
const NO_ROOM: &str = "PRECONDITION_FAILED - too many exchanges of the type 'x-delayed-message'";

/// What an accepted declare shows of its exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shows {
    Nothing,
    Ordinary,
    Delayed(Routing),
}

// === impl Shows ===

impl Shows {
    pub(super) fn of(declare: &ExchangeDeclare<'_>) -> Shows {
        if declare.bits & ExchangeDeclare::PASSIVE != 0 {
            Shows::Nothing
        } else if declare.kind == TYPE {
            let real = real_type(declare.arguments).map(Routing::of);
            real.map_or(Shows::Nothing, Shows::Delayed)
        } else {
            Shows::Ordinary
        }
    }
}

// === impl Channel ===

impl Channel {
    /// Whether the answer to such a declare is due: of this exchange, or of any.
    pub(super) fn declares_delayed(&self, exchange: Option<&[u8]>) -> bool {
        self.due.iter().any(|due| match &due.what {
            Expected::Exchange(of, Shows::Delayed(_)) => {
                exchange.is_none_or(|exchange| of.as_bytes() == exchange)
            }
            _ => false,
        })
    }
}

impl Session {
    /// Sends the declare in its real form. False: it passes as it is.
    pub(super) fn declare_delayed(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> bool {
        let delays = &self.settings.delays;
        if !delays.x_delay || method.id != MethodId::EXCHANGE_DECLARE {
            return false;
        }
        let declare = ExchangeDeclare::parse(method.payload).ok();
        let passive = ExchangeDeclare::PASSIVE;
        let is_meant = |of: &ExchangeDeclare<'_>| of.kind == TYPE && of.bits & passive == 0;
        let Some(declare) = declare.filter(is_meant) else {
            return false;
        };
        if delays.exchanges.has_plugin() {
            return false;
        }
        let real = real_type(declare.arguments);
        let has_room = delays
            .exchanges
            .has_room(&self.peer.vhost, declare.exchange);
        let Some(real) = real.filter(|_| has_room) else {
            let text = if real.is_none() { NO_TYPE } else { NO_ROOM };
            let (_, mut line) = self.line(turn);
            let code = PRECONDITION_FAILED;
            line.refuse(
                method.channel,
                code,
                text.into(),
                MethodId::EXCHANGE_DECLARE,
            );
            return true;
        };
        self.watch_request(method, false);
        let out = turn.build(Leg::Broker);
        reply::method(out, method.channel, MethodId::EXCHANGE_DECLARE, |a| {
            a.short(declare.ticket)
                .shortstr(declare.exchange)
                .shortstr(real)
                .octet(declare.bits & !NO_WAIT)
                .longstr(declare.arguments)
                .end();
        });
        true
    }

    /// A publish to an exchange that its channel is declaring, as a client may that wants no reply:
    /// only the answer tells whether the publish may have to wait.
    pub(super) fn awaits_exchange(&self, method: Method<'_>) -> bool {
        let delays = &self.settings.delays;
        if !delays.x_delay || method.id != MethodId::BASIC_PUBLISH || delays.exchanges.has_plugin()
        {
            return false;
        }
        let (state, publish) = (
            self.channels.get(&method.channel),
            Publish::parse(method.payload),
        );
        let declares = |publish: Publish<'_>| {
            state.is_some_and(|of| of.declares_delayed(Some(publish.exchange)))
        };
        publish.is_ok_and(declares)
    }

    pub(super) fn exchange_declared(&self, exchange: &ShortStr, shows: Shows) {
        let (delays, vhost) = (&self.settings.delays, &self.peer.vhost);
        if !delays.x_delay {
            return;
        }
        match shows {
            Shows::Nothing => {}
            Shows::Ordinary => delays.exchanges.declared(vhost, exchange, None),
            // The broker delays.
            Shows::Delayed(_) if delays.exchanges.has_plugin() => {}
            Shows::Delayed(routing) => delays.exchanges.declared(vhost, exchange, Some(routing)),
        }
    }
}
