use serde_json::json;

use crate::amqp::table::{ArrayBuilder, TableBuilder, Value};
use crate::letter::{Detail, Encoding, ErrorHeaders, Letter};

use super::{TEN, letter, with_properties};

fn detail(letter: &Letter) -> Detail {
    Detail::of(letter, &ErrorHeaders::default())
}

#[test]
fn a_preview_is_one_short_line_of_text() {
    let preview = |body: &str| {
        detail(&letter(TableBuilder::default(), body))
            .summary
            .preview
    };
    assert_eq!(preview("a\n\tb").as_deref(), Some("a  b"));
    assert_eq!(preview(&"ä".repeat(100)), Some("ä".repeat(80)));
    assert_eq!(preview(""), None);
    assert_eq!(preview("a\0b"), None);
}

#[test]
fn a_body_is_text_json_or_hexadecimal() {
    let of = |body: &'static [u8], size: u64| {
        let body = detail(&Letter {
            body: body.into(),
            size,
            ..letter(TableBuilder::default(), "")
        })
        .body;
        (body.encoding, body.text, body.cut)
    };
    let expect = |encoding, text: &str, cut| (encoding, text.to_owned(), cut);
    for (body, size, expected) in [
        (
            &b"{\"a\": [1]}"[..],
            10,
            expect(Encoding::Json, "{\"a\": [1]}", false),
        ),
        (
            b"{\"a\": [1]}",
            11,
            expect(Encoding::Text, "{\"a\": [1]}", true),
        ),
        (b"{\"a\"}", 5, expect(Encoding::Text, "{\"a\"}", false)),
        (b"12", 2, expect(Encoding::Text, "12", false)),
        (b"", 0, expect(Encoding::Text, "", false)),
        (b"a\xc3", 3, expect(Encoding::Text, "a", true)),
        (b"a\xc3", 2, expect(Encoding::Hex, "61c3", false)),
        (b"\x1b[2J", 4, expect(Encoding::Hex, "1b5b324a", false)),
    ] {
        assert_eq!(of(body, size), expected);
    }
}

#[test]
fn properties_stand_by_their_names() {
    // content-type, delivery-mode, priority, expiration, message-id, timestamp, user-id
    let mut raw = vec![0b1001_1001, 0b1101_0000];
    raw.extend(b"\x0atext/plain\x02\x09\x0260\x01m");
    raw.extend(TEN.to_be_bytes());
    raw.extend(b"\x01u");
    let expected = json!({
        "content-type": "text/plain", "delivery-mode": 2, "priority": 9, "expiration": "60", "message-id": "m",
        "timestamp": "2026-11-23T10:00:00Z", "user-id": "u",
    });
    let detail = detail(&with_properties(raw));
    assert_eq!(serde_json::to_value(detail.properties).unwrap(), expected);
    assert!(!detail.malformed);
}

#[test]
fn headers_have_types_and_nested_ones_are_json() {
    let mut array = ArrayBuilder::default();
    array.longstr(b"a").value(&Value {
        tag: b'd',
        data: &f64::NAN.to_be_bytes(),
    });
    let mut table = TableBuilder::default();
    table.long(b"n", 1).long(b"n", 2).array(b"list", &array);
    let mut headers = TableBuilder::default();
    headers
        .longstr(b"same", b"<script>")
        .boolean(b"same", true)
        .void(b"v")
        .timestamp(b"t", TEN)
        .table(b"table", &table);
    let detail = detail(&letter(headers, ""));
    let expected = json!([
        {"name": "same", "type": "longstr", "value": "<script>"},
        {"name": "same", "type": "bool", "value": true},
        {"name": "v", "type": "void", "value": null},
        {"name": "t", "type": "timestamp", "value": "2026-11-23T10:00:00Z"},
        {"name": "table", "type": "table", "value": {"n": 1, "list": ["a", "NaN"]}},
    ]);
    assert_eq!(serde_json::to_value(&detail.headers).unwrap(), expected);
    assert!(!detail.headers_cut && !detail.malformed);
}
