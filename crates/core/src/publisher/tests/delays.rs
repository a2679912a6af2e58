//! Messages that clients returned, on their way into delay queues: these are built when the first message wants them.

use std::time::Duration;

use super::*;
use crate::amqp::ids::name;
use crate::amqp::method::{QueueBind, QueueDeclare};

const DELAY: &str = "dlx-proxy.delay";

pub(super) const DECLARE: MethodId = MethodId::QUEUE_DECLARE;
pub(super) const BIND: MethodId = MethodId::QUEUE_BIND;
pub(super) const EXCHANGE: MethodId = MethodId::EXCHANGE_DECLARE;
pub(super) const PUBLISH: MethodId = MethodId::BASIC_PUBLISH;

pub(super) fn delayed(millis: u64, body: &str) -> Publication {
    Publication {
        purpose: Purpose::Delay(Duration::from_millis(millis)),
        ..message("", "", body)
    }
}

/// What was sent since the last call on channels that are open, those that had to be opened first included.
pub(super) fn sent(rig: &mut PublisherRig) -> Vec<Sent> {
    let mut all = Vec::new();
    loop {
        let sent = rig.sent();
        let opened: Vec<u16> = sent
            .iter()
            .filter(|sent| sent.method() == Some(MethodId::CHANNEL_OPEN))
            .map(|sent| sent.channel)
            .collect();
        all.extend(sent);
        if opened.is_empty() {
            return all;
        }
        opened.into_iter().for_each(|channel| rig.ready(channel));
    }
}

/// The methods among them that build or publish.
pub(super) fn methods(rig: &mut PublisherRig) -> Vec<(u16, MethodId)> {
    let sent = sent(rig);
    let all = sent
        .iter()
        .filter_map(|sent| Some((sent.channel, sent.method()?)));
    all.filter(|(_, id)| [DECLARE, BIND, EXCHANGE, PUBLISH].contains(id))
        .collect()
}

/// One message waits on channel 3 to be confirmed by a delay queue.
pub(super) fn in_flight() -> PublisherRig {
    let mut rig = rig();
    rig.publish(1, delayed(1000, "1"));
    assert_eq!(
        methods(&mut rig),
        [DECLARE, BIND, PUBLISH].map(|id| (3, id))
    );
    rig
}

fn comes_back(rig: &mut PublisherRig, millis: &str, body: &str, tag: u64) {
    rig.give_back(3, DELAY, millis, &message("", "", body).content);
    rig.ack(3, tag, false);
}

#[test]
fn the_first_message_of_a_delay_builds_its_queue() {
    for (version, limits) in [("3.10.8", false), ("3.13.7", false), ("4.3.6", true)] {
        let mut rig = Rig::new(Publisher::new(settings(), Now::default()));
        rig.up(version);
        rig.publish(1, delayed(1500, "1"));
        let sent: Vec<Sent> = sent(&mut rig)
            .into_iter()
            .filter(|s| s.channel == 3)
            .collect();
        let built: Vec<MethodId> = sent.iter().filter_map(Sent::method).skip(2).collect();
        assert_eq!(built, [DECLARE, BIND, PUBLISH]);
        let declare = QueueDeclare::parse(&sent[2].payload).unwrap();
        assert_eq!(declare.queue, b"dlx-proxy.delay.1500");
        assert_eq!(declare.bits, QueueDeclare::DURABLE | QueueDeclare::NO_WAIT);
        let mut expected = TableBuilder::default();
        expected
            .longstr(b"x-queue-type", b"quorum")
            .long(b"x-message-ttl", 1500)
            .longstr(b"x-dead-letter-exchange", b"dlx-proxy.due")
            .longstr(b"x-dead-letter-strategy", b"at-least-once")
            .longstr(b"x-overflow", b"reject-publish");
        if limits {
            expected.long(b"x-delivery-limit", -1);
        }
        assert_eq!(declare.arguments, expected.finish());
        let bind = QueueBind::parse(&sent[3].payload).unwrap();
        assert_eq!(
            (bind.queue, bind.exchange, bind.routing_key, bind.bits),
            (declare.queue, DELAY.as_bytes(), &b"1500"[..], 1)
        );
        assert_eq!(publishes(&sent), [row(3, DELAY, "1500", "1")]);
        rig.events();

        rig.publish(2, delayed(1500, "2"));
        assert_eq!(methods(&mut rig), [(3, PUBLISH)]);
        rig.publish(3, delayed(10_000, "3"));
        assert_eq!(
            methods(&mut rig),
            [DECLARE, BIND, PUBLISH].map(|id| (3, id))
        );
        rig.ack(3, 1, false);
        assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
        let told = Event::Retried {
            queue: name("work"),
            delay: Duration::from_millis(1500),
            outcome: Outcome::Confirmed,
        };
        assert_eq!(rig.events(), [told]);
    }
}

