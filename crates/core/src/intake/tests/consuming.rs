//! Signals and their settlement.

use super::*;
use crate::amqp::ids::name;

/// It says where signals go.
#[test]
fn no_signal_is_taken_before_the_record_of_redeclared_queues_counts() {
    let settings = Settings {
        recorded: true,
        ..settings()
    };
    let mut rig = Rig::new(Intake::new(settings, Now::default()));
    rig.up("4.3.6");
    rig.objects();
    assert_eq!(rig.methods(), []);
    rig.input(Input::Record(true));
    rig.consuming();
    // The record is being read again: what is consumed goes on.
    rig.input(Input::Record(false));
    rig.cut();
    rig.up("4.3.6");
    rig.objects();
    assert_eq!(rig.methods(), []);
    rig.input(Input::Record(true));
    rig.consuming();
}

#[test]
fn a_signal_becomes_a_dead_letter_and_is_acked_after_it() {
    let mut rig = rig();
    rig.deliver(1, "dlx-proxy/target/key", &died_in("work", "hi"));
    let dead = rig.dead();
    let [(ticket, publication)] = &dead[..] else {
        panic!("one dead letter");
    };
    assert_eq!(publication.exchange, name("target"));
    assert_eq!(publication.routing_key, name("key"));
    assert_eq!(publication.queue, name("work"));
    assert_eq!(publication.reason, Reason::Expired);
    assert_eq!(&publication.content.body[..], b"hi");
    assert_eq!(rig.settlements(), []);
    rig.settle(&[(*ticket, Outcome::Confirmed)]);
    assert_eq!(rig.settlements(), [(MethodId::BASIC_ACK, 1, false)]);
    assert_eq!(rig.machine.held(), 0);
    assert_eq!(rig.machine.consumer.mover.octets, 0);
}

#[test]
fn a_signal_that_came_over_a_bridge_tells_the_exchange_behind_it() {
    let mut rig = rig();
    let died = died_from("work", "expired", "dlx-proxy.bridge/int-x");
    rig.deliver(1, "dlx-proxy/target", &with_headers(died, "hi"));
    let properties = &rig.dead()[0].1.content.properties;
    let told = |text: &[u8]| memchr::memmem::find(properties, text).is_some();
    assert!(told(b"S\0\0\0\x05int-x") && !told(b"bridge"));
}

#[test]
fn a_plain_name_asks_the_policies() {
    let mut rig = rig();
    rig.deliver(1, "dlx-proxy", &died_in("jobs-1", "hi"));
    rig.deliver(2, "dlx-proxy", &died_in("other", "hi"));
    let dead = rig.dead();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].1.exchange, name("policy-x"));
    assert_eq!(rig.settlements(), [(MethodId::BASIC_REJECT, 2, false)]);
}

#[test]
fn a_cycle_is_dropped_but_parked_from_at_least_once() {
    let mut rig = rig();
    // Expired in `work`, and to go into `work` again.
    rig.deliver(1, "dlx-proxy//work", &died_in("work", "hi"));
    assert_eq!(rig.settlements(), [(MethodId::BASIC_ACK, 1, false)]);
    rig.deliver(2, "dlx-proxy++//work", &died_in("work", "hi"));
    assert_eq!(rig.settlements(), []);
    let dead = rig.dead();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].1.purpose, Purpose::Park(Cause::Cycle));
    assert_eq!(dead[0].1.exchange, name(""));
    let outcomes: Vec<_> = rig
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::DeadLetter(dead) => Some(dead.outcome),
            _ => None,
        })
        .collect();
    assert_eq!(outcomes, [Outcome::Dropped(Cause::Cycle)]);
}

