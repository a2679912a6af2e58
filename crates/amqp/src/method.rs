//! Which method a frame carries, and views of the arguments of those that we act on.
//!
//! A view borrows from the payload. Field order and types are those of RabbitMQ's `amqp-rabbitmq-0.9.1.json`; methods that nobody
//! here looks into have no view and pass.

use super::cursor::{Cursor, Malformed};
use super::ids::DeliveryTag;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodId(pub u16, pub u16);

macro_rules! methods {
    ($($name:ident = $class:literal $method:literal;)*) => {
        impl MethodId {
            $(#[doc = concat!("Class ", $class, ", method ", $method, ".")]
            pub const $name: MethodId = MethodId($class, $method);)*
        }
    };
}

methods! {
    CONNECTION_START = 10 10; CONNECTION_START_OK = 10 11; CONNECTION_TUNE = 10 30; CONNECTION_TUNE_OK = 10 31;
    CONNECTION_OPEN = 10 40; CONNECTION_OPEN_OK = 10 41; CONNECTION_CLOSE = 10 50; CONNECTION_CLOSE_OK = 10 51;
    CONNECTION_BLOCKED = 10 60; CONNECTION_UNBLOCKED = 10 61; CONNECTION_UPDATE_SECRET = 10 70; CONNECTION_UPDATE_SECRET_OK = 10 71;
    CHANNEL_OPEN = 20 10; CHANNEL_OPEN_OK = 20 11; CHANNEL_FLOW = 20 20; CHANNEL_FLOW_OK = 20 21;
    CHANNEL_CLOSE = 20 40; CHANNEL_CLOSE_OK = 20 41;
    EXCHANGE_DECLARE = 40 10; EXCHANGE_DECLARE_OK = 40 11; EXCHANGE_DELETE = 40 20; EXCHANGE_BIND = 40 30; EXCHANGE_UNBIND = 40 40; EXCHANGE_UNBIND_OK = 40 51;
    QUEUE_DECLARE = 50 10; QUEUE_DECLARE_OK = 50 11; QUEUE_BIND = 50 20; QUEUE_BIND_OK = 50 21; QUEUE_PURGE = 50 30; QUEUE_PURGE_OK = 50 31;
    QUEUE_DELETE = 50 40; QUEUE_DELETE_OK = 50 41; QUEUE_UNBIND = 50 50; QUEUE_UNBIND_OK = 50 51;
    BASIC_QOS = 60 10; BASIC_QOS_OK = 60 11; BASIC_CONSUME = 60 20; BASIC_CONSUME_OK = 60 21; BASIC_CANCEL = 60 30; BASIC_CANCEL_OK = 60 31;
    BASIC_PUBLISH = 60 40; BASIC_RETURN = 60 50; BASIC_DELIVER = 60 60; BASIC_GET = 60 70; BASIC_GET_OK = 60 71; BASIC_GET_EMPTY = 60 72;
    BASIC_ACK = 60 80; BASIC_REJECT = 60 90; BASIC_RECOVER_ASYNC = 60 100; BASIC_RECOVER = 60 110; BASIC_RECOVER_OK = 60 111;
    BASIC_NACK = 60 120;
    CONFIRM_SELECT = 85 10; CONFIRM_SELECT_OK = 85 11;
    TX_SELECT = 90 10; TX_SELECT_OK = 90 11; TX_COMMIT = 90 20; TX_COMMIT_OK = 90 21; TX_ROLLBACK = 90 30;
    TX_ROLLBACK_OK = 90 31;
}

impl MethodId {
    pub fn peek(payload: &[u8]) -> Option<MethodId> {
        let &[c1, c0, m1, m0] = payload.first_chunk::<4>()?;
        Some(MethodId(
            u16::from_be_bytes([c1, c0]),
            u16::from_be_bytes([m1, m0]),
        ))
    }
}

fn arguments(payload: &[u8]) -> Result<Cursor<'_>, Malformed> {
    let mut cursor = Cursor::new(payload);
    cursor.take(4)?;
    Ok(cursor)
}

macro_rules! view {
    ($(#[$doc:meta])* $name:ident<'a> { $($(#[$field_doc:meta])* $field:ident: $type:ty = |$cursor:ident| $read:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name<'a> { $($(#[$field_doc])* pub $field: $type,)* }

        impl<'a> $name<'a> {
            /// Reads the arguments of a method payload.
            ///
            /// # Errors
            /// When it ends too early.
            pub fn parse(payload: &'a [u8]) -> Result<Self, Malformed> {
                let mut cursor = arguments(payload)?;
                $(let $field = { let $cursor = &mut cursor; $read };)*
                Ok($name { $($field,)* })
            }
        }
    };
}

view! {
    Start<'a> {
        version: u16 = |c| c.short()?;
        server_properties: &'a [u8] = |c| c.longstr()?;
        mechanisms: &'a [u8] = |c| c.longstr()?;
    }
}

