//! Queues whose dead-letter exchange only a policy of ours names: the broker would discard what it was told to reject, so it never is.

use std::time::Duration;

use super::probes::declare_on;
use super::script::*;
use super::verify::{PROBE, close};
use crate::amqp::frame;
use crate::amqp::ids::{ChannelId, name};
use crate::amqp::method::{MethodId, QueueDeclare};
use crate::amqp::properties::Properties;
use crate::amqp::reply;
use crate::machine::*;
use crate::registry::arguments::if_there;
use crate::registry::broker_policy::{BrokerPolicies, BrokerPolicy};
use crate::registry::policy::{Definition, Mode, Pattern, Policies, Policy};
use crate::session::Settings;

pub(super) const AWAY: Outcome = Outcome::Refused(Cause::PublisherAway);
pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) fn policies() -> Policies {
    Policies::new(vec![Policy {
        pattern: Pattern::new("^orders$").expect("a good pattern"),
        definition: Definition {
            dead_letter_exchange: Some(name("dlx")),
            ..Definition::default()
        },
        ..Policy::default()
    }])
}

/// The queue `orders`, declared without any dead-letter exchange, and a consumer of the same name.
pub(super) fn open(settings: Settings) -> Script {
    let mut script = declared(settings).consume("orders");
    script.events.clear();
    script
}

/// The queue `orders`, declared without any dead-letter exchange.
pub(super) fn declared(settings: Settings) -> Script {
    settings.policies.set_ours(policies());
    let mut script = Script::open(settings);
    script.client(&declare()).passes();
    script.broker(&declare_ok()).passes();
    script
}

pub(super) fn declare() -> Vec<u8> {
    let bits = QueueDeclare::DURABLE;
    let declare = QueueDeclare {
        ticket: 0,
        queue: b"orders",
        bits,
        arguments: &[],
    };
    let mut frame = Vec::new();
    reply::queue_declare(&mut frame, CH, &declare, bits, &[]);
    frame
}

pub(super) fn declare_ok() -> Vec<u8> {
    method(CH, MethodId::QUEUE_DECLARE_OK, |a| {
        a.shortstr(b"orders").long(0).long(0).end();
    })
}

/// The same, with deliveries 1 to `n`.
pub(super) fn with(n: u64) -> Script {
    let mut script = open(settings(Mode::RejectsOnly));
    for tag in 1..=n {
        script.broker(&deliver("orders", tag, b"hi")).passes();
    }
    script
}

/// Deliveries 1 to `n`, none of which fits the budget.
pub(super) fn large(n: u64) -> Script {
    let mut script = open(limited(Mode::RejectsOnly, |limits| {
        limits.retained_bytes_per_connection = 450;
    }));
    for tag in 1..=n {
        script.broker(&deliver("orders", tag, b"hi")).passes();
    }
    script.events.clear();
    script
}

/// The same, where the last delivery was rejected and its dead letter refused.
pub(super) fn refused(n: u64) -> Script {
    let mut script = with(n);
    script.client(&reject(n, false)).silent();
    let ticket = script.ticket();
    script.settled(&[(ticket, AWAY)]).silent();
    script
}

pub(super) fn kept(cause: Fallback) -> Event {
    let queue = name("orders");
    let returned = false;
    Event::Kept {
        queue,
        returned,
        cause,
    }
}

pub(super) fn returned() -> Event {
    let queue = name("orders");
    Event::KeptReturned { queue }
}

