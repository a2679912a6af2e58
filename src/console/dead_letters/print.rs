//! Answers of the API for people and for scripts: a list as a table, one thing as its facts.

use std::time::{Duration, UNIX_EPOCH};

use anstyle::{AnsiColor, Style};
use humantime_serde::re::humantime::{format_duration, parse_rfc3339_weak};
use serde_json::{Map, Value};

use super::Failed;
use crate::console::columns::{Screen, aligned};
use crate::console::count::count;
use crate::letter::rfc_3339;
use crate::machine::Wall;
use crate::plain;

/// Columns that the next command needs, or that say what a row is: they are cut last.
const NAMES: [&str; 8] = [
    "id",
    "queue",
    "source",
    "source-queue",
    "state",
    "reason",
    "messages",
    "vhost",
];
const TIMES: [&str; 6] = ["died-at", "oldest", "newest", "begun", "ended", "time"];

pub struct List {
    pub(super) name: &'static str,
    /// Default columns, in the form of `--columns`.
    pub(super) usual: &'static str,
    pub(super) more: &'static str,
    /// A sentence in place of an empty table.
    pub(super) empty: &'static str,
}

// === impl List ===

impl List {
    /// `screen`: for people; else for scripts, with whole cells separated by tabs.
    ///
    /// # Errors
    /// An unknown column.
    pub(super) fn text(
        &self,
        answer: &Value,
        columns: &[String],
        screen: Option<Screen>,
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
        let mut text = match screen {
            Some(_) if objects.is_empty() => self.nothing(answer),
            screen => table(objects, columns, screen),
        };
        if let (Some(screen), Some(all)) = (screen, answer.as_object()) {
            let is_more = |name: &str| self.more.split(',').any(|more| more == name);
            let more = all.iter().filter(|(name, _)| is_more(name));
            text += &sections(more, screen);
        }
        Ok(text)
    }

    fn nothing(&self, answer: &Value) -> String {
        let queue = plain::line(answer["queue"].as_str().unwrap_or_default());
        match answer["scanned"].as_u64() {
            Some(seen @ 1..) => {
                let seen = count(seen, "message");
                format!("None of {seen} in `{queue}` matches.\n")
            }
            _ => self.empty.replace("QUEUE", &queue) + "\n",
        }
    }
}

fn table(objects: &[Value], columns: &[String], screen: Option<Screen>) -> String {
    let row = |object: &Value| -> Vec<String> {
        let cells = columns.iter().map(|name| cell(name, &object[name], screen));
        cells.map(|cell| plain::line(&cell)).collect()
    };
    let rows = objects.iter().map(row);
    let Some(screen) = screen else {
        let lines = rows.map(|cells| cells.join("\t") + "\n");
        return lines.collect();
    };
    let heading = columns.iter().map(|name| name.to_uppercase());
    let mut table = vec![heading.collect::<Vec<_>>()];
    table.extend(rows);
    let keeps = |column: usize| NAMES.contains(&columns[column].as_str());
    screen.table(&table, keeps, |row, column, cell| match row {
        0 => Style::new().bold(),
        _ if columns[column] == "state" => of_state(cell),
        _ => Style::new(),
    })
}

/// Of a state or an outcome.
pub(super) fn of_state(state: &str) -> Style {
    let color = match state {
        "full" | "completed" | "confirmed" => AnsiColor::Green,
        "rejects-only" | "running" | "waiting" | "paused" | "parked" => AnsiColor::Yellow,
        "failed" | "dropped" | "refused" => AnsiColor::Red,
        _ => return Style::new(),
    };
    color.on_default()
}

pub(super) fn facts(of: &Value, columns: &[String], screen: Screen) -> String {
    let is_told = |(name, value): &(&String, &Value)| {
        *name != "notes" && !is_empty(value) && (columns.is_empty() || columns.contains(name))
    };
    let facts = of.as_object().into_iter().flatten().filter(is_told);
    let (short, long): (Vec<_>, Vec<_>) = facts.partition(|(_, value)| match value {
        Value::String(text) => !text.contains('\n'),
        Value::Object(it) => it.contains_key("exchange"),
        other => !other.is_array(),
    });
    let rows = short.into_iter().map(|(name, value)| {
        let absolute = cell(name, value, Some(Screen::default()));
        match cell(name, value, Some(screen)) {
            relative if relative != absolute => [name.clone(), format!("{absolute} ({relative})")],
            same => [name.clone(), same],
        }
    });
    aligned(&rows.collect::<Vec<_>>()) + &sections(long, screen)
}

