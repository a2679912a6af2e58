//! Everything is bounded: bytes, counts, time.

use super::*;

#[test]
fn a_header_that_does_not_fit_a_frame_is_refused() {
    let mut rig = rig();
    let mut headers = TableBuilder::default();
    headers.longstr(b"big", &vec![b'x'; 131_072]);
    let publication = Publication {
        content: with_headers(headers, "1"),
        ..message("", "k", "1")
    };
    rig.publish(1, publication);
    assert_eq!(rig.published(), []);
    assert_eq!(rig.settled(), [(1, Outcome::Refused(Cause::TooBig))]);
}

#[test]
fn a_private_history_that_does_not_fit_is_left_out() {
    let mut rig = rig();
    let mut history = TableBuilder::default();
    history.longstr(b"x-death", &[b'x'; 1_000]);
    let mut headers = TableBuilder::default();
    headers.longstr(b"big", &[b'x'; 130_500]);
    headers.table(b"x-dlx-proxy-history", &history);
    let publication = Publication {
        content: with_headers(headers, "1"),
        ..message("", "k", "1")
    };
    rig.publish(1, publication);
    rig.ready(1);
    let sent = super::headers(&rig.sent());
    assert_eq!(sent[1], ("x-dlx-proxy-history".to_owned(), Vec::new()));
}

/// A dead letter that says who rejected its message, beside a header of that size and a private history.
fn stamped(exchange: &str, octets: usize) -> Publication {
    let mut who = TableBuilder::default();
    who.longstr(b"connection", &[b'x'; 200]);
    let mut history = TableBuilder::default();
    history.longstr(b"x-death", &[b'x'; 100]);
    let mut headers = TableBuilder::default();
    headers.longstr(b"big", &vec![b'x'; octets]);
    headers.table(b"x-rejected-by", &who);
    headers.table(b"x-dlx-proxy-history", &history);
    let by = Rejecter {
        connection: Default::default(),
        consumer: None,
        held: Default::default(),
    };
    Publication {
        content: with_headers(headers, "1"),
        by: Some(Box::new(by)),
        ..message(exchange, "k", "1")
    }
}

fn stamping() -> PublisherRig {
    let settings = settings();
    let mut limits = Limits::clone(&settings.limits.now());
    limits.stamp = true;
    settings.limits.set(limits);
    rig_with(settings)
}

fn names(sent: &[Sent]) -> Vec<String> {
    let headers = super::headers(sent).into_iter();
    headers.map(|(name, _)| name).collect()
}

/// Before the history, which counts for something.
#[test]
fn who_rejected_it_is_left_out_where_it_does_not_fit() {
    let mut rig = stamping();
    rig.publish(1, stamped("", 130_800));
    rig.ready(1);
    assert_eq!(names(&rig.sent()), ["big", "x-dlx-proxy-history"]);
    assert!(rig.events().contains(&Event::EditDropped));
    // A client's own header is not the proxy's to leave out.
    let by = None;
    rig.publish(
        2,
        Publication {
            by,
            ..stamped("", 130_800)
        },
    );
    assert_eq!(rig.published(), []);
    assert_eq!(rig.settled(), [(2, Outcome::Refused(Cause::TooBig))]);
}

#[test]
fn where_it_should_have_gone_counts_more_than_who_rejected_it() {
    let mut rig = stamping();
    rig.publish(1, stamped("gone", 130_600));
    rig.published();
    rig.close(3, 404, "NOT_FOUND");
    rig.ready(2);
    let sent = names(&rig.sent());
    assert!(
        sent.iter().any(|name| name == "x-parked-exchange"),
        "{sent:?}"
    );
    assert!(!sent.iter().any(|name| name == "x-rejected-by"), "{sent:?}");
}

#[test]
fn a_header_that_just_fits_is_parked_as_it_is() {
    let mut rig = rig();
    let mut headers = TableBuilder::default();
    headers.longstr(b"big", &vec![b'x'; 131_030]);
    let publication = Publication {
        content: with_headers(headers, "1"),
        ..message("gone", "k", "1")
    };
    rig.publish(1, publication);
    rig.published();
    rig.close(3, 404, "NOT_FOUND");
    rig.ready(2);
    let sent = rig.sent();
    assert_eq!(publishes(&sent).len(), 1);
    assert_eq!(super::headers(&sent).len(), 1);
}

#[test]
fn one_channel_holds_so_many_and_the_rest_waits() {
    let mut rig = rig();
    let batch = (1..=3_000).map(|n| (n, message("", "k", "1")));
    rig.publish_as(SESSION, batch.collect());
    assert_eq!(rig.published().len(), 2_048);
    rig.publish(9_999, message("other", "k", "1"));
    assert_eq!(rig.published().len(), 1, "another channel has room");
    rig.ack(1, 48, true);
    assert_eq!(rig.published().len(), 48);
    assert!(rig.machine.accepts());
    let batch = (0..65_536).map(|n| (n, message("", "k", "1")));
    rig.publish_as(SESSION, batch.collect());
    assert!(!rig.machine.accepts());
}

#[test]
fn what_the_socket_does_not_take_is_not_written() {
    let mut rig = rig();
    rig.publish(0, message("", "k", "warm"));
    rig.published();
    let body = "x".repeat(300_000);
    let batch = (1..=10).map(|n| (n, message("", "k", &body)));
    rig.publish_as(SESSION, batch.collect());
    assert!(rig.fx.broker.buffered() < 2 << 20);
    assert_eq!(rig.published().len(), 4);
    rig.machine.drained(rig.now, &mut rig.fx);
    assert_eq!(rig.published().len(), 4);
    rig.machine.drained(rig.now, &mut rig.fx);
    assert_eq!(rig.published().len(), 2);
}

#[test]
fn one_that_nobody_answers_does_not_fill_the_books() {
    let mut rig = rig();
    rig.publish(0, message("", "stuck", "1"));
    rig.published();
    let mut last = 1;
    for _ in 0..2 * traffic::MOST_BOOKED / 2_000 {
        let batch = (1..=2_000).map(|n| (n, message("", "fine", "1")));
        rig.publish_as(SESSION, batch.collect());
        assert_eq!(rig.published().len(), 2_000, "after {last}");
        for tag in last + 1..=last + 2_000 {
            rig.ack(1, tag, false);
        }
        last += 2_000;
        assert_eq!(rig.settled().len(), 2_000);
        rig.pass(5);
    }
    rig.pass(1_000);
    rig.ack(1, last + 1, false);
    assert_eq!(
        rig.settled(),
        [(0, Outcome::Confirmed)],
        "it was sent again"
    );
}

#[test]
fn nothing_is_left_behind() {
    let mut rig = rig();
    rig.publish(1, message("", "k", "1"));
    rig.published();
    rig.ack(1, 1, false);
    rig.pass(1_000);
    let publisher = &rig.machine;
    assert_eq!(publisher.held(), 0);
    assert_eq!(publisher.store.items.bytes(), 0);
    assert_eq!((publisher.store.waiting, publisher.store.in_flight), (0, 0));
    assert_eq!(
        (publisher.store.in_flight_bytes, publisher.tick),
        (0, None::<Mono>)
    );
}
