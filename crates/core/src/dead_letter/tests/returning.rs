//! When a returned message comes back, and when it dies instead.

use std::time::Duration;

use crate::amqp::content::Content;
use crate::amqp::ids::name;
use crate::amqp::properties::{Properties, Property};
use crate::amqp::table::Table;
use crate::dead_letter::retries::{Attempts, Retries};
use crate::dead_letter::{Dialect, Disposal, Lookup, Return, Target, give_back, retry};
use crate::machine::{Cause, Publication, Purpose, Reason, Wall};

use super::away::{
    BROKERS, NOW, OWN, SECOND, after_a_second, died, judged, let_go, returned, round, sent,
};
use super::message::build;
use super::property::rules;
use super::rendered::line;

const MESSAGE: &str = "message exchange=x key=k cc=[copy]";
const EXPIRES: &str = "message exchange=x key=k cc=[copy] expiration=1500";

fn target(exchange: &str) -> Lookup {
    Lookup::Target(Target {
        exchange: name(exchange),
        routing_key: None,
        at_least_once: false,
    })
}

fn expiration(content: &Content) -> Option<String> {
    let properties = Properties::parse(&content.properties).unwrap();
    let text = properties.get(Property::Expiration)?;
    Some(String::from_utf8(text.to_vec()).unwrap())
}

type Members = (Vec<(u16, Vec<u8>)>, Vec<Vec<u8>>);

/// All of its properties; the headers in the order of their names, as the broker sorts them.
fn members(content: &Content) -> Members {
    let properties = Properties::parse(&content.properties).unwrap();
    let others = properties
        .values()
        .filter(|(bit, _)| *bit != Property::Headers as u16);
    let others = others.map(|(bit, value)| (bit, value.to_vec())).collect();
    let fields = Table(properties.headers().unwrap()).fields();
    let mut headers: Vec<_> = fields.map(|field| field.unwrap().raw.to_vec()).collect();
    headers.sort();
    (others, headers)
}

/// When its TTL is over, as the message itself says.
fn deadline(content: &Content) -> Option<Wall> {
    let properties = Properties::parse(&content.properties).unwrap();
    retry::read(&properties, OWN).unwrap().0.deadline
}

/// Returned once more than it may be.
fn attempts(content: &Content) -> Attempts {
    let properties = Properties::parse(&content.properties).unwrap();
    retry::read(&properties, OWN).unwrap().0.attempts
}

fn dies(of: &Return<'_>, lookup: &Lookup, dialect: Dialect) -> Disposal {
    let of = Return {
        attempts: Attempts { all: 2, failed: 0 },
        ..*of
    };
    let retries = after_a_second(Some(2));
    give_back(&of, &retries, lookup, &rules(dialect), OWN, NOW).expect("it is counted")
}

#[test]
fn what_came_back_as_often_as_it_may_dies() {
    let (queue, message) = (name("q"), build(EXPIRES).content);
    let of = returned(&queue, ("x", "k"), &message);
    for broker in BROKERS {
        let Disposal::Publish(dead) = dies(&of, &target("dlx"), broker.dialect) else {
            panic!("a dead letter");
        };
        assert_eq!(
            (&dead.exchange, &dead.routing_key),
            (&name("dlx"), &name("k"))
        );
        assert_eq!(
            (dead.reason, dead.purpose),
            (Reason::DeliveryLimit, Purpose::Death)
        );
        assert!(dead.at_least_once, "a limit drops nothing");
        let death = "q/delivery_limit*1 t=1700000000 x=x k=[k, copy] oe=1500";
        assert_eq!(line(&dead.content, "x-death").unwrap(), death);
        assert_eq!(line(&dead.content, "CC").unwrap(), "[copy]");
        assert_eq!(expiration(&dead.content), None);
    }
}

