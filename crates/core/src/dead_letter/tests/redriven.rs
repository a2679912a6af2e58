//! Single dead letters that are sent back: where they go, what they take along, and what stays.

use crate::amqp::content::Content;
use crate::amqp::ids::{ShortStr, name};
use crate::amqp::properties::{Change, Edit, Properties, Property};
use crate::amqp::table::{Table, TableBuilder};
use crate::dead_letter::headers::{BCC, CC, OF_THE_QUEUE, X_DEATH, X_FIRST_DEATH, X_LAST_DEATH};
use crate::dead_letter::private::{self, LAP, REDRIVEN};
use crate::dead_letter::proof::{self, PARKED_CAUSE, PARKED_EXCHANGE, Parked};
use crate::dead_letter::redrive::{Destination, Here, Redrive, Route, Standing, Stays};
use crate::dead_letter::{
    Bridges, Dialect, Disposal, Lookup, Target, dispose, retry, signal, signalled,
};
use crate::machine::{Publication, Reason};

use super::away::{BROKERS, NOW, OWN, SECOND, let_go, returned, round, sent};
use super::broker::{Broker, Event};
use super::message::{build, content};
use super::property::rules;
use super::redrive::{BRIDGE, before, header, marked, property, rejected, sent_back, source, to};
use super::rendered::line;

fn in_queue(broker: Broker, publication: &Publication) -> Content {
    let text = |name: &ShortStr| String::from_utf8(name.to_vec()).unwrap();
    let (exchange, key) = (&publication.exchange, &publication.routing_key);
    let stored = broker.publish(&publication.content, &text(exchange), &text(key));
    broker.deliver(&stored)
}

const LETTER: &str = "message exchange=dlx key=dead user=bob h:a=1 private-cc=[copy] private-bcc=[k, hidden] \
     deaths=[q/rejected*2 t=9 x=x k=[k, copy], p/expired*1 t=8 x=y k=[j]] first=p/expired@y last=q/rejected@x \
     lap=[q] lap-of=(dlx, dead, 3)";

fn exchange(key: Option<&str>) -> Destination {
    Destination::Exchange {
        exchange: name("e"),
        routing_key: key.map(name),
    }
}

#[test]
fn where_it_goes() {
    let letter = build(LETTER).content;
    for (destination, goes, is_back) in [
        (Destination::Source, ("", "q"), true),
        (Destination::Queue(name("q")), ("", "q"), true),
        (Destination::Queue(name("p")), ("", "p"), false),
        (exchange(None), ("e", "j"), false),
        (exchange(Some("z")), ("e", "z"), false),
        (exchange(Some("")), ("e", ""), false),
    ] {
        for dialect in [Dialect::V3, Dialect::V3_13, Dialect::V4] {
            let redrive = to(destination.clone());
            let sent = sent_back(&redrive, ("dlx", "dead"), &letter, dialect).unwrap();
            let of = format!("{destination:?} {dialect:?}");
            let way = (name(goes.0), name(goes.1));
            assert_eq!((sent.exchange, sent.routing_key), way, "{of}");
            assert_eq!(sent.queue, name("q"), "where it died: {of}");
            assert!(sent.at_least_once);
            let message = &sent.content;
            for gone in [CC, BCC, LAP] {
                assert_eq!(header(message, gone), None, "{of}");
            }
            let shown = line(message, "x-dlx-proxy-cc");
            assert_eq!(shown.as_deref(), Some("[copy]"), "clients see it: {of}");
            assert_eq!(line(message, "x-death"), line(&letter, "x-death"));
            let copy = (dialect != Dialect::V3).then_some("a copy");
            assert_eq!(line(message, "x-dlx-proxy-history").as_deref(), copy);
            let bcc = line(message, "x-dlx-proxy-bcc");
            let user = property(message, Property::UserId);
            match is_back {
                true => {
                    let (way, was) = before("q", message).unwrap();
                    assert_eq!(way, ("x".to_owned(), "k".to_owned()));
                    assert_eq!(line(&was, "CC").as_deref(), Some("[copy]"));
                    assert_eq!(property(&was, Property::UserId), Some(b"bob".to_vec()));
                    assert_eq!((user, bcc.is_some()), (Some(OWN.to_vec()), true));
                }
                false => {
                    assert!(
                        before(goes.1, message).is_none() && !retry::may_have(&message.properties)
                    );
                    assert_eq!((user, bcc), (Some(b"bob".to_vec()), None));
                }
            }
        }
    }
}

