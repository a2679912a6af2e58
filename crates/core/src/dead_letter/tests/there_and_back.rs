//! A message goes away and comes back, for a retry or by a redrive: it is as it was, nothing of it acts meanwhile, and nobody can forge that.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use crate::amqp::content::Content;
use crate::amqp::ids::{ShortStr, name};
use crate::amqp::properties::{Change, Edit, Properties, Property};
use crate::amqp::table::{Table, TableBuilder};
use crate::dead_letter::aside::{self, Delivered};
use crate::dead_letter::headers::{
    BCC, CC, OF_THE_QUEUE, X_DEATH, X_FIRST_DEATH, X_LAST_DEATH, routes,
};
use crate::dead_letter::redrive::{Destination, Here, Mark, Redrive, Standing, Stays};
use crate::dead_letter::retries::Attempts;
use crate::dead_letter::{
    Bridges, Death, Dialect, Disposal, HistoryForm, Lookup, Target, dispose, private, proof, retry,
};
use crate::machine::{Publication, Reason};

use super::anything::{table, x_death};
use super::away::{BROKERS, NOW, OWN, back, returned, sent};
use super::message::{content, deaths};
use super::walk::rules;

const DIALECTS: [Dialect; 3] = [Dialect::V3, Dialect::V3_13, Dialect::V4];

/// All that a client sees: headers by name, other properties, body. No client ever sees a `BCC`.
type Looks = (BTreeMap<Vec<u8>, Vec<u8>>, [Option<Vec<u8>>; 3], Bytes);

fn looks(content: &Content) -> Looks {
    let shown = private::on_delivery(&content.properties, OWN);
    let shown = shown.unwrap_or_else(|| content.properties.clone());
    let properties = Properties::parse(&shown).unwrap();
    let mut headers = BTreeMap::new();
    for field in Table(properties.headers().unwrap_or_default()).fields() {
        let field = field.unwrap();
        if field.name != BCC {
            let first = headers.entry(field.name.to_vec());
            first.or_insert_with(|| field.raw.to_vec());
        }
    }
    let others = [Property::Priority, Property::Expiration, Property::UserId];
    let others = others.map(|property| properties.get(property).map(<[u8]>::to_vec));
    (headers, others, content.body.clone())
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

fn headers(content: &Content) -> Table<'_> {
    let headers = Properties::parse(&content.properties).unwrap().headers();
    Table(headers.unwrap_or_default())
}

fn keys(content: &Content) -> Vec<Vec<u8>> {
    let keys = routes(headers(content), CC).unwrap();
    keys.into_iter().map(<[u8]>::to_vec).collect()
}

/// As a later version writes what a message carries while it is away.
fn in_a_string(content: &Content) -> Content {
    let mut out = TableBuilder::default();
    for field in headers(content).fields().map(|field| field.unwrap()) {
        match field.name == private::RETRY {
            true => out.longstr(field.name, field.value.as_table().unwrap().0),
            false => out.raw(&field),
        };
    }
    let properties = Properties::parse(&content.properties).unwrap();
    content.with_properties(properties.with_headers(out.finish()))
}

fn redriven(content: &Content) -> Option<u64> {
    Mark::read(headers(content)).map(|mark| mark.count)
}

prop_compose! {
    fn messages()(
        mut headers in table(),
        published in prop::option::of(x_death()),
        last in any::<bool>(),
        expiration in prop::option::of("[1-9][0-9]{4,5}"),
        priority in prop::option::of(any::<u8>()),
        user in prop::option::of("[a-z]{1,8}"),
    ) -> Content {
        let mut more = TableBuilder::default();
        if let Some(published) = published {
            more.array(X_DEATH, &deaths(&published, false));
        }
        for name in X_LAST_DEATH.into_iter().chain(X_FIRST_DEATH).filter(|_| last) {
            more.longstr(name, b"of a client");
        }
        headers.extend(more.finish());
        // Each once: the broker sorts headers by name.
        let mut seen = Vec::new();
        let mut once = TableBuilder::default();
        for field in Table(&headers).fields().map(|field| field.unwrap()) {
            if !seen.contains(&field.name) {
                seen.push(field.name);
                once.raw(&field);
            }
        }
        let set = |value: Option<Vec<u8>>| value.map_or(Change::Keep, Change::Set);
        content(&Edit {
            headers: Change::Set(once.finish()),
            priority: set(priority.map(|priority| vec![priority])),
            expiration: set(expiration.map(Into::into)),
            user_id: set(user.map(Into::into)),
        })
    }
}

