use crate::amqp::content::Content;
use crate::amqp::ids::name;
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::table::{ArrayBuilder, TableBuilder};
use crate::dead_letter::proof::{Parked, prove};
use crate::letter::story::story;
use crate::letter::{Death, Letter};
use crate::link::peer::with_headers;
use crate::machine::Wall;

use super::{TEN, died, entry, letter, short};

#[test]
fn the_newest_death_says_where_a_letter_comes_from() {
    let deaths = [
        ("orders", "rejected", 2, TEN),
        ("retry", "expired", 1, TEN + 5),
    ];
    let letter = letter(died(&deaths), "");
    assert_eq!(letter.source(), short("orders"));
    assert_eq!(letter.reason().as_deref(), Some("rejected"));
    assert_eq!(letter.died_at(), Some(Wall::of_seconds(TEN)));
    let expected = Death {
        queue: short("orders"),
        reason: Some("rejected".to_owned()),
        count: Some(2),
        time: Some(TEN),
        exchange: short("x"),
        routing_keys: vec![name("k")],
        original_expiration: None,
    };
    assert_eq!(letter.deaths()[0], expected);
    assert_eq!(letter.deaths().len(), 2);
}

#[test]
fn what_has_no_history_comes_from_nowhere() {
    let letter = letter(TableBuilder::default(), "");
    assert_eq!(
        (letter.source(), letter.reason(), letter.died_at()),
        (None, None, None)
    );
    assert_eq!(letter.deaths(), []);
}

#[test]
fn a_death_in_the_intake_queue_is_passed_over() {
    let mut intake = entry("mine.intake", "delivery_limit", 1, TEN + 9);
    intake.longstr(b"later", b"");
    let mut own = TableBuilder::default();
    own.longstr(b"exchange", b"mine+/dlx")
        .members(&intake.finish());
    let mut array = ArrayBuilder::default();
    array.table(&own).table(&entry("orders", "expired", 1, TEN));
    let mut headers = TableBuilder::default();
    headers.array(b"x-death", &array);
    assert_eq!(letter(headers, "").source(), short("orders"));
    // A queue of somebody else whose name ends so, reached by another exchange.
    let other = letter(died(&[("their.intake", "rejected", 1, TEN)]), "");
    assert_eq!(other.source(), short("their.intake"));
}

/// Parked with the proof, as the proxy does it.
fn parked(headers: TableBuilder) -> Letter {
    let Content { properties, .. } = with_headers(headers, "");
    let parked = Parked {
        exchange: b"dlx",
        cause: b"no_exchange",
    };
    let properties = prove(&properties, b"proxy", Some(parked)).unwrap();
    Letter {
        properties,
        ..letter(TableBuilder::default(), "")
    }
}

#[test]
fn a_parked_letter_comes_from_the_queue_that_it_died_in() {
    let letter = parked(died(&[("orders", "expired", 1, TEN)]));
    assert_eq!(letter.source(), short("orders"));
    assert_eq!(letter.reason().as_deref(), Some("expired"));
}

#[test]
fn what_was_parked_on_its_way_back_comes_from_the_queue_that_waits_for_it() {
    let mut table = TableBuilder::default();
    table
        .longstr(b"queue", b"orders")
        .longstr(b"exchange", b"")
        .longstr(b"routing-key", b"orders")
        .long(b"all", 1)
        .long(b"failed", 1)
        .long(b"due", 1000)
        .table(b"deaths", &died(&[("before", "maxlen", 1, TEN)]));
    // Of the delay queue.
    let headers = died(&[("dlx-proxy.delay.1000", "expired", 1, TEN)]).finish();
    let mut with_table = TableBuilder::default();
    with_table
        .members(&headers)
        .table(b"x-dlx-proxy-retry", &table)
        .void(b"x-dlx-proxy-user-id");
    let Content { properties, .. } = with_headers(with_table, "");
    let edit = Edit {
        user_id: Change::Set(b"proxy".to_vec()),
        ..Edit::default()
    };
    let letter = Letter {
        properties: Properties::parse(&properties).unwrap().edit(&edit),
        ..letter(TableBuilder::default(), "")
    };
    assert_eq!(letter.source(), short("orders"));
    assert_eq!(letter.reason(), None);
    assert_eq!(letter.deaths()[0].queue, short("before"));
}

#[test]
fn deaths_that_only_the_proxy_remembers_are_told() {
    let mut headers = died(&[("second", "expired", 1, TEN + 5)]);
    headers.table(
        b"x-dlx-proxy-history",
        &died(&[("first", "rejected", 1, TEN)]),
    );
    let queues: Vec<_> = letter(headers, "")
        .deaths()
        .into_iter()
        .map(|death| death.queue)
        .collect();
    assert_eq!(queues, [short("second"), short("first")]);
}

#[test]
fn each_death_is_a_sentence_and_the_oldest_is_the_first() {
    let mut ttl = entry("a", "expired", 3, TEN);
    ttl.longstr(b"original-expiration", b"5000");
    let mut odd = TableBuilder::default();
    odd.longstr(b"reason", b"\x1b[31m")
        .longstr(b"exchange", b"");
    let mut keys = ArrayBuilder::default();
    for key in [b"1", b"2", b"3", b"4", b"5", b"6"] {
        keys.longstr(key);
    }
    let mut many = TableBuilder::default();
    many.longstr(b"exchange", b"x")
        .array(b"routing-keys", &keys);
    let mut array = ArrayBuilder::default();
    array
        .table(&ttl)
        .table(&entry("b", "rejected", 1, TEN + 1))
        .table(&entry("", "maxlen", 1, TEN + 1))
        .table(&entry("d", "delivery_limit", 1, TEN + 60))
        .table(&many)
        .table(&odd);
    let mut headers = TableBuilder::default();
    headers.array(b"x-death", &array);
    let expected = [
        r#"at an unknown time: died in an unknown queue of "\u{1b}[31m"; it had been published to the default exchange"#,
        "at an unknown time: died in an unknown queue, nobody knows why; it had been published to exchange x with keys 1, 2, 3, 4, 5, …",
        "2026-11-23T10:00:00Z: expired in queue a after its TTL of 5000 ms, 3 times; it had been published to exchange x with key k",
        r#"2026-11-23T10:00:01Z: pushed out of queue "", which was full; it had been published to exchange x with key k"#,
        "2026-11-23T10:00:01Z: rejected in queue b; it had been published to exchange x with key k",
        "2026-11-23T10:01:00Z: delivered in queue d more often than its limit allows; it had been published to exchange x with key k",
    ];
    assert_eq!(story(&letter(headers, "").deaths()), expected);
}