/// Also where only the broker knows one: it would return it at once, again and again.
#[test]
fn without_a_target_that_is_known_it_is_parked() {
    let (queue, message) = (name("q"), build(MESSAGE).content);
    for (lookup, cause) in [
        (Lookup::NoExchange, Cause::NoTarget),
        (Lookup::KeyUnknown, Cause::TargetUnknown),
    ] {
        // Also where its own key would lead it into its queue again.
        for key in ["k", "q"] {
            let of = returned(&queue, ("x", key), &message);
            for broker in BROKERS {
                let Disposal::Park(parked, why) = dies(&of, &lookup, broker.dialect) else {
                    panic!("parked");
                };
                assert_eq!((&parked.routing_key, why), (&name(key), cause));
                let death = format!("q/delivery_limit*1 t=1700000000 x=x k=[{key}, copy]");
                assert_eq!(line(&parked.content, "x-death").unwrap(), death);
            }
        }
    }
}

#[test]
fn a_cycle_is_parked_and_not_dropped() {
    let (queue, message) = (name("q"), build("message exchange=x key=q").content);
    let of = returned(&queue, ("x", "q"), &message);
    for broker in BROKERS {
        let by_default = dies(&of, &target(""), broker.dialect);
        assert!(
            matches!(by_default, Disposal::Park(_, Cause::Cycle)),
            "{by_default:?}"
        );
        let Disposal::Publish(named) = dies(&of, &target("dlx"), broker.dialect) else {
            panic!("where the exchange leads is not known here");
        };
        assert!(named.at_least_once);
    }
}

#[test]
fn what_is_not_due_goes_away_for_the_rest() {
    let (queue, message) = (name("q"), build(EXPIRES).content);
    let of = returned(&queue, ("x", "k"), &message);
    for broker in BROKERS {
        let rules = rules(broker.dialect);
        let away = sent(&of, &target("dlx"), &rules);
        let early = NOW.after(Duration::from_millis(300));
        let came = judged(&let_go(broker, &away.content, early), &rules, early).unwrap();
        let Disposal::Retry(again) = came.disposal else {
            panic!("away again");
        };
        assert_eq!(again.purpose, Purpose::Delay(Duration::from_millis(700)));
        assert_eq!(again.queue, name("q"));
        assert_eq!(
            members(&again.content),
            members(&away.content),
            "and nothing else"
        );
    }
}

#[test]
fn what_is_rejected_in_its_delay_queue_is_due() {
    let (queue, message) = (name("q"), build(EXPIRES).content);
    let of = returned(&queue, ("x", "k"), &message);
    for broker in BROKERS {
        let rules = rules(broker.dialect);
        let away = sent(&of, &target("dlx"), &rules).content;
        let early = NOW.after(Duration::from_millis(300));
        for (queue, reason, is_due) in [
            ("dlx-proxy.delay.1000", Reason::Rejected, true),
            ("dlx-proxy.delay.1000", Reason::Expired, false),
            ("dlx-proxy.delay.1000", Reason::DeliveryLimit, false),
            ("q", Reason::Rejected, false),
        ] {
            let died = died(broker, &away, (queue, reason), early);
            let Disposal::Retry(next) = judged(&died, &rules, early).unwrap().disposal else {
                panic!("{queue} {reason:?}");
            };
            let expected = match is_due {
                true => Purpose::Return,
                false => Purpose::Delay(Duration::from_millis(700)),
            };
            assert_eq!(next.purpose, expected, "{queue} {reason:?}");
            if is_due {
                assert_eq!(expiration(&next.content).as_deref(), Some("1200"));
                assert_eq!(attempts(&next.content), attempts(&away));
            }
        }
    }
}