/// What it becomes, where no exchange leads to its queue alone.
fn sent_back(
    redrive: &Redrive,
    (exchange, routing_key): (&str, &str),
    content: &Content,
    dialect: Dialect,
) -> Result<Content, Stays> {
    let bridges = Bridges::new(name("dlx-proxy.bridge/"));
    let here = Here {
        own_user: OWN,
        dialect,
        history_form: HistoryForm::WRITTEN,
        bridges: &bridges,
        is_own_queue: &|queue| queue.starts_with(b"dlx-proxy."),
        return_exchange: &|_| None,
    };
    let of = Standing {
        exchange: exchange.as_bytes(),
        routing_key: routing_key.as_bytes(),
        content,
    };
    Ok(redrive.publication(&of, &here, NOW)?.publication.content)
}

/// The dead letter of a message that was published to `x` with `k` and rejected in `q`.
fn rejected(content: &Content, key: Option<&str>, dialect: Dialect) -> Publication {
    let queue = name("q");
    let mut death: Death<'_> = returned(&queue, ("x", "k"), content).death;
    death.reason = Reason::Rejected;
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

proptest! {
    /// Whatever the message is, and whatever the broker writes into it on its way.
    #[test]
    fn a_message_comes_back_as_it_was(
        message in messages(),
        over_an_exchange in any::<bool>(),
        later in any::<bool>(),
    ) {
        let (queue, exchange) = (name("q"), name("dlx-proxy.return/q"));
        for broker in BROKERS {
            let rules = rules(broker.dialect);
            let mut of = returned(&queue, ("x", "k"), &message);
            of.attempts = Attempts { all: 2, failed: 1 };
            of.by_exchange = over_an_exchange.then_some(&exchange);

            let mut away = sent(&of, &rules).content;
            if later {
                away = in_a_string(&away);
            }
            let acts = |name: &[u8]| {
                is_of_deaths(name) || [CC, BCC].contains(&name) || OF_THE_QUEUE.contains(&name)
            };
            let names = headers(&away).fields().map(|field| field.unwrap().name);
            prop_assert_eq!(names.filter(|name| acts(name)).count(), 0);
            let (_, [priority, expiration, _], _) = looks(&away);
            prop_assert_eq!((priority, expiration), (None, None));

            let in_queue = back(broker, &away, &rules).content;
            prop_assert!(over_an_exchange || headers(&in_queue).get(CC).unwrap().is_none());
            let properties = Properties::parse(&in_queue.properties).unwrap();
            let (retry, original) = retry::back_in(b"q", &properties, OWN).unwrap();
            prop_assert_eq!((&*retry.exchange, &*retry.routing_key), (&b"x"[..], &b"k"[..]));
            prop_assert_eq!(retry.attempts, Attempts { all: 3, failed: 1 });
            let before = retry.before(&in_queue, original).unwrap();
            prop_assert_eq!(looks(&before), looks(&message));

            // And once more.
            let mut of = returned(&queue, ("x", "k"), &before);
            of.deadline = retry.deadline;
            let again = back(broker, &sent(&of, &rules).content, &rules).content;
            let properties = Properties::parse(&again.properties).unwrap();
            let (retry, original) = retry::back_in(b"q", &properties, OWN).unwrap();
            prop_assert_eq!(looks(&retry.before(&again, original).unwrap()), looks(&message));
        }
    }

    /// However often; and after a retry, whose count goes on.
    #[test]
    fn a_message_that_waited_aside_is_what_it_was(message in messages(), was_away in any::<bool>()) {
        let (queue, exchange, key) = (name("q"), name("x"), name("k"));
        for broker in BROKERS {
            let rules = rules(broker.dialect);
            let mut in_queue = match was_away {
                true => back(broker, &sent(&returned(&queue, ("x", "k"), &message), &rules).content, &rules).content,
                false => message.clone(),
            };
            for _ in 0..2 {
                let delivered = Delivered {
                    queue: &queue,
                    exchange: &exchange,
                    routing_key: &key,
                    content: &in_queue,
                    acquired: false,
                    counted: true,
                };
                let waits = aside::aside(delivered, &rules, OWN, NOW).unwrap();
                let (_, [_, expiration, _], _) = looks(&waits);
                prop_assert_eq!((headers(&waits).get(CC), expiration), (Ok(None), None));
                let waits = broker.deliver(&broker.publish(&waits, "", "aside"));
                in_queue = aside::back(&waits, &rules, OWN, NOW).unwrap();
                let properties = Properties::parse(&in_queue.properties).unwrap();
                let (retry, original) = retry::back_in(b"q", &properties, OWN).unwrap();
                prop_assert_eq!((&retry.exchange, &retry.routing_key), (&exchange, &key));
                prop_assert_eq!(retry.attempts.all, u64::from(was_away));
                prop_assert_eq!(looks(&retry.before(&in_queue, original).unwrap()), looks(&message));
            }
        }
    }

    /// Whatever the message is, whoever published its dead letter, and by which key.
    #[test]
    fn what_is_redriven_is_what_it_was_before_it_died(
        message in messages(),
        keyed in any::<bool>(),
        hidden in any::<bool>(),
        keep_history in any::<bool>(),
    ) {
        let redrive = Redrive { to: Destination::Source, keep_history, by: name("ann"), edit: None };
        for dialect in DIALECTS {
            let key = keyed.then_some("dead");
            let first = rejected(&message, key, dialect);
            let mut stands = first.content.clone();
            if hidden {
                stands.properties = proof::prove(&stands.properties, OWN, None).unwrap();
            }
            let came_by = ("dlx", key.unwrap_or("k"));
            let here = sent_back(&redrive, came_by, &stands, dialect).unwrap();
            prop_assert_eq!(headers(&here).get(CC), Ok(None), "the broker would route by it");
            let properties = Properties::parse(&here.properties).unwrap();
            let (retry, original) = retry::back_in(b"q", &properties, OWN).expect("it is back");
            prop_assert_eq!((&*retry.exchange, &*retry.routing_key), (&b"x"[..], &b"k"[..]));
            prop_assert_eq!((retry.attempts, retry.deadline), Default::default());
            let was = retry.before(&here, original).unwrap();
            prop_assert_eq!(parts(&was).1, parts(&message).1);
            prop_assert_eq!(looks(&was).1[1].clone(), None, "its TTL");
            if !keyed {
                prop_assert_eq!(keys(&was), keys(&first.content));
            }
            match keep_history {
                true => prop_assert_eq!(parts(&was).0, parts(&stands).0),
                false => prop_assert!(parts(&was).0.0.is_empty()),
            }

            // It dies again, as it did, and knows that it was sent back.
            let again = rejected(&was, key, dialect);
            prop_assert_eq!(
                (&again.exchange, &again.routing_key, keys(&again.content)),
                (&first.exchange, &first.routing_key, keys(&first.content))
            );
            prop_assert_eq!(redriven(&again.content), Some(1));
            let twice = sent_back(&redrive, came_by, &again.content, dialect).unwrap();
            prop_assert_eq!(redriven(&twice), Some(2));
        }
    }

    /// Nothing that anybody can write makes it panic or counts as what it is not, and what is published can be read.
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
        prop_assert!(retry::read(&Properties::parse(&readable.properties).unwrap(), OWN).is_none());
        let unreadable = Content {
            properties: [&[0x20, 0][..], &raw].concat().into(),
            ..readable.clone()
        };
        let exchange = Destination::Exchange { exchange: name("e"), routing_key: None };
        for to in [Destination::Source, Destination::Queue(name("b")), exchange] {
            let redrive = Redrive { to, keep_history, by: ShortStr::EMPTY, edit: None };
            for dialect in DIALECTS {
                for content in [&readable, &unreadable] {
                    if let Ok(content) = sent_back(&redrive, (&by, &by), content, dialect) {
                        prop_assert!(redriven(&content).is_some());
                    }
                }
            }
        }
    }
}

/// What its publisher wrote is none of its queue's.
#[test]
fn only_what_the_queue_has_counted_goes_on_being_counted() {
    let (queue, exchange, key) = (name("q"), name("x"), name("k"));
    let mut headers = TableBuilder::default();
    headers.long(b"x-delivery-count", 3);
    let message = content(&Edit {
        headers: Change::Set(headers.finish()),
        ..Edit::default()
    });
    let rules = rules(Dialect::V4);
    for (counted, expected) in [(false, 0), (true, 3)] {
        let delivered = Delivered {
            queue: &queue,
            exchange: &exchange,
            routing_key: &key,
            content: &message,
            acquired: false,
            counted,
        };
        let waits = aside::aside(delivered, &rules, OWN, NOW).unwrap();
        let in_queue = aside::back(&waits, &rules, OWN, NOW).unwrap();
        let properties = Properties::parse(&in_queue.properties).unwrap();
        let (retry, _) = retry::back_in(b"q", &properties, OWN).unwrap();
        assert_eq!(retry.attempts.all, expected);
    }
}
