//! Answers of the API for people and for scripts: a list as a table, one thing as its facts.

use std::time::Duration;

use humantime_serde::re::humantime::format_duration;
use serde_json::{Map, Value};

use super::Failed;
use crate::console::columns::aligned;
use crate::letter::rfc_3339;
use crate::machine::Wall;
use crate::plain;

const WIDEST: usize = 60;

pub struct List {
    pub(super) name: &'static str,
    /// Default columns, in the form of `--columns`.
    pub(super) usual: &'static str,
    pub(super) more: &'static str,
}

// === impl List ===

impl List {
    /// `headed`: for people; else for scripts, with whole cells separated by tabs.
    ///
    /// # Errors
    /// An unknown column.
    pub(super) fn text(
        &self,
        answer: &Value,
        columns: &[String],
        headed: bool,
    ) -> Result<String, Failed> {
        let usual: Vec<String> = self.usual.split(',').map(str::to_owned).collect();
        let columns = match columns {
            [] => &usual,
            columns => columns,
        };
        let objects = answer[self.name].as_array().map_or(&[][..], |list| list);
        let known = |column: &&String| {
            usual.contains(column) || objects.iter().any(|it| it.get(column).is_some())
        };
        if let Some(name) = columns.iter().find(|column| !known(column)) {
            let of_first = objects.first().and_then(Value::as_object);
            let all = match of_first {
                Some(first) => first.keys().cloned().collect(),
                None => usual.clone(),
            };
            let (name, all) = (name.clone(), all.join(", "));
            return Err(Failed::NoColumn { name, all });
        }
        let mut text = table(objects, columns, headed);
        if headed && let Some(all) = answer.as_object() {
            let is_more = |name: &str| self.more.split(',').any(|more| more == name);
            let more = all.iter().filter(|(name, _)| is_more(name));
            text += &sections(more);
        }
        Ok(text)
    }
}

fn table(objects: &[Value], columns: &[String], headed: bool) -> String {
    let row = |object: &Value| -> Vec<String> {
        let cells = columns.iter().map(|name| cell(name, &object[name], headed));
        cells.map(|cell| plain::line(&cell)).collect()
    };
    let rows = objects.iter().map(row);
    if !headed {
        let lines = rows.map(|cells| cells.join("\t") + "\n");
        return lines.collect();
    }
    let heading = columns.iter().map(|name| name.to_uppercase());
    let mut table = vec![heading.collect::<Vec<_>>()];
    table.extend(rows.map(|cells| cells.into_iter().map(cut).collect()));
    aligned(&table)
}

pub(super) fn facts(of: &Value, columns: &[String]) -> String {
    let is_told = |(name, value): &(&String, &Value)| {
        *name != "notes" && !is_empty(value) && (columns.is_empty() || columns.contains(name))
    };
    let facts = of.as_object().into_iter().flatten().filter(is_told);
    let (short, long): (Vec<_>, Vec<_>) = facts.partition(|(_, value)| match value {
        Value::String(text) => !text.contains('\n'),
        Value::Object(it) => it.contains_key("exchange"),
        other => !other.is_array(),
    });
    let rows = short
        .into_iter()
        .map(|(name, value)| [name.clone(), cell(name, value, true)]);
    aligned(&rows.collect::<Vec<_>>()) + &sections(long)
}

fn sections<'a>(parts: impl IntoIterator<Item = (&'a String, &'a Value)>) -> String {
    let parts = parts.into_iter().filter(|(_, value)| !is_empty(value));
    let section = |(name, value): (&String, &Value)| {
        let text = match value {
            Value::Array(items) => match items.first().and_then(Value::as_object) {
                Some(first) => table(items, &first.keys().cloned().collect::<Vec<_>>(), true),
                None => aligned(
                    &items
                        .iter()
                        .map(|it| [cell("", it, true)])
                        .collect::<Vec<_>>(),
                ),
            },
            Value::String(text) => plain::lines(text),
            other => facts(other, &[]),
        };
        let lines = text.lines().map(|line| format!("  {line}\n"));
        format!("\n{}\n{}", plain::line(name), lines.collect::<String>())
    };
    parts.map(section).collect()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn cell(name: &str, value: &Value, for_people: bool) -> String {
    match (value, value.as_u64().filter(|_| for_people)) {
        (Value::Null, _) => String::new(),
        (Value::String(text), _) => text.clone(),
        (_, Some(seconds)) if name.ends_with("-seconds") => {
            format_duration(Duration::from_secs(seconds)).to_string()
        }
        (_, Some(millis)) if matches!(name, "begun" | "ended") => rfc_3339(Wall(millis)),
        (_, Some(seconds)) if name == "time" => rfc_3339(Wall(seconds.saturating_mul(1000))),
        (Value::Array(items), _) if items.iter().all(|it| !it.is_object() || is_target(it)) => {
            let items: Vec<_> = items.iter().map(|it| cell("", it, for_people)).collect();
            items.join(",")
        }
        (Value::Object(target), _) if is_target(value) => words(target),
        (Value::Object(counts), _) if counts.values().all(Value::is_u64) => {
            let counts: Vec<_> = counts
                .iter()
                .map(|(why, n)| format!("{why}: {n}"))
                .collect();
            counts.join(", ")
        }
        (other, _) => other.to_string(),
    }
}