#[test]
fn a_key_of_before_is_the_messages_own_if_nothing_died() {
    let message = build("message exchange=x key=k").content;
    let sent = sent_back(&to(exchange(None)), ("x", "k"), &message, Dialect::V4).unwrap();
    assert_eq!(sent.routing_key, name("k"));
    // It has come back to the queue where it stands.
    let came_back = came_back(BROKERS[3]);
    let sent = sent_back(&to(exchange(None)), ("", "q"), &came_back, Dialect::V4).unwrap();
    assert_eq!(sent.routing_key, name("k"));
}

#[test]
fn what_stays() {
    let long = format!(
        "message exchange=dlx key=k deaths=[q/rejected*1 t=9 x=x k=[{}]]",
        "k".repeat(256)
    );
    let long_queue = format!(
        "message exchange=dlx key=k deaths=[{}/rejected*1 t=9 x=x k=[k]]",
        "q".repeat(256)
    );
    let nobody = "message exchange=dlx key=k h:a=1";
    let own = "message exchange=dlx key=k deaths=[dlx-proxy.intake/rejected*1 t=9 x=x k=[k]]";
    for (letter, stays) in [
        (nobody, Stays::NoDeath),
        (own, Stays::NoDeath),
        (&long, Stays::TooLong),
        (&long_queue, Stays::TooLong),
    ] {
        let letter = build(letter).content;
        let sent = sent_back(&source(), ("dlx", "k"), &letter, Dialect::V4);
        assert_eq!(sent, Err(stays));
        let elsewhere = to(exchange(Some("z")));
        assert!(sent_back(&elsewhere, ("dlx", "k"), &letter, Dialect::V4).is_ok());
    }
    let mut torn = build(LETTER).content;
    torn.properties = torn.properties.slice(..torn.properties.len() - 1);
    let sent = sent_back(&source(), ("dlx", "k"), &torn, Dialect::V4);
    assert_eq!(sent, Err(Stays::Unreadable));
}

#[test]
fn a_queue_of_the_proxys_own_is_no_source() {
    let letter = build(
        "message exchange=dlx key=k deaths=[dlx-proxy.intake/rejected*1 t=9 x=i k=[k], q/expired*1 t=8 x=x k=[k]]",
    );
    let sent = sent_back(&source(), ("dlx", "k"), &letter.content, Dialect::V4).unwrap();
    assert_eq!(
        (sent.routing_key, sent.reason),
        (name("q"), Reason::Expired)
    );
}

#[test]
fn without_a_history_it_begins_anew() {
    let redrive = Redrive {
        keep_history: false,
        ..source()
    };
    let letter = build(&format!("{LETTER} private=same")).content;
    let sent = sent_back(&redrive, ("dlx", "dead"), &letter, Dialect::V4).unwrap();
    for gone in [X_DEATH, private::HISTORY]
        .into_iter()
        .chain(X_FIRST_DEATH)
        .chain(X_LAST_DEATH)
    {
        assert_eq!(header(&sent.content, gone), None);
    }
    let (way, was) = before("q", &sent.content).unwrap();
    assert_eq!(way, ("x".to_owned(), "k".to_owned()));
    let again = rejected(&was, ("x", "k"), None, Dialect::V4).content;
    let death = "the queue/rejected*1 t=1700000000 x=x k=[k, copy]";
    assert_eq!(line(&again, "x-death").as_deref(), Some(death));
}