#[test]
fn a_ttl_is_the_shorter_one_and_ends_once() {
    let queue = name("q");
    for (message, of_the_queue, ends) in [
        (EXPIRES, None, Some(1500)),
        (EXPIRES, Some(9000), Some(1500)),
        (EXPIRES, Some(1200), Some(1200)),
        (MESSAGE, Some(1200), Some(1200)),
        (MESSAGE, None, None),
    ] {
        let message = build(message).content;
        let of = Return {
            queue_ttl: of_the_queue.map(Duration::from_millis),
            // It was with its consumer for so long.
            delivered: Wall(NOW.0 - 100),
            ..returned(&queue, ("x", "k"), &message)
        };
        let rules = rules(Dialect::V4);
        let came_back = round(BROKERS[3], &of, &rules).content;
        let ends = ends.map(|millis| Wall(NOW.0 - 100 + millis));
        assert_eq!(deadline(&came_back), ends);
        let rest = ends.map(|ends| NOW.after(SECOND).until(ends).as_millis().to_string());
        assert_eq!(expiration(&came_back), rest);

        // It does not begin anew with a later delivery.
        let later = Return {
            deadline: deadline(&came_back),
            delivered: NOW.after(SECOND),
            ..of
        };
        let again = sent(&later, &Lookup::NoExchange, &rules);
        if ends.is_some() {
            assert_eq!(deadline(&again.content), ends);
        }
    }
}

/// It expires while it is away, by a limit of time that has nothing to do with its property.
#[test]
fn what_is_over_while_it_is_away_dies_as_expired() {
    let queue = name("q");
    for (message, ttl, original) in [(EXPIRES, None, " oe=1500"), (MESSAGE, Some(1500), "")] {
        let message = build(message).content;
        let of = Return {
            delivered: Wall(NOW.0 - 900),
            queue_ttl: ttl.map(Duration::from_millis),
            ..returned(&queue, ("x", "k"), &message)
        };
        for broker in BROKERS {
            let rules = rules(broker.dialect);
            let away = sent(&of, &target("dlx"), &rules);
            let at = NOW.after(SECOND);
            let came = judged(&let_go(broker, &away.content, at), &rules, at).unwrap();
            let Disposal::Publish(dead) = came.disposal else {
                panic!("a dead letter");
            };
            assert_eq!((came.queue, dead.reason), (name("q"), Reason::Expired));
            assert_eq!(
                (&dead.exchange, &dead.routing_key),
                (&name("dlx"), &name("k"))
            );
            let death = format!("q/expired*1 t=1700000001 x=x k=[k, copy]{original}");
            assert_eq!(line(&dead.content, "x-death").unwrap(), death);
            assert_eq!(line(&dead.content, "CC").unwrap(), "[copy]");
            assert_eq!(line(&dead.content, "x-dlx-proxy-retry"), None);
            assert_eq!(expiration(&dead.content), None);
        }
    }
}

#[test]
fn what_is_over_goes_by_the_key_of_its_target() {
    let (queue, message) = (name("q"), build(EXPIRES).content);
    let of = Return {
        delivered: Wall(NOW.0 - 900),
        ..returned(&queue, ("x", "k"), &message)
    };
    let rules = rules(Dialect::V4);
    let target = Lookup::Target(Target {
        exchange: name("dlx"),
        routing_key: Some(name("dead")),
        at_least_once: false,
    });
    let away = sent(&of, &target, &rules);
    let came = judged(&away.content, &rules, NOW.after(SECOND)).unwrap();
    let Disposal::Publish(dead) = came.disposal else {
        panic!("a dead letter");
    };
    assert_eq!(
        (dead.exchange, dead.routing_key),
        (name("dlx"), name("dead"))
    );
}

