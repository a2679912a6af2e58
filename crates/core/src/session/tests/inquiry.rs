//! A queue that nobody declared through the proxy is asked for when somebody begins to read from it.

use std::time::Duration;

use super::names;
use super::probes::{declare_ok, declare_on, if_there, opened, original};
use super::script::*;
use super::verify::{PROBE, close, refused};
use crate::amqp::ids::name;
use crate::amqp::method::{MethodId, QueueDeclare};
use crate::amqp::table::TableBuilder;
use crate::machine::{Event, Fallback};
use crate::objects::QueueType;
use crate::registry::catalogue::fact::Source;
use crate::registry::policy::{Definition, Mode, Pattern, Policies, Policy};
use crate::registry::{Declared, Form};

fn text(name: &str, value: &str) -> Vec<u8> {
    let mut table = TableBuilder::default();
    table.longstr(name.as_bytes(), value.as_bytes());
    table.finish()
}

/// The question whether `q` has these arguments.
fn question(arguments: &[&[u8]]) -> Vec<u8> {
    let table = if_there(&arguments.concat());
    declare_on(PROBE, "q", QueueDeclare::DURABLE, &table)
}

/// The first question, and the channel for it.
pub(super) fn asked() -> [Vec<u8>; 2] {
    [opened(), question(&[&text("x-queue-type", "classic")])]
}

fn differs(argument: &str, values: &str) -> Vec<u8> {
    let text = format!(
        "PRECONDITION_FAILED - inequivalent arg '{argument}' for queue 'q' in vhost '/': received {values}"
    );
    refused(PROBE, 406, &text)
}

fn close_ok() -> Vec<u8> {
    method(PROBE, MethodId::CHANNEL_CLOSE_OK, |_| {})
}

fn fresh() -> Script {
    let mut s = Script::open(settings(Mode::Full));
    s.inquires = true;
    s
}

/// The client wants to get from `q`, which nobody knows.
fn asks(s: &mut Script) {
    s.client(&get("q")).broker_gets(&two(&asked()));
}

fn two(asked: &[Vec<u8>; 2]) -> [&[u8]; 2] {
    [&asked[0], &asked[1]]
}

/// The broker says that; the client goes on.
fn is_told(s: &mut Script, refusal: &[u8]) {
    s.broker(refusal).broker_gets(&[&close_ok()]);
    s.resume().broker_gets(&[&get("q")]);
}

/// The client has got from `q`, of which the broker said that.
fn told(refusal: &[u8]) -> Script {
    let mut s = fresh();
    asks(&mut s);
    is_told(&mut s, refusal);
    s
}

/// The user may not declare `q`.
fn forbidden() -> Vec<u8> {
    refused(PROBE, 403, "ACCESS_REFUSED - access to queue 'q' refused")
}

fn undeclared(s: &Script) -> usize {
    let told = |event: &&Event| {
        let cause = Fallback::Undeclared;
        matches!(event, Event::DeclareLeft { cause: of, .. } if *of == cause)
    };
    s.events.iter().filter(told).count()
}

/// In this order they are told, one with each refusal.
fn arguments() -> [Vec<u8>; 3] {
    let mut limit = TableBuilder::default();
    limit.long(b"x-delivery-limit", 5);
    let exchange = text("x-dead-letter-exchange", "dlx");
    [exchange, text("x-queue-type", "quorum"), limit.finish()]
}

/// The broker has told all.
fn known() -> Script {
    let mut s = fresh();
    asks(&mut s);
    let [exchange, quorum, limit] = &arguments();
    let classic = text("x-queue-type", "classic");
    for (argument, values, next) in [
        (
            "x-dead-letter-exchange",
            "none but current is the value 'dlx' of type 'longstr'",
            question(&[&classic, exchange]),
        ),
        (
            "x-queue-type",
            "'classic' but current is 'quorum'",
            question(&[exchange, quorum]),
        ),
        (
            "x-delivery-limit",
            "none but current is the value '5' of type 'signedint'",
            question(&[exchange, quorum, limit]),
        ),
    ] {
        s.broker(&differs(argument, values))
            .broker_gets(&[&close_ok(), &opened(), &next]);
    }
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&close(PROBE, 200)]);
    s.resume().broker_gets(&[&get("q")]);
    s
}