#[test]
fn what_the_queue_and_the_parking_queue_added_is_gone_and_a_ttl_is_kept() {
    let letter = build(LETTER).content;
    let said = Parked {
        exchange: b"dlx",
        cause: b"cycle",
    };
    let proven = proof::prove(&letter.properties, OWN, Some(said)).unwrap();
    let unproven = proof::unproven(&letter.properties, OWN, said).unwrap();
    for properties in [proven, unproven] {
        let parsed = Properties::parse(&properties).unwrap();
        let mut headers = TableBuilder::default();
        headers.members(parsed.headers().unwrap());
        for name in OF_THE_QUEUE {
            headers.long(name, 3);
        }
        let parked = Content {
            properties: parsed.edit(&Edit {
                headers: Change::Set(headers.finish()),
                expiration: Change::Set(b"5000".to_vec()),
                ..Edit::default()
            }),
            ..letter.clone()
        };
        let sent = sent_back(
            &source(),
            ("dlx-proxy.parked", "dead"),
            &parked,
            Dialect::V4,
        );
        let (_, was) = before("q", &sent.unwrap().content).unwrap();
        for gone in [PARKED_EXCHANGE, PARKED_CAUSE]
            .into_iter()
            .chain(OF_THE_QUEUE)
        {
            assert_eq!(header(&was, gone), None);
        }
        assert_eq!(property(&was, Property::UserId), Some(b"bob".to_vec()));
        assert_eq!(property(&was, Property::Expiration), Some(b"5000".to_vec()));
    }
}

const MESSAGE: &str = "message exchange=x key=k expiration=60000 user=bob cc=[copy] h:a=1";

/// A message that has come back to `q` after a retry.
fn came_back(broker: Broker) -> Content {
    let queue = name("q");
    let message = build(MESSAGE).content;
    round(
        broker,
        &returned(&queue, ("x", "k"), &message),
        &rules(broker.dialect),
    )
    .content
}

/// It has not died, but it says where it belongs.
#[test]
fn what_did_not_come_back_from_a_retry_is_back_in_its_queue() {
    for broker in BROKERS {
        let queue = name("q");
        let message = build(MESSAGE).content;
        let of = returned(&queue, ("x", "k"), &message);
        let away = sent(&of, &Lookup::NoExchange, &rules(broker.dialect)).content;
        let away = let_go(broker, &away, NOW.after(SECOND));
        let said = Parked {
            exchange: b"",
            cause: b"unroutable",
        };
        let parked = proof::prove(&came_back(broker).properties, OWN, Some(said)).unwrap();
        let parked = Content {
            properties: parked,
            ..away.clone()
        };
        for stands in [away, parked] {
            let back = sent_back(
                &source(),
                ("dlx-proxy.parked", "q"),
                &stands,
                broker.dialect,
            );
            let (way, was) = before("q", &in_queue(broker, &back.unwrap())).unwrap();
            assert_eq!(way, ("x".to_owned(), "k".to_owned()));
            assert_eq!(line(&was, "CC").as_deref(), Some("[copy]"));
            assert_eq!(property(&was, Property::UserId), Some(b"bob".to_vec()));
            assert_eq!(
                property(&was, Property::Expiration),
                None,
                "it would be over"
            );
            assert_eq!(header(&was, X_DEATH), None);
        }
    }
}

/// The broker itself killed what had come back, or was sent back, to its queue: x-death has the way back, not the way of before.
#[test]
fn the_way_of_before_outlives_a_death_at_the_broker() {
    for broker in BROKERS {
        let died_before = build(
            "message exchange=dlx key=dead cc=[copy] deaths=[o/rejected*1 t=9 x=x k=[k, copy]] first=o/rejected@x",
        );
        let sent = sent_back(
            &source(),
            ("dlx", "dead"),
            &died_before.content,
            broker.dialect,
        );
        let cases = [("q", came_back(broker)), ("o", sent.unwrap().content)];
        for (queue, stands) in cases {
            let mut stored = broker.publish(&stands, "", queue);
            let death = Event {
                queue: queue.to_owned(),
                reason: Reason::Expired,
                exchange: String::new(),
                key: queue.to_owned(),
                time: 20,
            };
            broker.kill(&mut stored, &death);
            let letter = broker.deliver(&stored);
            let back = sent_back(&source(), ("dlx", queue), &letter, broker.dialect).unwrap();
            let (way, was) = before(queue, &in_queue(broker, &back)).unwrap();
            assert_eq!(way, ("x".to_owned(), "k".to_owned()), "{queue} {broker:?}");
            let newest = format!("{queue}/expired*1 t=20 x=x k=[k, copy]");
            let x_death = line(&was, "x-death").unwrap();
            assert!(x_death.starts_with(&newest), "{x_death} {broker:?}");
            let older = x_death.contains("o/rejected*1 t=9 x=x k=[k, copy]");
            assert_eq!(older, queue == "o", "{x_death} {broker:?}");
        }
    }
}