view! {
    StartOk<'a> {
        client_properties: &'a [u8] = |c| c.longstr()?;
        mechanism: &'a [u8] = |c| c.shortstr()?;
        /// Secret.
        response: &'a [u8] = |c| c.longstr()?;
    }
}

view! {
    Open<'a> {
        vhost: &'a [u8] = |c| c.shortstr()?;
    }
}

view! {
    Close<'a> {
        code: u16 = |c| c.short()?;
        text: &'a [u8] = |c| c.shortstr()?;
        /// Class of the method at fault, or 0.
        class: u16 = |c| c.short()?;
        method: u16 = |c| c.short()?;
    }
}

view! {
    ExchangeDeclare<'a> {
        ticket: u16 = |c| c.short()?;
        exchange: &'a [u8] = |c| c.shortstr()?;
        kind: &'a [u8] = |c| c.shortstr()?;
        /// passive 1, durable 2, auto_delete 4, internal 8, no_wait 16.
        bits: u8 = |c| c.octet()?;
        arguments: &'a [u8] = |c| c.longstr()?;
    }
}

impl Consume<'_> {
    pub const NO_ACK: u8 = 2;
    pub const NO_WAIT: u8 = 8;
}

impl ExchangeDeclare<'_> {
    /// Bit of `bits`: only checks that the exchange exists.
    pub const PASSIVE: u8 = 1;
}

view! {
    ExchangeName<'a> {
        ticket: u16 = |c| c.short()?;
        exchange: &'a [u8] = |c| c.shortstr()?;
    }
}

view! {
    ExchangeBind<'a> {
        ticket: u16 = |c| c.short()?;
        destination: &'a [u8] = |c| c.shortstr()?;
        source: &'a [u8] = |c| c.shortstr()?;
        routing_key: &'a [u8] = |c| c.shortstr()?;
        /// no_wait 1.
        bits: u8 = |c| c.octet()?;
        arguments: &'a [u8] = |c| c.longstr()?;
    }
}

view! {
    QueueDeclare<'a> {
        ticket: u16 = |c| c.short()?;
        /// Empty: the broker generates a name.
        queue: &'a [u8] = |c| c.shortstr()?;
        /// The bits `passive`, `durable`, `exclusive`, `auto_delete`, `no_wait`.
        bits: u8 = |c| c.octet()?;
        arguments: &'a [u8] = |c| c.longstr()?;
    }
}

impl QueueDeclare<'_> {
    pub const PASSIVE: u8 = 1;
    pub const DURABLE: u8 = 2;
    pub const EXCLUSIVE: u8 = 4;
    pub const AUTO_DELETE: u8 = 8;
    pub const NO_WAIT: u8 = 16;

    pub fn has(&self, bit: u8) -> bool {
        self.bits & bit != 0
    }
}

view! {
    QueueDeclareOk<'a> {
        queue: &'a [u8] = |c| c.shortstr()?;
        message_count: u32 = |c| c.long()?;
        consumer_count: u32 = |c| c.long()?;
    }
}

view! {
    QueueBind<'a> {
        ticket: u16 = |c| c.short()?;
        /// Empty: the last queue declared on the channel.
        queue: &'a [u8] = |c| c.shortstr()?;
        exchange: &'a [u8] = |c| c.shortstr()?;
        routing_key: &'a [u8] = |c| c.shortstr()?;
        /// no_wait 1.
        bits: u8 = |c| c.octet()?;
        arguments: &'a [u8] = |c| c.longstr()?;
    }
}

view! {
    QueueUnbind<'a> {
        ticket: u16 = |c| c.short()?;
        /// Empty: the last queue declared on the channel.
        queue: &'a [u8] = |c| c.shortstr()?;
        exchange: &'a [u8] = |c| c.shortstr()?;
        routing_key: &'a [u8] = |c| c.shortstr()?;
        arguments: &'a [u8] = |c| c.longstr()?;
    }
}

view! {
    QueueName<'a> {
        ticket: u16 = |c| c.short()?;
        /// Empty: the last queue declared on the channel.
        queue: &'a [u8] = |c| c.shortstr()?;
        /// For purge: bit 1 is no_wait; for delete: if_unused 1, if_empty 2, no_wait 4.
        bits: u8 = |c| c.octet()?;
    }
}

