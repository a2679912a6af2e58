//! Which publication a `basic.return` belongs to.

use super::routes::parked;
use super::*;

#[test]
fn a_return_is_matched_by_headers_that_were_sorted_and_converted() {
    let mut rig = rig();
    let with = |n: i64| {
        let mut headers = TableBuilder::default();
        headers
            .longstr(b"z", b"1")
            .long(b"n", n)
            .longstr(b"a", b"2");
        Publication {
            content: with_headers(headers, "same"),
            ..message("x", "k", "same")
        }
    };
    rig.publish_as(SESSION, (1..=3).map(|n| (n, with(n as i64))).collect());
    rig.published();
    // As 4.x re-encodes it: sorted by name.
    let mut sorted = TableBuilder::default();
    sorted.longstr(b"a", b"2").long(b"n", 2).longstr(b"z", b"1");
    rig.give_back(3, "x", "k", &with_headers(sorted, "same"));
    rig.ack(3, 3, true);
    assert_eq!(
        rig.settled(),
        [(1, Outcome::Confirmed), (3, Outcome::Confirmed)]
    );
    rig.published();
    rig.ack(2, 1, false);
    assert_eq!(rig.settled(), [(2, parked(Cause::Unroutable))]);
}

/// 4.x drops duplicates deep inside, too. Comparing each return with all that is in flight would take minutes here.
#[test]
fn large_headers_that_come_back_changed_are_matched() {
    let mut rig = rig();
    let with = |n: i64, copies: usize| {
        let mut inner = TableBuilder::default();
        for _ in 0..copies {
            inner.long(b"twice", n);
        }
        let mut headers = TableBuilder::default();
        for number in 0..1_000 {
            headers.long(format!("h{number:05}").as_bytes(), n);
        }
        headers.table(b"inner", &inner);
        with_headers(headers, "same")
    };
    let number = 500;
    let publication = |n: u64| Publication {
        content: with(n as i64, 2),
        ..message("x", "k", "same")
    };
    rig.publish_as(SESSION, (1..=number).map(|n| (n, publication(n))).collect());
    while !rig.published().is_empty() {
        rig.machine.drained(rig.now, &mut rig.fx);
    }
    for n in 1..=number - 1 {
        rig.give_back(3, "x", "k", &with(n as i64, 1));
    }
    rig.ack(3, number, true);
    assert_eq!(rig.settled(), [(number, Outcome::Confirmed)]);
}

/// Body and key are the same: what tells them apart is a header, by which a headers exchange routes, or a property.
fn twins() -> [Publication; 2] {
    [1, 2].map(|n| {
        let mut headers = TableBuilder::default();
        headers.long(b"n", n);
        Publication {
            content: with_headers(headers, "same"),
            ..message("headers", "k", "same")
        }
    })
}

/// As the broker returns it with properties and headers of its own.
fn stamped(content: &Content, also: &[u8]) -> Content {
    let properties = Properties::parse(&content.properties).unwrap();
    let mut headers = TableBuilder::default();
    for field in Table(properties.headers().unwrap()).fields() {
        headers.raw(&field.unwrap());
    }
    headers.long(b"timestamp_in_ms", 1_700_000_000_123);
    headers.longstr(b"x-routed-by", b"rabbit@host");
    if !also.is_empty() {
        headers.longstr(also, b"new");
    }
    let headers = headers.finish();
    // Headers and timestamp.
    let mut properties = vec![0x20, 0x40];
    properties.extend((headers.len() as u32).to_be_bytes());
    properties.extend(headers);
    properties.extend(1_700_000_000_u64.to_be_bytes());
    Content {
        properties: properties.into(),
        body: content.body.clone(),
    }
}

#[test]
fn a_return_with_what_the_broker_added_finds_its_own() {
    let mut rig = rig();
    let [first, second] = twins();
    rig.publish_as(SESSION, vec![(1, first), (2, second.clone())]);
    rig.published();
    rig.give_back(3, "headers", "k", &stamped(&second.content, b""));
    rig.ack(3, 2, true);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
    rig.published();
    rig.ack(2, 1, false);
    assert_eq!(rig.settled(), [(2, parked(Cause::Unroutable))]);
}

#[test]
fn properties_tell_returns_apart() {
    let mut rig = rig();
    let with = |priority| Publication {
        content: Content {
            properties: Bytes::copy_from_slice(&[0x08, 0, priority]),
            body: Bytes::from_static(b"same"),
        },
        ..message("by-priority", "k", "same")
    };
    rig.publish_as(SESSION, vec![(1, with(1)), (2, with(2))]);
    rig.published();
    rig.give_back(3, "by-priority", "k", &with(2).content);
    rig.ack(3, 2, true);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
}

/// The second of them, changed by an interceptor or an exchange that nobody here knows: whatever it may have been is parked.
fn both_parked(change: impl Fn(&mut String, &mut Content)) {
    let mut rig = rig();
    let [first, second] = twins();
    let (mut key, mut content) = ("k".to_owned(), second.content.clone());
    change(&mut key, &mut content);
    rig.publish_as(
        SESSION,
        vec![(1, first), (2, second), (3, message("", "k", "same"))],
    );
    rig.published();
    for _ in 0..2 {
        rig.give_back(3, "headers", &key, &content);
    }
    rig.ack(3, 2, true);
    rig.ack(1, 1, false);
    assert_eq!(rig.settled(), [(3, Outcome::Confirmed)]);
    rig.published();
    rig.ack(2, 2, true);
    let both = [1, 2].map(|ticket| (ticket, parked(Cause::Unroutable)));
    assert_eq!(rig.settled(), both);
}

#[test]
fn a_return_with_an_unknown_header_parks_whatever_it_may_have_been() {
    both_parked(|_, content| *content = stamped(content, b"by-a-plugin"));
}

#[test]
fn so_does_one_with_another_body_or_key() {
    both_parked(|_, content| content.body = Bytes::from_static(b"rewritten"));
    both_parked(|key, _| *key = "rewritten".into());
}

#[test]
fn equal_messages_are_returned_one_by_one() {
    let mut rig = rig();
    let publication = message("", "nowhere", "same");
    rig.publish_as(SESSION, (1..=3).map(|n| (n, publication.clone())).collect());
    rig.published();
    rig.give_back(1, "", "nowhere", &publication.content);
    rig.give_back(1, "", "nowhere", &publication.content);
    rig.ack(1, 3, true);
    // The queue appeared between the second and the third.
    assert_eq!(rig.settled(), [(3, Outcome::Confirmed)]);
}
