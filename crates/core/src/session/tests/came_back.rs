//! Messages that come back after a retry, as a client sees them: as if they had never been away, but for how often they came.

use std::time::Duration;

use super::kept::AWAY;
use super::message::{Message, Shown, declared, of, policy, published, said, seen, shown, text};
use super::script::*;
use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Change, Edit, Properties, Property};
use crate::amqp::table::{ArrayBuilder, Table, TableBuilder};
use crate::amqp::version::Version;
use crate::dead_letter::grid::Jitter;
use crate::dead_letter::redrive::{Destination, Here, Redrive, Standing};
use crate::dead_letter::schedule::Schedule;
use crate::dead_letter::{Dialect, Disposal, HistoryForm, come_back};
use crate::machine::*;
use crate::objects::OwnObject;
use crate::registry::policy::Mode;
use crate::registry::said_retries::SaidRetries;

/// The only publication is made, and its original acked: the message as it is in its queue again.
fn again(s: &mut Script, tag: u64) -> Message {
    let (ticket, publication) = s.dead.remove(0);
    s.settled(&[(ticket, Outcome::Confirmed)])
        .broker_gets(&[&ack(tag, false)]);
    let back = match publication.purpose {
        Purpose::Delay(delay) => {
            s.now.wall = s.now.wall.after(delay);
            let rules = s.session.facts().rules().expect("a known broker");
            let names = super::names();
            let by_exchange = |queue: &[u8]| names.name(&OwnObject::ReturnExchange(queue));
            let content = &publication.content;
            let is_delay_queue =
                |queue: &[u8]| matches!(names.parse(queue), Some(OwnObject::DelayQueue(_)));
            let now = s.now.wall;
            let came = come_back(
                content,
                &rules,
                b"dlx-proxy",
                is_delay_queue,
                by_exchange,
                |_| crate::dead_letter::Lookup::Unknown,
                now,
            );
            match came.expect("ours").disposal {
                Disposal::Retry(back) => back,
                other => panic!("{other:?}"),
            }
        }
        _ => publication,
    };
    assert_eq!(back.purpose, Purpose::Return);
    Message {
        exchange: text(&back.exchange),
        routing_key: text(&back.routing_key),
        properties: back.content.properties.to_vec(),
    }
}

/// The queue `orders` with these retries; what all sessions may retain.
fn session(retries: SaidRetries, taken_over: bool) -> (Script, Budget) {
    let settings = settings(Mode::RejectsOnly);
    let budget = settings.retained.clone();
    let mut declared = declared(retries);
    declared.taken_over = taken_over;
    (of(settings, declared), budget)
}

#[test]
fn it_is_shown_with_the_exchange_and_the_key_of_before_and_with_its_counts() {
    for (version, word, counts) in [
        (
            Version(4, 3, 6),
            reject(1, true),
            &[("x-delivery-count", 1), ("x-acquired-count", 1)][..],
        ),
        (
            Version(4, 3, 6),
            nack(1, false, true),
            &[("x-acquired-count", 1)],
        ),
        (
            Version(4, 2, 9),
            nack(1, false, true),
            &[("x-delivery-count", 1)],
        ),
    ] {
        for (retries, taken_over) in [
            (said(Some(1000), None), false),
            (said(Some(1000), None), true),
            (said(None, Some(5)), false),
            (said(None, Some(5)), true),
        ] {
            let (mut s, _) = session(retries, taken_over);
            s.session.peer.version = Some(version);
            let first = seen(&mut s, &published().delivered(1).concat());
            assert_eq!(first, shown(false, &[]));
            s.client(&word).silent();
            let message = again(&mut s, 1);
            match taken_over {
                true => assert_eq!(message.exchange, ""),
                false => assert_eq!(message.exchange, "dlx-proxy.return/orders"),
            }
            let came = seen(&mut s, &message.delivered(2).concat());
            assert_eq!(came, shown(true, counts));
            s.client(&get("orders")).passes();
            let came = seen(&mut s, &message.fetched(3).concat());
            assert_eq!(came, shown(true, counts));
        }
    }
}

#[test]
fn all_that_is_kept_of_it_is_given_back() {
    for retries in [said(Some(1000), Some(3)), said(None, Some(3))] {
        let (mut s, budget) = session(retries, false);
        let mut message = published();
        let mut sizes = Vec::new();
        for tag in 1..=3 {
            seen(&mut s, &message.delivered(tag).concat());
            sizes.push(s.session.retained());
            assert_eq!(budget.used(), s.session.retained());
            s.client(&nack(tag, false, true)).silent();
            message = again(&mut s, tag);
            assert_eq!((s.session.retained(), budget.used()), (0, 0));
        }
        assert_eq!(sizes, [sizes[0]; 3], "as before it went away");
        for tag in 4..=5 {
            seen(&mut s, &message.delivered(tag).concat());
        }
        s.client(&ack(4, false)).passes();
        s.client(&nack(5, false, true)).silent();
        let ticket = s.ticket();
        s.settled(&[(ticket, AWAY)]).silent();
        s.wait(Duration::from_secs(1)).silent();
        let ticket = s.ticket();
        s.settled(&[(ticket, Outcome::Confirmed)])
            .broker_gets(&[&ack(5, false)]);
        assert_eq!((s.session.retained(), budget.used()), (0, 0));
        assert_eq!(s.session.withheld(), 0);
    }
}

