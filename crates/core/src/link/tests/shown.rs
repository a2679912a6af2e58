//! Frames as text.

use super::Sent;
use crate::amqp::cursor::Cursor;
use crate::amqp::frame::Kind;
use crate::amqp::method::MethodId;
use crate::amqp::properties::{Plain, Properties};
use crate::amqp::table::{Array, Table, Value};

/// Longer texts are cut.
const MOST: usize = 60;

/// Name, arguments and bits of a method: `_` and `-` are a short and a long that say nothing, `w` a short, `l` a long, `L` a longlong, `s` a
/// shortstr, `S` a longstr, `b` bits, `T` a table. A bit with `!` is shown where it is not set.
pub(super) const METHODS: [(MethodId, &str, &str, &[&str]); 28] = [
    (MethodId::CONNECTION_START_OK, "start-ok", "TsS", &[]),
    (MethodId::CONNECTION_TUNE_OK, "tune-ok", "wlw", &[]),
    (MethodId::CONNECTION_OPEN, "open-vhost", "s", &[]),
    (MethodId::CONNECTION_CLOSE, "close", "w", &[]),
    (MethodId::CONNECTION_CLOSE_OK, "close-ok", "", &[]),
    (MethodId::CHANNEL_OPEN, "open", "", &[]),
    (MethodId::CHANNEL_FLOW, "flow", "b", &["active"]),
    (MethodId::CHANNEL_FLOW_OK, "flow-ok", "b", &["active"]),
    (MethodId::CHANNEL_CLOSE, "close", "w", &[]),
    (MethodId::CHANNEL_CLOSE_OK, "close-ok", "", &[]),
    (
        MethodId::EXCHANGE_DECLARE,
        "exchange",
        "_ssbT",
        &["passive", "durable", "auto-delete", "internal", "no-wait"],
    ),
    (
        MethodId::EXCHANGE_BIND,
        "bind-exchange",
        "_sssbT",
        &["no-wait"],
    ),
    (
        MethodId::QUEUE_DECLARE,
        "declare",
        "_sbT",
        &["passive", "durable", "exclusive", "auto-delete", "no-wait"],
    ),
    (MethodId::QUEUE_BIND, "bind", "_sssbT", &["no-wait"]),
    (MethodId::QUEUE_UNBIND, "unbind", "_sssT", &[]),
    (
        MethodId::QUEUE_DELETE,
        "delete",
        "_sb",
        &["if-unused", "if-empty", "no-wait"],
    ),
    (MethodId::BASIC_QOS, "qos", "-wb", &["global"]),
    (
        MethodId::BASIC_CONSUME,
        "consume",
        "_ssbT",
        &["no-local", "no-ack", "exclusive", "no-wait"],
    ),
    (MethodId::BASIC_CANCEL, "cancel", "sb", &["no-wait"]),
    (
        MethodId::BASIC_PUBLISH,
        "publish",
        "_ssb",
        &["!optional", "immediate"],
    ),
    (MethodId::BASIC_GET, "get", "_sb", &["no-ack"]),
    (MethodId::BASIC_ACK, "ack", "Lb", &["multiple"]),
    (MethodId::BASIC_REJECT, "reject", "Lb", &["requeue"]),
    (MethodId::BASIC_NACK, "nack", "Lb", &["multiple", "requeue"]),
    (MethodId::CONFIRM_SELECT, "select", "", &[]),
    (MethodId::TX_SELECT, "tx", "", &[]),
    (MethodId::TX_ROLLBACK, "rollback", "", &[]),
    (MethodId::TX_COMMIT, "commit", "", &[]),
];

/// What was sent: each method with the content behind it.
#[derive(Default)]
pub(super) struct Frames {
    all: Vec<String>,
    body: Vec<u8>,
}

impl Frames {
    pub(super) fn add(&mut self, sent: &Sent) {
        match sent.kind {
            Kind::Header => self.more(&properties(&sent.payload[12..])),
            Kind::Body => self.body.extend(&sent.payload),
            _ => {
                self.end_body();
                self.all
                    .push(format!("{} {}", sent.channel, method(&sent.payload)));
            }
        }
    }