#[test]
fn acks_are_multiple_where_no_hole_is_below() {
    let mut rig = rig();
    for tag in 1..=8 {
        rig.deliver(tag, "dlx-proxy/x", &died_in("work", "hi"));
    }
    let tickets: Vec<Ticket> = rig.dead().into_iter().map(|(ticket, _)| ticket).collect();
    let outcome = |tags: &[usize], outcome| -> Vec<_> {
        tags.iter().map(|tag| (tickets[tag - 1], outcome)).collect()
    };
    rig.settle(&outcome(&[2, 1, 5, 4], Outcome::Confirmed));
    let ack = MethodId::BASIC_ACK;
    assert_eq!(
        rig.settlements(),
        [(ack, 2, true), (ack, 4, false), (ack, 5, false)]
    );
    // Told twice, it is settled once.
    rig.settle(&outcome(&[1, 4], Outcome::Confirmed));
    assert_eq!(rig.settlements(), []);
    rig.settle(&outcome(&[3], Outcome::Parked(Cause::Nacked)));
    assert_eq!(rig.settlements(), [(ack, 3, false)]);
    let mut rest = outcome(&[6], Outcome::Refused(Cause::TooBig));
    rest.extend(outcome(&[8, 7], Outcome::Dropped(Cause::Unroutable)));
    rig.settle(&rest);
    assert_eq!(
        rig.settlements(),
        [(MethodId::BASIC_REJECT, 6, false), (ack, 8, true)]
    );
    assert_eq!(rig.machine.held(), 0);
}

#[test]
fn tickets_of_an_older_life_mean_nothing() {
    let mut rig = rig();
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    let old = rig.dead()[0].0;
    rig.cut();
    assert!(rig.hands_over());
    rig.answered();
    rig.up("4.3.6");
    rig.objects();
    rig.consuming();
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    let new = rig.dead()[0].0;
    rig.settle(&[(old, Outcome::Confirmed)]);
    assert_eq!(rig.settlements(), []);
    rig.settle(&[(new, Outcome::Confirmed)]);
    assert_eq!(rig.settlements(), [(MethodId::BASIC_ACK, 1, false)]);
}

#[test]
fn after_a_life_without_progress_only_the_head_is_asked_for() {
    let mut rig = rig();
    rig.cut();
    rig.up("4.3.6");
    rig.objects();
    assert_eq!(rig.consuming(), 1);
    for tag in 1..=1000 {
        rig.deliver(tag, "dlx-proxy/x", &died_in("work", "hi"));
        let ticket = rig.dead()[0].0;
        assert!(!rig.methods().contains(&CONSUME[0]));
        rig.settle(&[(ticket, Outcome::Confirmed)]);
    }
    let methods = rig.methods();
    assert_eq!(methods[1], (2, MethodId::BASIC_CANCEL));
    assert_eq!(methods[2..], CONSUME);
    // That life had progress.
    rig.cut();
    rig.up("4.3.6");
    rig.objects();
    assert_eq!(rig.consuming(), 1000);
}

#[test]
fn after_a_delivery_that_the_broker_cannot_make_too() {
    let mut rig = rig();
    let mut waited = std::time::Duration::ZERO;
    for life in 0..21 {
        rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
        let ticket = rig.dead()[0].0;
        rig.settle(&[(ticket, Outcome::Confirmed)]);
        rig.broker(&close(0, 541, "INTERNAL_ERROR", MethodId(0, 0)));
        let Flow::Reconnect(at) = rig.machine.flow() else {
            panic!("life {life} goes on");
        };
        waited += rig.now.mono.until(at);
        rig.sent();
        rig.up("4.3.6");
        rig.objects();
        assert_eq!(rig.consuming(), 1);
    }
    // All other dead letters of the vhost wait for that.
    assert!(waited < std::time::Duration::from_secs(5), "{waited:?}");
}

