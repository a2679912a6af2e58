//! `dlx-proxy dead-letters queues`: the queues that dead letters go to, for people.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Failed, Said, or_usual, request, table};
use crate::admin::client::Client;
use crate::cli::{Output, Queues};
use crate::plain;

/// The columns of the list, and those that a table shows if nobody says.
const ALL: [&str; 6] = [
    "queue",
    "messages",
    "oldest-seconds",
    "dead-letters",
    "targets",
    "parking",
];
const USUAL: [&str; 5] = ["queue", "messages", "oldest", "dead-letters", "targets"];

/// Asks, and says what was answered.
///
/// # Errors
/// When there is no answer, or a column that there is not was asked for.
pub async fn queues(client: &Client, asked: &Queues) -> Result<Said, Failed> {
    let place = &asked.place;
    let answer = client
        .get(&request::dead_letter_queues(&place.vhost))
        .await?;
    if place.printing.output == Output::Json {
        return Ok(Said::json(&answer));
    }
    said(&answer, &asked.columns, !place.printing.non_interactive)
}

fn said(answer: &Value, columns: &[String], headed: bool) -> Result<Said, Failed> {
    let objects = |name: &str| answer[name].as_array().map_or(&[][..], |list| list);
    let readable: Vec<Value> = objects("dead-letter-queues").iter().map(readable).collect();
    let columns = or_usual(columns, &USUAL);
    let all = [&ALL[..], &["oldest"]].concat();
    let mut notes: Vec<String> = objects("elsewhere").iter().map(elsewhere).collect();
    if let Some(left_out @ 1..) = answer["left-out"].as_u64() {
        notes.push(format!(
            "{left_out} dead letters went to more queues than the proxy remembers"
        ));
    }
    let text = table::table(&readable, &columns, &all, headed)?;
    let mut said = Said::text(answer, text);
    said.notes.splice(0..0, notes);
    Ok(said)
}

/// With words for what the JSON has numbers and objects for.
fn readable(queue: &Value) -> Value {
    let mut readable = queue.clone();
    readable["oldest"] = json!(time(&queue["oldest-seconds"]));
    let mut targets: Vec<String> = queue["targets"]
        .as_array()
        .map_or(&[][..], |list| list)
        .iter()
        .map(target)
        .collect();
    if queue["parking"] == true {
        targets.push("what is parked".to_owned());
    }
    readable["targets"] = json!(targets);
    readable
}

pub(super) fn time(seconds: &Value) -> Option<String> {
    let time = Duration::from_secs(seconds.as_u64()?);
    Some(humantime_serde::re::humantime::format_duration(time).to_string())
}

/// An exchange with its key.
pub(super) fn target(target: &Value) -> String {
    let exchange = target["exchange"].as_str().unwrap_or_default();
    match (exchange, target["routing-key"].as_str()) {
        ("", _) => "default exchange".to_owned(),
        (exchange, Some(key)) => format!("{exchange}/{key}"),
        (exchange, None) => format!("{exchange}/*"),
    }
}

/// A target of which nobody knows where it leads.
fn elsewhere(told: &Value) -> String {
    let target = plain::line(&target(told));
    let letters = told["dead-letters"].as_u64().unwrap_or_default();
    format!("{letters} dead letters went to {target}; it is not known to which queues that leads")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_times_and_targets() {
        let answer = json!({
            "dead-letter-queues": [
                {"queue": "dead\u{1b}", "parking": false, "messages": 3, "oldest-seconds": 3_661, "dead-letters": 5,
                 "targets": [{"exchange": "", "routing-key": "dead"}, {"exchange": "x", "routing-key": "k"}, {"exchange": "y", "routing-key": null}]},
                {"queue": "parked", "parking": true, "messages": null, "oldest-seconds": null, "dead-letters": 1, "targets": []},
            ],
            "elsewhere": [{"exchange": "h\n", "routing-key": "k", "dead-letters": 7}],
            "left-out": 2,
            "notes": ["so it is"],
        });
        let said = said(&answer, &[], true).expect("known columns");
        assert_eq!(
            said.answer,
            "QUEUE       MESSAGES  OLDEST    DEAD-LETTERS  TARGETS\n\
             dead\\u{1b}  3         1h 1m 1s  5             default exchange,x/k,y/*\n\
             parked                          1             what is parked\n"
        );
        assert_eq!(
            said.notes,
            [
                "7 dead letters went to h\\n/k; it is not known to which queues that leads",
                "2 dead letters went to more queues than the proxy remembers",
                "so it is"
            ]
        );
    }
}