/// A queue that the proxy took over signals its deaths.
#[test]
fn the_mark_outlives_a_signal() {
    for broker in BROKERS {
        let letter = build(LETTER).content;
        let back = sent_back(&source(), ("dlx", "dead"), &letter, broker.dialect).unwrap();
        let mut stored = broker.publish(&back.content, "", "q");
        let death = Event {
            queue: "q".to_owned(),
            reason: Reason::Maxlen,
            exchange: String::new(),
            key: "q".to_owned(),
            time: 20,
        };
        broker.kill(&mut stored, &death);
        let (content, key) =
            signalled(&broker.deliver(&stored), b"q", OWN).expect("it was sent back");
        let signal = signal(&key, &content).unwrap();
        let target = Lookup::Target(Target {
            exchange: name("dlx"),
            routing_key: None,
            at_least_once: false,
        });
        let disposal = dispose(&signal.death(), &target, &rules(broker.dialect), 21);
        let Disposal::Publish(dead) = disposal else {
            panic!("{disposal:?}");
        };
        assert_eq!(
            (&dead.routing_key, dead.reason),
            (&name("k"), Reason::Maxlen)
        );
        assert_eq!(line(&dead.content, "CC").as_deref(), Some("[copy]"));
        assert_eq!(marked(&dead.content), marked(&back.content));
        assert!(
            line(&dead.content, "x-death")
                .unwrap()
                .contains("q/rejected*2 t=9")
        );
        let shown = private::on_delivery(&dead.content.properties, OWN).unwrap();
        let seen = Properties::parse(&shown).unwrap();
        assert_eq!(
            Table(seen.headers().unwrap()).get(REDRIVEN),
            Ok(None),
            "clients do not see it"
        );
    }
}

#[test]
fn by_an_exchange_of_its_queue_it_has_its_own_key_and_its_cc_counts() {
    let letter = build(LETTER).content;
    let bridges = Bridges::new(ShortStr::copy(BRIDGE).unwrap());
    let here = Here {
        own_user: OWN,
        dialect: Dialect::V4,
        bridges: &bridges,
        is_own_queue: &|_| false,
        return_exchange: &|queue| ShortStr::new([b"dlx-proxy.return/", queue].concat()),
    };
    let of = Standing {
        exchange: b"dlx",
        routing_key: b"dead",
        content: &letter,
    };
    let sent = source().publication(&of, &here, NOW).unwrap();
    let seen_as = Route {
        cc: vec![name("copy")],
        ..Route::new(&name("x"), &name("k"))
    };
    assert_eq!(sent.seen_as, seen_as);
    let sent = sent.publication;
    let way = (name("dlx-proxy.return/q"), name("k"));
    assert_eq!((sent.exchange, sent.routing_key), way);
    assert_eq!(line(&sent.content, "CC").as_deref(), Some("[copy]"));
    let (_, was) = before("q", &sent.content).unwrap();
    assert_eq!(line(&was, "CC").as_deref(), Some("[copy]"));
    let elsewhere = to(Destination::Queue(name("p")));
    let sent = elsewhere.publication(&of, &here, NOW).unwrap();
    assert_eq!(sent.seen_as, Route::new(&name(""), &name("p")));
    let sent = sent.publication;
    assert_eq!((sent.exchange, sent.routing_key), (name(""), name("p")));
}

