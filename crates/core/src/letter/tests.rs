//! Letters of all kinds, and what can be read of them.

use bytes::Bytes;

use crate::amqp::content::Content;
use crate::amqp::ids::{ShortStr, name};
use crate::amqp::table::{ArrayBuilder, TableBuilder};
use crate::link::peer::with_headers;

use super::{BodyHash, Letter};

mod change;
mod filter;
mod groups;
mod hostile;
mod id;
mod line;
mod table;
mod time;
mod view;

/// 2026-11-23T10:00:00Z.
const TEN: u64 = 1_795_428_000;

fn letter(headers: TableBuilder, body: &str) -> Letter {
    let Content { properties, body } = with_headers(headers, body);
    Letter {
        position: 1,
        exchange: name("dlx"),
        routing_key: name("dead"),
        redelivered: false,
        properties,
        size: body.len() as u64,
        body_hash: BodyHash::of(&body),
        body,
    }
}

/// An entry as RabbitMQ writes it: `queue/reason*count`, published to `x` with `k`.
fn entry(queue: &str, reason: &str, count: i64, time: u64) -> TableBuilder {
    let mut keys = ArrayBuilder::default();
    keys.longstr(b"k");
    let mut entry = TableBuilder::default();
    entry
        .long(b"count", count)
        .longstr(b"reason", reason.as_bytes())
        .longstr(b"queue", queue.as_bytes())
        .timestamp(b"time", time)
        .longstr(b"exchange", b"x")
        .array(b"routing-keys", &keys);
    entry
}

fn died(deaths: &[(&str, &str, i64, u64)]) -> TableBuilder {
    let mut array = ArrayBuilder::default();
    for (queue, reason, count, time) in deaths {
        array.table(&entry(queue, reason, *count, *time));
    }
    let mut headers = TableBuilder::default();
    headers.array(b"x-death", &array);
    headers
}

fn rejected(error: &str) -> Letter {
    let mut headers = died(&[("orders", "rejected", 1, TEN)]);
    headers.longstr(b"x-exception-message", error.as_bytes());
    letter(headers, "body")
}

fn with_properties(properties: Vec<u8>) -> Letter {
    Letter {
        properties: Bytes::from(properties),
        ..letter(TableBuilder::default(), "body")
    }
}

fn short(text: &str) -> Option<ShortStr> {
    Some(name(text))
}