#[test]
fn refusals_tell_what_it_is_and_its_rejects_are_ours() {
    let mut s = known();
    s.broker(&got(1)).passes();
    s.client(&reject(1, false)).silent();
    let (_, letter) = &s.dead[0];
    assert_eq!(letter.exchange, name("dlx"));
    assert_eq!(undeclared(&s), 0);
}

/// The reply to a passive declare tells nothing of the queue.
#[test]
fn a_passive_declare_in_the_same_breath_takes_no_question_away() {
    let mut s = fresh();
    s.client(&declare_on(CH, "q", QueueDeclare::PASSIVE, b""))
        .passes();
    asks(&mut s);
}

#[test]
fn what_is_known_is_asked_for_by_nobody_else() {
    let s = known();
    let mut other = s.another();
    other.inquires = true;
    // As of any queue that another session knows: it is verified, in the form that fits.
    let [exchange, quorum, limit] = &arguments();
    let fits = question(&[exchange, quorum, limit]);
    other.client(&get("q")).broker_gets(&[&opened(), &fits]);
    other
        .broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&close(PROBE, 200)]);
    other.resume().broker_gets(&[&get("q")]);
    other.broker(&got(1)).passes();
    other.client(&reject(1, false)).silent();
    assert_eq!(other.dead.len(), 1);
}

#[test]
fn a_queue_of_no_interest_is_asked_for_once() {
    let mut s = fresh();
    asks(&mut s);
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&close(PROBE, 200)]);
    s.resume().broker_gets(&[&get("q")]);
    s.broker(&got(1)).passes();
    s.client(&reject(1, false)).passes();
    s.wait(Duration::from_secs(3600)).silent();
    s.client(&get("q")).passes();
    assert_eq!(undeclared(&s), 0);
}

#[test]
fn who_may_not_ask_is_told_once_that_its_rejects_are_the_brokers() {
    let mut s = told(&forbidden());
    s.broker(&got(1)).passes();
    s.client(&reject(1, false)).passes();
    s.client(&get("q")).passes();
    assert_eq!(undeclared(&s), 1);
    // Who is given the right is asked for a minute later.
    let mut other = s.another();
    other.inquires = true;
    other.client(&get("q")).passes();
    other.wait(Duration::from_secs(60)).silent();
    asks(&mut other);
    is_told(&mut other, &forbidden());
    assert_eq!(undeclared(&other), 0, "said before");
}

#[test]
fn what_somebody_learns_later_counts_for_who_reads_already() {
    let mut s = told(&forbidden());
    s.broker(&got(1)).passes();
    s.client(&reject(1, false)).passes();
    s.consumes("q");
    let form = Form::of(0, &original());
    let declared = Declared::of_queue(form, QueueType::Classic, &names());
    let registry = &s.session.registry;
    registry.learn(&name("q"), declared, Source::Declare, s.now.mono);
    s.broker(&deliver("q", 2, b"hi")).passes();
    // It may have been made anew meanwhile.
    let fits = declare_on(PROBE, "q", 0, &if_there(&original()));
    s.client(&reject(2, false)).broker_gets(&[&opened(), &fits]);
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&close(PROBE, 200)]);
    s.resume().silent();
    assert_eq!(s.dead.len(), 1);
}

/// What is read while somebody else asks must not be read as if there were no answer.
#[test]
fn who_begins_to_read_while_another_session_asks_waits_for_an_answer_too() {
    let mut s = fresh();
    asks(&mut s);
    let mut other = s.another();
    other.inquires = true;
    asks(&mut other);
    is_told(&mut s, &forbidden());
    is_told(&mut other, &forbidden());
    assert_eq!((undeclared(&s), undeclared(&other)), (1, 0), "said once");
}

