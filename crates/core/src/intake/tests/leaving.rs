//! The publisher is away: the intake queue is left to other proxies.

use super::*;

type Said = (MethodId, Option<(u64, bool, bool)>);

impl IntakeRig {
    fn publisher(&mut self, up: bool) {
        self.input(Input::Publisher(up));
    }

    /// Methods on the consumer's channel since the last call; of settlements the tag, and whether they are multiple and requeue.
    fn said(&mut self) -> Vec<Said> {
        let sent = self.sent();
        let sent = sent.iter().filter(|sent| sent.channel == 2);
        sent.map(|sent| {
            let id = sent.method().unwrap();
            let settle = matches!(id, MethodId::BASIC_ACK | MethodId::BASIC_NACK)
                .then(|| Settle::parse(&sent.payload).unwrap());
            let settle = settle.map(|s| (s.delivery_tag.0, s.multiple, s.requeue));
            (id, settle)
        })
        .collect()
    }
}

const CANCEL: Said = (MethodId::BASIC_CANCEL, None);

fn returned(tag: u64, multiple: bool) -> Said {
    (MethodId::BASIC_NACK, Some((tag, multiple, true)))
}

#[test]
fn what_it_holds_goes_back_and_it_consumes_when_the_publisher_is_up() {
    let mut rig = rig();
    for tag in 1..=3 {
        rig.deliver(tag, "dlx-proxy/x", &died_in("work", "hi"));
    }
    let tickets: Vec<Ticket> = rig.dead().into_iter().map(|(ticket, _)| ticket).collect();
    rig.settle(&[(tickets[1], Outcome::Confirmed)]);
    rig.said();
    rig.publisher(false);
    assert_eq!(rig.said(), [CANCEL, returned(3, true)]);
    assert_eq!(rig.events(), [Event::HandedOver, Event::Consuming(false)]);
    assert_eq!(
        (rig.machine.held(), rig.machine.consumer.mover.octets),
        (0, 0)
    );
    // On its way when the consumer was cancelled.
    rig.deliver(4, "dlx-proxy/x", &died_in("work", "hi"));
    assert_eq!(rig.said(), [returned(4, false)]);
    assert_eq!((rig.dead(), rig.machine.held()), (vec![], 0));
    rig.settle(&[(tickets[0], Outcome::Confirmed)]);
    assert_eq!(rig.said(), [], "it is in its queue");
    rig.pass(50_000);
    assert_eq!(rig.said(), []);
    rig.publisher(true);
    assert_eq!(rig.methods(), CONSUME);
    rig.consume_ok();
    rig.deliver(5, "dlx-proxy/x", &died_in("work", "hi"));
    let ticket = rig.dead()[0].0;
    rig.settle(&[(ticket, Outcome::Confirmed)]);
    assert_eq!(rig.said(), [(MethodId::BASIC_ACK, Some((5, false, false)))]);
}

#[test]
fn of_a_delivery_that_has_not_come_whole_the_rest_is_awaited() {
    let mut rig = rig();
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    let deliver = method(2, MethodId::BASIC_DELIVER, |a| {
        a.shortstr(b"dlx-proxy")
            .longlong(2)
            .octet(0)
            .shortstr(b"dlx-proxy/x")
            .shortstr(b"k")
            .end();
    });
    let whole = content(deliver.clone(), 2, &died_in("work", "hi"));
    let (begun, rest) = whole.split_at(deliver.len());
    rig.broker(begun);
    rig.publisher(false);
    assert_eq!(rig.said(), [CANCEL, returned(1, true)]);
    rig.broker(rest);
    assert_eq!(rig.said(), [returned(2, false)]);
    assert_eq!(
        (rig.machine.held(), rig.machine.consumer.mover.octets),
        (0, 0)
    );
}

#[test]
fn a_link_that_comes_back_meanwhile_does_not_consume() {
    let mut rig = rig();
    rig.publisher(false);
    rig.cut();
    rig.up("4.3.6");
    rig.objects();
    assert_eq!(rig.methods(), []);
    rig.publisher(true);
    assert_eq!(rig.consuming(), 1000, "that was no crash");
}

#[test]
fn nor_does_one_that_was_told_before_it_was_up() {
    let mut rig = fresh();
    rig.publisher(false);
    rig.up("4.3.6");
    rig.objects();
    assert_eq!(rig.methods(), []);
    rig.publisher(true);
    assert_eq!(rig.consuming(), 1000);
}

#[test]
fn at_its_end_it_waits_for_nothing_then() {
    let mut rig = rig();
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    rig.drain();
    assert_eq!(rig.methods(), [(2, MethodId::BASIC_CANCEL)]);
    rig.publisher(false);
    assert_eq!(
        rig.methods(),
        [(2, MethodId::BASIC_NACK), (0, MethodId::CONNECTION_CLOSE)]
    );
}

#[test]
fn at_its_end_it_waits_for_outcomes_while_they_come() {
    let mut rig = rig();
    for tag in 1..=2 {
        rig.deliver(tag, "dlx-proxy/x", &died_in("work", "hi"));
    }
    let ticket = rig.dead()[0].0;
    rig.drain();
    rig.pass(4_000);
    rig.settle(&[(ticket, Outcome::Confirmed)]);
    assert_eq!(
        rig.said(),
        [CANCEL, (MethodId::BASIC_ACK, Some((1, false, false)))]
    );
    rig.pass(4_999);
    assert_eq!(rig.methods(), []);
    rig.pass(1);
    assert_eq!(
        rig.methods(),
        [(2, MethodId::BASIC_NACK), (0, MethodId::CONNECTION_CLOSE)]
    );
}

#[test]
fn a_signal_is_never_parked_because_nobody_publishes() {
    let mut rig = rig();
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    let ticket = rig.dead()[0].0;
    rig.settle(&[(ticket, Outcome::Refused(Cause::PublisherAway))]);
    assert_eq!(rig.said(), [returned(1, false)]);
}

#[test]
fn what_the_parking_queue_refuses_is_rejected_only_out_of_a_queue_that_keeps_it() {
    let mut rig = rig();
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    let ticket = rig.dead()[0].0;
    rig.settle(&[(ticket, Outcome::Refused(Cause::ParkingBusy))]);
    assert_eq!(rig.settlements(), [(MethodId::BASIC_REJECT, 1, false)]);

    let mut rig = rig_of(Settings {
        queue_type: QueueType::Classic,
        ..settings()
    });
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    let ticket = rig.dead()[0].0;
    rig.settle(&[(ticket, Outcome::Refused(Cause::ParkingBusy))]);
    rig.pass(9_999);
    assert_eq!(rig.said(), []);
    rig.pass(1);
    assert_eq!(rig.said(), [returned(1, false)]);
    assert_eq!(rig.machine.held(), 0);
}
