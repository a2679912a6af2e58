use super::*;
use crate::letter::{Filter, Waiting};
use crate::machine::Wall;

/// As a proxy with the user `proxy` writes it.
fn away() -> Letter {
    let (mut retry, mut headers) = <(TableBuilder, TableBuilder)>::default();
    for (name, value) in [("queue", "orders"), ("exchange", ""), ("routing-key", "k")] {
        retry.longstr(name.as_bytes(), value.as_bytes());
    }
    for (name, number) in [("all", 2), ("failed", 1), ("due", 1_700_000_000_000)] {
        retry.long(name.as_bytes(), number);
    }
    retry.table(b"deaths", &TableBuilder::default());
    headers.void(b"x-dlx-proxy-user-id");
    headers.table(b"x-dlx-proxy-retry", &retry);
    let headers = headers.finish();
    let size = (headers.len() as u32).to_be_bytes();
    Letter {
        properties: [&[0x20, 0x10][..], &size, &headers, b"\x05proxy"]
            .concat()
            .into(),
        ..letter(TableBuilder::default(), "")
    }
}

#[test]
fn a_message_says_where_it_comes_back_and_when() {
    let expected = Waiting {
        queue: name("orders"),
        due: Wall(1_700_000_000_000),
        attempts: 2,
    };
    assert_eq!(away().waiting(), Some(expected));
}

/// What no proxy has sent is nobody's retry.
#[test]
fn only_what_waits_is_taken_as_that() {
    let other = letter(TableBuilder::default(), "");
    let unproven = Letter {
        properties: with_headers(TableBuilder::default(), "").properties,
        ..away()
    };
    for (message, queue, expected) in [
        (away(), None, true),
        (away(), Some("orders"), true),
        (away(), Some("order"), false),
        (other, None, false),
        (unproven, None, false),
    ] {
        let filter = Filter {
            waits: Some(queue.map(name)),
            ..Filter::default()
        };
        assert_eq!(filter.takes(&message), expected, "{queue:?} {message:?}");
    }
}