#[test]
fn what_is_refused_is_published_again_after_growing_pauses() {
    let mut s = refused(1);
    let away = Fallback::Refused(Cause::PublisherAway);
    assert_eq!(s.events, [kept(away)]);
    assert_eq!((s.session.withheld(), s.session.retained()), (1, 457));
    for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
        s.wait(Duration::from_secs(pause) - Duration::from_millis(1))
            .silent();
        assert_eq!(s.dead, [], "too early");
        s.wait(Duration::from_millis(1)).silent();
        let ticket = s.ticket();
        s.settled(&[(ticket, AWAY)]).silent();
    }
    s.wait(60 * SECOND).silent();
    let ticket = s.ticket();
    s.settled(&[(ticket, Outcome::Confirmed)])
        .broker_gets(&[&ack(1, false)]);
    assert_eq!((s.session.withheld(), s.session.retained()), (0, 0));
    assert_eq!(s.events.len(), 1, "said once: {:?}", s.events);
    s.wait(Duration::ZERO).silent();
    assert_eq!(s.session.deadline(), None);
}

#[test]
fn where_nobody_could_be_asked_whether_it_is_the_same_queue_the_broker_hears_of_no_reject() {
    let mut s = declared(settings(Mode::RejectsOnly));
    s.doubts = true;
    let mut s = s.consume("orders");
    s.broker(&deliver("orders", 1, b"hi")).passes();
    let mut open = Vec::new();
    reply::channel_open(&mut open, PROBE);
    let question = declare_on(PROBE, "orders", QueueDeclare::DURABLE, &if_there(&[]));
    s.client(&reject(1, false)).broker_gets(&[&open, &question]);
    s.wait(Duration::from_secs(5))
        .broker_gets(&[&close(PROBE, 200)]);
    assert_eq!(s.dead.len(), 1);
}

#[test]
fn what_was_declared_on_a_channel_that_its_client_closes_meanwhile_is_known() {
    let settings = settings(Mode::RejectsOnly);
    settings.policies.set_ours(policies());
    let mut s = Script::open(settings);
    s.client(&[declare(), channel_close()].concat()).passes();
    s.broker(&declare_ok()).passes();
    s.broker(&method(CH, MethodId::CHANNEL_CLOSE_OK, |_| {}))
        .passes();
    s.open_channel();
    let mut s = s.consume("orders");
    s.broker(&deliver("orders", 1, b"hi")).passes();
    s.client(&reject(1, false)).silent();
    assert_eq!(s.dead.len(), 1);
}

#[test]
fn when_one_is_published_the_others_need_not_wait() {
    let mut s = with(6);
    s.client(&nack(4, true, false)).silent();
    let refused: Vec<_> = s.dead.drain(..).map(|(ticket, _)| (ticket, AWAY)).collect();
    s.settled(&refused).silent();
    s.client(&nack(6, true, false)).silent();
    let refused: Vec<_> = s.dead.drain(..).map(|(ticket, _)| (ticket, AWAY)).collect();
    s.settled(&refused).silent();
    s.wait(SECOND).silent();
    // As many as there are tickets.
    let published: Vec<_> = s
        .dead
        .drain(..)
        .map(|(ticket, _)| (ticket, CONFIRMED))
        .collect();
    assert_eq!(published.len(), 4);
    s.settled(&published).broker_gets(&[&ack(4, true)]);
    s.wait(Duration::ZERO).silent();
    assert_eq!(s.dead.len(), 2);
}

pub(super) const CONFIRMED: Outcome = Outcome::Confirmed;

#[test]
fn a_multiple_spares_what_is_kept() {
    let mut s = with(12);
    s.client(&reject(2, false)).silent();
    let ticket = s.ticket();
    s.settled(&[(ticket, AWAY)]).silent();
    s.client(&ack(4, true))
        .broker_gets(&[&ack(1, false), &ack(3, false), &ack(4, false)]);
    // More pieces than anybody waits for.
    let singles: Vec<_> = (5..=12).map(|tag| ack(tag, false)).collect();
    let singles: Vec<&[u8]> = singles.iter().map(Vec::as_slice).collect();
    s.client(&ack(0, true)).broker_gets(&singles);
    s.broker(&deliver("orders", 13, b"hi")).passes();
    s.client(&nack(13, true, true))
        .broker_gets(&[&nack(13, false, true)]);
}

