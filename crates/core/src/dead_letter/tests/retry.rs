//! A message goes away for a retry and comes back: it is as it was, nothing of it acts meanwhile, and nobody can forge that.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use crate::amqp::content::Content;
use crate::amqp::ids::name;
use crate::amqp::properties::{Change, Edit, Properties, Property};
use crate::amqp::table::{Table, TableBuilder, Value};
use crate::dead_letter::headers::{BCC, CC, OF_THE_QUEUE, X_DEATH, X_FIRST_DEATH, X_LAST_DEATH};
use crate::dead_letter::private::{self, RETRY, USER_ID};
use crate::dead_letter::retries::Attempts;
use crate::dead_letter::{Dialect, Disposal, Lookup, Target, plan, proof, retry};
use crate::machine::Reason;

use super::anything::{table, x_death};
use super::away::{BROKERS, NOW, OWN, SECOND, back, judged, let_go, returned, round, sent};
use super::message::{build, content, deaths};
use super::property::rules;

fn parsed(content: &Content) -> Properties<'_> {
    Properties::parse(&content.properties).unwrap()
}

fn header<'a>(content: &'a Content, name: &[u8]) -> Option<Value<'a>> {
    let headers = Properties::parse(&content.properties).unwrap().headers();
    Table(headers.unwrap_or_default()).get(name).unwrap()
}

/// With other headers.
fn edited(content: &Content, edit: impl FnOnce(Vec<(Vec<u8>, Vec<u8>)>) -> Vec<u8>) -> Content {
    let properties = parsed(content);
    let fields = Table(properties.headers().unwrap_or_default()).fields();
    let fields = fields.map(|field| field.unwrap());
    let headers = edit(
        fields
            .map(|field| (field.name.to_vec(), field.raw.to_vec()))
            .collect(),
    );
    Content {
        properties: properties.edit(&Edit {
            headers: Change::Set(headers),
            ..Edit::default()
        }),
        body: content.body.clone(),
    }
}

fn without(content: &Content, name: &[u8]) -> Content {
    edited(content, |fields| {
        let kept = fields.into_iter().filter(|(known, _)| known != name);
        kept.flat_map(|(_, raw)| raw).collect()
    })
}

fn with(content: &Content, build: impl FnOnce(&mut TableBuilder)) -> Content {
    let mut more = TableBuilder::default();
    build(&mut more);
    edited(content, |fields| {
        let mut all: Vec<u8> = fields.into_iter().flat_map(|(_, raw)| raw).collect();
        all.extend(more.finish());
        all
    })
}

fn of_user(content: &Content, user_id: Change) -> Content {
    Content {
        properties: parsed(content).edit(&Edit {
            user_id,
            ..Edit::default()
        }),
        body: content.body.clone(),
    }
}

/// All that a client sees: headers by name, other properties, body. No client ever sees a `BCC`.
pub(super) type Looks = (BTreeMap<Vec<u8>, Vec<u8>>, [Option<Vec<u8>>; 3], Bytes);

