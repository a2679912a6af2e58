//! What a message in a delay queue says of itself.

use amq_protocol::frame::WriteContext;
use amq_protocol::protocol::basic::gen_properties;
use lapin::BasicProperties;

use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Properties, Property};
use crate::dead_letter::retry;
use crate::machine::Wall;

/// A message that waits for its retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    /// The queue that it comes back to.
    pub(super) queue: ShortStr,
    pub(super) due: Wall,
    /// How often it has come back then.
    pub(super) attempts: u64,
}

impl Waiting {
    /// `None`: no proxy has sent it here. Whoever says to have been the proxy is believed: a reader need not be the proxy's user, and the proxy
    /// itself looks closer.
    pub(super) fn read(properties: &BasicProperties) -> Option<Waiting> {
        let written = gen_properties(properties)(WriteContext::from(Vec::new())).ok()?;
        Waiting::of(&written.write)
    }

    fn of(properties: &[u8]) -> Option<Waiting> {
        let properties = Properties::parse(properties).ok()?;
        let user = properties.get(Property::UserId)?;
        let (retry, _) = retry::read(&properties, user)?;
        Some(Waiting {
            due: retry.away?.due,
            queue: retry.queue,
            attempts: retry.attempts.all,
        })
    }
}

#[cfg(test)]
mod tests {
    use lapin::types::{AMQPValue, FieldTable};

    use super::*;

    /// As a proxy with the user `proxy` writes it.
    fn away() -> BasicProperties {
        let mut table = FieldTable::default();
        for (name, value) in [("queue", "orders"), ("exchange", ""), ("routing-key", "k")] {
            table.insert(name.into(), AMQPValue::LongString(value.into()));
        }
        for (name, number) in [("all", 2), ("failed", 1), ("due", 1_700_000_000_000)] {
            table.insert(name.into(), AMQPValue::LongLongInt(number));
        }
        let deaths = AMQPValue::FieldTable(FieldTable::default());
        table.insert("deaths".into(), deaths);
        let mut headers = FieldTable::default();
        headers.insert("x-dlx-proxy-user-id".into(), AMQPValue::Void);
        headers.insert("x-dlx-proxy-retry".into(), AMQPValue::FieldTable(table));
        BasicProperties::default()
            .with_headers(headers)
            .with_user_id("proxy".into())
            .with_content_type("text/plain".into())
    }

    #[test]
    fn a_message_says_where_it_comes_back_and_when() {
        let expected = Waiting {
            queue: ShortStr::copy(b"orders").expect("short"),
            due: Wall(1_700_000_000_000),
            attempts: 2,
        };
        assert_eq!(Waiting::read(&away()), Some(expected));
    }

    #[test]
    fn what_no_proxy_sent_says_nothing() {
        let mut headers = away().headers().clone().expect("some");
        headers.insert("x-dlx-proxy-retry".into(), AMQPValue::Boolean(true));
        for other in [
            BasicProperties::default(),
            away().with_headers(FieldTable::default()),
            away().with_headers(headers),
        ] {
            assert_eq!(Waiting::read(&other), None);
        }
    }
}