#[test]
fn a_foreign_user_id_is_hidden_once_the_broker_refused_one() {
    let mut rig = rig();
    let mut content = died_in("work", "hi");
    let mut properties = content.properties.to_vec();
    properties[1] |= 0x10;
    properties.extend_from_slice(b"\x03bob");
    content.properties = properties.into();

    rig.deliver(1, "dlx-proxy/x", &content);
    let dead = rig.dead();
    assert!(publisher::is_foreign(&dead[0].1, &name("proxy")));
    rig.settle(&[(dead[0].0, Outcome::Refused(Cause::UserId))]);
    assert_eq!(rig.settlements(), []);
    let again = rig.dead();
    assert_eq!(again[0].0, dead[0].0);
    assert!(!publisher::is_foreign(&again[0].1, &name("proxy")));
    rig.settle(&[(again[0].0, Outcome::Confirmed)]);
    assert_eq!(rig.settlements(), [(MethodId::BASIC_ACK, 1, false)]);
    // From now on at once.
    rig.deliver(2, "dlx-proxy/x", &content);
    assert!(!publisher::is_foreign(&rig.dead()[0].1, &name("proxy")));
}

#[test]
fn a_signal_that_is_too_large_is_parked() {
    let mut rig = rig();
    let deliver = method(2, MethodId::BASIC_DELIVER, |a| {
        a.shortstr(b"dlx-proxy")
            .longlong(1)
            .octet(0)
            .shortstr(b"dlx-proxy/x")
            .shortstr(b"k")
            .end();
    });
    rig.broker(&deliver);
    let mut header = Vec::new();
    crate::amqp::frame::put(&mut header, 2, ChannelId(2), |out| {
        out.extend_from_slice(&[0, 60, 0, 0]);
        out.extend_from_slice(&(200u64 << 20).to_be_bytes());
        out.extend_from_slice(&[0, 0]);
    });
    rig.broker(&header);
    let mut body = Vec::new();
    crate::amqp::frame::put(&mut body, 3, ChannelId(2), |out| {
        out.resize(out.len() + (1 << 20), 0);
    });
    for _ in 0..200 {
        assert_eq!(rig.settlements(), []);
        rig.broker(&body);
    }
    assert_eq!(rig.settlements(), [(MethodId::BASIC_REJECT, 1, false)]);
    rig.deliver(2, "dlx-proxy/x", &died_in("work", "hi"));
    assert_eq!(rig.dead().len(), 1);
}

#[test]
fn stops_reading_at_its_byte_bound_and_is_not_thought_dead() {
    let mut rig = rig();
    let body = "x".repeat(33 << 20);
    for tag in 1..=2 {
        assert!(rig.machine.wants_read(Leg::Broker, 0));
        rig.deliver(tag, "dlx-proxy/x", &died_in("work", &body));
    }
    assert!(!rig.machine.wants_read(Leg::Broker, 0));
    let more = crate::amqp::frame::HEARTBEAT;
    let taken = rig.machine.read(Leg::Broker, &more, rig.now, &mut rig.fx);
    assert_eq!(taken, 0, "the rest is offered again");
    rig.pass(600_000);
    assert_eq!(rig.machine.flow(), Flow::Open);
    let ticket = rig.dead()[0].0;
    rig.settle(&[(ticket, Outcome::Confirmed)]);
    assert!(rig.machine.wants_read(Leg::Broker, 0));
}

#[test]
fn a_cancelled_consumer_still_settles_what_it_holds() {
    let mut rig = rig();
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    let ticket = rig.dead()[0].0;
    rig.cancel();
    rig.settle(&[(ticket, Outcome::Confirmed)]);
    assert_eq!(rig.settlements(), [(MethodId::BASIC_ACK, 1, false)]);
}

#[test]
fn drains_before_it_leaves() {
    let mut rig = rig();
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    let ticket = rig.dead()[0].0;
    rig.drain();
    assert_eq!(rig.methods(), [(2, MethodId::BASIC_CANCEL)]);
    rig.ensure(1, "dlx-proxy/a");
    assert_eq!(rig.ensured(), [(1, "dlx-proxy/a".into(), false)]);
    rig.settle(&[(ticket, Outcome::Confirmed)]);
    assert_eq!(
        rig.methods(),
        [(2, MethodId::BASIC_ACK), (0, MethodId::CONNECTION_CLOSE)]
    );
    rig.broker(&method(0, MethodId::CONNECTION_CLOSE_OK, |_| {}));
    assert_eq!(rig.machine.flow(), Flow::Finish);
}
