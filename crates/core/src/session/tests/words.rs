//! Frames as words, and back: `@2 deliver orders 1 "" key ; content hi`. Channel 1 goes without saying, and `probe` is channel 65535. Frames that
//! have no words here are shown as their bytes.

use std::time::Duration;

use super::script::{CH, PROBE};
use crate::amqp::cursor::{Cursor, Malformed};
use crate::amqp::frame::{self, Front, Kind};
use crate::amqp::ids::ChannelId;
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::amqp::table::{Table, TableBuilder, Value};
use crate::registry::lenient::{Item, Lenient};

/// With their arguments: `0` is a reserved short, a number has that many bytes, `s` is a short and `S` a long string, `t` a table, `+` the names of bits.
/// The last ones may be missing: they are empty or 0.
#[rustfmt::skip]
const METHODS: [(MethodId, &str, &str); 49] = [
    (MethodId::BASIC_ACK, "ack", "8 +multiple"),
    (MethodId::BASIC_NACK, "nack", "8 +multiple,requeue"),
    (MethodId::BASIC_REJECT, "reject", "8 +requeue"),
    (MethodId::BASIC_DELIVER, "deliver", "s 8 +redelivered s s"),
    (MethodId::BASIC_GET, "get", "0 s +no-ack"),
    (MethodId::BASIC_GET_OK, "get-ok", "8 +redelivered s s 4"),
    (MethodId::BASIC_GET_EMPTY, "get-empty", "s"),
    (MethodId::BASIC_CONSUME, "consume", "0 s s +no-local,no-ack,exclusive,no-wait t"),
    (MethodId::BASIC_CONSUME_OK, "consume-ok", "s"),
    (MethodId::BASIC_CANCEL, "cancel", "s +no-wait"),
    (MethodId::BASIC_CANCEL_OK, "cancel-ok", "s"),
    (MethodId::BASIC_PUBLISH, "publish", "0 s s +mandatory,immediate"),
    (MethodId::BASIC_QOS, "qos", "4 2 +global"),
    (MethodId::BASIC_QOS_OK, "qos-ok", ""),
    (MethodId::BASIC_RECOVER, "recover", "+requeue"),
    (MethodId::BASIC_RECOVER_ASYNC, "recover-async", "+requeue"),
    (MethodId::BASIC_RECOVER_OK, "recover-ok", ""),
    (MethodId::QUEUE_DECLARE, "declare", "0 s +passive,durable,exclusive,auto-delete,no-wait t"),
    (MethodId::QUEUE_DECLARE_OK, "declare-ok", "s 4 4"),
    (MethodId::QUEUE_DELETE, "delete", "0 s +if-unused,if-empty,no-wait"),
    (MethodId::QUEUE_DELETE_OK, "delete-ok", "4"),
    (MethodId::QUEUE_BIND, "bind", "0 s s s +no-wait t"),
    (MethodId::QUEUE_BIND_OK, "bind-ok", ""),
    (MethodId::QUEUE_UNBIND, "unbind", "0 s s s t"),
    (MethodId::QUEUE_UNBIND_OK, "unbind-ok", ""),
    (MethodId::QUEUE_PURGE, "purge", "0 s +no-wait"),
    (MethodId::QUEUE_PURGE_OK, "purge-ok", "4"),
    (MethodId::EXCHANGE_DECLARE, "exchange.declare", "0 s s +passive,durable,auto-delete,internal,no-wait t"),
    (MethodId::EXCHANGE_DECLARE_OK, "exchange.declare-ok", ""),
    (MethodId::EXCHANGE_DELETE, "exchange.delete", "0 s +if-unused,no-wait"),
    (MethodId::EXCHANGE_BIND, "exchange.bind", "0 s s s +no-wait t"),
    (MethodId::EXCHANGE_UNBIND, "exchange.unbind", "0 s s s +no-wait t"),
    (MethodId::CHANNEL_OPEN, "open", "s"),
    (MethodId::CHANNEL_OPEN_OK, "open-ok", "S"),
    (MethodId::CHANNEL_CLOSE, "close", "2 s 2 2"),
    (MethodId::CHANNEL_CLOSE_OK, "close-ok", ""),
    (MethodId::CHANNEL_FLOW, "flow", "+active"),
    (MethodId::CHANNEL_FLOW_OK, "flow-ok", "+active"),
    (MethodId::CONNECTION_CLOSE, "connection.close", "2 s 2 2"),
    (MethodId::CONNECTION_CLOSE_OK, "connection.close-ok", ""),
    (MethodId::CONNECTION_UPDATE_SECRET, "connection.update-secret", "S s"),
    (MethodId::TX_SELECT, "tx.select", ""),
    (MethodId::TX_SELECT_OK, "tx.select-ok", ""),
    (MethodId::TX_COMMIT, "tx.commit", ""),
    (MethodId::TX_COMMIT_OK, "tx.commit-ok", ""),
    (MethodId::TX_ROLLBACK, "tx.rollback", ""),
    (MethodId::TX_ROLLBACK_OK, "tx.rollback-ok", ""),
    (MethodId::CONFIRM_SELECT, "confirm.select", "+no-wait"),
    (MethodId::CONFIRM_SELECT_OK, "confirm.select-ok", ""),
];

