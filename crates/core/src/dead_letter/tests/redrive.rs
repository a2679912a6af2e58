//! Dead letters that are sent back: in their queue they are what they were before they died, elsewhere they are messages of their own.

use proptest::prelude::*;

use crate::amqp::content::Content;
use crate::amqp::ids::{ShortStr, name};
use crate::amqp::properties::{Change, Edit, Properties, Property};
use crate::amqp::table::{Table, TableBuilder, Value};
use crate::dead_letter::headers::{CC, OF_THE_QUEUE, X_DEATH, X_FIRST_DEATH, X_LAST_DEATH, routes};
use crate::dead_letter::private;
use crate::dead_letter::proof;
use crate::dead_letter::redrive::{Destination, Here, Mark, Redrive, Standing, Stays};
use crate::dead_letter::retries::Attempts;
use crate::dead_letter::{Bridges, Death, Dialect, Disposal, Lookup, Target, dispose, retry};
use crate::machine::{Publication, Purpose, Reason};

use super::anything::{table, x_death};
use super::away::{NOW, OWN};
use super::message::{content, deaths};
use super::property::rules;
use super::retry::{Looks, looks, messages};

pub(super) const BRIDGE: &[u8] = b"dlx-proxy.bridge/";

pub(super) fn to(to: Destination) -> Redrive {
    Redrive {
        to,
        keep_history: true,
        by: name("ann"),
    }
}

pub(super) fn source() -> Redrive {
    to(Destination::Source)
}

/// What it becomes, where no exchange leads to its queue alone.
pub(super) fn sent_back(
    redrive: &Redrive,
    (exchange, routing_key): (&str, &str),
    content: &Content,
    dialect: Dialect,
) -> Result<Publication, Stays> {
    let bridges = Bridges::new(ShortStr::copy(BRIDGE).unwrap());
    let here = Here {
        own_user: OWN,
        dialect,
        bridges: &bridges,
        is_own_queue: &|queue| queue.starts_with(b"dlx-proxy."),
        return_exchange: &|_| None,
    };
    let of = Standing {
        exchange: exchange.as_bytes(),
        routing_key: routing_key.as_bytes(),
        content,
    };
    Ok(redrive.publication(&of, &here, NOW)?.publication)
}

pub(super) fn header<'a>(content: &'a Content, name: &[u8]) -> Option<Value<'a>> {
    let headers = Properties::parse(&content.properties).unwrap().headers();
    Table(headers.unwrap_or_default()).get(name).unwrap()
}

pub(super) fn property(content: &Content, property: Property) -> Option<Vec<u8>> {
    let properties = Properties::parse(&content.properties).unwrap();
    properties.get(property).map(<[u8]>::to_vec)
}

fn keys(content: &Content, name: &[u8]) -> Vec<Vec<u8>> {
    let properties = Properties::parse(&content.properties).unwrap();
    let table = Table(properties.headers().unwrap_or_default());
    let keys = routes(table, name).unwrap();
    keys.into_iter().map(<[u8]>::to_vec).collect()
}

pub(super) fn marked(content: &Content) -> Option<(u64, Option<u64>, Option<Vec<u8>>)> {
    let properties = Properties::parse(&content.properties).unwrap();
    let mark = Mark::read(Table(properties.headers()?))?;
    Some((mark.count, mark.time, mark.by.map(<[u8]>::to_vec)))
}

/// Of a message that is back in `queue`: the exchange, the key, and what it was before.
pub(super) fn before(queue: &str, content: &Content) -> Option<((String, String), Content)> {
    let properties = Properties::parse(&content.properties).unwrap();
    let (retry, original) = retry::back_in(queue.as_bytes(), &properties, OWN)?;
    assert_eq!(retry.attempts, Attempts::default());
    assert_eq!(retry.deadline, None);
    let text = |name: &ShortStr| String::from_utf8(name.to_vec()).unwrap();
    let way = (text(&retry.exchange), text(&retry.routing_key));
    Some((way, retry.before(content, original).unwrap()))
}

/// The dead letter of a message that was rejected in `q`.
pub(super) fn rejected(
    content: &Content,
    (exchange, routing_key): (&str, &str),
    key: Option<&str>,
    dialect: Dialect,
) -> Publication {
    let queue = name("the queue");
    let death = Death {
        queue: &queue,
        reason: Reason::Rejected,
        exchange: exchange.as_bytes(),
        routing_key: routing_key.as_bytes(),
        content,
        recorded: false,
        by: None,
    };
    let target = Lookup::Target(Target {
        exchange: name("dlx"),
        routing_key: key.map(name),
        at_least_once: false,
    });
    match dispose(&death, &target, &rules(dialect), NOW.seconds()) {
        Disposal::Publish(publication) => publication,
        other => panic!("{other:?}"),
    }
}

