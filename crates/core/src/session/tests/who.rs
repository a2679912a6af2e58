//! A dead letter says who rejected its message.

use std::time::Duration;

use super::frames::{get, got};
use super::kept::{AWAY, open};
use super::script::*;
use crate::amqp::ids::name;
use crate::machine::{Rejecter, Wall};
use crate::registry::policy::Mode;

/// Time passes, on both clocks.
fn pass(s: &mut Script, time: Duration) {
    s.now.wall = s.now.wall.after(time);
    s.wait(time).silent();
}

fn by(s: &Script) -> Rejecter {
    let (_, publication) = s.dead.last().expect("a dead letter");
    Rejecter::clone(publication.by.as_ref().expect("somebody rejected it"))
}

#[test]
fn a_dead_letter_says_who_rejected_its_message_and_how_long_it_was_out() {
    let mut s = Script::open(settings(Mode::RejectsOnly)).managed("orders", target("dlx"));
    s.broker(&deliver("orders", 1, b"hi")).passes();
    pass(&mut s, Duration::from_millis(2_500));
    s.client(&reject(1, false)).silent();
    let by = by(&s);
    assert_eq!(
        by.consumer,
        Some(name("orders")),
        "the tag is the queue's name"
    );
    assert_eq!(by.held, Duration::from_millis(2_500));
    assert_eq!(by.connection.user, Some(name("guest")));
    assert_eq!(by.connection.name, Some(name("worker 1")));
    assert_eq!(by.connection.host, name("192.0.2.7"));
}

#[test]
fn what_was_got_had_no_consumer() {
    let mut s = Script::open(settings(Mode::RejectsOnly)).managed("q", target("dlx"));
    s.client(&get("q")).passes();
    s.broker(&got(1)).passes();
    s.client(&reject(1, false)).silent();
    assert_eq!(by(&s).consumer, None);
}

#[test]
fn all_rejects_of_a_session_share_what_is_known_of_it() {
    let mut s = Script::open(settings(Mode::RejectsOnly)).managed("orders", target("dlx"));
    for tag in [1, 2] {
        s.broker(&deliver("orders", tag, b"hi")).passes();
        s.client(&reject(tag, false)).silent();
    }
    let connections = s.dead.iter().flat_map(|(_, it)| &it.by);
    let connections: Vec<_> = connections.map(|by| &by.connection).collect();
    assert!(std::sync::Arc::ptr_eq(connections[0], connections[1]));
}

#[test]
fn on_request_the_message_says_it_too() {
    let told = |stamp| {
        let settings = limited(Mode::RejectsOnly, |limits| limits.stamp = stamp);
        let mut s = Script::open(settings).managed("orders", target("dlx"));
        s.broker(&deliver("orders", 1, b"hi")).passes();
        s.client(&reject(1, false)).silent();
        let properties = s.dead[0].1.content.properties.clone();
        memchr::memmem::find(&properties, b"x-rejected-by").is_some()
    };
    assert_eq!((told(false), told(true)), (false, true));
}

/// It was out until the client rejected it, however long the reject is kept.
#[test]
fn a_reject_that_is_published_again_says_the_same() {
    let mut s = open();
    s.broker(&deliver("orders", 1, b"hi")).passes();
    pass(&mut s, Duration::from_secs(3));
    s.client(&reject(1, false)).silent();
    let (first, ticket) = (by(&s), s.ticket());
    s.dead.clear();
    s.settled(&[(ticket, AWAY)]).silent();
    pass(&mut s, Duration::from_secs(1));
    assert_eq!(by(&s), first);
    assert_eq!(first.held, Duration::from_secs(3));
}

/// The clock on the wall may be set back.
#[test]
fn no_message_was_out_for_less_than_no_time() {
    let mut s = Script::open(settings(Mode::RejectsOnly)).managed("orders", target("dlx"));
    s.broker(&deliver("orders", 1, b"hi")).passes();
    s.now.wall = Wall(0);
    s.client(&reject(1, false)).silent();
    assert_eq!(by(&s).held, Duration::ZERO);
}
