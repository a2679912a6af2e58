//! The proxy's own exchanges and queues at the broker, and how each is declared.

use crate::amqp::ids::ShortStr;
use crate::amqp::method::{MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::amqp::table::TableBuilder;
use crate::dead_letter::Dialect;
use crate::registry::intake_name::Names;

use super::{QueueType, TOPOLOGY};

/// Bits of `exchange.declare`.
const PASSIVE: u8 = 1;
const DURABLE: u8 = 2;
const INTERNAL: u8 = 8;
/// Failed deliveries after which the broker parks a signal (S10.2).
const DELIVERY_LIMIT: i64 = 20;
/// What is parked may be looked at and returned without end. Below 0 is no limit on 4.x, whose default of 20 would drop the message
/// then; on 3.x none is the default, and a limit below 0 drops at the first return (both measured).
const NO_DELIVERY_LIMIT: i64 = -1;

/// Those that every vhost has, in the order in which they are declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// Fanout, durable.
    ParkingExchange,
    /// Takes all that is parked.
    ParkingQueue,
    /// Between them.
    ParkingBinding,
    /// Collects all signals.
    IntakeQueue,
}

/// Writes the declares.
#[derive(Debug)]
pub(super) struct Objects {
    names: Names,
    queue_type: QueueType,
    dialect: Dialect,
}

// === impl Object ===

impl Object {
    /// Each of them, in order.
    pub(super) const ALL: [Object; 4] = [
        Object::ParkingExchange,
        Object::ParkingQueue,
        Object::ParkingBinding,
        Object::IntakeQueue,
    ];
}

// === impl Objects ===

impl Objects {
    /// Objects with these names.
    pub(super) fn new(names: Names, queue_type: QueueType) -> Objects {
        Objects {
            names,
            queue_type,
            dialect: Dialect::V4,
        }
    }

    /// At a broker of that generation, from now on.
    pub(super) fn at(&mut self, dialect: Dialect) {
        self.dialect = dialect;
    }

    /// Declares one; `passive`: only asks whether it is there.
    pub(super) fn declare(&self, object: Object, passive: bool, out: &mut Vec<u8>) {
        let parking = self.names.parking();
        match object {
            Object::ParkingExchange => {
                let bits = DURABLE | if passive { PASSIVE } else { 0 };
                declare_exchange(out, parking, bits, &[]);
            }
            Object::ParkingQueue => {
                declare_queue(out, parking, passive, self.parking_arguments());
            }
            Object::ParkingBinding => bind(out, parking, parking),
            Object::IntakeQueue => {
                let queue = self.names.intake_queue();
                declare_queue(out, queue, passive, self.intake_arguments());
            }
        }
    }

    /// Declares an intake exchange.
    pub(super) fn declare_intake(&self, exchange: &ShortStr, out: &mut Vec<u8>) {
        let mut arguments = TableBuilder::default();
        arguments.longstr(b"alternate-exchange", self.names.parking());
        declare_exchange(out, exchange, DURABLE | INTERNAL, &arguments.finish());
    }

    /// Binds the intake queue to it.
    pub(super) fn bind_intake(&self, exchange: &ShortStr, out: &mut Vec<u8>) {
        bind(out, self.names.intake_queue(), exchange);
    }

    fn type_name(&self) -> &'static [u8] {
        match self.queue_type {
            QueueType::Quorum => b"quorum",
            QueueType::Classic => b"classic",
        }
    }

    fn parking_arguments(&self) -> TableBuilder {
        let mut arguments = TableBuilder::default();
        arguments.longstr(b"x-queue-type", self.type_name());
        if self.queue_type == QueueType::Quorum && self.dialect == Dialect::V4 {
            arguments.long(b"x-delivery-limit", NO_DELIVERY_LIMIT);
        }
        arguments
    }

    fn intake_arguments(&self) -> TableBuilder {
        let mut arguments = TableBuilder::default();
        arguments
            .longstr(b"x-queue-type", self.type_name())
            .boolean(b"x-single-active-consumer", true)
            .longstr(b"x-dead-letter-exchange", self.names.parking());
        if self.queue_type == QueueType::Quorum {
            arguments
                .long(b"x-delivery-limit", DELIVERY_LIMIT)
                .longstr(b"x-dead-letter-strategy", b"at-least-once")
                .longstr(b"x-overflow", b"reject-publish");
        }
        arguments
    }
}

fn declare_exchange(out: &mut Vec<u8>, exchange: &ShortStr, bits: u8, arguments: &[u8]) {
    reply::method(out, TOPOLOGY, MethodId::EXCHANGE_DECLARE, |a| {
        a.short(0)
            .shortstr(exchange)
            .shortstr(b"fanout")
            .octet(bits)
            .longstr(arguments)
            .end();
    });
}

fn declare_queue(out: &mut Vec<u8>, queue: &ShortStr, passive: bool, arguments: TableBuilder) {
    let bits = QueueDeclare::DURABLE | if passive { QueueDeclare::PASSIVE } else { 0 };
    reply::method(out, TOPOLOGY, MethodId::QUEUE_DECLARE, |a| {
        a.short(0)
            .shortstr(queue)
            .octet(bits)
            .longstr(&arguments.finish())
            .end();
    });
}

fn bind(out: &mut Vec<u8>, queue: &ShortStr, exchange: &ShortStr) {
    reply::method(out, TOPOLOGY, MethodId::QUEUE_BIND, |a| {
        a.short(0)
            .shortstr(queue)
            .shortstr(exchange)
            .shortstr(b"")
            .octet(0)
            .longstr(b"")
            .end();
    });
}
