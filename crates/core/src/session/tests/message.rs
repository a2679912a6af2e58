//! A message with properties of its own, as a broker delivers it and as a client reads it; and a queue with retries.

use super::script::*;
use super::words;
use crate::amqp::content::PREFIX;
use crate::amqp::frame::{self, Front};
use crate::amqp::ids::DeliveryTag;
use crate::amqp::method::{Deliver, GetOk};
use crate::amqp::properties::{Change, Edit, Properties, Property};
use crate::amqp::reply;
use crate::amqp::table::{Table, TableBuilder};
use crate::objects::{DeclaredTarget, QueueType};
use crate::registry::policy::{Definition, Pattern, Policies, Policy};
use crate::registry::said_retries::SaidRetries;
use crate::registry::{Declared, Form};
use crate::session::Settings;

/// A message at the broker.
#[derive(Clone)]
pub(super) struct Message {
    pub(super) exchange: String,
    pub(super) routing_key: String,
    pub(super) properties: Vec<u8>,
}

/// What a client reads of one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) exchange: String,
    pub(super) routing_key: String,
    pub(super) redelivered: bool,
    pub(super) expiration: Option<Vec<u8>>,
    pub(super) user_id: Option<Vec<u8>>,
    pub(super) headers: Vec<(String, i64)>,
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// As somebody published it: to `x`, with a key, a TTL, a user and a header of its own.
pub(super) fn published() -> Message {
    let headers = table(|table| {
        table.long(b"mine", 7);
    });
    let edit = Edit {
        headers: Change::Set(headers),
        expiration: Change::Set(b"60000".to_vec()),
        user_id: Change::Set(b"app".to_vec()),
        ..Edit::default()
    };
    let none = Properties::parse(&[0, 0]).expect("none");
    Message {
        exchange: "x".to_owned(),
        routing_key: "k".to_owned(),
        properties: none.edit(&edit).to_vec(),
    }
}

impl Message {
    fn header(&self) -> Vec<u8> {
        let mut out = Vec::new();
        frame::put(&mut out, 2, CH, |out| {
            out.extend_from_slice(&[0, 60, 0, 0]);
            out.extend_from_slice(&2u64.to_be_bytes());
            out.extend_from_slice(&self.properties);
        });
        out
    }

    pub(super) fn delivered(&self, tag: u64) -> [Vec<u8>; 3] {
        self.delivered_to("orders", tag)
    }

    pub(super) fn delivered_to(&self, consumer: &str, tag: u64) -> [Vec<u8>; 3] {
        let mut method = Vec::new();
        let deliver = Deliver {
            consumer_tag: consumer.as_bytes(),
            delivery_tag: DeliveryTag(tag),
            redelivered: false,
            exchange: self.exchange.as_bytes(),
            routing_key: self.routing_key.as_bytes(),
        };
        reply::deliver(&mut method, CH, &deliver);
        [method, self.header(), body(b"hi")]
    }

    pub(super) fn fetched(&self, tag: u64) -> [Vec<u8>; 3] {
        let mut method = Vec::new();
        let got = GetOk {
            delivery_tag: DeliveryTag(tag),
            redelivered: false,
            exchange: self.exchange.as_bytes(),
            routing_key: self.routing_key.as_bytes(),
            message_count: 7,
        };
        reply::get_ok(&mut method, CH, &got);
        [method, self.header(), body(b"hi")]
    }
}

/// What a client reads of the only message in these bytes.
fn read(bytes: &[u8]) -> Shown {
    let mut payloads = Vec::new();
    let mut rest = bytes;
    while let Front::Whole(_, payload, whole) = frame::front(rest) {
        payloads.push(payload);
        rest = &rest[whole..];
    }
    let [method, header, body] = payloads[..] else {
        panic!("no message: {:?}", words::shown(bytes));
    };
    assert_eq!(body, b"hi");
    let (redelivered, exchange, routing_key) = match (Deliver::parse(method), method[3]) {
        (Ok(deliver), 60) => (deliver.redelivered, deliver.exchange, deliver.routing_key),
        _ => {
            let got = GetOk::parse(method).expect("get-ok");
            (got.redelivered, got.exchange, got.routing_key)
        }
    };
    let properties = Properties::parse(&header[PREFIX..]).expect("properties");
    let table = Table(properties.headers().unwrap_or_default());
    let value = |name| properties.get(name).map(<[u8]>::to_vec);
    Shown {
        exchange: text(exchange),
        routing_key: text(routing_key),
        redelivered,
        expiration: value(Property::Expiration),
        user_id: value(Property::UserId),
        headers: table
            .fields()
            .map(|field| field.expect("a header"))
            .map(|field| (text(field.name), field.value.as_integer().unwrap_or(-1)))
            .collect(),
    }
}

/// What a client should read, with these counts.
pub(super) fn shown(redelivered: bool, counts: &[(&str, i64)]) -> Shown {
    let own = [("mine", 7)];
    let headers = own.iter().chain(counts);
    Shown {
        exchange: "x".to_owned(),
        routing_key: "k".to_owned(),
        redelivered,
        expiration: Some(b"60000".to_vec()),
        user_id: Some(b"app".to_vec()),
        headers: headers.map(|(name, n)| ((*name).to_owned(), *n)).collect(),
    }
}

pub(super) fn seen(s: &mut Script, bytes: &[u8]) -> Shown {
    let _said = s.broker(bytes);
    read(&s.sent_to_client())
}

// === its queue

/// What the arguments or a policy say of retries.
pub(super) fn said(min: Option<u32>, limit: Option<i32>) -> SaidRetries {
    SaidRetries {
        delayed_retry_min: min,
        delivery_limit: limit,
        ..SaidRetries::default()
    }
}

/// A policy of ours that fits `orders`.
pub(super) fn policy(retries: SaidRetries) -> Policies {
    Policies::new(vec![Policy {
        pattern: Pattern::new("^orders$").expect("a good pattern"),
        definition: Definition {
            retries,
            ..Definition::default()
        },
        ..Policy::default()
    }])
}

/// A declared queue without a dead-letter exchange.
pub(super) fn declared(retries: SaidRetries) -> Declared {
    Declared {
        said: DeclaredTarget::Policy {
            at_least_once: false,
        },
        retries,
        queue_type: QueueType::Classic,
        taken_over: false,
        form: Form::default(),
        kept: Default::default(),
    }
}

/// Channel 1 consumes from `orders`, which was declared so, and from the unmanaged `other`.
pub(super) fn of(settings: Settings, declared: Declared) -> Script {
    let mut script = Script::open(settings);
    script.manages("orders", declared);
    let mut script = script.consume("orders").consume("other");
    script.events.clear();
    script
}

/// The table of a declare.
pub(super) fn table(build: impl FnOnce(&mut TableBuilder)) -> Vec<u8> {
    let mut table = TableBuilder::default();
    build(&mut table);
    table.finish()
}
