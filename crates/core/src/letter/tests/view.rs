use serde_json::json;

use crate::amqp::table::{ArrayBuilder, TableBuilder, Value};
use crate::letter::{Detail, Encoding, ErrorHeaders, Letter, Summary};

use super::{TEN, died, letter, rejected, with_properties};

fn summary(letter: &Letter) -> Summary {
    Summary::of(letter, &ErrorHeaders::default())
}

fn detail(letter: &Letter) -> Detail {
    Detail::of(letter, &ErrorHeaders::default())
}

#[test]
fn a_list_says_where_from_why_and_when() {
    let letter = rejected("bang");
    let expected = json!({
        "position": 1, "id": letter.id().to_string(), "source-queue": "orders", "reason": "rejected",
        "died-at": "2026-11-23T10:00:00Z", "deaths": 1, "exchange": "dlx", "routing-key": "dead", "redelivered": false,
        "size": 4, "error": "bang", "redriven": 0, "preview": "body",
    });
    assert_eq!(serde_json::to_value(summary(&letter)).unwrap(), expected);
}

#[test]
fn a_parked_letter_says_what_for_and_why() {
    let mut headers = died(&[]);
    headers
        .longstr(b"x-parked-exchange", b"")
        .longstr(b"x-parked-cause", b"unroutable");
    let summary = summary(&letter(headers, ""));
    assert_eq!(summary.parked_for.as_deref(), Some(""));
    assert_eq!(summary.parked_cause.as_deref(), Some("unroutable"));
}

#[test]
fn deaths_are_added_up() {
    let deaths = [("a", "rejected", 3, TEN), ("b", "expired", 2, TEN)];
    assert_eq!(summary(&letter(died(&deaths), "")).deaths, 5);
    let most = [("a", "rejected", i64::MAX, TEN); 3];
    assert_eq!(summary(&letter(died(&most), "")).deaths, u64::MAX);
}

#[test]
fn a_letter_says_how_often_it_was_redriven() {
    let mut table = TableBuilder::default();
    table.longstr(b"by", b"guest").long(b"count", 2);
    let mut by_table = TableBuilder::default();
    by_table.table(b"x-dlx-proxy-redriven", &table);
    let number = |number: i64| {
        let mut headers = TableBuilder::default();
        headers.long(b"x-dlx-proxy-redriven", number);
        headers
    };
    for (headers, expected) in [(by_table, 2), (number(7), 7), (number(-1), 0)] {
        assert_eq!(summary(&letter(headers, "")).redriven, expected);
    }
}

#[test]
fn a_preview_is_one_short_line_of_text() {
    let preview = |body: &str| summary(&letter(TableBuilder::default(), body)).preview;
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

#[test]
fn a_detail_is_a_summary_and_more() {
    let value = serde_json::to_value(detail(&rejected("bang"))).unwrap();
    assert_eq!(value["source-queue"], "orders");
    assert_eq!(value["body"]["encoding"], "text");
    assert_eq!(value["headers-cut"], false);
    assert_eq!(value["story"].as_array().unwrap().len(), 1);
}

#[test]
fn a_header_that_waits_in_a_queue_of_ours_has_its_own_name() {
    let mut headers = TableBuilder::default();
    headers.long(b"x-dlx-proxy-deliver", 5);
    let letter = letter(headers, "");
    assert_eq!(detail(&letter).headers[0].name, "x-opt-delivery-time");
    assert!(
        letter.header(b"x-opt-delivery-time").is_some(),
        "a filter finds it"
    );
}