#[test]
fn the_limit_counts_over_all_its_returns() {
    for retries in [said(Some(1000), Some(2)), said(None, Some(2))] {
        let (mut s, _) = session(retries, false);
        let mut message = published();
        for tag in 1..=2 {
            seen(&mut s, &message.delivered(tag).concat());
            s.client(&nack(tag, false, true)).silent();
            message = again(&mut s, tag);
        }
        let last = seen(&mut s, &message.delivered(3).concat());
        assert_eq!(last, shown(true, &[("x-acquired-count", 2)]));
        s.client(&nack(3, false, true)).silent();
        let dead = s.dead.remove(0).1;
        assert_eq!(dead.reason, Reason::DeliveryLimit);
        let properties = Properties::parse(&dead.content.properties).expect("properties");
        assert_eq!(properties.get(Property::UserId), Some(&b"app"[..]));
        let table = Table(properties.headers().expect("headers"));
        let first = table.get(b"x-first-death-exchange").expect("a table");
        assert_eq!(first.and_then(|value| value.as_longstr()), Some(&b"x"[..]));
        assert!(table.get(b"x-dlx-proxy-retry").expect("a table").is_none());
    }
}

#[test]
fn what_is_rejected_after_a_retry_dies_as_if_it_had_never_been_away() {
    let s = Script::open(settings(Mode::RejectsOnly)).managed("orders", target("dlx"));
    s.policies.set_ours(policy(said(Some(1000), None)));
    let mut s = s;
    seen(&mut s, &published().delivered(1).concat());
    s.client(&reject(1, false)).silent();
    let before = s.dead.remove(0);
    s.settled(&[(before.0, Outcome::Confirmed)])
        .broker_gets(&[&ack(1, false)]);
    seen(&mut s, &published().delivered(2).concat());
    s.client(&reject(2, true)).silent();
    let message = again(&mut s, 2);
    s.now.wall = Wall::of_seconds(1000); // deaths are dated
    seen(&mut s, &message.delivered(3).concat());
    s.client(&reject(3, false)).silent();
    assert_eq!(s.dead.remove(0).1, before.1);
}

#[test]
fn the_method_waits_for_its_header() {
    let (mut s, _) = session(said(Some(1000), None), true);
    seen(&mut s, &published().delivered(1).concat());
    s.client(&reject(1, true)).silent();
    let message = again(&mut s, 1);
    let counts = [("x-delivery-count", 1), ("x-acquired-count", 1)];
    let [method, content, hi] = message.delivered(2);
    let (head, rest) = content.split_at(40);
    s.broker(&method).silent();
    s.broker(head).silent();
    let came = seen(&mut s, &[rest, &hi].concat());
    assert_eq!(came, shown(true, &counts));
    s.client(&get("orders")).passes();
    let [method, content, hi] = message.fetched(3);
    s.broker(&method).silent();
    let came = seen(&mut s, &[content, hi].concat());
    assert_eq!(came, shown(true, &counts));
}

#[test]
fn what_says_so_without_a_proof_or_in_another_queue_counts_for_nothing() {
    let (mut s, _) = session(said(Some(1000), Some(1)), true);
    seen(&mut s, &published().delivered(1).concat());
    s.client(&reject(1, true)).silent();
    let genuine = again(&mut s, 1);
    let parsed = Properties::parse(&genuine.properties).expect("properties");
    let of_user = |user: Change| {
        let edit = Edit {
            user_id: user,
            ..Edit::default()
        };
        Message {
            properties: parsed.edit(&edit).to_vec(),
            ..genuine.clone()
        }
    };
    let as_it_is = |exchange: &str, routing_key: &str| Shown {
        exchange: exchange.to_owned(),
        routing_key: routing_key.to_owned(),
        expiration: Some(b"59000".to_vec()), // what is left of it
        ..shown(false, &[])
    };
    let app = Some(b"app".to_vec());
    for (tag, (user, user_id)) in [
        (Change::Remove, None),
        (Change::Set(b"app".to_vec()), app.clone()),
    ]
    .into_iter()
    .enumerate()
    {
        let forged = of_user(user).delivered(tag as u64 + 2).concat();
        let expected = Shown {
            user_id,
            ..as_it_is("", "orders")
        };
        assert_eq!(seen(&mut s, &forged), expected);
    }
    // Genuine, but somebody has published it by another way, or into another queue.
    for (tag, exchange, routing_key) in [(4, "x", "k"), (5, "", "other")] {
        let mut moved = genuine.clone();
        (moved.exchange, moved.routing_key) = (exchange.to_owned(), routing_key.to_owned());
        let came = seen(&mut s, &moved.delivered_to("other", tag).concat());
        assert_eq!(came, as_it_is(exchange, routing_key));
    }
    // None of them counts as a return: with a limit of one each comes back once.
    for tag in [2, 3] {
        s.client(&nack(tag, false, true)).silent();
        let (ticket, back) = s.dead.remove(0);
        assert_eq!(back.reason, Reason::Rejected);
        s.settled(&[(ticket, Outcome::Confirmed)])
            .broker_gets(&[&ack(tag, false)]);
    }
}

