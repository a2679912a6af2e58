//! One message for people: how it died, its properties, its headers and its body.

use serde_json::Value;

use super::table::cell;
use crate::columns::aligned;
use crate::plain;

/// What a list says of a message, too.
const FACTS: [&str; 10] = [
    "position",
    "source-queue",
    "reason",
    "died-at",
    "exchange",
    "routing-key",
    "error",
    "redriven",
    "parked-for",
    "parked-cause",
];

/// The text of what the proxy answers.
pub(super) fn text(detail: &Value) -> String {
    let facts = FACTS.map(|name| [name.to_owned(), cell(detail.get(name))]);
    let properties = detail["properties"].as_object().into_iter().flatten();
    let properties = properties.map(|(name, value)| [name.clone(), cell(Some(value))]);
    let headers = list(detail, "headers").iter();
    let headers = headers.map(|it| ["name", "type", "value"].map(|key| cell(it.get(key))));
    let story = list(detail, "story").iter();
    let story = story.map(|sentence| [cell(Some(sentence))]);
    let sections = [
        (heading("Message", &detail["id"]), rows(facts)),
        ("How it came here".to_owned(), rows(story)),
        ("Properties".to_owned(), rows(properties)),
        (heading_of_headers(detail), rows(headers)),
        body(detail),
    ];
    let sections = sections.into_iter().filter(|(_, lines)| !lines.is_empty());
    let sections = sections.map(|(heading, lines)| format!("{heading}\n{lines}"));
    sections.collect::<Vec<_>>().join("\n")
}

fn heading(what: &str, value: &Value) -> String {
    format!("{what} {}", plain::line(&cell(Some(value))))
}

fn heading_of_headers(detail: &Value) -> String {
    let more = match (&detail["malformed"], &detail["headers-cut"]) {
        (Value::Bool(true), _) => " (they cannot be read to their end)",
        (_, Value::Bool(true)) => " (there are more)",
        _ => "",
    };
    format!("Headers{more}")
}

fn body(detail: &Value) -> (String, String) {
    let body = &detail["body"];
    let encoding = plain::line(&cell(body.get("encoding")));
    let cut = match body["cut"] {
        Value::Bool(true) => ", cut",
        _ => "",
    };
    let size = cell(detail.get("size"));
    let mut lines = plain::lines(body["text"].as_str().unwrap_or_default());
    if !lines.is_empty() && !lines.ends_with('\n') {
        lines.push('\n');
    }
    (format!("Body ({size} octets, {encoding}{cut})"), lines)
}

/// Those that have a value, below each other.
fn rows<const N: usize>(rows: impl IntoIterator<Item = [String; N]>) -> String {
    let valued = |row: &[String; N]| row.last().is_some_and(|value| !value.is_empty());
    let rows = rows.into_iter().filter(valued);
    let table = aligned(&rows.collect::<Vec<_>>());
    table.lines().map(|line| format!("  {line}\n")).collect()
}

fn list<'a>(detail: &'a Value, name: &str) -> &'a [Value] {
    detail[name].as_array().map_or(&[], |list| list)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_is_told_from_its_death_to_its_body() {
        let detail = json!({
            "position": 3, "id": "00ff", "source-queue": "orders", "reason": "rejected", "died-at": null, "size": 12,
            "exchange": "", "routing-key": "a\u{1b}b",
            "properties": {"content-type": "text/plain", "priority": 3},
            "headers": [
                {"name": "x", "type": "longstr", "value": "<script>"},
                {"name": "list", "type": "array", "value": [1, {"a": "\u{9b}"}]},
            ],
            "headers-cut": true, "malformed": false,
            "story": ["It was rejected.", "It was rejected again."],
            "body": {"encoding": "text", "text": "two\nlines\u{7}", "cut": true},
        });
        insta::assert_snapshot!(text(&detail), @r#"
        Message 00ff
          position      3
          source-queue  orders
          reason        rejected
          routing-key   a\u{1b}b

        How it came here
          It was rejected.
          It was rejected again.

        Properties
          content-type  text/plain
          priority      3

        Headers (there are more)
          x     longstr  <script>
          list  array    [1,{"a":"\u{9b}"}]

        Body (12 octets, text, cut)
        two
        lines\u{7}
        "#);
    }

    #[test]
    fn what_there_is_not_is_left_out() {
        let detail = json!({"id": "00ff", "size": 0, "body": {"encoding": "text", "text": "", "cut": false}});
        assert_eq!(text(&detail), "");
    }
}