fn is_target(value: &Value) -> bool {
    value.get("exchange").is_some_and(Value::is_string)
}

/// Exchange and key. Behind the default exchange the key is a queue.
fn words(target: &Map<String, Value>) -> String {
    let text = |name| target.get(name).and_then(Value::as_str);
    match (text("exchange").unwrap_or_default(), text("routing-key")) {
        ("", Some(queue)) => format!("queue {queue}"),
        ("", None) => "default exchange".to_owned(),
        (exchange, key) => format!("{exchange}/{}", key.unwrap_or("*")),
    }
}

fn cut(cell: String) -> String {
    match cell.char_indices().nth(WIDEST) {
        Some((end, _)) => format!("{}…", &cell[..end]),
        None => cell,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LIST: List = List {
        name: "queues",
        usual: "id,n,keys,none",
        more: "causes",
    };

    fn answer() -> Value {
        json!({
            "queues": [
                {"id": "a\u{1b}", "n": 1, "keys": ["x", "y"], "none": null, "reported-seconds": 3_661, "stay": {"n\u{9b}": 1, "m": 2},
                 "to": [{"exchange": "", "routing-key": "dead"}, {"exchange": "x", "routing-key": null}]},
                {"id": "b".repeat(61), "n": 22},
            ],
            "causes": {"undeclared": {"says": "Nobody\nknows it.", "advice": "Declare it."}},
            "notes": ["what it cost"],
        })
    }

    #[test]
    fn people_get_a_heading_and_scripts_get_tabs() {
        let read = LIST.text(&answer(), &[], true).expect("all known");
        let (b, space) = ("b".repeat(60), " ".repeat(54));
        assert_eq!(
            read,
            format!(
                "ID{space}       N   KEYS  NONE\na\\u{{1b}}{space}  1   x,y\n{b}…  22\n\n\
                 causes\n  \n  undeclared\n    advice  Declare it.\n    \n    says\n      Nobody\n      knows it.\n"
            )
        );
        let cells = LIST.text(&answer(), &[], false).expect("all known");
        assert_eq!(cells, format!("a\\u{{1b}}\t1\tx,y\t\n{b}b\t22\t\t\n"));
    }

    #[test]
    fn people_read_times_targets_and_counts() {
        let columns = ["reported-seconds", "to", "stay"].map(str::to_owned);
        let read = |headed| LIST.text(&answer(), &columns, headed).expect("all known");
        let row = read(true).lines().nth(1).expect("a row").to_owned();
        assert_eq!(row, "1h 1m 1s          queue dead,x/*  m: 2, n\\u{9b}: 1");
        assert!(read(false).starts_with("3661\tqueue dead,x/*\t"));
    }

    #[test]
    fn a_column_that_there_is_not_is_named() {
        let failed = LIST.text(&json!({}), &["it".to_owned()], false);
        let words = failed.err().map(|failed| failed.to_string());
        let expected = "there is no column `it`; there are: id, n, keys, none";
        assert_eq!(words.as_deref(), Some(expected));
    }

    #[test]
    fn a_message_is_told_from_its_death_to_its_body() {
        let detail = json!({
            "position": 3, "id": "00ff", "source-queue": "orders", "died-at": null, "begun": 1_000, "routing-key": "a\u{1b}b",
            "properties": {"content-type": "text/plain", "priority": 3},
            "headers": [
                {"name": "x", "type": "longstr", "value": "<script>"},
                {"name": "list", "type": "array", "value": [1, {"a": "\u{9b}"}]},
            ],
            "history": ["It was rejected.", "It was rejected again."],
            "body": {"encoding": "text", "text": "two\nlines\u{7}", "cut": true},
        });
        insta::assert_snapshot!(facts(&detail, &[]), @r#"
        begun         1970-01-01T00:00:01Z
        id            00ff
        position      3
        routing-key   a\u{1b}b
        source-queue  orders

        body
          cut       true
          encoding  text
          
          text
            two
            lines\u{7}

        headers
          NAME  TYPE     VALUE
          x     longstr  <script>
          list  array    [1,{"a":"\u{9b}"}]

        history
          It was rejected.
          It was rejected again.

        properties
          content-type  text/plain
          priority      3
        "#);
        assert_eq!(facts(&detail, &["id".to_owned()]), "id  00ff\n");
    }
}
