//! What the API tells, as tables and facts: each column and each fact is a field of the answer, by its name there.

use maud::{Markup, html};
use serde::Serialize;
use serde_json::Value;

use super::text;
use crate::letter::rfc_3339;
use crate::machine::Wall;

/// `columns`: separated by commas. `link`: by row and column.
pub(super) fn table<T: Serialize>(
    rows: &[T],
    columns: &str,
    link: impl Fn(usize, &str) -> Option<String>,
) -> Markup {
    table_of(rows, columns, |at, name, cell| match link(at, name) {
        Some(path) => html! { a href=(path) { (cell) } },
        None => cell,
    })
}

/// `own`: what stands in a cell, by row and column, from what would stand there.
pub(super) fn table_of<T: Serialize>(
    rows: &[T],
    columns: &str,
    own: impl Fn(usize, &str, Markup) -> Markup,
) -> Markup {
    let columns: Vec<&str> = columns.split(',').collect();
    let rows: Vec<Value> = rows.iter().map(value).collect();
    let is_number = |name: &str| rows.iter().any(|row| row[name].is_u64());
    let class = |name: &str| match name {
        "preview" | "value" => Some("wide"),
        "error" | "targets" => Some("text"),
        "select" => Some("own"),
        "actions" => Some("own acts"),
        "routing-key" | "size" | "redriven" | "oldest" => Some("detail"),
        "time" => None,
        name => is_number(name).then_some("number"),
    };
    html! {
        table.stacked {
            thead { tr { @for name in &columns { th scope="col" class=[class(name)] { (label(name)) } } } }
            tbody { @for (at, row) in rows.iter().enumerate() { tr { @for name in &columns {
                td class=[class(name)] data-label=(label(name)) {
                    (own(at, name, cell(name, &row[*name])))
                }
            } } } }
        }
    }
}

/// `names`: fields to show; empty: all.
pub(super) fn facts(of: &impl Serialize, names: &str) -> Markup {
    let of = value(of);
    let named: Vec<&str> = match names {
        "" => of
            .as_object()
            .into_iter()
            .flat_map(|it| it.keys())
            .map(String::as_str)
            .collect(),
        names => names.split(',').collect(),
    };
    html! {
        dl.facts { @for name in named { div { dt { (label(name)) } dd { (cell(name, &of[name])) } } } }
    }
}

/// As the API names one of several.
pub(super) fn word(of: &impl Serialize) -> String {
    value(of).as_str().unwrap_or_default().to_owned()
}

fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).unwrap_or_default()
}

/// `died-at` becomes `Died at`.
fn label(name: &str) -> String {
    let words = match name {
        "select" | "actions" => "",
        "source" | "source-queue" => "died in",
        "routing-keys" => "routing key",
        "original-expiration" => "TTL in ms",
        name => name.trim_end_matches("-seconds"),
    };
    let words = words.replace('-', " ");
    let mut chars = words.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

fn cell(name: &str, value: &Value) -> Markup {
    match (value, value.as_u64()) {
        (Value::Null, _) => html! { span.none { "–" } },
        (Value::Bool(is), _) => html! { @if *is { "yes" } @else { "no" } },
        (_, Some(bytes)) if name == "size" => html! { (text::bytes(bytes)) },
        (_, Some(seconds)) if name.ends_with("-seconds") => html! { (text::duration(seconds)) },
        (_, Some(seconds)) if name == "time" => {
            let at = rfc_3339(Wall::of_seconds(seconds));
            html! { time data-exact datetime=(at) { (at) } }
        }
        (_, Some(millis)) if name == "begun" => text::time(&rfc_3339(Wall(millis))),
        (_, Some(number)) => html! { (text::number(number)) },
        (Value::String(at), _) if ["died-at", "oldest", "newest"].contains(&name) => text::time(at),
        (Value::String(text), _) => text::name(text),
        (Value::Array(items), _) if name == "routing-keys" => html! {
            @for (at, key) in items.iter().enumerate() { @if at > 0 { ", " } (text::name(key.as_str().unwrap_or_default())) }
        },
        (Value::Array(items), _) if name == "targets" => {
            html! { ul.plain { @for it in items { li { (target(it)) } } } }
        }
        (other, _) => {
            let pretty = serde_json::to_string_pretty(other).unwrap_or_default();
            html! { pre { (text::visible(&pretty)) } }
        }
    }
}

pub(super) fn target(target: &impl Serialize) -> Markup {
    let target = value(target);
    html! {
        @match target["exchange"].as_str() {
            None | Some("") => "default exchange",
            Some(exchange) => (text::name(exchange)),
        }
        @match target["routing-key"].as_str() {
            None => " with many keys",
            Some("") => "",
            Some(key) => { " with key " (text::name(key)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_shown_by_their_names_and_kinds() {
        let rows = [json!({
            "died-at": "2026-01-02T03:04:05Z", "oldest-seconds": 7200, "size": 2048, "messages": 12345, "error": null, "parking": true, "routing-key": "",
            "queue": "<b>\u{202e}", "targets": [{"exchange": "", "routing-key": "<q>"}, {"exchange": "x", "routing-key": null}],
            "value": [1, {"a": "<i>"}],
        })];
        let columns =
            "died-at,oldest-seconds,size,messages,error,parking,routing-key,queue,targets,value";
        let link = |at, name: &str| (name == "queue").then(|| format!("/{at}"));
        let table = table(&rows, columns, link).into_string();
        for part in [
            "<th scope=\"col\">Died at</th>",
            "data-label=\"Oldest\"",
            "2026-01-02 03:04:05</time>",
            ">2 h<",
            ">2.0 KiB<",
            "12\u{202f}345",
            "–",
            ">yes<",
            "(empty)",
            "<a href=\"/0\"><bdi class=\"name\">&lt;b&gt;\\u{202e}</bdi></a>",
            "default exchange with key <bdi class=\"name\">&lt;q&gt;</bdi>",
            "x</bdi> with many keys",
            "&quot;&lt;i&gt;&quot;",
        ] {
            assert!(table.contains(part), "{part} in {table}");
        }
        let facts = facts(&json!({"a-b": 1, "c": "d"}), "").into_string();
        assert!(facts.contains("<dt>A b</dt><dd>1</dd>"), "{facts}");
    }
}
