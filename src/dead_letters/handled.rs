//! `dlx-proxy queues`: the queues that the proxy handles, and how, for people.

use serde_json::{Value, json};

use super::queues::{target, time};
use super::request::{self, Query};
use super::{Failed, Said, or_usual, table};
use crate::admin::client::Client;
use crate::cli::{Handled, Output};
use crate::plain;

/// The columns of the list, and those that a table shows if nobody says.
const ALL: [&str; 8] = [
    "state",
    "queue",
    "cause",
    "target",
    "leads-to",
    "retries",
    "told-by",
    "told-seconds",
];
const USUAL: [&str; 7] = [
    "state", "queue", "cause", "target", "leads-to", "retries", "told",
];

/// Asks, and says what was answered.
///
/// # Errors
/// When there is no answer, or a column that there is not was asked for.
pub async fn handled(client: &Client, asked: &Handled) -> Result<Said, Failed> {
    let place = &asked.place;
    let mut query = Query::default();
    asked
        .state
        .iter()
        .for_each(|state| query.add("state", state));
    query.number("limit", asked.limit);
    let path = request::handled(&place.vhost) + &query.finish();
    let answer = client.get(&path).await?;
    match place.printing.output {
        Output::Json => Ok(Said::json(&answer)),
        Output::Table => said(&answer, &asked.columns, !place.printing.non_interactive),
    }
}

fn said(answer: &Value, columns: &[String], headed: bool) -> Result<Said, Failed> {
    let queues = answer["queues"].as_array().map_or(&[][..], |list| list);
    let readable: Vec<Value> = queues.iter().map(readable).collect();
    let columns = or_usual(columns, &USUAL);
    let all = [&ALL[..], &["told"]].concat();
    let mut text = table::table(&readable, &columns, &all, headed)?;
    let causes = answer["causes"].as_object().filter(|_| headed);
    for (name, cause) in causes.into_iter().flatten() {
        let part = |part: &str| cause[part].as_str().unwrap_or_default().to_owned();
        text += &format!("\n{}: {}\n", plain::line(name), plain::line(&part("says")));
        let advice = plain::line(&part("advice"));
        if !advice.is_empty() {
            text += &format!("  → {advice}\n");
        }
    }
    let mut said = Said::text(answer, text);
    if let Some(left_out @ 1..) = answer["left-out"].as_u64() {
        said.notes
            .insert(0, format!("{left_out} more queues are not shown"));
    }
    Ok(said)
}

/// With words for what the JSON has objects and numbers for.
fn readable(queue: &Value) -> Value {
    let mut readable = queue.clone();
    if let Some(it) = queue["target"].as_object() {
        // Of the default exchange the key is a queue.
        let key = it["routing-key"].as_str().filter(|_| it["exchange"] == "");
        let by_name = key.map(|key| format!("queue {key}"));
        readable["target"] = json!(by_name.unwrap_or_else(|| target(&queue["target"])));
    }
    readable["retries"] = json!(if queue["retries"] == true { "yes" } else { "" });
    let by = queue["told-by"].as_str().unwrap_or("asked in vain");
    if let Some(ago) = time(&queue["told-seconds"]) {
        readable["told"] = json!(format!("{by}, {ago} ago"));
    }
    readable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_why_once_for_each_cause() {
        let answer = json!({
            "queues": [
                {"queue": "a\u{1b}", "state": "unknown", "cause": "undeclared", "target": null, "leads-to": null, "retries": false,
                 "told-by": null, "told-seconds": 61},
                {"queue": "b", "state": "full", "cause": "taken-over", "target": {"exchange": "", "routing-key": "dead"}, "leads-to": "queue",
                 "retries": true, "told-by": "declare", "told-seconds": 5},
                {"queue": "c", "state": "full", "cause": "taken-over", "target": {"exchange": "x", "routing-key": null}, "leads-to": "unknown",
                 "retries": false, "told-by": "management-api", "told-seconds": 0},
            ],
            "causes": {"undeclared": {"says": "Nobody knows it.", "advice": "Declare it."}, "taken-over": {"says": "So it is.", "advice": ""}},
            "left-out": 2,
            "notes": [],
        });
        let printed = said(&answer, &[], true).expect("known columns");
        assert_eq!(
            printed.answer,
            "STATE    QUEUE    CAUSE       TARGET      LEADS-TO  RETRIES  TOLD\n\
             unknown  a\\u{1b}  undeclared                                 asked in vain, 1m 1s ago\n\
             full     b        taken-over  queue dead  queue     yes      declare, 5s ago\n\
             full     c        taken-over  x/*         unknown            management-api, 0s ago\n\
             \ntaken-over: So it is.\n\
             \nundeclared: Nobody knows it.\n  → Declare it.\n"
        );
        assert_eq!(printed.notes, ["2 more queues are not shown"]);
        let columns = ["queue".to_owned(), "told-seconds".to_owned()];
        let printed = said(&answer, &columns, false).expect("known columns");
        assert_eq!(printed.answer, "a\\u{1b}\t61\nb\t5\nc\t0\n");
    }
}