view! {
    Consume<'a> {
        ticket: u16 = |c| c.short()?;
        /// Empty: the last queue declared on the channel.
        queue: &'a [u8] = |c| c.shortstr()?;
        /// Empty: the broker generates a tag.
        consumer_tag: &'a [u8] = |c| c.shortstr()?;
        /// no_local 1, no_ack 2, exclusive 4, no_wait 8.
        bits: u8 = |c| c.octet()?;
        arguments: &'a [u8] = |c| c.longstr()?;
    }
}

view! {
    Cancel<'a> {
        consumer_tag: &'a [u8] = |c| c.shortstr()?;
        /// no_wait 1.
        bits: u8 = |c| c.octet()?;
    }
}

view! {
    ConsumerTag<'a> {
        consumer_tag: &'a [u8] = |c| c.shortstr()?;
    }
}

view! {
    Publish<'a> {
        ticket: u16 = |c| c.short()?;
        /// Empty: the default exchange.
        exchange: &'a [u8] = |c| c.shortstr()?;
        routing_key: &'a [u8] = |c| c.shortstr()?;
        /// mandatory 1, immediate 2.
        bits: u8 = |c| c.octet()?;
    }
}

view! {
    Return<'a> {
        code: u16 = |c| c.short()?;
        text: &'a [u8] = |c| c.shortstr()?;
        exchange: &'a [u8] = |c| c.shortstr()?;
        routing_key: &'a [u8] = |c| c.shortstr()?;
    }
}

view! {
    Deliver<'a> {
        consumer_tag: &'a [u8] = |c| c.shortstr()?;
        delivery_tag: DeliveryTag = |c| DeliveryTag(c.longlong()?);
        redelivered: bool = |c| c.octet()? & 1 != 0;
        exchange: &'a [u8] = |c| c.shortstr()?;
        routing_key: &'a [u8] = |c| c.shortstr()?;
    }
}

view! {
    Get<'a> {
        ticket: u16 = |c| c.short()?;
        /// Empty: the last queue declared on the channel.
        queue: &'a [u8] = |c| c.shortstr()?;
        /// no_ack 1.
        bits: u8 = |c| c.octet()?;
    }
}

view! {
    /// `basic.get-ok` names no queue (S9.6).
    GetOk<'a> {
        delivery_tag: DeliveryTag = |c| DeliveryTag(c.longlong()?);
        redelivered: bool = |c| c.octet()? & 1 != 0;
        exchange: &'a [u8] = |c| c.shortstr()?;
        routing_key: &'a [u8] = |c| c.shortstr()?;
        message_count: u32 = |c| c.long()?;
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tune {
    /// The highest channel number; 0: 65535.
    pub channel_max: u16,
    /// Octets of the largest frame with head and end; 0: no limit.
    pub frame_max: u32,
    pub heartbeat: u16,
}

/// `basic.ack`, `basic.nack` or `basic.reject`: a client settles deliveries, or the broker confirms
/// publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settle {
    pub delivery_tag: DeliveryTag,
    /// Includes all earlier deliveries. `basic.reject` has no such bit.
    pub multiple: bool,
    /// Back into the queue. `basic.ack` has no such bit.
    pub requeue: bool,
}

// === impl Tune ===

impl Tune {
    /// Reads the arguments of a method payload.
    ///
    /// # Errors
    /// When it ends too early.
    pub fn parse(payload: &[u8]) -> Result<Tune, Malformed> {
        let mut cursor = arguments(payload)?;
        Ok(Tune {
            channel_max: cursor.short()?,
            frame_max: cursor.long()?,
            heartbeat: cursor.short()?,
        })
    }
}

// === impl Settle ===

impl Settle {
    /// Reads `basic.ack`, `basic.nack` or `basic.reject`.
    ///
    /// # Errors
    /// When it ends too early, or is another method.
    pub fn parse(payload: &[u8]) -> Result<Settle, Malformed> {
        let id = MethodId::peek(payload).ok_or(Malformed)?;
        let mut cursor = arguments(payload)?;
        let delivery_tag = DeliveryTag(cursor.longlong()?);
        let bits = cursor.octet()?;
        let (multiple, requeue) = match id {
            MethodId::BASIC_ACK => (bits & 1 != 0, false),
            MethodId::BASIC_NACK => (bits & 1 != 0, bits & 2 != 0),
            MethodId::BASIC_REJECT => (false, bits & 1 != 0),
            _ => return Err(Malformed),
        };
        Ok(Settle {
            delivery_tag,
            multiple,
            requeue,
        })
    }
}