#[test]
fn nothing_waits_for_what_is_kept() {
    let mut s = refused(3);
    s.client(&cancel("orders", 0)).passes();
    s.client(&reject(77, false)).passes(); // 406
}

#[test]
fn close_wait_passes_and_the_reject_stays() {
    let mut s = with(1);
    s.client(&reject(1, false)).silent();
    let ticket = s.ticket();
    s.client(&cancel("orders", 0)).silent();
    s.wait(4 * SECOND).silent();
    s.wait(SECOND).broker_gets(&[&cancel("orders", 0)]);
    let met = Event::LimitMet(Limit::CloseWait);
    assert_eq!(s.events, [met, kept(Fallback::CloseWait)]);
    assert_eq!((s.session.withheld(), s.dead.len()), (1, 0));
    s.settled(&[(ticket, CONFIRMED)])
        .broker_gets(&[&ack(1, false)]);
}

#[test]
fn a_channel_closes_over_it() {
    for after in [false, true] {
        let mut s = with(1);
        s.client(&reject(1, false)).silent();
        let ticket = s.ticket();
        if after {
            s.settled(&[(ticket, AWAY)]).silent();
            s.client(&channel_close()).passes();
        } else {
            s.client(&channel_close()).silent();
            s.wait(5 * SECOND).broker_gets(&[&channel_close()]);
        }
        assert_eq!((s.session.withheld(), s.session.retained()), (0, 0));
        s.settled(&[(ticket, CONFIRMED)]).silent();
        s.wait(100 * SECOND).silent();
        assert_eq!(s.dead, []);
    }
}

fn connection_close() -> Vec<u8> {
    method(ChannelId::CONNECTION, MethodId::CONNECTION_CLOSE, |a| {
        a.short(200).shortstr(b"").short(0).short(0).end();
    })
}

#[test]
fn so_does_a_connection() {
    let mut s = with(1);
    s.client(&reject(1, false)).silent();
    s.client(&connection_close()).silent();
    s.wait(5 * SECOND).broker_gets(&[&connection_close()]);
    assert_eq!((s.session.withheld(), s.session.retained()), (0, 0));
    refused(1).client(&connection_close()).passes();
}

#[test]
fn a_client_that_vanishes_takes_nothing_with_it() {
    let mut s = with(1);
    s.client(&reject(1, false)).silent();
    s.gone(Leg::Client).broker_gets(&[&cancel("orders", 1)]);
    s.wait(5 * SECOND).broker_gets(&[&connection_close()]);
    let mut s = refused(1);
    s.gone(Leg::Client).silent();
    assert_eq!(s.session.flow(), Flow::HalfClosed);
}

#[test]
fn nor_does_the_end_of_the_process() {
    let forced = method(ChannelId::CONNECTION, MethodId::CONNECTION_CLOSE, |a| {
        let text = b"CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'";
        a.short(320).shortstr(text).short(0).short(0).end();
    });
    let mut s = with(1);
    s.client(&reject(1, false)).silent();
    let ticket = s.ticket();
    s.drain()
        .broker_and_client(&[&cancel("orders", 1)], &[&forced]);
    s.settled(&[(ticket, AWAY)])
        .broker_gets(&[&connection_close()]);
}

#[test]
fn what_is_kept_for_long_is_returned_before_the_channel_is_closed_for_it() {
    let mut s = refused(1);
    let mut waited = Duration::ZERO;
    while waited < 15 * 60 * SECOND {
        s.wait(SECOND).silent();
        waited += SECOND;
        if let Some((ticket, _)) = s.dead.pop() {
            s.settled(&[(ticket, AWAY)]).silent();
        }
    }
    s.wait(60 * SECOND).broker_gets(&[&nack(1, false, true)]);
    assert_eq!((s.session.withheld(), s.session.retained()), (0, 0));
}

