//! Letters as lines of a file, and back.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::amqp::table::TableBuilder;
use crate::letter::{ErrorHeaders, Letter, Line};

use super::{letter, rejected};

fn written(letter: &Letter) -> String {
    let line = Line::of(letter, &ErrorHeaders::default(), b"proxy");
    serde_json::to_string(&line).expect("a line")
}

#[test]
fn a_line_is_one_line_with_all_that_show_has() {
    let line = written(&rejected("boom\nat x"));
    assert!(!line.contains('\n'), "{line}");
    let json: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(json["source-queue"], "orders");
    assert_eq!(json["error"], "boom");
    assert_eq!(json["body"]["text"], "body");
    assert!(json["history"][0].is_string(), "{line}");
}

#[test]
fn a_body_that_somebody_changed_in_the_file_is_the_new_one() {
    let line = written(&letter(TableBuilder::default(), "befroe"));
    let read = Line::read(line.replace("befroe", "before").as_bytes()).expect("a line");
    assert_eq!(read.body, "before");
}

#[test]
fn what_is_no_line_says_why() {
    let line = written(&letter(TableBuilder::default(), "body"));
    for (line, why) in [
        ("{}".to_owned(), "missing field `raw-properties`"),
        ("[1".to_owned(), "this is no line of an export"),
        (line.replace("\"cut\":false", "\"cut\":true"), "was cut"),
        (
            line.replace("\"raw-properties\":\"", "\"raw-properties\":\"0"),
            "`raw-properties` is not written in hexadecimal digits",
        ),
        (
            line.replace("\"raw-properties\":\"", "\"raw-properties\":\"ü"),
            "hexadecimal",
        ),
        (
            line.replace("\"encoding\":\"text\"", "\"encoding\":\"hex\""),
            "`body` is not written",
        ),
    ] {
        let error = Line::read(line.as_bytes()).expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    }
}

proptest! {
    /// Without private headers nothing is changed on the way.
    #[test]
    fn bytes_come_back_as_they_were(properties in vec(any::<u8>(), 0..60), body in vec(any::<u8>(), 0..60)) {
        let letter = Letter {
            properties: Bytes::from(properties),
            size: body.len() as u64,
            body: Bytes::from(body),
            ..letter(TableBuilder::default(), "")
        };
        let read = Line::read(written(&letter).as_bytes()).expect("a line");
        prop_assert_eq!(read.properties, letter.properties);
        prop_assert_eq!(read.body, letter.body);
    }
}