fn sections<'a>(
    parts: impl IntoIterator<Item = (&'a String, &'a Value)>,
    mut screen: Screen,
) -> String {
    screen.width = screen.width.map(|width| width.saturating_sub(2));
    let parts = parts.into_iter().filter(|(_, value)| !is_empty(value));
    let section = |(name, value): (&String, &Value)| {
        let text = match value {
            Value::Array(items) => match items.first().and_then(Value::as_object) {
                Some(first) => {
                    let columns: Vec<_> = first.keys().cloned().collect();
                    table(items, &columns, Some(screen))
                }
                None => {
                    let lines = items.iter().map(|it| [cell("", it, Some(screen))]);
                    aligned(&lines.collect::<Vec<_>>())
                }
            },
            Value::String(text) => plain::lines(text),
            other => facts(other, &[], screen),
        };
        let lines = text.lines().map(|line| format!("  {line}\n"));
        let name = screen.paint(Style::new().bold(), &plain::line(name));
        format!("\n{name}\n{}", lines.collect::<String>())
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

/// `screen`: for people.
fn cell(name: &str, value: &Value, screen: Option<Screen>) -> String {
    match (value, value.as_u64().filter(|_| screen.is_some())) {
        (Value::Null, _) => String::new(),
        (Value::String(at), _) if TIMES.contains(&name) => when(at.clone(), screen),
        (Value::String(text), _) => text.clone(),
        (_, Some(seconds)) if name.ends_with("-seconds") => {
            format_duration(Duration::from_secs(seconds)).to_string()
        }
        (_, Some(millis)) if matches!(name, "begun" | "ended") => {
            when(rfc_3339(Wall(millis)), screen)
        }
        (_, Some(seconds)) if name == "time" => {
            when(rfc_3339(Wall(seconds.saturating_mul(1000))), screen)
        }
        (Value::Array(items), _) if items.iter().all(is_a_word) => {
            let items: Vec<_> = items.iter().map(|it| cell("", it, screen)).collect();
            items.join(",")
        }
        (Value::Object(target), _) if is_target(value) => words(target),
        (Value::Object(of), _) if is_difference(value) => {
            let text = |name| of.get(name).and_then(Value::as_str);
            let [wanted, has] = ["wanted", "has"].map(|name| text(name).unwrap_or("none"));
            format!(
                "{} {wanted} (has {has})",
                text("argument").unwrap_or_default()
            )
        }
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

/// How long ago that was, on a terminal.
fn when(at: String, screen: Option<Screen>) -> String {
    let now = screen.and_then(|screen| screen.now);
    let then = parse_rfc3339_weak(&at).ok();
    let then = then.and_then(|then| then.duration_since(UNIX_EPOCH).ok());
    let (Some(now), Some(then)) = (now, then) else {
        return at;
    };
    match now.seconds().saturating_sub(then.as_secs()) {
        seconds @ 0..120 => format!("{seconds} s ago"),
        seconds @ 120..7200 => format!("{} min ago", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} d ago", seconds / 86_400),
    }
}

fn is_a_word(value: &Value) -> bool {
    !value.is_object() || is_target(value) || is_difference(value)
}

/// Of an argument, between a declare and its queue.
fn is_difference(value: &Value) -> bool {
    value.get("argument").is_some() && value.get("has").is_some()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LIST: List = List {
        name: "queues",
        usual: "id,n,keys,none",
        more: "causes",
        empty: "Nothing in `QUEUE`.",
    };
    const PEOPLE: Option<Screen> = Some(Screen {
        width: None,
        is_colored: false,
        now: None,
    });

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
        let read = LIST.text(&answer(), &[], PEOPLE).expect("all known");
        let (b, space) = ("b".repeat(61), " ".repeat(54));
        assert_eq!(
            read,
            format!(
                "ID{space}       N   KEYS  NONE\na\\u{{1b}}{space}  1   x,y\n{b}  22\n\n\
                 causes\n  \n  undeclared\n    advice  Declare it.\n    \n    says\n      Nobody\n      knows it.\n"
            )
        );
        let cells = LIST.text(&answer(), &[], None).expect("all known");
        assert_eq!(cells, format!("a\\u{{1b}}\t1\tx,y\t\n{b}\t22\t\t\n"));
    }

    #[test]
    fn people_read_times_targets_and_counts() {
        let columns = ["reported-seconds", "to", "stay"].map(str::to_owned);
        let read = |screen| LIST.text(&answer(), &columns, screen).expect("all known");
        let row = read(PEOPLE).lines().nth(1).expect("a row").to_owned();
        assert_eq!(row, "1h 1m 1s          queue dead,x/*  m: 2, n\\u{9b}: 1");
        assert!(read(None).starts_with("3661\tqueue dead,x/*\t"));
    }

    #[test]
    fn a_column_that_there_is_not_is_named() {
        let failed = LIST.text(&json!({}), &["it".to_owned()], None);
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
        insta::assert_snapshot!(facts(&detail, &[], Screen::default()), @r#"
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
        assert_eq!(
            facts(&detail, &["id".to_owned()], Screen::default()),
            "id  00ff\n"
        );
    }

    #[test]
    fn an_empty_list_is_a_sentence() {
        let read = |answer| LIST.text(&answer, &[], PEOPLE).expect("all known");
        let seen = json!({"queue": "q\u{1b}", "scanned": 7, "queues": []});
        assert_eq!(read(seen), "None of 7 messages in `q\\u{1b}` matches.\n");
        assert_eq!(
            read(json!({"queue": "q", "scanned": 0})),
            "Nothing in `q`.\n"
        );
        let scripts = LIST.text(&json!({}), &[], None).expect("all known");
        assert_eq!(scripts, "");
    }

    #[test]
    fn terminals_show_how_long_ago_it_was() {
        let screen = Screen {
            now: Some(Wall::of_seconds(1_000_000)),
            ..Screen::default()
        };
        let at = |ago: u64| json!(rfc_3339(Wall::of_seconds(1_000_000 - ago)));
        for (ago, says) in [
            (0, "0 s ago"),
            (119, "119 s ago"),
            (121, "2 min ago"),
            (7201, "2 h ago"),
            (200_000, "2 d ago"),
        ] {
            assert_eq!(cell("died-at", &at(ago), Some(screen)), says);
            assert_eq!(
                cell("died-at", &at(ago), None),
                at(ago).as_str().expect("text")
            );
        }
        assert_eq!(cell("died-at", &json!("of old"), Some(screen)), "of old");
        let both = facts(&json!({"begun": 999_999_000}), &[], screen);
        assert_eq!(both, "begun  1970-01-12T13:46:39Z (1 s ago)\n");
    }
}