#[test]
fn a_foreign_user_id_is_hidden_the_next_time() {
    let mut s = with(0);
    let mut delivery = deliver("orders", 1, b"");
    delivery.truncate(delivery.len() - header(0).len());
    frame::put(&mut delivery, 2, CH, |out| {
        out.extend_from_slice(&[0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(&[0, 0x10, 3, b'a', b'p', b'p']);
    });
    s.broker(&delivery).passes();
    s.client(&reject(1, false)).silent();
    let ticket = s.ticket();
    s.settled(&[(ticket, Outcome::Refused(Cause::UserId))])
        .silent();
    s.wait(SECOND).silent();
    let (_, publication) = s.dead.remove(0);
    let properties = Properties::parse(&publication.content.properties).expect("properties");
    let user = crate::amqp::properties::Property::UserId;
    assert_eq!(properties.get(user), Some(&b"dlx-proxy"[..]), "our own");
}

#[test]
fn a_key_that_only_the_broker_knows_leaves_nothing_to_it() {
    let mut s = with(1);
    let told = BrokerPolicy {
        vhost: "/",
        pattern: "(?=orders)",
        apply_to: "queues",
        routing_key: Some("late"),
        ..BrokerPolicy::default()
    };
    s.policies.set_brokers(BrokerPolicies::new([told]).0);
    s.client(&reject(1, false)).silent();
    assert_eq!(s.events, [kept(Fallback::TargetUnknown)]);
    s.policies.set_brokers(BrokerPolicies::default());
    s.wait(SECOND).silent();
    s.ticket();
}

#[test]
fn a_policy_that_goes_takes_its_dead_letters_with_it() {
    let mut s = refused(2);
    s.policies.set_ours(Policies::default());
    s.client(&reject(1, false)).passes();
    s.wait(SECOND).broker_gets(&[&reject(2, false)]);
    assert_eq!((s.session.withheld(), s.session.retained()), (0, 0));
}

#[test]
fn where_a_policy_of_the_broker_s_names_an_exchange_the_broker_does_it() {
    let told = |keys| BrokerPolicy {
        vhost: "/",
        pattern: "orders",
        apply_to: "queues",
        keys,
        ..BrokerPolicy::default()
    };
    for (keys, knows) in [
        (vec!["dead-letter-exchange"], true),
        (vec!["expires"], false),
    ] {
        let mut s = large(1);
        s.policies.set_brokers(BrokerPolicies::new([told(keys)]).0);
        match knows {
            true => s.client(&reject(1, false)).passes(),
            false => s.client(&reject(1, false)).silent(),
        }
    }
}

#[test]
fn basic_recover_returns_all() {
    let recover = |id| method(CH, id, |a| a.octet(1).end());
    let ok = method(CH, MethodId::BASIC_RECOVER_OK, |_| {});
    for asks in [true, false] {
        let mut s = refused(2);
        let asked = recover(MethodId::BASIC_RECOVER);
        if asks {
            s.client(&asked).passes();
            s.broker(&ok).passes();
        } else {
            // The same without a reply: we ask for one, and go on knowing what is outstanding.
            s.client(&recover(MethodId::BASIC_RECOVER_ASYNC))
                .broker_gets(&[&asked]);
            s.broker(&ok).silent();
        }
        assert_eq!((s.session.withheld(), s.session.retained()), (0, 0));
        s.broker(&deliver("orders", 3, b"hi")).passes();
        s.client(&reject(3, false)).silent();
        s.ticket();
    }
}

#[test]
fn answers_that_do_not_come_leave_nothing_to_the_broker() {
    let mut s = with(2);
    s.client(&get("other")).passes(); // may fail
    s.client(&reject(1, false)).silent();
    s.wait(5 * SECOND).silent();
    assert_eq!(s.dead, []);
    // Tag 3 may be what the get brings; nobody can tell.
    s.client(&nack(3, true, false)).silent();
    s.wait(5 * SECOND).silent();
    s.broker(&got(3)).passes();
    s.wait(60 * SECOND).silent();
    assert_eq!(s.dead.len(), 2);
    s.client(&ack(3, false)).passes();
}
