//! The header that says who rejected a message.

use std::sync::Arc;
use std::time::Duration;

use super::message::content;
use super::property::rules;
use crate::amqp::content::Content;
use crate::amqp::ids::name;
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::table::{Table, TableBuilder, Value};
use crate::dead_letter::rejected_by::{X_REJECTED_BY, without};
use crate::dead_letter::{Death, Dialect, Disposal, Rules, Target, plan};
use crate::machine::{ClientConnection, Reason, Rejecter};

fn rejecter() -> Rejecter {
    Rejecter {
        connection: Arc::new(ClientConnection {
            name: Some(name("worker 1")),
            user: None,
            host: name("192.0.2.7"),
        }),
        consumer: Some(name("tag")),
        held: Duration::from_millis(1_234),
    }
}

fn stamped(stamp: bool) -> Rules {
    Rules {
        stamp,
        ..rules(Dialect::V4)
    }
}

/// With two headers of that name, as a client may have written them.
fn message() -> Content {
    let mut headers = TableBuilder::default();
    headers.longstr(X_REJECTED_BY, b"a").longstr(b"other", b"b");
    headers.longstr(X_REJECTED_BY, b"c");
    content(&Edit {
        headers: Change::Set(headers.finish()),
        ..Edit::default()
    })
}

fn dies(by: Option<&Rejecter>, rules: &Rules) -> Vec<u8> {
    let queue = name("work");
    let content = message();
    let death = Death {
        queue: &queue,
        reason: Reason::Rejected,
        exchange: b"",
        routing_key: b"work",
        content: &content,
        recorded: false,
        by,
    };
    let target = Target {
        exchange: name("dlx"),
        routing_key: None,
        at_least_once: false,
    };
    match plan(&death, &target, rules, 9) {
        Ok(Disposal::Publish(publication)) => publication.content.properties.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// The headers of that name, each of whose fields is a line.
fn said(properties: &[u8]) -> Vec<String> {
    let headers = Properties::parse(properties).unwrap().headers().unwrap();
    let fields = Table(headers).fields().map(|field| field.unwrap());
    let said = fields.filter(|field| field.name == X_REJECTED_BY);
    said.map(|field| match field.value.as_table() {
        Some(table) => lines(table),
        None => format!("{:?}", text(field.value)),
    })
    .collect()
}

fn lines(table: Table<'_>) -> String {
    let fields = table.fields().map(|field| field.unwrap());
    let lines = fields.map(|field| {
        let (name, value) = (String::from_utf8_lossy(field.name), field.value);
        match (value.as_longstr(), value.as_timestamp()) {
            (Some(_), _) => format!("{name}: {}", text(value)),
            (_, Some(time)) => format!("{name}: at {time}"),
            _ => format!("{name}: {}", value.as_integer().expect("a number")),
        }
    });
    lines.collect::<Vec<_>>().join(", ")
}

fn text(value: Value<'_>) -> String {
    String::from_utf8_lossy(value.as_longstr().unwrap_or_default()).into_owned()
}

#[test]
fn it_says_what_is_known() {
    let by = rejecter();
    let expected = "consumer: tag, connection: worker 1, host: 192.0.2.7, queue: work, time: at 9, held-ms: 1234";
    assert_eq!(said(&dies(Some(&by), &stamped(true))), [expected]);
}

#[test]
fn it_goes_with_a_death_that_is_no_reject() {
    let headers = dies(None, &stamped(true));
    assert!(said(&headers).is_empty());
}

#[test]
fn nobody_asks_so_nothing_changes() {
    let by = rejecter();
    let nothing = stamped(false);
    assert_eq!(dies(Some(&by), &nothing), dies(None, &nothing));
    assert_eq!(said(&dies(Some(&by), &nothing)), ["\"a\"", "\"c\""]);
}

#[test]
fn it_is_left_out_where_it_does_not_fit() {
    let by = rejecter();
    let properties = dies(Some(&by), &stamped(true));
    let left = without(&properties).expect("it had one");
    assert!(said(&left).is_empty());
    assert_eq!(without(&left), None);
    assert!(memchr::memmem::find(&left, b"other").is_some());
}
