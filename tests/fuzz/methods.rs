//! Methods: each view says what a slow and obvious reader finds, and what the proxy builds is read back as it was meant.

use dlx_proxy::amqp::frame::{self, Front};
use dlx_proxy::amqp::ids::{ChannelId, DeliveryTag};
use dlx_proxy::amqp::method::*;
use dlx_proxy::amqp::reply;

use super::input::Input;

/// The octets of each argument, strings and tables without their length.
type Values = Vec<Vec<u8>>;
/// A method, its arguments as the specification has them (`o`ctet, `s`hort, `l`ong, `L`onglong, `t`ext of one octet's length, long te`X`t), and
/// what the view of it says.
type Row = (
    &'static [MethodId],
    &'static str,
    fn(&[u8]) -> Option<Values>,
);

macro_rules! row {
    ($ids:expr, $arguments:literal, $view:ident { $($field:ident),* }) => {
        (&$ids, $arguments, |payload| {
            let view = $view::parse(payload).ok()?;
            Some(vec![$(view.$field.octets()),*])
        })
    };
}

/// The octets of an argument on the wire.
trait Octets {
    fn octets(&self) -> Vec<u8>;
}

impl Octets for &[u8] {
    fn octets(&self) -> Vec<u8> {
        self.to_vec()
    }
}
impl Octets for u8 {
    fn octets(&self) -> Vec<u8> {
        vec![*self]
    }
}
impl Octets for u16 {
    fn octets(&self) -> Vec<u8> {
        self.to_be_bytes().into()
    }
}
impl Octets for u32 {
    fn octets(&self) -> Vec<u8> {
        self.to_be_bytes().into()
    }
}
impl Octets for DeliveryTag {
    fn octets(&self) -> Vec<u8> {
        self.0.to_be_bytes().into()
    }
}
impl Octets for bool {
    fn octets(&self) -> Vec<u8> {
        vec![u8::from(*self)]
    }
}

const ROWS: &[Row] = &[
    row!(
        [MethodId::CONNECTION_START],
        "sXX",
        Start {
            version,
            server_properties,
            mechanisms
        }
    ),
    row!(
        [MethodId::CONNECTION_START_OK],
        "XtX",
        StartOk {
            client_properties,
            mechanism,
            response
        }
    ),
    row!([MethodId::CONNECTION_OPEN], "t", Open { vhost }),
    row!(
        [MethodId::CONNECTION_TUNE, MethodId::CONNECTION_TUNE_OK],
        "sls",
        Tune {
            channel_max,
            frame_max,
            heartbeat
        }
    ),
    row!(
        [MethodId::CONNECTION_CLOSE, MethodId::CHANNEL_CLOSE],
        "stss",
        Close {
            code,
            text,
            class,
            method
        }
    ),
    row!(
        [MethodId::EXCHANGE_DECLARE],
        "sttoX",
        ExchangeDeclare {
            ticket,
            exchange,
            kind,
            bits,
            arguments
        }
    ),
    row!(
        [MethodId::EXCHANGE_DELETE],
        "st",
        ExchangeName { ticket, exchange }
    ),
    row!(
        [MethodId::EXCHANGE_BIND, MethodId::EXCHANGE_UNBIND],
        "stttoX",
        ExchangeBind {
            ticket,
            destination,
            source,
            routing_key,
            bits,
            arguments
        }
    ),
    row!(
        [MethodId::QUEUE_DECLARE],
        "stoX",
        QueueDeclare {
            ticket,
            queue,
            bits,
            arguments
        }
    ),
    row!(
        [MethodId::QUEUE_DECLARE_OK],
        "tll",
        QueueDeclareOk {
            queue,
            message_count,
            consumer_count
        }
    ),
    row!(
        [MethodId::QUEUE_BIND],
        "stttoX",
        QueueBind {
            ticket,
            queue,
            exchange,
            routing_key,
            bits,
            arguments
        }
    ),
    row!(
        [MethodId::QUEUE_UNBIND],
        "stttX",
        QueueUnbind {
            ticket,
            queue,
            exchange,
            routing_key,
            arguments
        }
    ),
    row!(
        [MethodId::QUEUE_PURGE, MethodId::QUEUE_DELETE],
        "sto",
        QueueName {
            ticket,
            queue,
            bits
        }
    ),
    row!(
        [MethodId::BASIC_CONSUME],
        "stto",
        Consume {
            ticket,
            queue,
            consumer_tag,
            bits
        }
    ),
    row!(
        [MethodId::BASIC_CANCEL],
        "to",
        Cancel { consumer_tag, bits }
    ),
    row!(
        [MethodId::BASIC_CONSUME_OK, MethodId::BASIC_CANCEL_OK],
        "t",
        ConsumerTag { consumer_tag }
    ),
    row!(
        [MethodId::BASIC_PUBLISH],
        "stto",
        Publish {
            ticket,
            exchange,
            routing_key,
            bits
        }
    ),
    row!(
        [MethodId::BASIC_RETURN],
        "sttt",
        Return {
            code,
            text,
            exchange,
            routing_key
        }
    ),
    row!(
        [MethodId::BASIC_DELIVER],
        "tLbtt",
        Deliver {
            consumer_tag,
            delivery_tag,
            redelivered,
            exchange,
            routing_key
        }
    ),
    row!(
        [MethodId::BASIC_GET],
        "sto",
        Get {
            ticket,
            queue,
            bits
        }
    ),
    row!(
        [MethodId::BASIC_GET_OK],
        "Lbttl",
        GetOk {
            delivery_tag,
            redelivered,
            exchange,
            routing_key,
            message_count
        }
    ),
    row!(
        [MethodId::BASIC_ACK],
        "Lb",
        Settle {
            delivery_tag,
            multiple
        }
    ),
    row!(
        [MethodId::BASIC_REJECT],
        "Lb",
        Settle {
            delivery_tag,
            requeue
        }
    ),
];