// === read

/// What is left of a line.
pub(super) struct Words<'a>(pub &'a [u8]);

impl Words<'_> {
    /// The first byte of the next word.
    pub(super) fn next(&mut self) -> Option<u8> {
        self.0 = self.0.trim_ascii_start();
        self.0.first().copied()
    }

    fn is(&mut self, byte: u8) -> bool {
        self.next() == Some(byte)
    }

    fn skip(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().expect("something more in this line");
        self.0 = rest;
        *first
    }

    /// A word, or what stands in quotes; and whether it does.
    fn text(&mut self) -> (Vec<u8>, bool) {
        let mut out = Vec::new();
        if !self.is(b'"') {
            while self.0.first().is_some_and(|byte| !b" =};".contains(byte)) {
                out.push(self.skip());
            }
            return (out, false);
        }
        self.skip();
        loop {
            match self.skip() {
                b'"' => return (out, true),
                b'\\' => match self.skip() {
                    b'x' => {
                        let hex = [self.skip(), self.skip()];
                        let hex = str::from_utf8(&hex).expect("two digits");
                        out.push(u8::from_str_radix(hex, 16).expect("two digits"));
                    }
                    byte => out.push(byte),
                },
                byte => out.push(byte),
            }
        }
    }

    pub(super) fn word(&mut self) -> String {
        String::from_utf8(self.text().0).expect("text")
    }

    fn is_over(&mut self) -> bool {
        self.next().is_none_or(|byte| byte == b';')
    }

    fn string(&mut self) -> Vec<u8> {
        match self.is_over() {
            true => Vec::new(),
            false => self.text().0,
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        match self.is_over() {
            true => 0,
            false => self.word().parse().expect("a number"),
        }
    }

    fn bits(&mut self, names: &str) -> u8 {
        let mut bits = 0;
        while self.is(b'+') {
            self.skip();
            let word = self.word();
            let bit = names.split(',').position(|name| name == word);
            bits |= 1 << bit.expect("the name of a bit");
        }
        bits
    }

    /// `{name=value …}`: a number is a long, `true` a boolean, braces are a table, all else a long string.
    pub(super) fn table(&mut self) -> Vec<u8> {
        let mut table = TableBuilder::default();
        if self.is(b'{') {
            self.skip();
            while !self.is(b'}') {
                let (name, _) = self.text();
                self.skip();
                if self.is(b'{') {
                    let inner = self.table();
                    let (tag, data) = (b'F', &inner[..]);
                    table.value(&name, &Value { tag, data });
                    continue;
                }
                let (value, is_quoted) = self.text();
                match str::from_utf8(&value).unwrap_or_default().parse() {
                    Ok(number) if !is_quoted => table.long(&name, number),
                    _ if value == b"true" && !is_quoted => table.boolean(&name, true),
                    _ => table.longstr(&name, &value),
                };
            }
            self.skip();
        }
        table.finish()
    }

    fn argument(&mut self, kind: &str, a: &mut reply::Arguments<'_>) {
        match kind {
            "0" => a.short(0),
            "2" => a.short(self.number() as u16),
            "4" => a.long(self.number() as u32),
            "8" => a.longlong(self.number()),
            "s" => a.shortstr(&self.string()),
            "S" => a.longstr(&self.string()),
            "t" => a.longstr(&self.table()),
            names => a.octet(self.bits(&names[1..])),
        };
    }

    fn frame(&mut self) -> Vec<u8> {
        let mut channel = match self.is(b'@') {
            true => {
                self.skip();
                ChannelId(self.number() as u16)
            }
            false => CH,
        };
        let mut name = self.word();
        if name == "probe" {
            (channel, name) = (PROBE, self.word());
        } else if name.starts_with("connection.") {
            channel = ChannelId::CONNECTION;
        }
        let mut out = Vec::new();
        match &name[..] {
            "bytes" => out = self.string(),
            "heartbeat" => out.extend(frame::HEARTBEAT),
            "header" => {
                let bytes = self.number();
                let headers = self.table();
                frame::put(&mut out, 2, channel, |out| put_header(out, bytes, &headers));
            }
            "body" => {
                let text = self.string();
                frame::put(&mut out, 3, channel, |out| out.extend(text));
            }
            "content" => {
                let text = self.string();
                frame::put(&mut out, 2, channel, |out| {
                    put_header(out, text.len() as u64, &[])
                });
                frame::put(&mut out, 3, channel, |out| out.extend(text));
            }
            name => {
                let method = METHODS.iter().find(|method| method.1 == name);
                let (id, _, arguments) = method.unwrap_or_else(|| panic!("a method: {name}"));
                reply::method(&mut out, channel, *id, |a| {
                    for kind in arguments.split_whitespace() {
                        self.argument(kind, a);
                    }
                });
            }
        }
        out
    }
}

