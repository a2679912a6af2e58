//! The proxy's own exchanges and queues at the broker, and how each is declared.

use crate::amqp::ids::ShortStr;
use crate::amqp::method::{MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::amqp::table::TableBuilder;
use crate::dead_letter::Dialect;
use crate::objects::Names;

use super::{QueueType, TOPOLOGY};

const PASSIVE: u8 = 1;
const DURABLE: u8 = 2;
const INTERNAL: u8 = 8;
/// Failed deliveries before the broker parks a signal (S10.2).
const DELIVERY_LIMIT: i64 = 20;

/// An object of the proxy, in the order of declares and answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// Fanout, durable.
    ParkingExchange,
    ParkingQueue,
    ParkingBinding,
    IntakeQueue,
    /// Direct, durable: leads to the delay queues, which the publisher makes.
    DelayExchange,
    /// Fanout, durable, internal: collects messages from delay queues.
    DueExchange,
    DueBinding,
    /// Fanout, durable, internal: its name has the intended target.
    IntakeExchange(ShortStr),
    IntakeBinding(ShortStr),
}

#[derive(Debug)]
pub(super) struct Objects {
    names: Names,
    queue_type: QueueType,
    dialect: Dialect,
}

// === impl Object ===

impl Object {
    /// In the order of their declares.
    pub(super) const OF_EACH_VHOST: [Object; 7] = [
        Object::ParkingExchange,
        Object::ParkingQueue,
        Object::ParkingBinding,
        Object::DelayExchange,
        Object::DueExchange,
        Object::IntakeQueue,
        Object::DueBinding,
    ];

    /// Only retries need it: if missing, everything else works.
    pub(super) fn is_for_retries(&self) -> bool {
        matches!(
            self,
            Object::DelayExchange | Object::DueExchange | Object::DueBinding
        )
    }

    /// Bindings have no passive form: the maker of the objects has bound them.
    pub(super) fn is_binding(&self) -> bool {
        match self {
            Object::ParkingBinding | Object::DueBinding | Object::IntakeBinding(_) => true,
            Object::ParkingExchange
            | Object::ParkingQueue
            | Object::IntakeQueue
            | Object::DelayExchange
            | Object::DueExchange
            | Object::IntakeExchange(_) => false,
        }
    }
}

// === impl Objects ===

impl Objects {
    pub(super) fn new(names: Names, queue_type: QueueType) -> Objects {
        Objects {
            names,
            queue_type,
            dialect: Dialect::V4,
        }
    }

    pub(super) fn at(&mut self, dialect: Dialect) {
        self.dialect = dialect;
    }

    /// `passive`: only checks an exchange or a queue.
    pub(super) fn declare(&self, object: &Object, passive: bool, out: &mut Vec<u8>) {
        let (parking, intake) = (self.names.parking(), self.names.intake_queue());
        let exchange =
            |out: &mut Vec<u8>, name: &[u8], exchange_type: &[u8], more: u8, arguments: &[u8]| {
                let bits = DURABLE | more | if passive { PASSIVE } else { 0 };
                reply::declare_exchange(out, TOPOLOGY, (name, exchange_type), bits, arguments);
            };
        let queue = |out: &mut Vec<u8>, name: &[u8], arguments: TableBuilder| {
            let passive = if passive { QueueDeclare::PASSIVE } else { 0 };
            let bits = QueueDeclare::DURABLE | passive;
            reply::declare_queue(out, TOPOLOGY, name, bits, &arguments.finish());
        };
        let bind = |out: &mut Vec<u8>, queue: &[u8], exchange: &[u8]| {
            let binding = (exchange, &b""[..], queue);
            reply::bind(out, TOPOLOGY, MethodId::QUEUE_BIND, binding, 0);
        };
        match object {
            Object::ParkingExchange => exchange(out, parking, b"fanout", 0, &[]),
            Object::DelayExchange => exchange(out, self.names.delay(), b"direct", 0, &[]),
            Object::DueExchange => {
                exchange(out, self.names.due(), b"fanout", INTERNAL, &self.parks());
            }
            Object::DueBinding => bind(out, intake, self.names.due()),
            Object::ParkingQueue => queue(out, parking, self.parking_arguments()),
            Object::ParkingBinding => bind(out, parking, parking),
            Object::IntakeQueue => queue(out, intake, self.intake_arguments()),
            Object::IntakeExchange(name) => {
                exchange(out, name, b"fanout", INTERNAL, &self.parks());
            }
            Object::IntakeBinding(exchange) => bind(out, intake, exchange),
        }
    }

    /// For an exchange: parks unroutable messages.
    fn parks(&self) -> Vec<u8> {
        let mut arguments = TableBuilder::default();
        arguments.longstr(b"alternate-exchange", self.names.parking());
        arguments.finish()
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
        if self.queue_type == QueueType::Quorum {
            self.dialect.lift_delivery_limit(&mut arguments);
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