#[test]
fn a_time_that_was_set_aside_in_a_queue_of_ours_goes_along() {
    let letter =
        build("message exchange=dlx key=k own-time=l:5 deaths=[q/rejected*1 t=9 x=x k=[k]]");
    for redrive in [source(), to(Destination::Queue(name("p")))] {
        let sent = sent_back(&redrive, ("dlx", "k"), &letter.content, Dialect::V4).unwrap();
        let time = line(&sent.content, "x-dlx-proxy-deliver");
        assert_eq!(time.as_deref(), Some("5"));
    }
}

#[test]
fn a_bridge_is_no_exchange_of_a_message() {
    let letter =
        build("message exchange=dlx key=k deaths=[q/rejected*1 t=9 x=dlx-proxy.bridge/int k=[k]]");
    let sent = sent_back(&source(), ("dlx", "k"), &letter.content, Dialect::V4).unwrap();
    let (way, _) = before("q", &sent.content).unwrap();
    assert_eq!(way, ("int".to_owned(), "k".to_owned()));
}

#[test]
fn a_mark_that_was_made_up_counts_as_far_as_it_can() {
    let mark = |build: &dyn Fn(&mut TableBuilder)| {
        let mut mark = TableBuilder::default();
        build(&mut mark);
        let mut headers = TableBuilder::default();
        headers.table(REDRIVEN, &mark);
        headers.finish()
    };
    let text = |_: ()| {
        let mut headers = TableBuilder::default();
        headers.longstr(REDRIVEN, b"7");
        headers.finish()
    };
    let most = i64::MAX.unsigned_abs();
    for (forged, count) in [
        (
            mark(&|mark| {
                mark.long(b"count", 7);
            }),
            8,
        ),
        (
            mark(&|mark| {
                mark.long(b"count", i64::MAX);
            }),
            most,
        ),
        (
            mark(&|mark| {
                mark.long(b"count", -5);
            }),
            1,
        ),
        (
            mark(&|mark| {
                mark.longstr(b"count", b"7");
            }),
            1,
        ),
        (mark(&|_| ()), 1),
        (text(()), 1),
    ] {
        let letter = content(&Edit {
            headers: Change::Set(forged),
            ..Edit::default()
        });
        let redrive = to(Destination::Queue(name("p")));
        let sent = sent_back(&redrive, ("", "dead"), &letter, Dialect::V4).unwrap();
        let expected = (count, Some(NOW.seconds()), Some(b"ann".to_vec()));
        assert_eq!(marked(&sent.content), Some(expected));
    }
}

/// Whoever publishes past the proxy can write any header, but not the user-id that proves it.
#[test]
fn a_table_without_the_proof_counts_for_nothing() {
    let mut forged = came_back(BROKERS[3]);
    let eve = Edit {
        user_id: Change::Set(b"eve".to_vec()),
        ..Edit::default()
    };
    forged.properties = Properties::parse(&forged.properties).unwrap().edit(&eve);
    let sent = sent_back(&source(), ("", "q"), &forged, Dialect::V4);
    assert_eq!(sent, Err(Stays::NoDeath));
    let elsewhere = to(Destination::Queue(name("q")));
    let sent = sent_back(&elsewhere, ("", "q"), &forged, Dialect::V4).unwrap();
    assert!(!retry::may_have(&sent.content.properties));
    assert_eq!(
        property(&sent.content, Property::UserId),
        Some(b"eve".to_vec())
    );
}

#[test]
fn a_client_that_sees_no_mark_cannot_publish_one() {
    let letter = build(LETTER).content;
    let sent = sent_back(&source(), ("dlx", "dead"), &letter, Dialect::V4).unwrap();
    let published = private::on_publish(&sent.content.properties, b"k", &rules(Dialect::V4));
    let published = Properties::parse(published.as_deref().unwrap())
        .unwrap()
        .headers();
    assert_eq!(Table(published.unwrap()).get(REDRIVEN), Ok(None));
}