    pub(super) fn finish(mut self) -> Vec<String> {
        self.end_body();
        self.all
    }

    fn end_body(&mut self) {
        if !self.body.is_empty() {
            let body = format!("'{}'", short(&self.body));
            self.more(&body);
            self.body.clear();
        }
    }

    fn more(&mut self, text: &str) {
        if let Some(last) = self.all.last_mut().filter(|_| !text.is_empty()) {
            last.push(' ');
            last.push_str(text);
        }
    }
}

fn method(payload: &[u8]) -> String {
    let id = MethodId::peek(payload).expect("a method");
    let known = METHODS.iter().find(|known| known.0 == id);
    let (_, name, arguments, bits) = known.unwrap_or_else(|| panic!("no name for {id:?}"));
    let mut cursor = Cursor::new(&payload[4..]);
    let mut words = vec![(*name).to_owned()];
    for kind in arguments.chars() {
        match kind {
            '_' => drop(cursor.short().expect("a short")),
            '-' => drop(cursor.long().expect("a long")),
            'w' => words.push(cursor.short().expect("a short").to_string()),
            'l' => words.push(cursor.long().expect("a long").to_string()),
            'L' => words.push(cursor.longlong().expect("a longlong").to_string()),
            's' => words.push(quoted(cursor.shortstr().expect("a shortstr"))),
            'S' => words.push(quoted(cursor.longstr().expect("a longstr"))),
            'T' => match cursor.longstr().expect("a table") {
                [] => {}
                members => words.push(table(members)),
            },
            _ => {
                let byte = cursor.octet().expect("bits");
                let named = bits.iter().zip(0..).filter_map(|(name, at)| {
                    let is_set = byte & 1 << at != 0;
                    match name.strip_prefix('!') {
                        Some(name) => (!is_set).then_some(name),
                        None => is_set.then_some(*name),
                    }
                });
                words.extend(named.map(str::to_owned));
            }
        }
    }
    words
        .join(" ")
        .replace(env!("CARGO_PKG_VERSION"), "VERSION")
}

/// Those that are there.
pub(crate) fn properties(properties: &[u8]) -> String {
    let Ok(properties) = Properties::parse(properties) else {
        return "unreadable".to_owned();
    };
    let named = properties.named().map(|(name, value)| match value {
        Plain::Text(text) => format!("{name}={}", quoted(text)),
        Plain::Octet(byte) => format!("{name}={byte}"),
        Plain::Time(time) => format!("{name}={time}"),
        Plain::Table(of) => table(of.0),
    });
    named.collect::<Vec<_>>().join(" ")
}

fn table(members: &[u8]) -> String {
    let fields = Table(members).fields().map(|field| match field {
        Ok(field) => format!("{}={}", quoted(field.name), value(field.value)),
        Err(_) => "unreadable".to_owned(),
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(" "))
}

fn value(of: Value<'_>) -> String {
    match of.tag {
        b'F' => table(of.data),
        b'A' => {
            let members = Array(of.data)
                .values()
                .map(|member| member.map_or("?".to_owned(), value));
            format!("[{}]", members.collect::<Vec<_>>().join(" "))
        }
        b't' => (of.data == [1]).to_string(),
        b'T' => of
            .as_timestamp()
            .map_or(String::new(), |time| time.to_string()),
        b'V' => "void".to_owned(),
        _ => of
            .as_integer()
            .map_or_else(|| quoted(of.data), |number| number.to_string()),
    }
}

pub(crate) fn quoted(text: &[u8]) -> String {
    match text {
        [] => "\"\"".to_owned(),
        text => short(text),
    }
}

fn short(text: &[u8]) -> String {
    let cut: String = text
        .iter()
        .take(MOST)
        .copied()
        .collect::<Vec<u8>>()
        .escape_ascii()
        .to_string();
    match text.len() {
        ..=MOST => cut,
        bytes if text.iter().all(|byte| *byte == text[0]) => format!("{}×{bytes}", &cut[..1]),
        bytes => format!("{cut}… ({bytes})"),
    }
}