/// A dead letter that an operator sends back, its history begun anew: for its queue a new message.
fn sent_back() -> Message {
    let letter = published();
    let parsed = Properties::parse(&letter.properties).expect("properties");
    let mut death = TableBuilder::default();
    let mut keys = ArrayBuilder::default();
    keys.longstr(letter.routing_key.as_bytes());
    death
        .longstr(b"queue", b"orders")
        .longstr(b"exchange", letter.exchange.as_bytes())
        .array(b"routing-keys", &keys);
    let mut deaths = ArrayBuilder::default();
    deaths.table(&death);
    let mut headers = TableBuilder::default();
    headers
        .members(parsed.headers().expect("headers"))
        .array(b"x-death", &deaths);
    let properties = parsed.edit(&Edit {
        headers: Change::Set(headers.finish()),
        ..Edit::default()
    });
    let content = Content {
        properties,
        body: bytes::Bytes::from_static(b"hi"),
    };
    let of = Standing {
        exchange: b"dlx",
        routing_key: b"dead",
        content: &content,
    };
    let names = super::names();
    let here = Here {
        own_user: b"dlx-proxy",
        dialect: Dialect::V4,
        history_form: HistoryForm::WRITTEN,
        bridges: names.bridges(),
        is_own_queue: &|_| false,
        return_exchange: &|_| None,
    };
    let redrive = Redrive {
        to: Destination::Source,
        keep_history: false,
        by: ShortStr::copy(b"ann").expect("short"),
        edit: None,
    };
    let sent = redrive.publication(&of, &here, Wall::default());
    let sent = sent.expect("it has a queue").publication;
    Message {
        exchange: text(&sent.exchange),
        routing_key: text(&sent.routing_key),
        properties: sent.content.properties.to_vec(),
    }
}

#[test]
fn a_dead_letter_that_was_sent_back_is_seen_as_what_it_was_and_as_new() {
    let (mut s, _) = session(said(Some(1000), None), true);
    s.session.peer.version = Some(Version(4, 2, 9));
    let message = sent_back();
    assert_eq!(
        (&message.exchange[..], &message.routing_key[..]),
        ("", "orders")
    );
    let first = seen(&mut s, &message.delivered(1).concat());
    assert_eq!(first, shown(false, &[]));
    s.client(&nack(1, false, true)).silent();
    let returned = again(&mut s, 1);
    let second = seen(&mut s, &returned.delivered(2).concat());
    assert_eq!(second, shown(true, &[("x-delivery-count", 1)]));
    s.client(&get("orders")).passes();
    let fetched = seen(&mut s, &message.fetched(3).concat());
    assert_eq!(fetched, shown(false, &[]));
}

#[test]
fn each_return_takes_the_next_delay_of_a_list() {
    let retries = SaidRetries {
        delayed_retry_delays: Schedule::parse("1s,1s,3s"),
        ..SaidRetries::default()
    };
    let (mut s, _) = session(retries, false);
    let mut message = published();
    for (tag, seconds) in [(1, 1), (2, 1), (3, 3), (4, 3)] {
        seen(&mut s, &message.delivered(tag).concat());
        s.client(&nack(tag, false, true)).silent();
        let delay = Purpose::Delay(Duration::from_secs(seconds));
        assert_eq!(s.dead[0].1.purpose, delay);
        message = again(&mut s, tag);
    }
}

#[test]
fn a_jitter_spreads_a_thousand_equal_messages_evenly_and_each_run_is_the_same() {
    let delays = || {
        let retries = SaidRetries {
            delayed_retry_delays: Schedule::parse("10s"),
            delayed_retry_jitter: Jitter::parse("1").unwrap(),
            ..SaidRetries::default()
        };
        let settings = limited(Mode::RejectsOnly, |limits| {
            limits.max_tickets_per_connection = 1000;
            limits.retained_bytes_per_connection = 1 << 20;
        });
        let mut s = of(settings, declared(retries));
        for tag in 1..=1000 {
            seen(&mut s, &published().delivered(tag).concat());
        }
        s.client(&nack(1000, true, true)).silent();
        let purposes = s.dead.drain(..).map(|(_, of)| of.purpose);
        purposes.collect::<Vec<_>>()
    };
    let first = delays();
    for seconds in [10.0, 12.0, 15.0, 17.5, 20.0] {
        let delay = Purpose::Delay(Duration::from_secs_f64(seconds));
        let count = first.iter().filter(|of| **of == delay).count();
        assert!((150..=250).contains(&count), "{delay:?}: {count}");
    }
    assert_eq!((first.len(), delays()), (1000, first));
}
