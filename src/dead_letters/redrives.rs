//! `dlx-proxy dead-letters redrives`: those at work and those that have ended, for people.

use serde_json::{Value, json};

use super::request;
use super::{Failed, Said, or_usual, table, words};
use crate::admin::client::Client;
use crate::cli::{Output, Redrives};
use crate::columns::aligned;
use crate::http::escaped;
use crate::letter::rfc_3339;
use crate::machine::Wall;
use crate::redrives::Shown;

/// The columns of a list, and those that a table shows if nobody says.
const ALL: [&str; 12] = [
    "id", "vhost", "queue", "by", "to", "state", "begun", "ended", "ready", "seen", "gone", "stay",
];
const USUAL: [&str; 8] = [
    "id", "queue", "to", "state", "begun", "ready", "gone", "stay",
];

/// Asks, and says what was answered.
///
/// # Errors
/// When there is no answer, or a column that there is not was asked for.
pub async fn redrives(client: &Client, asked: &Redrives) -> Result<Said, Failed> {
    let place = asked.place();
    let all = request::redrives(&place.vhost);
    let one = |id: &str| format!("{all}/{}", escaped(id.as_bytes()));
    let answer = match asked {
        Redrives::List { .. } => client.get(&all).await?,
        Redrives::Show { id, .. } => client.get(&one(id)).await?,
        Redrives::Pause { id, .. } => client.post(&(one(id) + "/pause")).await?,
        Redrives::Resume { id, .. } => client.post(&(one(id) + "/resume")).await?,
        Redrives::Cancel { id, .. } => client.post(&(one(id) + "/cancel")).await?,
    };
    if place.printing.output == Output::Json {
        return Ok(Said::json(&answer));
    }
    let text = match asked {
        Redrives::List { columns, .. } => {
            let list = answer["redrives"].as_array();
            let list = list.map_or(&[][..], |list| list).iter().map(readable);
            let list = list.collect::<Result<Vec<_>, _>>()?;
            let columns = or_usual(columns, &USUAL);
            table::table(&list, &columns, &ALL, !place.printing.non_interactive)?
        }
        Redrives::Show { .. } => facts(&answer)?,
        Redrives::Pause { .. } => told(&answer, "is paused")?,
        Redrives::Resume { .. } => told(&answer, "goes on")?,
        Redrives::Cancel { .. } => told(&answer, "goes no further; what is on its way arrives")?,
    };
    Ok(Said::text(&answer, text))
}

fn told(redrive: &Value, what: &str) -> Result<String, Failed> {
    let shown: Shown = serde_json::from_value(redrive.clone())?;
    Ok(format!("{} {} {what}.\n", words::what(&shown), shown.id))
}

/// With words for what the JSON has numbers and objects for.
fn readable(redrive: &Value) -> Result<Value, Failed> {
    let shown: Shown = serde_json::from_value(redrive.clone())?;
    let mut readable = redrive.clone();
    let at = |millis: u64| rfc_3339(Wall(millis));
    readable["begun"] = json!(at(shown.begun));
    readable["ended"] = json!(shown.ended.map(at));
    readable["stay"] = json!(words::reasons(&shown));
    Ok(readable)
}

/// One, with a line for each fact that there is.
fn facts(redrive: &Value) -> Result<String, Failed> {
    let readable = readable(redrive)?;
    let names = ALL.into_iter().chain(["cause"]);
    let facts = names.map(|name| [name.to_owned(), table::cell(readable.get(name))]);
    let facts = facts.filter(|[_, value]| !value.is_empty());
    Ok(aligned(&facts.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redrive() -> Value {
        json!({
            "id": 7, "vhost": "/", "queue": "a\u{1b}[31m", "by": "me", "to": "source", "state": "failed", "begun": 1_000, "ended": 62_000,
            "ready": null, "seen": 5, "gone": 2, "stay": {"unroutable": 2, "n\u{9b}": 1}, "cause": "gone\n",
        })
    }

    #[test]
    fn one_is_shown_in_facts() {
        let said = facts(&redrive()).expect("it can be read");
        assert_eq!(
            said,
            "id     7\n\
             vhost  /\n\
             queue  a\\u{1b}[31m\n\
             by     me\n\
             to     source\n\
             state  failed\n\
             begun  1970-01-01T00:00:01Z\n\
             ended  1970-01-01T00:01:02Z\n\
             seen   5\n\
             gone   2\n\
             stay   3 stay (n\\u{9b}: 1, unroutable: 2)\n\
             cause  gone\\n\n"
        );
    }

    #[test]
    fn another_form_is_no_answer() {
        assert!(matches!(facts(&json!({"id": 7})), Err(Failed::Strange(_))));
    }
}