fn a_policy_names_a_target(s: &Script) {
    s.policies.set_ours(Policies::new(vec![Policy {
        pattern: Pattern::new("^q$").expect("a good pattern"),
        definition: Definition {
            dead_letter_exchange: Some(name("dlx")),
            ..Definition::default()
        },
        ..Policy::default()
    }]));
}

/// It asks nobody then, and has to do as the first one.
#[test]
fn where_a_policy_of_ours_names_a_target_that_counts_for_the_next_session_too() {
    let mut s = fresh();
    a_policy_names_a_target(&s);
    asks(&mut s);
    is_told(&mut s, &forbidden());
    let mut other = s.another();
    other.inquires = true;
    other.client(&get("q")).passes();
    other.broker(&got(1)).passes();
    other.client(&reject(1, false)).silent();
    assert_eq!(other.dead[0].1.exchange, name("dlx"));
    // When that policy is gone, nobody knows any more.
    other.policies.set_ours(Policies::default());
    let mut third = other.another();
    third.inquires = true;
    third.client(&get("q")).passes();
    assert_eq!((undeclared(&s), undeclared(&third)), (0, 1));
}

#[test]
fn a_policy_of_ours_that_comes_later_counts_for_who_reads_already() {
    let mut s = told(&forbidden());
    s.broker(&got(1)).passes();
    s.client(&reject(1, false)).passes();
    s.consumes("q");
    a_policy_names_a_target(&s);
    s.broker(&deliver("q", 2, b"hi")).passes();
    s.client(&reject(2, false)).silent();
    assert_eq!(s.dead[0].1.exchange, name("dlx"));
}

/// The broker might discard it, as it does not know that policy.
#[test]
fn where_a_policy_of_ours_names_a_target_that_counts_for_an_unknown_queue() {
    let mut s = fresh();
    a_policy_names_a_target(&s);
    asks(&mut s);
    is_told(&mut s, &forbidden());
    s.broker(&got(1)).passes();
    s.client(&reject(1, false)).silent();
    assert_eq!(s.dead[0].1.exchange, name("dlx"));
    assert_eq!(undeclared(&s), 0);
}

#[test]
fn words_that_do_not_tell_leave_it_unknown() {
    let cut = differs("x-dead-letter-exchange", "none but current is the va");
    let table = differs(
        "x-odd",
        "none but current is the value '[]' of type 'table'",
    );
    for refusal in [cut, table] {
        let s = told(&refusal);
        assert_eq!(undeclared(&s), 1);
    }
}

#[test]
fn nobody_waits_for_longer_than_for_any_probe() {
    let mut s = fresh();
    asks(&mut s);
    let timeout = s.session.settings.limits.now().probe_timeout;
    s.wait(timeout)
        .broker_gets(&[&close(PROBE, 200), &get("q")]);
    assert_eq!(undeclared(&s), 1);
}

/// The client hears that in the broker's words.
#[test]
fn of_a_queue_that_is_not_there_nothing_is_said() {
    let absent = "PRECONDITION_FAILED - invalid arg 'x-max-age' for queue 'q' in vhost '/' of queue type rabbit_classic_queue";
    let locked = "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q'";
    for refusal in [refused(PROBE, 406, absent), refused(PROBE, 405, locked)] {
        let s = told(&refusal);
        assert_eq!(undeclared(&s), 0);
    }
}

#[test]
fn a_stream_has_no_dead_letters_and_is_asked_for_once() {
    let by_type = differs("x-queue-type", "'classic' but current is 'stream'");
    let by_age = differs(
        "x-max-age",
        "the value 'never' of type 'longstr' but current is none",
    );
    for refusal in [by_type, by_age] {
        let mut s = told(&refusal);
        s.wait(Duration::from_secs(3600)).silent();
        s.client(&get("q")).passes();
        assert_eq!(undeclared(&s), 0);
    }
}

#[test]
fn what_wants_no_settling_is_not_asked_for() {
    let mut s = fresh();
    s.client(&method(CH, MethodId::BASIC_GET, |a| {
        a.short(0).shortstr(b"q").octet(1).end();
    }))
    .passes();
}
