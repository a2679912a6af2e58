//! Dead letters that an operator sends back: there, or nowhere.

use super::peer::{Does, Peer};
use super::*;
use crate::amqp::ids::name;
use crate::dead_letter::proof::prove;

const BOB: &str =
    "PRECONDITION_FAILED - user_id property set to 'bob' but authenticated user was 'proxy'";
const PROXY: &str =
    "PRECONDITION_FAILED - user_id property set to 'proxy' but authenticated user was 'x'";

fn redriven(publication: Publication) -> Publication {
    Publication {
        at_least_once: true,
        purpose: Purpose::Redrive,
        ..publication
    }
}

fn told(outcome: Outcome) -> Event {
    Event::Redriven {
        queue: name("work"),
        outcome,
    }
}

/// The publications, and what was said of dead letters.
fn counted(rig: &mut PublisherRig) -> Vec<Event> {
    let counts = |event: &Event| matches!(event, Event::Redriven { .. } | Event::DeadLetter { .. });
    rig.events().into_iter().filter(counts).collect()
}

#[test]
fn it_is_mandatory_confirmed_and_counted_by_itself() {
    let mut rig = rig();
    rig.publish(1, redriven(message("x", "k", "1")));
    assert_eq!(rig.published(), [row(3, "x", "k", "1")]);
    assert_eq!(rig.settled(), []);
    rig.ack(3, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
    assert_eq!(counted(&mut rig), [told(Outcome::Confirmed)]);
}

/// Answers each publish of `1` until it has come to its end, which is never the parking queue.
fn refused(cause: Cause, answer: impl Fn(&mut PublisherRig, u16, u64, &Publication)) {
    for on_unroutable in [OnUnroutable::Park, OnUnroutable::Drop] {
        let mut rig = rig_with(Settings {
            on_unroutable,
            ..settings()
        });
        let publication = redriven(message("x", "k", "1"));
        rig.publish(1, publication.clone());
        let (mut tag, mut settled) = (0, Vec::new());
        for _ in 0..200 {
            for (channel, exchange, ..) in rig.published() {
                assert_eq!(exchange, "x", "{cause:?}");
                tag += 1;
                answer(&mut rig, channel, tag, &publication);
            }
            settled.extend(rig.settled());
            if !settled.is_empty() {
                break;
            }
            rig.live(1_000);
        }
        assert_eq!(settled, [(1, Outcome::Refused(cause))]);
        assert_eq!(rig.published(), []);
        assert_eq!(counted(&mut rig), [told(Outcome::Refused(cause))]);
    }
}

#[test]
fn what_cannot_go_there_stays_where_it_is() {
    refused(Cause::Unroutable, |rig, channel, tag, publication| {
        rig.give_back(channel, "x", "k", &publication.content);
        rig.ack(channel, tag, false);
    });
    refused(Cause::NoExchange, |rig, channel, _, _| {
        rig.close(channel, 404, "NOT_FOUND - no exchange 'x' in vhost '/'");
    });
    refused(Cause::Forbidden, |rig, channel, _, _| {
        rig.close(channel, 403, "ACCESS_REFUSED - access to exchange 'x'");
    });
    refused(Cause::Nacked, |rig, channel, tag, _| rig.nack(channel, tag));
    refused(Cause::TimedOut, |_, _, _, _| ());
    // Alone the second time.
}

#[test]
fn an_internal_exchange_is_reached_over_its_bridge_or_not_at_all() {
    let internal = "ACCESS_REFUSED - cannot publish to internal exchange 'int-x' in vhost '/'";
    let bridge = "dlx-proxy.bridge/int-x";
    for is_bound in [true, false] {
        let mut rig = rig();
        let publication = redriven(message("int-x", "k", "1"));
        rig.publish(1, publication.clone());
        assert_eq!(rig.published(), [row(3, "int-x", "k", "1")]);
        rig.close(3, 403, internal);
        assert_eq!(rig.published(), [row(4, bridge, "k", "1")]);
        let outcome = match is_bound {
            true => Outcome::Confirmed,
            false => {
                rig.give_back(4, bridge, "k", &publication.content);
                Outcome::Refused(Cause::Unroutable)
            }
        };
        rig.ack(4, 1, false);
        assert_eq!(rig.settled(), [(1, outcome)]);
        assert_eq!(rig.published(), []);
        assert_eq!(counted(&mut rig), [told(outcome)]);
    }
}

#[test]
fn what_closes_the_channel_stays_there_too() {
    let mut peer = Peer::new(|_| Does::CloseChannel(406, "PRECONDITION_FAILED - this one"));
    peer.publish_all(vec![(1, redriven(message("x", "k", "1")))]);
    peer.pass(1_000);
    let refused = Outcome::Refused(Cause::Poison);
    assert_eq!(peer.settled, [(1, refused)]);
    assert_eq!(peer.faults.len(), 2, "and is not parked");
    assert!(peer.events.contains(&told(refused)));
}

#[test]
fn an_exchange_that_leads_to_its_queue_is_built() {
    let mut rig = rig();
    rig.publish(1, redriven(message("dlx-proxy.return/work", "k", "1")));
    let methods = super::delays::methods(&mut rig);
    let built = [
        super::delays::EXCHANGE,
        super::delays::BIND,
        super::delays::PUBLISH,
    ];
    assert_eq!(methods, built.map(|id| (3, id)));
    rig.broker(&close(3, 404, "no queue 'work'", super::delays::BIND));
    let refused = Outcome::Refused(Cause::NoExchange);
    assert_eq!(rig.settled(), [(1, refused)]);
}

/// Mostly the proxy's user may not have another's name in what it publishes.
#[test]
fn another_user_is_hidden_where_the_broker_refuses_it() {
    let mut rig = rig();
    rig.publish(1, redriven(foreign("x")));
    let channels: Vec<u16> = rig.published().into_iter().map(|row| row.0).collect();
    assert_eq!(channels, [3]);
    rig.close(3, 406, BOB);
    for ticket in 1..=2 {
        // The second is not even tried.
        if ticket == 2 {
            rig.publish(2, redriven(foreign("x")));
        }
        let sent = super::delays::sent(&mut rig);
        let channels: Vec<u16> = publishes(&sent).into_iter().map(|row| row.0).collect();
        assert_eq!(channels, [4]);
        assert_eq!(user_id(&sent).as_deref(), Some("proxy"));
        let hidden = ("x-dlx-proxy-user-id".to_owned(), b"bob".to_vec());
        assert_eq!(headers(&sent), [hidden]);
        rig.ack(4, ticket, false);
        assert_eq!(rig.settled(), [(ticket, Outcome::Confirmed)]);
    }
    assert_eq!(counted(&mut rig), [Outcome::Confirmed; 2].map(told));
}

/// By OAuth 2 the broker knows our user by another name.
#[test]
fn where_nothing_can_be_proven_it_stays() {
    let mut rig = rig();
    let proven = |n: u64| {
        let mut publication = redriven(message("x", "k", "1"));
        let properties = prove(&publication.content.properties, b"proxy", None);
        publication.content.properties = properties.unwrap();
        (n, publication)
    };
    let refused = Outcome::Refused(Cause::UserId);
    rig.publish_as(SESSION, vec![proven(1)]);
    assert_eq!(rig.published(), [row(3, "x", "k", "1")]);
    rig.close(3, 406, PROXY);
    assert_eq!(rig.settled(), [(1, refused)]);
    // Nobody has to ask again; neither for one whose user would have to be hidden.
    rig.publish_as(SESSION, vec![proven(2), (3, redriven(foreign("x")))]);
    assert_eq!(rig.published(), []);
    let mut settled = rig.settled();
    settled.sort_by_key(|(ticket, _)| *ticket);
    assert_eq!(settled, [(2, refused), (3, refused)]);
    // What says nothing of a user goes.
    rig.publish(4, redriven(message("x", "k", "4")));
    assert_eq!(rig.published().len(), 1);
}

/// Nothing can be bound to a queue that is another connection's alone: whoever sent it back is told so, and has another way.
#[test]
fn where_nothing_can_lead_to_its_queue_alone_it_is_told_from_a_missing_right() {
    let back = || redriven(message("dlx-proxy.return/work", "k", "1"));
    let bind = MethodId::QUEUE_BIND;
    for (code, cause) in [
        (404, Cause::NoExchange),
        (405, Cause::NoExchange),
        (403, Cause::Forbidden),
    ] {
        let mut rig = rig();
        rig.publish(1, back());
        assert_eq!(rig.published(), [row(3, "dlx-proxy.return/work", "k", "1")]);
        rig.broker(&close(3, code, "no", bind));
        assert_eq!(rig.settled(), [(1, Outcome::Refused(cause))]);
    }
}

/// In an alarm what has left may have arrived. What has not left is nowhere.
#[test]
fn what_may_have_arrived_is_told_from_what_has_not_left() {
    let mut rig = rig();
    rig.publish(1, redriven(message("x", "k", "1")));
    rig.publish(2, message("x", "k", "2"));
    rig.published();
    rig.alarm(true);
    rig.publish(3, redriven(message("x", "k", "3")));
    assert_eq!(rig.published(), []);
    rig.live(5_000);
    let away = Outcome::Refused(Cause::PublisherAway);
    assert_eq!(rig.settled(), [(3, away)]);
    rig.live(10_000);
    let unconfirmed = Outcome::Refused(Cause::Unconfirmed);
    assert_eq!(rig.settled(), [(1, unconfirmed), (2, away)]);
}
