//! What RabbitMQ does with a message and its deaths, slow and obvious, and independent of the code under test.

use crate::amqp::content::Content;
use crate::amqp::properties::Properties;
use crate::amqp::table::{ArrayBuilder, Table, TableBuilder, Value};
use crate::dead_letter::Dialect;
use crate::dead_letter::headers::{X_DEATH, X_FIRST_DEATH, X_LAST_DEATH};
use crate::machine::Reason;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Broker {
    pub(super) dialect: Dialect,
    /// A published x-death counts as its own: 3.x, and 3.13 with `message_containers_deaths_v2`.
    pub(super) takes_over: bool,
}

/// One death.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) queue: String,
    pub(super) reason: Reason,
    pub(super) exchange: String,
    pub(super) key: String,
    pub(super) time: u64,
    pub(super) expiration: Option<String>,
}

/// One entry of x-death, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    queue: String,
    reason: String,
    count: i64,
    exchange: String,
    keys: Vec<String>,
    time: u64,
    expiration: Option<String>,
}

/// A message in a queue.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    content: Content,
    /// The annotation `deaths` of 3.13 and 4.x; on 3.x all is in the header.
    deaths: Option<Vec<Known>>,
    /// The annotations for the first and the last death.
    first: Option<Event>,
    last: Option<Event>,
    pub(super) exchange: String,
    pub(super) key: String,
}

/// The history after a death: S4.1 and S4.2.
pub(super) fn record(dialect: Dialect, before: &[Known], event: &Event) -> Vec<Known> {
    let same = |known: &&Known| known.queue == event.queue && known.reason == event.reason.as_str();
    let mut first = before.iter().find(same).cloned().unwrap_or(Known {
        queue: event.queue.clone(),
        reason: event.reason.as_str().to_owned(),
        count: 0,
        exchange: event.exchange.clone(),
        keys: vec![event.key.clone()],
        time: event.time,
        expiration: event.expiration.clone(),
    });
    first.count += 1;
    let mut others: Vec<Known> = before
        .iter()
        .filter(|known| !same(known))
        .cloned()
        .collect();
    if dialect == Dialect::V3 && before.len() >= 2 {
        others.reverse();
    }
    others.insert(0, first);
    others
}

/// Whether the broker drops the copy of a message with these deaths for `queue`: S6.1.
pub(super) fn is_cycle(reason: Reason, deaths: &[Known], queue: &str) -> bool {
    let Some(at) = deaths.iter().position(|death| death.queue == queue) else {
        return false;
    };
    reason != Reason::Rejected && deaths[..=at].iter().all(|death| death.reason != "rejected")
}

impl Known {
    pub(super) fn read(table: Table<'_>) -> Known {
        let field = |name: &[u8]| table.get(name).unwrap().unwrap();
        let text =
            |value: Value<'_>| String::from_utf8(value.as_longstr().unwrap().to_vec()).unwrap();
        assert_eq!(field(b"count").tag, b'l');
        let keys = field(b"routing-keys").as_array().unwrap();
        Known {
            queue: text(field(b"queue")),
            reason: text(field(b"reason")),
            count: field(b"count").as_integer().unwrap(),
            exchange: text(field(b"exchange")),
            keys: keys.values().map(|key| text(key.unwrap())).collect(),
            time: field(b"time").as_timestamp().unwrap(),
            expiration: table.get(b"original-expiration").unwrap().map(text),
        }
    }

    /// In the order of 4.x.
    fn table(&self) -> TableBuilder {
        let mut keys = ArrayBuilder::default();
        for key in &self.keys {
            keys.longstr(key.as_bytes());
        }
        let mut table = TableBuilder::default();
        if let Some(expiration) = &self.expiration {
            table.longstr(b"original-expiration", expiration.as_bytes());
        }
        table
            .long(b"count", self.count)
            .longstr(b"reason", self.reason.as_bytes())
            .longstr(b"queue", self.queue.as_bytes())
            .timestamp(b"time", self.time)
            .longstr(b"exchange", self.exchange.as_bytes())
            .array(b"routing-keys", &keys);
        table
    }
}

impl Broker {
    /// A client published it.
    pub(super) fn publish(self, content: &Content, exchange: &str, key: &str) -> Stored {
        let deaths = if self.takes_over { read(content) } else { None };
        Stored {
            content: content.clone(),
            deaths,
            first: None,
            last: None,
            exchange: exchange.to_owned(),
            key: key.to_owned(),
        }
    }

    /// It dies.
    pub(super) fn kill(self, stored: &mut Stored, event: &Event) {
        if stored.deaths.is_none() {
            stored.first = Some(event.clone());
        }
        let before = stored.deaths.take().unwrap_or_default();
        stored.deaths = Some(record(self.dialect, &before, event));
        stored.last = (self.dialect != Dialect::V3).then(|| event.clone());
    }

    /// The deaths that it knows of a message when that dies next.
    pub(super) fn knows(self, stored: &Stored) -> Vec<Known> {
        stored.deaths.clone().unwrap_or_default()
    }

    /// As a consumer gets it: annotations overwrite headers, and those are sorted by name.
    pub(super) fn deliver(self, stored: &Stored) -> Content {
        let properties = Properties::parse(&stored.content.properties).unwrap();
        let mut members: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for field in Table(properties.headers().unwrap_or_default()).fields() {
            let field = field.unwrap();
            members.push((field.name.to_vec(), field.raw.to_vec()));
        }
        let mut set = |name: &[u8], write: &dyn Fn(&mut TableBuilder)| {
            let mut member = TableBuilder::default();
            write(&mut member);
            members.retain(|(known, _)| known != name);
            members.push((name.to_vec(), member.finish()));
        };
        if let Some(deaths) = &stored.deaths {
            let mut array = ArrayBuilder::default();
            for death in deaths {
                array.table(&death.table());
            }
            set(X_DEATH, &|member| {
                member.array(X_DEATH, &array);
            });
        }
        for (event, names) in [(&stored.first, X_FIRST_DEATH), (&stored.last, X_LAST_DEATH)] {
            let Some(event) = event else { continue };
            let words = [event.reason.as_str(), &event.queue, &event.exchange];
            for (name, word) in names.into_iter().zip(words) {
                set(name, &|member| {
                    member.longstr(name, word.as_bytes());
                });
            }
        }
        members.sort();
        let headers = members.into_iter().flat_map(|(_, raw)| raw).collect();
        stored
            .content
            .with_properties(properties.with_headers(headers))
    }
}

fn read(content: &Content) -> Option<Vec<Known>> {
    let properties = Properties::parse(&content.properties).unwrap();
    let array = Table(properties.headers()?)
        .get(X_DEATH)
        .unwrap()?
        .as_array()
        .unwrap();
    Some(
        array
            .values()
            .map(|entry| Known::read(entry.unwrap().as_table().unwrap()))
            .collect(),
    )
}
