//! A message that had come back dies by the broker: it says so as if it had never been away.

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Properties, Property};
use crate::dead_letter::retry::back_in;
use crate::dead_letter::{Dialect, signal, signalled};
use crate::machine::Reason;

use super::away::{BROKERS, OWN, returned, round};
use super::broker::{Broker, Event};
use super::message::build;
use super::property::rules;
use super::rendered::line;

/// As it is when it has come back to `q`.
fn came_back(broker: Broker, message: &str) -> Content {
    let own = ShortStr::copy(b"q").unwrap();
    let message = build(message);
    let came_by = (&*message.exchange, &*message.key);
    let of = returned(&own, came_by, &message.content);
    round(broker, &of, &rules(broker.dialect)).content
}

fn event((queue, reason): (&str, Reason)) -> Event {
    Event {
        queue: queue.to_owned(),
        reason,
        exchange: String::new(),
        key: "q".to_owned(),
        time: 1_700_000_001,
    }
}

/// Comes back to `q`, then dies in that queue as the broker sees it, with the time 1700000001.
fn dies(broker: Broker, message: &str, queue: &str) -> Content {
    let mut stored = broker.publish(&came_back(broker, message), "", "q");
    broker.kill(&mut stored, &event((queue, Reason::Expired)));
    broker.deliver(&stored)
}

#[test]
fn it_died_with_its_own_exchange_and_keys() {
    for broker in BROKERS {
        let content = dies(broker, "message exchange=x key=k cc=[copy] user=bob", "q");
        let (before, key) = signalled(&content, b"q", OWN).expect("it had come back");
        assert_eq!(&key[..], b"k");
        assert_eq!(
            line(&before, "x-death").unwrap(),
            "q/expired*1 t=1700000001 x=x k=[k, copy]"
        );
        assert_eq!(line(&before, "CC").unwrap(), "[copy]");
        assert_eq!(line(&before, "x-first-death-exchange").unwrap(), "x");
        let last = (broker.dialect != Dialect::V3).then(|| "x".to_owned());
        assert_eq!(line(&before, "x-last-death-exchange"), last);
        let signal = signal(&key, &before).unwrap();
        assert_eq!(
            (signal.exchange, signal.reason),
            (&b"x"[..], Reason::Expired)
        );
        let properties = Properties::parse(&before.properties).unwrap();
        assert_eq!(properties.get(Property::UserId), Some(&b"bob"[..]));
        assert_eq!(line(&before, "x-dlx-proxy-retry"), None);
    }
}

/// The broker saw the rest of its TTL, and takes the property away from what dies.
#[test]
fn it_died_with_its_own_expiration() {
    let own = ShortStr::copy(b"q").unwrap();
    let message = build("message exchange=x key=k expiration=60000");
    let of = returned(&own, ("x", "k"), &message.content);
    let broker = BROKERS[3];
    let came_back = round(broker, &of, &rules(Dialect::V4)).content;
    let told = |came_back: &Content, rest: &str| {
        // As the broker writes it.
        let death = format!("deaths=[q/expired*1 t=9 x=\"\" k=[q] {rest}]");
        let died = build(&format!("message {death}")).content;
        let mut headers = Properties::parse(&came_back.properties)
            .unwrap()
            .headers()
            .unwrap()
            .to_vec();
        headers.extend_from_slice(
            Properties::parse(&died.properties)
                .unwrap()
                .headers()
                .unwrap(),
        );
        let content = super::message::content(&crate::amqp::properties::Edit {
            headers: crate::amqp::properties::Change::Set(headers),
            user_id: crate::amqp::properties::Change::Set(OWN.to_vec()),
            ..Default::default()
        });
        let (before, _) = signalled(&content, b"q", OWN).unwrap();
        let properties = Properties::parse(&before.properties).unwrap();
        assert_eq!(
            properties.get(Property::Expiration),
            None,
            "as of each signal"
        );
        line(&before, "x-death").unwrap()
    };
    assert_eq!(
        told(&came_back, "oe=59000"),
        "q/expired*1 t=9 x=x k=[k] oe=60000"
    );
    let without = build("message exchange=x key=k");
    let mut of = returned(&own, ("x", "k"), &without.content);
    of.queue_ttl = Some(std::time::Duration::from_secs(60));
    let came_back = round(broker, &of, &rules(Dialect::V4)).content;
    assert_eq!(
        told(&came_back, "oe=59000"),
        "q/expired*1 t=9 x=x k=[k]",
        "the TTL was its queue's"
    );
}

#[test]
fn a_death_in_another_queue_is_as_the_broker_says() {
    for broker in BROKERS {
        let content = dies(broker, "message exchange=x key=k", "later");
        assert_eq!(signalled(&content, b"q", OWN), None);
        let stranger = build("message exchange=x key=k deaths=[q/expired*1 x=x k=[k]]").content;
        assert_eq!(signalled(&stranger, b"q", OWN), None, "it was never away");
    }
}

/// What is counted up keeps the fields of an earlier death, which was told with the exchange of that time. The header of the newest death is new.
#[test]
fn a_death_that_is_counted_up_keeps_its_fields() {
    let message =
        "message exchange=x key=k deaths=[q/expired*1 t=5 x=first k=[early]] first=q/expired@first";
    for broker in BROKERS.into_iter().filter(|broker| broker.takes_over) {
        let content = dies(broker, message, "q");
        let (before, key) = signalled(&content, b"q", OWN).expect("it had come back");
        assert_eq!(&key[..], b"k");
        assert_eq!(
            line(&before, "x-death").unwrap(),
            "q/expired*2 t=5 x=first k=[early]"
        );
        assert_eq!(line(&before, "x-first-death-exchange").unwrap(), "first");
        let last = (broker.dialect != Dialect::V3).then(|| "x".to_owned());
        assert_eq!(line(&before, "x-last-death-exchange"), last);
    }
}

#[test]
fn a_key_that_a_policy_of_the_broker_set_stays() {
    let content = dies(BROKERS[3], "message exchange=x key=k", "q");
    let (before, key) = signalled(&content, b"set", OWN).unwrap();
    assert_eq!(&key[..], b"set");
    assert_eq!(
        line(&before, "x-death").unwrap(),
        "q/expired*1 t=1700000001 x=x k=[k]"
    );
}

/// From 4.0 on the broker counts anew, and may come to as many deaths as the message had then.
#[test]
fn what_comes_round_by_dead_lettering_is_a_new_message() {
    let nobody = "message exchange=x key=k";
    let before = "deaths=[q/rejected*1 t=5 x=first k=[early]] first=q/rejected@first";
    for message in [nobody.to_owned(), format!("{nobody} {before}")] {
        for broker in BROKERS {
            let round = |deaths: &[(&str, Reason)]| {
                let came_back = came_back(broker, &message);
                let mut stored = broker.publish(&came_back, "", "q");
                for death in deaths {
                    broker.kill(&mut stored, &event(*death));
                }
                broker.deliver(&stored)
            };
            let is_back = |content: &Content| {
                let properties = Properties::parse(&content.properties).unwrap();
                back_in(b"q", &properties, OWN).is_some()
            };
            assert!(is_back(&round(&[])), "{broker:?} {message}");
            let rejected = ("q", Reason::Rejected);
            for deaths in [&[rejected][..], &[rejected, ("p", Reason::Expired)]] {
                assert!(!is_back(&round(deaths)), "{broker:?} {message} {deaths:?}");
            }
            let again = round(&[rejected, ("p", Reason::Expired), ("q", Reason::Expired)]);
            assert_eq!(signalled(&again, b"q", OWN), None, "{broker:?} {message}");
        }
    }
}