pub(super) fn frames(line: &str) -> Vec<u8> {
    let mut words = Words(line.as_bytes());
    let mut out = words.frame();
    while words.is(b';') {
        words.skip();
        out.extend(words.frame());
    }
    assert_eq!(words.next(), None, "too much: {line}");
    out
}

fn put_header(out: &mut Vec<u8>, bytes: u64, headers: &[u8]) {
    out.extend([0, 60, 0, 0]);
    out.extend(bytes.to_be_bytes());
    match headers {
        [] => out.extend([0, 0]),
        headers => {
            out.extend([0x20, 0]);
            out.extend((headers.len() as u32).to_be_bytes());
            out.extend(headers);
        }
    }
}

// === show

/// The same bytes as words.
pub(super) fn shown(bytes: &[u8]) -> Vec<String> {
    let mut rest = bytes;
    let mut out: Vec<String> = Vec::new();
    while let Front::Whole(head, payload, mut whole) = frame::front(rest) {
        let words = match (head.kind, frame::front(&rest[whole..])) {
            (Kind::Header, Front::Whole(next, text, more))
                if next.kind == Kind::Body && payload.ends_with(&[0, 0]) =>
            {
                whole += more;
                Some(format!("content {}", quoted(text)))
            }
            (Kind::Header, _) => header(payload),
            (Kind::Body, _) => Some(format!("body {}", quoted(payload))),
            (Kind::Heartbeat, _) => Some("heartbeat".to_owned()),
            _ => method(payload).ok().flatten(),
        };
        let words = words.map(|words| match head.channel {
            CH => words,
            PROBE => format!("probe {words}"),
            ChannelId::CONNECTION if head.kind == Kind::Heartbeat => words,
            ChannelId::CONNECTION if words.starts_with("connection.") => words,
            channel => format!("@{channel} {words}"),
        });
        let mut is_same = words.filter(|words| frames(words) == rest[..whole]);
        if is_same.is_none() {
            whole = head.whole();
            is_same = Some(format!("bytes {}", quoted(&rest[..whole])));
        }
        out.extend(is_same);
        rest = &rest[whole..];
    }
    if !rest.is_empty() {
        out.push(format!("bytes {}", quoted(rest)));
    }
    out
}