/// Slow and obvious.
fn reference(arguments: &str, payload: &[u8]) -> Option<Values> {
    let mut at = 4usize;
    let mut take = |length: usize| {
        let taken = payload.get(at..at.checked_add(length)?)?.to_vec();
        at += length;
        Some(taken)
    };
    let mut values = Vec::new();
    for argument in arguments.chars() {
        values.push(match argument {
            'o' => take(1)?,
            'b' => vec![take(1)?[0] % 2],
            's' => take(2)?,
            'l' => take(4)?,
            'L' => take(8)?,
            't' => {
                let length = take(1)?[0];
                take(usize::from(length))?
            }
            'X' => {
                let length = take(4)?;
                take(
                    length
                        .iter()
                        .fold(0, |n, octet| n * 256 + usize::from(*octet)),
                )?
            }
            other => panic!("no argument {other}"),
        });
    }
    Some(values)
}

/// Arguments of that form, drawn.
fn drawn(arguments: &str, input: &mut Input<'_>) -> Values {
    let value = |argument| match argument {
        't' | 'X' => input.text().to_vec(),
        's' => input.short().to_be_bytes().into(),
        'l' => [input.short(), input.short()]
            .map(u16::to_be_bytes)
            .concat(),
        'L' => input.longlong().to_be_bytes().into(),
        'b' => vec![input.byte() % 2],
        _ => vec![input.byte()],
    };
    arguments.chars().map(value).collect()
}

/// Writes them as `amqp::reply` does for all that the proxy says itself.
fn written(id: MethodId, arguments: &str, values: &Values) -> Vec<u8> {
    let mut out = Vec::new();
    reply::method(&mut out, ChannelId(1), id, |a| {
        for (argument, value) in arguments.chars().zip(values) {
            match (
                argument,
                value[..].first_chunk::<2>(),
                value[..].first_chunk::<4>(),
            ) {
                ('t', ..) => a.shortstr(value),
                ('X', ..) => a.longstr(value),
                ('s', Some(short), _) => a.short(u16::from_be_bytes(*short)),
                ('l', _, Some(long)) => a.long(u32::from_be_bytes(*long)),
                ('L', ..) => a.longlong(u64::from_be_bytes(value[..].try_into().expect("eight"))),
                _ => a.octet(value[0]),
            };
        }
    });
    out
}

