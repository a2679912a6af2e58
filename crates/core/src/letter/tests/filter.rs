use crate::amqp::table::{TableBuilder, Value};
use crate::letter::{Filter, Letter};

use super::{TEN, letter};

fn takes(filter: Filter, letter: &Letter) -> bool {
    assert!(!filter.is_all());
    filter.takes(letter)
}

#[test]
fn a_header_matches_by_its_usual_text() {
    for (tag, data, text, expected) in [
        (b'S', &b"\xff"[..], &b"\xff"[..], true),
        (b'S', b"\xff", "\u{fffd}".as_bytes(), false),
        (b'x', b"a", b"a", true),
        (b't', b"\x01", b"true", true),
        (b't', b"\x00", b"true", false),
        (b'l', &(-7_i64).to_be_bytes(), b"-7", true),
        (b'B', b"\xff", b"255", true),
        (b'b', b"\xff", b"-1", true),
        (b'd', &1.5_f64.to_be_bytes(), b"1.50", true),
        (b'f', &0.1_f32.to_be_bytes(), b"0.1", true),
        (b'f', &0.1_f32.to_be_bytes(), b"0.2", false),
        (b'D', &[2, 0, 0, 0, 5], b"0.05", true),
        (b'D', &[0, 0, 0, 0, 5], b"5", true),
        (b'T', &TEN.to_be_bytes(), b"2026-11-23T10:00:00Z", true),
        (b'T', &TEN.to_be_bytes(), b"1795428000", true),
        (b'V', b"", b"", true),
        (b'V', b"", b"null", false),
        (b'F', b"", b"", false),
        (b'A', b"", b"[]", false),
    ] {
        let mut headers = TableBuilder::default();
        headers.value(b"h", &Value { tag, data });
        let filter = Filter {
            headers: vec![(b"h".to_vec(), text.to_vec())],
            ..Filter::default()
        };
        let said = takes(filter, &letter(headers, ""));
        assert_eq!(said, expected, "{} {}", tag as char, text.escape_ascii());
    }
}

/// A list keeps no more of a body, a purge keeps all of it.
#[test]
fn as_much_of_a_body_is_searched_whoever_kept_more() {
    let filter = Filter {
        body: Some(b"end".to_vec()),
        ..Filter::default()
    };
    for (before, expected) in [(Filter::SEARCHED - 3, true), (Filter::SEARCHED - 2, false)] {
        let whole = letter(TableBuilder::default(), &("-".repeat(before) + "end"));
        let cut = Letter {
            body: whole.body.slice(..Filter::SEARCHED),
            ..whole.clone()
        };
        assert_eq!(takes(filter.clone(), &whole), expected, "{before}");
        assert_eq!(takes(filter.clone(), &cut), expected, "{before}");
    }
}
