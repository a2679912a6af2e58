//! What is known of a queue is verified when it is old and somebody begins to read from it.

use std::time::Duration;

use super::probes::{declare_on, if_there, original};
use super::script::*;
use super::{inquiry, kept, order};
use crate::amqp::ids::ChannelId;
use crate::amqp::method::{MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::machine::{Event, Fallback, Leg, Machine};
use crate::registry::policy::Mode;

pub(super) const PROBE: ChannelId = ChannelId(65_535);

/// The broker is asked for `q` before the client may begin to read from it.
fn is_asked_for(mut s: Script, bits: u8) -> Script {
    let mut open = Vec::new();
    reply::channel_open(&mut open, PROBE);
    let question = declare_on(PROBE, "q", bits, &if_there(&original()));
    s.client(&get("q")).broker_gets(&[&open, &question]);
    s
}

/// The same; and it says that there is none any more: what the client reads after all is the broker's.
pub(super) fn has_gone(s: Script, bits: u8) {
    let mut s = is_asked_for(s, bits);
    let close_ok = method(PROBE, MethodId::CHANNEL_CLOSE_OK, |_| {});
    s.broker(&gone()).broker_gets(&[&close_ok]);
    s.resume().broker_gets(&[&get("q")]);
    s.broker(&got(1)).passes();
    s.client(&reject(1, false)).passes();
}

/// What was declared, as a form that makes no queue.
fn declare() -> Vec<u8> {
    declare_on(PROBE, "q", 0, &if_there(&original()))
}

fn declare_ok() -> Vec<u8> {
    method(PROBE, MethodId::QUEUE_DECLARE_OK, |a| {
        a.shortstr(b"q").long(0).long(0).end()
    })
}

pub(super) fn close(channel: ChannelId, code: u16) -> Vec<u8> {
    refused(channel, code, "")
}

pub(super) fn refused(channel: ChannelId, code: u16, text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    reply::close(&mut out, channel, code, text.as_bytes(), MethodId(0, 0));
    out
}

/// The broker says that there is no such queue.
fn gone() -> Vec<u8> {
    refused(PROBE, 404, "NOT_FOUND - no queue 'q' in vhost '/'")
}

/// It says that the queue has other arguments.
fn differs() -> Vec<u8> {
    let text = "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost '/': received 'dlx' but current is 'b'";
    refused(PROBE, 406, text)
}

/// `q` was managed a minute ago; the client gets from it, and is waiting for the answer of the probe.
fn asked() -> Script {
    let mut s = Script::open(settings(Mode::RejectsOnly)).managed("q", target("dlx"));
    s.wait(Duration::from_secs(60)).silent();
    let s = is_asked_for(s, 0);
    assert!(!s.session.wants_read(Leg::Client, 0));
    s
}

#[test]
fn a_queue_that_is_the_same_stays_managed() {
    let mut s = asked();
    s.broker(&declare_ok()).broker_gets(&[&close(PROBE, 200)]);
    s.resume().broker_gets(&[&get("q")]);
    s.broker(&got(1)).passes();
    s.client(&reject(1, false)).silent();
    assert_eq!(s.dead.len(), 1);
}

#[test]
fn a_queue_that_is_gone_or_another_is_not_managed_and_not_made() {
    let mut s = asked();
    let close_ok = method(PROBE, MethodId::CHANNEL_CLOSE_OK, |_| {});
    s.broker(&differs()).broker_gets(&[&close_ok]);
    // What is there now is asked for, in vain.
    let [open, question] = inquiry::asked();
    s.resume().broker_gets(&[&open, &question]);
    let refusal = refused(PROBE, 403, "ACCESS_REFUSED");
    s.broker(&refusal).broker_gets(&[&close_ok]);
    s.resume().broker_gets(&[&get("q")]);
    s.broker(&got(1)).passes();
    s.client(&reject(1, false)).passes();
    let stale = |event: &Event| {
        matches!(
            event,
            Event::DeclareLeft {
                cause: Fallback::Stale,
                ..
            }
        )
    };
    assert!(s.events.iter().any(stale));
}

/// No other queue has that name, and no client may declare it.
#[test]
fn a_queue_that_the_broker_named_is_known_by_its_name() {
    let mut s = Script::open(settings(Mode::RejectsOnly)).managed("amq.gen-1", target("dlx"));
    s.wait(Duration::from_secs(60)).silent();
    let mut open = Vec::new();
    reply::channel_open(&mut open, PROBE);
    let passive = declare_on(PROBE, "amq.gen-1", 1, b"");
    s.client(&get("amq.gen-1")).broker_gets(&[&open, &passive]);
    s.broker(&declare_ok()).broker_gets(&[&close(PROBE, 200)]);
    s.resume().broker_gets(&[&get("amq.gen-1")]);
    s.broker(&got(1)).passes();
    s.client(&reject(1, false)).silent();
    assert_eq!(s.dead.len(), 1);
}

// === made anew before its consumer began

/// `q` was managed and consumed from, and has delivered two messages.
fn consuming(mut s: Script) -> Script {
    s.doubts = true;
    let mut s = s.managed("q", target("dlx"));
    for tag in 1..=2 {
        s.broker(&deliver("q", tag, b"hi")).passes();
    }
    s
}

/// The first reject waits for the answer of a probe.
fn doubted() -> Script {
    let mut s = consuming(Script::open(settings(Mode::RejectsOnly)));
    let mut open = Vec::new();
    reply::channel_open(&mut open, PROBE);
    s.client(&reject(1, false))
        .broker_gets(&[&open, &declare()]);
    assert!(!s.session.wants_read(Leg::Client, 0));
    s
}

#[test]
fn a_queue_that_was_made_anew_before_its_consumer_began_is_not_managed() {
    let mut s = doubted();
    let close_ok = method(PROBE, MethodId::CHANNEL_CLOSE_OK, |_| {});
    s.broker(&differs()).broker_gets(&[&close_ok]);
    s.resume().broker_gets(&[&reject(1, false)]);
    assert_eq!(s.dead.len(), 0);
}

#[test]
fn a_queue_that_is_the_same_when_its_consumer_has_begun_is_so_while_it_goes_on() {
    let mut s = doubted();
    s.broker(&declare_ok()).broker_gets(&[&close(PROBE, 200)]);
    s.resume().silent();
    s.client(&reject(2, false)).silent();
    s.wait(Duration::from_secs(61)).silent();
    s.broker(&deliver("q", 3, b"hi")).passes();
    s.client(&reject(3, false)).silent();
    assert_eq!(s.dead.len(), 3);
}

#[test]
fn a_client_without_a_channel_for_it_is_believed() {
    let mut s = consuming(Script::narrow(settings(Mode::RejectsOnly), 1));
    s.client(&reject(1, false)).silent();
    s.resume().silent();
    assert_eq!(s.dead.len(), 1);
}

#[test]
fn an_exclusive_queue_is_nobody_else_s_to_make_anew() {
    const EXCLUSIVE: u8 = 4;
    let mut s = order::declared(EXCLUSIVE);
    s.doubts = true;
    let mut s = s.consume("q");
    s.broker(&deliver("q", 1, b"hi")).passes();
    s.client(&reject(1, false)).silent();
    assert_eq!(s.dead.len(), 1);
}

/// `q` delivered two messages; another session of this process sees a delete of `q`; the client rejects both.
fn ended_elsewhere() -> Script {
    let settings = settings(Mode::RejectsOnly);
    let mut s = Script::open(settings.clone()).managed("q", target("dlx"));
    for tag in 1..=2 {
        s.broker(&deliver("q", tag, b"hi")).passes();
    }
    let mut other = Script::open(settings);
    other
        .client(&method(CH, MethodId::QUEUE_DELETE, |a| {
            a.short(0).shortstr(b"q").octet(0).end()
        }))
        .passes();
    let mut open = Vec::new();
    reply::channel_open(&mut open, PROBE);
    s.client(&nack(2, true, false))
        .broker_gets(&[&open, &declare()]);
    assert!(!s.session.wants_read(Leg::Client, 0));
    s
}

#[test]
fn a_queue_that_ended_elsewhere_is_verified_before_anything_of_it_dies() {
    let mut s = ended_elsewhere();
    let close_ok = method(PROBE, MethodId::CHANNEL_CLOSE_OK, |_| {});
    s.broker(&gone()).broker_gets(&[&close_ok]);
    s.resume().broker_gets(&[&nack(2, true, false)]);
    assert_eq!(s.dead.len(), 0);

    let mut s = ended_elsewhere();
    s.broker(&declare_ok()).broker_gets(&[&close(PROBE, 200)]);
    s.resume().silent();
    assert_eq!(s.dead.len(), 2);
}

#[test]
fn an_answer_that_does_not_come_is_not_waited_for_for_ever() {
    let mut s = asked();
    s.wait(Duration::from_secs(5))
        .broker_gets(&[&close(PROBE, 200), &get("q")]);
    // It comes after all, and crosses our close, which is answered too.
    let close_ok = method(PROBE, MethodId::CHANNEL_CLOSE_OK, |_| {});
    s.broker(&gone()).broker_gets(&[&close_ok]);
    s.broker(&close_ok).silent();
}

#[test]
fn what_was_verified_is_believed_for_another_minute() {
    let mut s = asked();
    s.broker(&declare_ok()).broker_gets(&[&close(PROBE, 200)]);
    s.resume().broker_gets(&[&get("q")]);
    s.wait(Duration::from_secs(59)).silent();
    s.client(&get("q")).passes();
}

#[test]
fn a_user_with_a_limit_on_channels_is_not_probed_for_it() {
    let mut s = Script::open(settings(Mode::RejectsOnly));
    let text = "NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum allowed user limit of (1)";
    let mut limit = Vec::new();
    reply::close(
        &mut limit,
        ChannelId::CONNECTION,
        530,
        text.as_bytes(),
        MethodId(0, 0),
    );
    s.broker(&limit).passes();
    let mut s = s.another().managed("q", target("dlx"));
    s.wait(Duration::from_secs(60)).silent();
    s.client(&get("q")).passes();
    s.broker(&got(1)).passes();
    s.client(&reject(1, false)).passes();
}

// === what could not be asked

/// `orders` was managed a minute ago, its target named by a policy of ours alone; the client has rejected what it delivered, and the broker has been
/// asked.
fn asked_of_ours() -> Script {
    let mut s = kept::declared(settings(Mode::RejectsOnly));
    s.doubts = true;
    let mut s = s.consume("orders");
    s.broker(&deliver("orders", 1, b"hi")).passes();
    let mut open = Vec::new();
    reply::channel_open(&mut open, PROBE);
    let question = declare_on(PROBE, "orders", QueueDeclare::DURABLE, &if_there(&[]));
    s.client(&reject(1, false)).broker_gets(&[&open, &question]);
    s
}

/// The user may not declare the queue any more, for one.
#[test]
fn a_refusal_that_names_no_difference_ends_no_knowledge() {
    let close_ok = method(PROBE, MethodId::CHANNEL_CLOSE_OK, |_| {});
    let mut s = asked_of_ours();
    s.broker(&close(PROBE, 403)).broker_gets(&[&close_ok]);
    s.resume().silent();
    assert_eq!(s.dead.len(), 1);
    // Nobody saw its end.
    let mut s = doubted();
    s.broker(&close(PROBE, 403)).broker_gets(&[&close_ok]);
    s.resume().silent();
    assert_eq!(s.dead.len(), 1);
    // Somebody did, and what the broker does with a reject as it is, it does for the queue that it has now.
    let mut s = ended_elsewhere();
    s.broker(&close(PROBE, 403)).broker_gets(&[&close_ok]);
    s.resume().broker_gets(&[&nack(2, true, false)]);
    assert_eq!(s.dead.len(), 0);
}

#[test]
fn an_answer_that_does_not_come_ends_no_knowledge() {
    let mut s = asked_of_ours();
    s.wait(Duration::from_secs(5))
        .broker_gets(&[&close(PROBE, 200)]);
    s.resume().silent();
    assert_eq!(s.dead.len(), 1);
}

/// RabbitMQ 4.3 does so when a consumer is too slow, and the queue stays.
#[test]
fn after_a_cancel_of_the_broker_s_the_queue_is_asked_for_and_known_on() {
    let mut s = consuming(Script::open(settings(Mode::RejectsOnly)));
    let cancel = method(CH, MethodId::BASIC_CANCEL, |a| {
        a.shortstr(b"q").octet(1).end()
    });
    s.broker(&cancel).passes();
    // The broker has put it back.
    s.client(&reject(1, false)).passes();
    let mut s = is_asked_for(s, 0);
    s.broker(&declare_ok()).broker_gets(&[&close(PROBE, 200)]);
    s.resume().broker_gets(&[&get("q")]);
    s.broker(&got(3)).passes();
    s.client(&reject(3, false)).silent();
    assert_eq!(s.dead.len(), 1);
}

#[test]
fn a_queue_that_another_session_declared_is_known_to_who_reads_from_it() {
    let settings = settings(Mode::RejectsOnly);
    let _declares = Script::open(settings.clone()).managed("q", target("dlx"));
    let mut s = is_asked_for(Script::open(settings), 0);
    s.broker(&declare_ok()).broker_gets(&[&close(PROBE, 200)]);
    s.resume().broker_gets(&[&get("q")]);
    s.broker(&got(1)).passes();
    s.client(&reject(1, false)).silent();
    assert_eq!(s.dead.len(), 1);
}
