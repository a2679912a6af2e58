//! Arguments of queues: which there may be, what is wrong with one, and whether two declares mean the same. `rabbit_amqqueue:declare_args`.

use crate::codec::value::{Table, Value};

use super::call::string;
use super::reader::binary;
use super::refusal::{Answer, refuse, show};

/// Ten years.
const LONGEST: i128 = 315_360_000_000;

/// Of queues that are `quorum`, classic, streams.
const QUORUM: &[&str] = &[
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-in-memory-length",
    "x-max-in-memory-bytes",
    "x-overflow",
    "x-single-active-consumer",
    "x-queue-type",
    "x-quorum-initial-group-size",
    "x-delivery-limit",
    "x-message-ttl",
    "x-queue-leader-locator",
    "x-consumer-disconnected-timeout",
    "x-consumer-timeout",
    "x-delayed-retry-type",
    "x-delayed-retry-min",
    "x-delayed-retry-max",
];
const CLASSIC: &[&str] = &[
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-queue-mode",
    "x-queue-version",
    "x-single-active-consumer",
    "x-queue-type",
    "x-queue-master-locator",
    "x-queue-leader-locator",
];
const STREAM: &[&str] = &[
    "x-max-length-bytes",
    "x-queue-type",
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-stream-filter-size-bytes",
    "x-initial-cluster-size",
    "x-queue-leader-locator",
];

/// What a value must be.
enum Must {
    Expires,
    Ttl,
    Exchange,
    Key,
    Strategy,
    Natural,
    Priority,
    Overflow,
    Version,
    Bool,
    Size,
    Locator,
}

/// In the order in which they are looked at.
const CHECKS: &[(&str, Must)] = &[
    ("x-expires", Must::Expires),
    ("x-message-ttl", Must::Ttl),
    ("x-dead-letter-exchange", Must::Exchange),
    ("x-dead-letter-routing-key", Must::Key),
    ("x-dead-letter-strategy", Must::Strategy),
    ("x-max-length", Must::Natural),
    ("x-max-length-bytes", Must::Natural),
    ("x-max-in-memory-length", Must::Natural),
    ("x-max-in-memory-bytes", Must::Natural),
    ("x-max-priority", Must::Priority),
    ("x-overflow", Must::Overflow),
    ("x-queue-version", Must::Version),
    ("x-single-active-consumer", Must::Bool),
    ("x-consumer-timeout", Must::Natural),
    ("x-consumer-disconnected-timeout", Must::Natural),
    ("x-quorum-initial-group-size", Must::Size),
    ("x-queue-leader-locator", Must::Locator),
];

/// A type of queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Classic,
    Quorum,
    Stream,
}

impl Kind {
    pub(super) fn of(arguments: &Table) -> Option<Kind> {
        match &string(arguments, "x-queue-type")?[..] {
            b"quorum" | b"rabbit_quorum_queue" => Some(Kind::Quorum),
            b"stream" | b"rabbit_stream_queue" => Some(Kind::Stream),
            b"classic" | b"rabbit_classic_queue" | b"" | b"undefined" => Some(Kind::Classic),
            _ => None,
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Kind::Classic => CLASSIC,
            Kind::Quorum => QUORUM,
            Kind::Stream => STREAM,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Classic => "classic",
            Kind::Quorum => "quorum",
            Kind::Stream => "stream",
        }
    }

    fn module(self) -> &'static str {
        match self {
            Kind::Classic => "rabbit_classic_queue",
            Kind::Quorum => "rabbit_quorum_queue",
            Kind::Stream => "rabbit_stream_queue",
        }
    }
}

/// With the type that is meant when none is said.
pub(super) fn augmented(mut arguments: Table, default: &str) -> Table {
    if arguments.get("x-queue-type").is_none() {
        let default = Value::Text(default.as_bytes().to_vec());
        arguments.fields.push((b"x-queue-type".to_vec(), default));
    }
    arguments
}

/// Before a queue is made. `queue`: as texts name it.
pub(super) fn check(arguments: &Table, queue: &str) -> Answer<Kind> {
    let invalid =
        |name: &str, why: String| refuse(406, format!("invalid arg '{name}' for {queue}: {why}"));
    let kind = match arguments.get("x-queue-type") {
        None => Some(Kind::Classic),
        Some(Value::Text(text)) => match Kind::of(arguments) {
            None => {
                let why = format!("\"unsupported queue type '{}'\"", show(text));
                return invalid("x-queue-type", why);
            }
            kind => kind,
        },
        Some(other) => {
            let why = format!("{{unacceptable_type,{}}}", type_name(other));
            return invalid("x-queue-type", why);
        }
    }
    .unwrap_or(Kind::Classic);
    for (name, must) in CHECKS {
        if let Some(value) = arguments.get(name)
            && kind.arguments().contains(name)
            && let Some(why) = wrong(value, must, arguments)
        {
            return invalid(name, why);
        }
    }
    for (name, _) in &arguments.fields {
        let name = show(name);
        let known = |kind: Kind| kind.arguments().contains(&&*name);
        let elsewhere = known(Kind::Classic) || known(Kind::Quorum) || known(Kind::Stream);
        if elsewhere && !known(kind) {
            let text = format!(
                "invalid arg '{name}' for {queue} of queue type {}",
                kind.module()
            );
            return refuse(406, text);
        }
    }
    Ok(kind)
}