pub(super) fn looks(content: &Content) -> Looks {
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

prop_compose! {
    pub(super) fn messages()(
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

proptest! {
    /// Whatever the message is, and whatever the broker writes into it on its way.
    #[test]
    fn a_message_comes_back_as_it_was(message in messages(), over_an_exchange in any::<bool>()) {
        let (queue, exchange) = (name("q"), name("dlx-proxy.return/q"));
        for broker in BROKERS {
            let rules = rules(broker.dialect);
            let mut of = returned(&queue, ("x", "k"), &message);
            of.attempts = Attempts { all: 2, failed: 1 };
            of.by_exchange = over_an_exchange.then_some(&exchange);

            let away = sent(&of, &Lookup::NoExchange, &rules).content;
            let acts = [CC, BCC, X_DEATH].into_iter().chain(X_FIRST_DEATH).chain(X_LAST_DEATH);
            for acts in acts.chain(OF_THE_QUEUE) {
                prop_assert_eq!(header(&away, acts), None);
            }
            prop_assert_eq!(parsed(&away).get(Property::Expiration), None);
            prop_assert_eq!(parsed(&away).get(Property::Priority), None);
            prop_assert_eq!(parsed(&away).get(Property::UserId), Some(OWN));

            let publication = back(&let_go(broker, &away, NOW.after(SECOND)), &rules);
            let to = match over_an_exchange {
                true => ("dlx-proxy.return/q", "k"),
                false => ("", "q"),
            };
            prop_assert_eq!((publication.exchange, publication.routing_key), (name(to.0), name(to.1)));
            let in_queue = publication.content;
            prop_assert_eq!(parsed(&in_queue).get(Property::UserId), Some(OWN));
            if !over_an_exchange {
                prop_assert_eq!(header(&in_queue, CC), None);
            }
            let properties = parsed(&in_queue);
            let (retry, original) = retry::read(&properties, OWN).unwrap();
            prop_assert!(retry.away.is_none());
            prop_assert_eq!(
                (retry.queue.clone(), retry.exchange.clone(), retry.routing_key.clone()),
                (name("q"), name("x"), name("k"))
            );
            prop_assert_eq!(retry.attempts, Attempts { all: 3, failed: 1 });
            let before = retry.before(&in_queue, original).unwrap();
            prop_assert_eq!(looks(&before), looks(&message));

            // And once more.
            let mut of = returned(&queue, ("x", "k"), &before);
            of.deadline = retry.deadline;
            let again = round(broker, &of, &rules).content;
            let properties = parsed(&again);
            let (retry, original) = retry::read(&properties, OWN).unwrap();
            prop_assert_eq!(looks(&retry.before(&again, original).unwrap()), looks(&message));
        }
    }

    /// As what it is not, it counts for nothing.
    #[test]
    fn any_table_is_read(members in table()) {
        let mut headers = TableBuilder::default();
        let mut table = TableBuilder::default();
        table.members(&members);
        headers.void(USER_ID).table(RETRY, &table);
        let message = content(&Edit {
            headers: Change::Set(headers.finish()),
            user_id: Change::Set(OWN.to_vec()),
            ..Edit::default()
        });
        prop_assert!(retry::read(&parsed(&message), OWN).is_none());
    }
}

const MESSAGE: &str = "message exchange=x key=k expiration=60000 user=bob cc=[copy] h:a=1";

/// One that has come back to `q`.
fn in_queue(dialect: Dialect) -> Content {
    let queue = name("q");
    let message = build(MESSAGE).content;
    let broker = BROKERS.into_iter().rfind(|of| of.dialect == dialect);
    let of = returned(&queue, ("x", "k"), &message);
    round(broker.unwrap(), &of, &rules(dialect)).content
}

#[test]
fn without_the_proof_a_table_counts_for_nothing() {
    let came_back = in_queue(Dialect::V4);
    assert!(retry::read(&parsed(&came_back), OWN).is_some());
    for forged in [
        of_user(&came_back, Change::Remove),
        of_user(&came_back, Change::Set(b"eve".to_vec())),
        without(&came_back, USER_ID),
    ] {
        assert!(retry::read(&parsed(&forged), OWN).is_none());
        assert_eq!(judged(&forged, &rules(Dialect::V4), NOW), None);
    }
    // It has come back already, so it is not the intake's to send back.
    assert_eq!(judged(&came_back, &rules(Dialect::V4), NOW), None);
}

#[test]
fn a_table_of_a_client_is_gone_with_the_first_proof() {
    let forged = of_user(&in_queue(Dialect::V4), Change::Set(b"eve".to_vec()));
    let hidden = proof::prove(&forged.properties, OWN, None).unwrap();
    let parked = proof::Parked {
        exchange: b"x",
        cause: b"nacked",
    };
    let parked = proof::prove(&forged.properties, OWN, Some(parked)).unwrap();
    let published = private::on_publish(&forged.properties, b"k", &rules(Dialect::V4)).unwrap();
    let stripped = private::stripped(&forged.properties).unwrap();
    for properties in [hidden, parked, published, stripped] {
        assert!(retry::read(&Properties::parse(&properties).unwrap(), OWN).is_none());
        assert!(!retry::may_have(&properties));
    }
}

#[test]
fn a_client_is_not_shown_the_table() {
    let shown = private::on_delivery(&in_queue(Dialect::V4).properties, OWN).unwrap();
    assert!(!retry::may_have(&shown));
}

#[test]
fn a_dead_letter_never_carries_the_table_on() {
    let queue = name("q");
    for dialect in [Dialect::V3, Dialect::V3_13, Dialect::V4] {
        let came_back = in_queue(dialect);
        let mut death = returned(&queue, ("x", "k"), &came_back).death;
        death.reason = Reason::Rejected;
        let target = Target {
            exchange: name("dlx"),
            routing_key: None,
            at_least_once: false,
        };
        match plan(&death, &target, &rules(dialect), 9).unwrap() {
            Disposal::Publish(publication) => {
                assert_eq!(header(&publication.content, RETRY), None);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// It is the intake queue's count, which begins when the proxy goes away in the middle.
#[test]
fn what_the_intake_queue_counted_is_not_the_messages() {
    let queue = name("q");
    let message = build(MESSAGE).content;
    for broker in BROKERS {
        let rules = rules(broker.dialect);
        let away = sent(
            &returned(&queue, ("x", "k"), &message),
            &Lookup::NoExchange,
            &rules,
        );
        let let_go = let_go(broker, &away.content, NOW.after(SECOND));
        let redelivered = with(&let_go, |headers| {
            headers
                .long(b"x-delivery-count", 3)
                .long(b"x-acquired-count", 4);
        });
        assert_eq!(
            back(&redelivered, &rules).content,
            back(&let_go, &rules).content
        );
    }
}

#[test]
fn a_consumer_sees_how_often_a_message_came_back() {
    let queue = name("q");
    let message = build(MESSAGE).content;
    let mut of = returned(&queue, ("x", "k"), &message);
    of.attempts = Attempts { all: 4, failed: 1 };
    let came_back = round(BROKERS[3], &of, &rules(Dialect::V4)).content;
    let shown = |content: &Content, acquired| {
        let properties = parsed(content);
        let (retry, original) = retry::read(&properties, OWN).unwrap();
        let properties = retry.shown(&properties, original, acquired).unwrap();
        let body = content.body.clone();
        let shown = Content { properties, body };
        let number = |name| header(&shown, name).and_then(Value::as_integer);
        assert!(header(&shown, CC).is_some());
        assert_eq!(
            parsed(&shown).get(Property::Expiration),
            Some(&b"60000"[..])
        );
        assert_eq!(parsed(&shown).get(Property::UserId), Some(&b"bob"[..]));
        OF_THE_QUEUE.map(number)
    };
    assert_eq!(shown(&came_back, false), [Some(5), None]);
    assert_eq!(shown(&came_back, true), [Some(1), Some(5)]);
    // And what the queue itself has counted since.
    let before_4_3 = with(&came_back, |headers| {
        headers.long(b"x-delivery-count", 2);
    });
    assert_eq!(shown(&before_4_3, false), [Some(7), None]);
    let from_4_3_on = with(&before_4_3, |headers| {
        headers.long(b"x-acquired-count", 3);
    });
    assert_eq!(shown(&from_4_3_on, true), [Some(3), Some(8)]);
}