/// In quotes where it needs them.
pub(super) fn quoted(text: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"\\=;{}".contains(byte);
    let is_word =
        text.iter().all(is_plain) && text.first().is_some_and(|first| !b"+@-".contains(first));
    let mut out = String::new();
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => out += &format!("\\x{byte:02x}"),
        }
    }
    match is_word {
        true => out,
        false => format!("\"{out}\""),
    }
}

pub(super) fn table(raw: &[u8]) -> Option<String> {
    let mut fields = Vec::new();
    for field in Table(raw).fields() {
        let field = field.ok()?;
        let value = match field.value.tag {
            b'S' => match str::from_utf8(field.value.data)
                .unwrap_or_default()
                .parse::<i64>()
            {
                Ok(number) => format!("\"{number}\""),
                Err(_) => quoted(field.value.data),
            },
            _ => field.value.as_integer()?.to_string(),
        };
        fields.push(format!("{}={value}", quoted(field.name)));
    }
    Some(format!("{{{}}}", fields.join(" ")))
}

fn header(payload: &[u8]) -> Option<String> {
    let bytes = u64::from_be_bytes(*payload.get(4..)?.first_chunk()?);
    match payload.get(12..)? {
        [0, 0] => Some(format!("header {bytes}")),
        properties => Some(format!("header {bytes} {}", table(properties.get(6..)?)?)),
    }
}

fn method(payload: &[u8]) -> Result<Option<String>, Malformed> {
    let id = MethodId::peek(payload);
    let Some((_, name, arguments)) = METHODS.iter().find(|method| id == Some(method.0)) else {
        return Ok(None);
    };
    let mut cursor = Cursor::new(payload);
    cursor.take(4)?;
    let mut words = vec![(*name).to_owned()];
    // As many words as there are behind the last argument that says something.
    let mut needed = 1;
    for kind in arguments.split_whitespace() {
        let (word, is_empty) = match kind {
            "0" => {
                cursor.short()?;
                continue;
            }
            "2" | "4" | "8" => {
                let bytes = cursor.take(kind.parse().expect("a number"))?;
                let number = bytes
                    .iter()
                    .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
                (number.to_string(), number == 0)
            }
            "s" | "S" => {
                let text = if kind == "s" {
                    cursor.shortstr()?
                } else {
                    cursor.longstr()?
                };
                (quoted(text), text.is_empty())
            }
            "t" => match cursor.longstr()? {
                [] => continue,
                raw => (table(raw).ok_or(Malformed)?, false),
            },
            names => {
                let bits = cursor.octet()?;
                let names = names[1..].split(',').enumerate();
                let set = names.filter(|(bit, _)| bits & (1 << bit) != 0);
                let words: Vec<_> = set.map(|(_, name)| format!("+{name}")).collect();
                match &words[..] {
                    [] => continue,
                    words => (words.join(" "), false),
                }
            }
        };
        words.push(word);
        if !is_empty {
            needed = words.len();
        }
    }
    words.truncate(needed);
    Ok(Some(words.join(" ")))
}

pub(super) fn time(word: &str) -> Duration {
    let at = word.find(|c: char| !c.is_ascii_digit()).expect("a unit");
    let (number, unit) = word.split_at(at);
    let number = number.parse().expect("a number");
    match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        unit => panic!("a unit: {unit}"),
    }
}

/// Without words: where dead letters go.
pub(super) fn lenient(words: &str) -> Lenient {
    let items = words
        .split(',')
        .map(|item| match item.strip_prefix("transient-") {
            Some(expires) => Item::Transient(time(expires)),
            None => Item::name(item).expect("a name"),
        });
    match words {
        "" => Lenient::targets(),
        _ => Lenient::new(items),
    }
}