fn payload(frame: &[u8]) -> &[u8] {
    match frame::front(frame) {
        Front::Whole(_, payload, length) if length == frame.len() => payload,
        other => panic!("not one frame: {other:?}"),
    }
}

/// The builders that take a view: what is read back is that view.
fn builders(arguments: &[u8]) {
    let mut out = Vec::new();
    if let Ok(deliver) = Deliver::parse(arguments) {
        reply::deliver(&mut out, ChannelId(1), &deliver);
        assert_eq!(Deliver::parse(payload(&out)), Ok(deliver));
    }
    out.clear();
    if let Ok(got) = GetOk::parse(arguments) {
        reply::get_ok(&mut out, ChannelId(1), &got);
        assert_eq!(GetOk::parse(payload(&out)), Ok(got));
    }
    out.clear();
    if let Ok(declare) = QueueDeclare::parse(arguments) {
        reply::queue_declare(
            &mut out,
            ChannelId(1),
            &declare,
            declare.bits,
            declare.arguments,
        );
        assert_eq!(QueueDeclare::parse(payload(&out)), Ok(declare));
    }
    out.clear();
    if let Ok(close) = Close::parse(arguments) {
        let failed = MethodId(close.class, close.method);
        reply::close(&mut out, ChannelId(1), close.code, close.text, failed);
        assert_eq!(Close::parse(payload(&out)), Ok(close));
    }
    for id in [
        MethodId::BASIC_ACK,
        MethodId::BASIC_NACK,
        MethodId::BASIC_REJECT,
    ] {
        let [c1, c0] = id.0.to_be_bytes();
        let [m1, m0] = id.1.to_be_bytes();
        let settle = [&[c1, c0, m1, m0], arguments.get(4..).unwrap_or_default()].concat();
        let Ok(settle) = Settle::parse(&settle) else {
            continue;
        };
        let (tag, multiple, requeue) = (settle.delivery_tag, settle.multiple, settle.requeue);
        let mut out = Vec::new();
        match id {
            MethodId::BASIC_ACK => reply::ack(&mut out, ChannelId(1), tag, multiple),
            MethodId::BASIC_NACK => reply::nack(&mut out, ChannelId(1), tag, multiple, requeue),
            _ => reply::reject(&mut out, ChannelId(1), tag, requeue),
        }
        assert_eq!(Settle::parse(payload(&out)), Ok(settle));
    }
}

pub(crate) fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let (ids, arguments, view) = ROWS[input.below(ROWS.len())];
    let id = input.pick(ids);
    if input.flag() {
        let values = drawn(arguments, &mut input);
        let frame = written(id, arguments, &values);
        let mut payload = payload(&frame).to_vec();
        assert_eq!(MethodId::peek(&payload), Some(id));
        assert_eq!(view(&payload).as_ref(), Some(&values), "read back");
        // Behind the arguments that a view reads there may be more; cut anywhere, there are too few.
        payload.extend_from_slice(input.rest());
        assert_eq!(view(&payload), Some(values));
        builders(&payload);
        payload.truncate(usize::from(data[data.len() - 1]) % payload.len());
        assert_eq!(view(&payload), reference(arguments, &payload));
    } else {
        let [c1, c0] = id.0.to_be_bytes();
        let [m1, m0] = id.1.to_be_bytes();
        let payload = [&[c1, c0, m1, m0], input.rest()].concat();
        assert_eq!(view(&payload), reference(arguments, &payload));
        builders(&payload);
        MethodId::peek(&payload[..payload.len().min(3)]);
    }
    let nothing = &data[..data.len().min(3)];
    assert_eq!((MethodId::peek(nothing), view(nothing)), (None, None));
}