/// Its arguments say nothing of a limit, which 4.x is told there is none.
#[test]
fn a_queue_that_was_made_on_3_x_is_only_looked_for() {
    let refuse = |rig: &mut PublisherRig, code, text| {
        rig.broker(&close(3, code, text, DECLARE));
    };
    let text = "PRECONDITION_FAILED - inequivalent arg 'x-delivery-limit' for queue 'dlx-proxy.delay.1000' in vhost '/': received the value '-1'";
    let mut rig = in_flight();
    refuse(&mut rig, 406, text);
    let sent = sent(&mut rig);
    let declare = sent.iter().find(|sent| sent.method() == Some(DECLARE));
    let declare = QueueDeclare::parse(&declare.expect("once more").payload).unwrap();
    assert_ne!(declare.bits & QueueDeclare::PASSIVE, 0);
    assert_eq!(publishes(&sent), [row(3, DELAY, "1000", "1")]);
    rig.ack(3, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);

    // Gone meanwhile: the next one is made as all are.
    rig.publish(2, delayed(1000, "2"));
    methods(&mut rig);
    refuse(
        &mut rig,
        404,
        "NOT_FOUND - no queue 'dlx-proxy.delay.1000' in vhost '/'",
    );
    assert_eq!(rig.settled(), [(2, Outcome::Refused(Cause::NoExchange))]);
    rig.publish(3, delayed(1000, "3"));
    let sent = self::sent(&mut rig);
    let declare = sent.iter().find(|sent| sent.method() == Some(DECLARE));
    let declare = QueueDeclare::parse(&declare.expect("anew").payload).unwrap();
    assert_eq!(declare.bits & QueueDeclare::PASSIVE, 0);
}

#[test]
fn a_queue_that_somebody_has_deleted_is_built_again_once() {
    let mut rig = in_flight();
    comes_back(&mut rig, "1000", "1", 1);
    assert_eq!(
        methods(&mut rig),
        [DECLARE, BIND, PUBLISH].map(|id| (3, id))
    );
    comes_back(&mut rig, "1000", "1", 2);
    assert_eq!(rig.settled(), [(1, Outcome::Refused(Cause::Unroutable))]);
    assert_eq!(methods(&mut rig), [], "not parked");
}

/// They all were on their way when it was deleted.
#[test]
fn so_it_is_for_each_message_that_comes_back() {
    let mut rig = in_flight();
    rig.publish_as(
        SESSION,
        vec![(2, delayed(1000, "2")), (3, delayed(1000, "3"))],
    );
    assert_eq!(methods(&mut rig), [(3, PUBLISH); 2]);
    for (tag, body) in [(1, "1"), (2, "2"), (3, "3")] {
        comes_back(&mut rig, "1000", body, tag);
    }
    assert_eq!(rig.settled(), []);
    let sent = methods(&mut rig);
    assert_eq!(sent[..3], [DECLARE, BIND, PUBLISH].map(|id| (3, id)));
    let again = sent.iter().filter(|(_, id)| *id == PUBLISH).count();
    assert_eq!(again, 3);
    rig.ack(3, 6, true);
    let confirmed = [1, 2, 3].map(|ticket| (ticket, Outcome::Confirmed));
    assert_eq!(rig.settled(), confirmed);
}

#[test]
fn nobody_asks_whether_the_delay_exchange_delays() {
    let mut rig = rig();
    let mut headers = TableBuilder::default();
    headers.long(b"x-delay", 1);
    let content = with_headers(headers, "1");
    rig.publish(
        1,
        Publication {
            content: content.clone(),
            ..delayed(1000, "")
        },
    );
    methods(&mut rig);
    rig.give_back(3, DELAY, "1000", &content);
    rig.ack(3, 1, false);
    assert_eq!(
        methods(&mut rig),
        [DECLARE, BIND, PUBLISH].map(|id| (3, id))
    );
}

#[test]
fn a_delay_is_rounded_up() {
    let mut rig = rig();
    let batch = [997, 951, 30, 31, 4000].map(|millis| (millis, delayed(millis, "")));
    rig.publish_as(SESSION, batch.to_vec());
    let keys: Vec<String> = rig.published().into_iter().map(|row| row.2).collect();
    assert_eq!(keys, ["1000", "1000", "30", "35", "4000"]);
    rig.ack(3, 5, true);
    let delays = rig.events().into_iter().map(|event| match event {
        Event::Retried { delay, .. } => delay.as_millis(),
        other => panic!("{other:?}"),
    });
    let told: Vec<_> = delays.collect();
    assert_eq!(told, [997, 951, 30, 31, 4000], "as was asked for");
}

#[test]
fn a_message_that_is_sent_away_for_the_rest_is_not_counted_twice() {
    let mut rig = rig();
    rig.publish_as(INTAKE, vec![(1, delayed(70, ""))]);
    methods(&mut rig);
    rig.ack(3, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
    assert_eq!(rig.events(), []);
}