fn is_of_deaths(name: &[u8]) -> bool {
    name == X_DEATH || X_FIRST_DEATH.contains(&name) || X_LAST_DEATH.contains(&name)
}

/// Its headers of deaths; and all else, but for `CC`, its TTL, and what the queue counts.
fn parts(content: &Content) -> (Looks, Looks) {
    let (headers, mut others, body) = looks(content);
    others[1] = None;
    let (of_deaths, mut rest): (Vec<_>, Vec<_>) = headers
        .into_iter()
        .partition(|(name, _)| is_of_deaths(name));
    rest.retain(|(name, _)| name != CC && !OF_THE_QUEUE.contains(&&name[..]));
    let of = |headers: Vec<_>| (headers.into_iter().collect(), others.clone(), body.clone());
    (of(of_deaths), of(rest))
}

proptest! {
    /// Whatever the message is, whoever published its dead letter, and by which key.
    #[test]
    fn it_is_what_it_was_before_it_died(
        message in messages(),
        keyed in any::<bool>(),
        hidden in any::<bool>(),
        keep_history in any::<bool>(),
    ) {
        for dialect in [Dialect::V3, Dialect::V3_13, Dialect::V4] {
            let key = keyed.then_some("dead");
            let first = rejected(&message, ("x", "k"), key, dialect);
            let mut letter = first.clone();
            if hidden {
                let proven = proof::prove(&letter.content.properties, OWN, None).unwrap();
                letter.content.properties = proven;
            }
            let stands = letter.content;
            let redrive = Redrive { keep_history, ..source() };
            let came_by = ("dlx", key.unwrap_or("k"));
            let back = sent_back(&redrive, came_by, &stands, dialect).unwrap();
            prop_assert_eq!((&back.exchange, &back.routing_key), (&name(""), &name("the queue")));
            prop_assert_eq!((back.purpose, &back.queue), (Purpose::Redrive, &name("the queue")));

            let here = back.content;
            prop_assert_eq!(header(&here, CC), None, "the broker would route by it");
            let (way, was) = before("the queue", &here).expect("it is back");
            prop_assert_eq!(way, ("x".to_owned(), "k".to_owned()));
            prop_assert_eq!(parts(&was).1, parts(&message).1);
            prop_assert_eq!(property(&was, Property::Expiration), None);
            let counted = keys(&first.content, CC);
            if !keyed {
                prop_assert_eq!(keys(&was, CC), counted);
            }
            match keep_history {
                true => prop_assert_eq!(parts(&was).0, parts(&stands).0),
                false => prop_assert!(parts(&was).0.0.is_empty()),
            }
            prop_assert_eq!(marked(&was), Some((1, Some(NOW.seconds()), Some(b"ann".to_vec()))));

            // It dies again, as it did, and knows that it was sent back.
            let again = rejected(&was, ("x", "k"), key, dialect);
            prop_assert_eq!(
                (&again.exchange, &again.routing_key),
                (&first.exchange, &first.routing_key)
            );
            prop_assert_eq!(keys(&again.content, CC), keys(&first.content, CC));
            prop_assert_eq!(marked(&again.content), marked(&was));
            let twice = sent_back(&redrive, came_by, &again.content, dialect).unwrap();
            prop_assert_eq!(marked(&twice.content).map(|mark| mark.0), Some(2));
        }
    }

    /// Nothing that anybody can write makes it panic, and what it publishes can be read.
    #[test]
    fn whatever_stands_there(
        members in table(),
        published in x_death(),
        raw in prop::collection::vec(any::<u8>(), 0..64),
        mine in any::<bool>(),
        by in "[a-z ]{0,4}",
        keep_history in any::<bool>(),
    ) {
        let mut headers = TableBuilder::default();
        headers.members(&members).array(X_DEATH, &deaths(&published, false));
        for name in [private::RETRY, private::REDRIVEN, private::LAP] {
            let mut table = TableBuilder::default();
            table.members(&members);
            headers.table(name, &table);
        }
        let user_id = match mine {
            true => Change::Set(OWN.to_vec()),
            false => Change::Keep,
        };
        let readable = content(&Edit {
            headers: Change::Set(headers.finish()),
            user_id,
            ..Edit::default()
        });
        let unreadable = Content {
            properties: [&[0x20, 0][..], &raw].concat().into(),
            ..readable.clone()
        };
        let tos = [
            Destination::Source,
            Destination::Queue(name("b")),
            Destination::Exchange { exchange: name("e"), routing_key: None },
        ];
        for destination in tos {
            for dialect in [Dialect::V3, Dialect::V3_13, Dialect::V4] {
                for content in [&readable, &unreadable] {
                    let redrive = Redrive { keep_history, ..to(destination.clone()) };
                    if let Ok(publication) = sent_back(&redrive, (&by, &by), content, dialect) {
                        prop_assert!(marked(&publication.content).is_some());
                    }
                }
            }
        }
    }
}
