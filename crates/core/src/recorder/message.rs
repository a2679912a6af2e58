//! What stands in the stream: one message for each entry, without a body, and marks. All of it is in headers, where people can read it.
//!
//! ```text
//! queue             the queue that it is about           mark    of a mark: which
//! number            of the entry
//! made-with-exchange, made-with-routing-key              the dead-letter arguments that the queue has at the broker
//! said              "arguments": what these say; "none": no exchange; "exchange": the following
//! exchange, routing-key                                  what the last declare said
//! at-least-once     the strategy that goes with it
//! ```
//! Only what has the proof counts ([`proof`](crate::dead_letter::proof)): who may publish to the stream may write anything into it.

use bytes::Bytes;

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::Properties;
use crate::amqp::table::{Table, TableBuilder};
use crate::dead_letter::Target;
use crate::dead_letter::proof::{prove, proven};
use crate::objects::DeclaredTarget;
use crate::registry::redeclared::{Entry, Existing};

const QUEUE: &[u8] = b"queue";
const MARK: &[u8] = b"mark";
const NUMBER: &[u8] = b"number";
const MADE_WITH: [&[u8]; 2] = [b"made-with-exchange", b"made-with-routing-key"];
const SAID: &[u8] = b"said";
const GOES_TO: [&[u8]; 2] = [b"exchange", b"routing-key"];
const AT_LEAST_ONCE: &[u8] = b"at-least-once";
const HEADERS_ONLY: [u8; 2] = [0x20, 0];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Entry(ShortStr, Entry),
    /// How far a recorder has to read: older messages precede it.
    Mark(ShortStr),
}

impl Message {
    /// The published form. `None`: the properties cannot be built, which does not happen.
    pub(super) fn written(&self, own_user: &[u8]) -> Option<Content> {
        let mut headers = TableBuilder::default();
        match self {
            Message::Mark(mark) => {
                headers.longstr(MARK, mark);
            }
            Message::Entry(queue, entry) => {
                headers
                    .longstr(QUEUE, queue)
                    .long(NUMBER, i64::try_from(entry.number).ok()?);
                let Existing {
                    exchange,
                    routing_key,
                } = &entry.existing;
                write_names(&mut headers, MADE_WITH, [exchange, routing_key]);
                write_said(&mut headers, entry.said.as_ref());
            }
        }
        let headers = headers.finish();
        let length = u32::try_from(headers.len()).ok()?.to_be_bytes();
        let properties = [&HEADERS_ONLY[..], &length, &headers].concat();
        Some(Content {
            properties: prove(&properties, own_user, None)?,
            body: Bytes::new(),
        })
    }

    /// `None` without the proof.
    pub(super) fn read(properties: &[u8], own_user: &[u8]) -> Option<Message> {
        let properties = Properties::parse(properties).ok()?;
        let headers = Headers(Table(properties.headers().unwrap_or_default()));
        proven(&properties, own_user).and_then(|_| headers.message())
    }
}

fn write_names(headers: &mut TableBuilder, names: [&[u8]; 2], values: [&Option<ShortStr>; 2]) {
    for (name, value) in names.into_iter().zip(values) {
        if let Some(value) = value {
            headers.longstr(name, value);
        }
    }
}

fn write_said(headers: &mut TableBuilder, said: Option<&DeclaredTarget>) {
    match said {
        None => {
            headers.longstr(SAID, b"arguments");
        }
        Some(DeclaredTarget::Policy { at_least_once }) => {
            headers.longstr(SAID, b"none");
            headers.boolean(AT_LEAST_ONCE, *at_least_once);
        }
        Some(DeclaredTarget::Target(target)) => {
            headers.longstr(SAID, b"exchange");
            let exchange = Some(target.exchange.clone());
            write_names(headers, GOES_TO, [&exchange, &target.routing_key]);
            headers.boolean(AT_LEAST_ONCE, target.at_least_once);
        }
    }
}

struct Headers<'a>(Table<'a>);

impl<'a> Headers<'a> {
    fn message(&self) -> Option<Message> {
        if let Some(mark) = self.name(MARK) {
            return Some(Message::Mark(mark));
        }
        let queue = self.name(QUEUE)?;
        let [exchange, routing_key] = MADE_WITH.map(|name| self.name(name));
        let said = match self.text(SAID)? {
            b"arguments" => None,
            b"none" => Some(DeclaredTarget::Policy {
                at_least_once: self.at_least_once(),
            }),
            b"exchange" => {
                let [exchange, routing_key] = GOES_TO.map(|name| self.name(name));
                Some(DeclaredTarget::Target(Target {
                    exchange: exchange?,
                    routing_key,
                    at_least_once: self.at_least_once(),
                }))
            }
            _ => return None,
        };
        let entry = Entry {
            number: self.number(NUMBER)?,
            existing: Existing {
                exchange,
                routing_key,
            },
            said,
        };
        Some(Message::Entry(queue, entry))
    }

    fn text(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.0.get(name).ok()??.as_text()
    }

    fn name(&self, name: &[u8]) -> Option<ShortStr> {
        ShortStr::copy(self.text(name)?)
    }

    fn number(&self, name: &[u8]) -> Option<u64> {
        let number = self.0.get(name).ok()??.as_integer()?;
        u64::try_from(number).ok()
    }

    fn at_least_once(&self) -> bool {
        let value = self.0.get(AT_LEAST_ONCE).ok().flatten();
        value.is_some_and(|value| value.tag == b't' && value.data == [1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::ids::name;

    fn messages() -> Vec<Message> {
        let target = |routing_key: Option<&str>| {
            Some(DeclaredTarget::Target(Target {
                exchange: name(""),
                routing_key: routing_key.map(name),
                at_least_once: routing_key.is_some(),
            }))
        };
        let none = |at_least_once| Some(DeclaredTarget::Policy { at_least_once });
        let said = [
            target(None),
            target(Some("")),
            none(false),
            none(true),
            None,
        ];
        let entry = |said| Entry {
            number: 7,
            existing: Existing {
                exchange: Some(name("dlx-proxy/old")),
                routing_key: None,
            },
            said,
        };
        let mut messages: Vec<_> = said
            .into_iter()
            .map(|said| Message::Entry(name("q"), entry(said)))
            .collect();
        messages.push(Message::Entry(
            name("of nothing"),
            Entry {
                existing: Existing::default(),
                ..entry(None)
            },
        ));
        messages.push(Message::Mark(name("a1-1")));
        messages
    }

    #[test]
    fn what_is_written_is_read() {
        for message in messages() {
            let content = message.written(b"proxy").expect("properties");
            let read = Message::read(&content.properties, b"proxy");
            assert_eq!(read, Some(message));
        }
    }

    #[test]
    fn without_the_proof_it_says_nothing() {
        let content = messages()[0].written(b"proxy").expect("properties");
        let read = Message::read(&content.properties, b"another");
        assert_eq!(read, None);
        assert_eq!(Message::read(b"\xff", b"proxy"), None);
    }
}
