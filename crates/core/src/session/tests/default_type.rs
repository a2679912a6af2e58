//! Declares without a type whose arguments only some types can have.

use super::probes::declare_on;
use super::script::*;
use super::verify::{PROBE, close, refused};
use crate::amqp::method::{MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::amqp::table::TableBuilder;
use crate::machine::Mono;
use crate::objects::QueueType;
use crate::registry::arguments::if_there;
use crate::registry::policy::Mode;

const DURABLE: u8 = QueueDeclare::DURABLE;

fn limit() -> Vec<u8> {
    let mut arguments = TableBuilder::default();
    arguments.long(b"x-delivery-limit", 5);
    arguments.finish()
}

/// Such a declare: the broker is asked for the queue.
fn declared() -> Script {
    let mut s = Script::open(settings(Mode::Full));
    drop(s.client(&declare_on(CH, "q", DURABLE, &limit())));
    s.sent_to_broker();
    s
}

/// It answers so; then it is asked for the default type.
fn asked(told: &[u8]) -> Script {
    let mut s = declared();
    drop(s.broker(told));
    s.sent_to_broker();
    let mut open = Vec::new();
    reply::channel_open(&mut open, PROBE);
    let question = declare_on(PROBE, "q", DURABLE, &if_there(&limit()));
    s.resume().broker_gets(&[&open, &question]);
    s
}

/// The queue is not there: its form would be refused to a new one.
fn missing() -> Vec<u8> {
    refused_for("classic")
}

fn refused_for(queue_type: &str) -> Vec<u8> {
    let text =
        "PRECONDITION_FAILED - invalid arg 'x-max-age' for queue 'q' in vhost '/' of queue type";
    refused(PROBE, 406, &format!("{text} rabbit_{queue_type}_queue"))
}

fn answered(mut s: Script, refusal: &[u8]) -> Script {
    let close_ok = method(PROBE, MethodId::CHANNEL_CLOSE_OK, |_| {});
    s.broker(refusal).broker_gets(&[&close_ok]);
    s
}

#[test]
fn a_quorum_queue_is_declared_with_its_limit_and_nobody_asks_again() {
    let mut s = answered(asked(&missing()), &refused_for("quorum"));
    s.resume()
        .broker_gets(&[&declare_on(CH, "q", DURABLE, &limit())]);
    let mut other = s.another();
    other
        .client(&declare_on(CH, "r", DURABLE, &limit()))
        .passes();
}

#[test]
fn a_classic_queue_is_declared_without() {
    let mut s = answered(asked(&missing()), &refused_for("classic"));
    s.resume()
        .broker_gets(&[&declare_on(CH, "q", DURABLE, b"")]);
}

/// The declare of a question fits the queue.
fn declare_ok() -> Vec<u8> {
    method(PROBE, MethodId::QUEUE_DECLARE_OK, |a| {
        a.shortstr(b"q").long(0).long(0).end()
    })
}

/// The broker answers one question after the other; what the session sends last.
fn told(s: &mut Script, answers: &[Vec<u8>]) -> Vec<u8> {
    for answer in answers {
        drop(s.broker(answer));
        if *answer == declare_ok() {
            drop(s.broker(&method(PROBE, MethodId::CHANNEL_CLOSE_OK, |_| {})));
        }
        s.sent_to_broker();
        drop(s.resume());
    }
    s.sent_to_broker()
}

/// A classic queue passes over what it does not know, so that a declare fits it says nothing of the default type.
#[test]
fn of_a_queue_that_is_there_its_own_type_counts() {
    let differs = |argument: &str, values: &str| {
        let text = format!(
            "PRECONDITION_FAILED - inequivalent arg '{argument}' for queue 'q' in vhost '/': received {values}"
        );
        refused(PROBE, 406, &text)
    };
    let exchange = "none but current is the value 'dlx-proxy/dlx' of type 'longstr'";
    let of_exchange = || differs("x-dead-letter-exchange", exchange);
    let of_type = || differs("x-queue-type", "'classic' but current is 'quorum'");
    for (answers, goes) in [
        (vec![declare_ok()], b"".to_vec()),
        (vec![of_type(), declare_ok()], limit()),
        (vec![of_exchange(), declare_ok()], b"".to_vec()),
        (vec![of_exchange(), of_type(), declare_ok()], limit()),
    ] {
        let sent = told(&mut declared(), &answers);
        assert_eq!(sent, declare_on(CH, "q", DURABLE, &goes));
    }
    // It was made between the two questions: then it is asked for again.
    let answers = [declare_ok(), of_type(), declare_ok()];
    let sent = told(&mut asked(&missing()), &answers);
    assert_eq!(sent, declare_on(CH, "q", DURABLE, &limit()));
    // Somebody else knows the default type by then.
    let mut s = asked(&missing());
    let registry = &s.session.registry;
    registry.learn_default_type(Some(QueueType::Quorum), Mono(0));
    let sent = told(&mut s, &[declare_ok()]);
    assert_eq!(sent, declare_on(CH, "q", DURABLE, &limit()));
}

/// As before anybody asked.
#[test]
fn an_answer_that_tells_nothing_is_asked_for_again_after_a_minute() {
    // Nor does the broker say what the queue is.
    let mut s = answered(asked(&close(PROBE, 403)), &close(PROBE, 403));
    s.resume()
        .broker_gets(&[&declare_on(CH, "q", DURABLE, b"")]);
    // Whoever may not ask, another user may: the queue is asked for again, and not the default type.
    let mut s = s.another();
    drop(s.client(&declare_on(CH, "q", DURABLE, &limit())));
    assert_ne!(s.sent_to_broker(), declare_on(CH, "q", DURABLE, b""));
    let timeout = s.session.settings.limits.now().probe_timeout;
    drop(s.wait(timeout));
    drop(s.resume());
    let sent = s.sent_to_broker();
    assert!(sent.ends_with(&declare_on(CH, "q", DURABLE, b"")));
}

/// A queue that is not durable, or that is to go, is a classic one.
#[test]
fn what_is_of_no_other_type_is_not_asked_for() {
    for bits in [
        0,
        DURABLE | QueueDeclare::EXCLUSIVE,
        DURABLE | QueueDeclare::AUTO_DELETE,
    ] {
        let mut s = Script::open(settings(Mode::Full));
        s.client(&declare_on(CH, "q", bits, &limit()))
            .broker_gets(&[&declare_on(CH, "q", bits, b"")]);
    }
}