/// A queue without a dead-letter exchange lets go what expires in it. If nobody knows whether it has one, the broker has to decide: in the queue.
#[test]
fn what_is_over_without_a_target_is_dropped_if_that_is_certain() {
    let (queue, message) = (name("q"), build(EXPIRES).content);
    let rules = rules(Dialect::V4);
    let over = |lookup: &Lookup, knows_all: bool| {
        let of = Return {
            delivered: Wall(NOW.0 - 900),
            knows_all,
            ..returned(&queue, ("x", "k"), &message)
        };
        let away = sent(&of, lookup, &rules);
        judged(&away.content, &rules, NOW.after(SECOND))
            .unwrap()
            .disposal
    };
    assert_eq!(over(&Lookup::NoExchange, true), Disposal::Drop(Vec::new()));
    for unknown in [
        over(&Lookup::NoExchange, false),
        over(&Lookup::KeyUnknown, true),
    ] {
        let Disposal::Retry(back) = unknown else {
            panic!("into its queue");
        };
        assert_eq!(
            (back.purpose, back.routing_key),
            (Purpose::Return, name("q"))
        );
        assert_eq!(expiration(&back.content).unwrap(), "0");
    }
}

/// The intake was late: in its queue the message would have been there to be taken, and then have expired.
#[test]
fn what_would_have_come_back_in_time_expires_in_its_queue() {
    let (queue, message) = (name("q"), build(EXPIRES).content);
    let rules = rules(Dialect::V4);
    let away = sent(
        &returned(&queue, ("x", "k"), &message),
        &target("dlx"),
        &rules,
    );
    let late = NOW.after(Duration::from_secs(60));
    let Disposal::Retry(back) = judged(&away.content, &rules, late).unwrap().disposal else {
        panic!("into its queue");
    };
    assert_eq!(back.purpose, Purpose::Return);
    assert_eq!(expiration(&back.content).unwrap(), "0");
}

/// With `history = "broker"` a client's x-death goes on not counting.
#[test]
fn what_was_to_be_forgotten_stays_forgotten() {
    let queue = name("q");
    let mut rules = rules(Dialect::V4);
    rules.continue_history = false;
    let published =
        "message exchange=x key=k deaths=[old/expired*7 t=5 x=y k=[z]] private=same forget";
    let message = build(published).content;
    let came_back = round(BROKERS[3], &returned(&queue, ("x", "k"), &message), &rules).content;
    let properties = Properties::parse(&came_back.properties).unwrap();
    let (retry, original) = retry::read(&properties, OWN).unwrap();
    let before = retry.before(&came_back, original).unwrap();
    assert_eq!(
        line(&before, "x-death").unwrap(),
        "old/expired*7 t=5 x=y k=[z]"
    );
    let of = Return {
        attempts: Attempts { all: 2, failed: 0 },
        ..returned(&queue, ("x", "k"), &before)
    };
    let retries = after_a_second(Some(2));
    let Some(Disposal::Publish(dead)) = give_back(&of, &retries, &target("dlx"), &rules, OWN, NOW)
    else {
        panic!("a dead letter");
    };
    let death = "q/delivery_limit*1 t=1700000000 x=x k=[k]";
    assert_eq!(line(&dead.content, "x-death").unwrap(), death);
}

#[test]
fn without_a_delay_it_is_back_at_once() {
    let (queue, message) = (name("q"), build(EXPIRES).content);
    let retries = Retries {
        back_off: None,
        ..after_a_second(Some(2))
    };
    let of = returned(&queue, ("x", "k"), &message);
    let rules = rules(Dialect::V4);
    let now = NOW.after(SECOND);
    let Some(Disposal::Retry(back)) =
        give_back(&of, &retries, &Lookup::NoExchange, &rules, OWN, now)
    else {
        panic!("back");
    };
    let Publication {
        exchange,
        routing_key,
        purpose,
        content,
        ..
    } = back;
    assert_eq!(
        (exchange, routing_key, purpose),
        (name(""), name("q"), Purpose::Return)
    );
    assert_eq!(expiration(&content).unwrap(), "500");
    let properties = Properties::parse(&content.properties).unwrap();
    let (retry, _) = retry::read(&properties, OWN).unwrap();
    assert!(retry.away.is_none());
    assert_eq!(retry.attempts, Attempts { all: 1, failed: 0 });
}