/// As Erlang says it.
fn wrong(value: &Value, must: &Must, arguments: &Table) -> Option<String> {
    let type_of = || Some(format!("{{unacceptable_type,{}}}", type_name(value)));
    let number = match value {
        Value::Integer(tag, number) if *tag != b'T' => Some(*number),
        _ => None,
    };
    let no_integer = || Some(format!("\"expected integer, got {}\"", type_name(value)));
    let one_of = |known: &[&[u8]], why: &str| match value {
        Value::Text(text) if known.contains(&&text[..]) => None,
        Value::Text(_) => Some(why.to_owned()),
        _ => type_of(),
    };
    match (must, number) {
        (Must::Exchange, _) => match value {
            Value::Text(_) => None,
            _ => type_of(),
        },
        (Must::Key, _) => match value {
            Value::Text(_) => arguments
                .get("x-dead-letter-exchange")
                .is_none()
                .then(|| "routing_key_but_no_dlx_defined".to_owned()),
            _ => type_of(),
        },
        (Must::Strategy, _) => one_of(&[b"at-most-once", b"at-least-once"], "invalid_dlx_strategy"),
        (Must::Overflow, _) => one_of(
            &[b"drop-head", b"reject-publish", b"reject-publish-dlx"],
            "invalid_overflow",
        ),
        (Must::Locator, _) => one_of(
            &[b"client-local", b"balanced", b"random", b"least-leaders"],
            "invalid_queue_locator_arg",
        ),
        (Must::Bool, _) => match value {
            Value::Bool(_) => None,
            _ => type_of(),
        },
        (_, None) => no_integer(),
        (Must::Expires | Must::Size, Some(0)) => Some("{value_zero,0}".to_owned()),
        (_, Some(number)) if number < 0 => Some(format!("{{value_negative,{number}}}")),
        (Must::Expires | Must::Ttl, Some(number)) if number > LONGEST => {
            Some(format!("{{value_too_large,{number}}}"))
        }
        (Must::Priority, Some(number)) if number > 255 => {
            Some(format!("{{max_value_exceeded,{number}}}"))
        }
        (Must::Version, Some(number)) if number != 2 => {
            Some(format!("\"unsupported queue version '{number}'\""))
        }
        _ => None,
    }
}

/// Of a queue that is there: does the other declare mean the same? `rabbit_misc:assert_args_equivalence`
pub(super) fn equivalent(kind: Kind, is: &Table, wanted: &Table, queue: &str) -> Answer<()> {
    same_arguments(kind.arguments(), is, wanted, queue)
}

pub(super) fn same_arguments(names: &[&str], is: &Table, wanted: &Table, what: &str) -> Answer<()> {
    for name in names {
        match (is.get(name), wanted.get(name)) {
            (Some(now), Some(new)) if same(now, new) => {}
            (Some(now), Some(new)) => {
                return inequivalent(name, what, &quoted(new), &quoted(now));
            }
            (None, None) => {}
            (now, new) => return inequivalent(name, what, &described(new), &described(now)),
        }
    }
    Ok(())
}

fn quoted(value: &Value) -> String {
    match value {
        Value::Void => "none".to_owned(),
        value => format!("'{}'", plain(value)),
    }
}

/// Of whatever type: a value of Erlang does not tell.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Integer(_, a), Value::Integer(_, b)) => a == b,
        (Value::Text(a) | Value::Binary(a), Value::Text(b) | Value::Binary(b)) => a == b,
        (a, b) => a == b,
    }
}

pub(super) fn inequivalent<T>(name: &str, what: &str, new: &str, now: &str) -> Answer<T> {
    let text = format!("inequivalent arg '{name}' for {what}: received {new} but current is {now}");
    refuse(406, text)
}

fn described(value: Option<&Value>) -> String {
    match value {
        None => "none".to_owned(),
        Some(value) => format!(
            "the value '{}' of type '{}'",
            plain(value),
            type_name(value)
        ),
    }
}

/// As Erlang writes it in a text.
fn plain(value: &Value) -> String {
    match value {
        Value::Text(text) | Value::Binary(text) => show(text).into_owned(),
        Value::Void => "undefined".to_owned(),
        Value::Float(bits) => format!("{:?}", f32::from_bits(*bits)),
        Value::Double(bits) => format!("{:?}", f64::from_bits(*bits)),
        Value::Integer(_, number) => number.to_string(),
        Value::Bool(yes) => yes.to_string(),
        Value::Decimal(scale, value) => format!("{{{scale},{value}}}"),
        Value::Array(array) => {
            let items: Vec<String> = array.items.iter().map(typed).collect();
            format!("[{}]", items.join(","))
        }
        Value::Table(table) => {
            let field = |(name, value): &(Vec<u8>, Value)| {
                format!("{{{},{}}}", binary(name), typed_inner(value))
            };
            let fields: Vec<String> = table.fields.iter().map(field).collect();
            format!("[{}]", fields.join(","))
        }
    }
}

fn typed(value: &Value) -> String {
    format!("{{{}}}", typed_inner(value))
}

fn typed_inner(value: &Value) -> String {
    let text = match value {
        Value::Text(text) | Value::Binary(text) => binary(text),
        value => plain(value),
    };
    format!("{},{text}", type_name(value))
}

pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Text(_) => "longstr",
        Value::Integer(b'b', _) => "byte",
        Value::Integer(b'B', _) => "unsignedbyte",
        Value::Integer(b's', _) => "short",
        Value::Integer(b'u', _) => "unsignedshort",
        Value::Integer(b'I', _) => "signedint",
        Value::Integer(b'i', _) => "unsignedint",
        Value::Integer(b'T', _) => "timestamp",
        Value::Integer(..) => "long",
        Value::Bool(_) => "bool",
        Value::Float(_) => "float",
        Value::Double(_) => "double",
        Value::Decimal(..) => "decimal",
        Value::Binary(_) => "binary",
        Value::Void => "void",
        Value::Array(_) => "array",
        Value::Table(_) => "table",
    }
}
