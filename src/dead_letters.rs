//! `dlx-proxy dead-letters` and `redrives`: asks a proxy what lies in a queue, and what becomes of it; prints it for people or for scripts.

use std::io;

use serde_json::Value;
use thiserror::Error;

use crate::admin::client::{Client, NoAnswer};
use crate::cli::{self, Output, Page};
use crate::http::escaped;
use crate::plain;

mod confirm;
mod files;
mod follow;
mod handled;
mod moves;
mod queues;
mod redeclared;
mod redrives;
mod request;
mod show;
mod table;
mod words;

pub use files::{export, import};
pub use handled::handled;
pub use moves::move_them;
pub use queues::queues;
pub use redeclared::redeclared;
pub use redrives::redrives;
pub use words::Outcome;

use self::request::Query;

/// The columns of a list, and those that a table shows if nobody says.
const LETTER: [&str; 15] = [
    "position",
    "id",
    "source-queue",
    "reason",
    "died-at",
    "deaths",
    "exchange",
    "routing-key",
    "redelivered",
    "size",
    "error",
    "redriven",
    "parked-for",
    "parked-cause",
    "preview",
];
const USUAL_OF_LETTER: [&str; 8] = [
    "id",
    "died-at",
    "source-queue",
    "reason",
    "deaths",
    "routing-key",
    "size",
    "error",
];
/// The same of groups.
const GROUP: [&str; 7] = [
    "messages", "source", "reason", "error", "oldest", "newest", "is-rest",
];
const USUAL_OF_GROUP: [&str; 6] = ["messages", "source", "reason", "error", "oldest", "newest"];

/// Why nothing is printed.
#[derive(Debug, Error)]
pub enum Failed {
    /// The proxy has no answer.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    /// There is no such column.
    #[error("there is no column `{name}`; there are: {all}")]
    NoColumn {
        /// The column.
        name: String,
        /// Those that there are.
        all: String,
    },
    /// Nobody can say yes.
    #[error(
        "this moves messages, and nobody can be asked here: add --approve, or --dry-run to only count them"
    )]
    NotApproved,
    /// Somebody said no.
    #[error("nothing was moved")]
    Declined,
    /// The file cannot be read.
    #[error("cannot read the file")]
    NoFile(#[source] io::Error),
    /// The terminal cannot be read.
    #[error("cannot ask")]
    NotAsked(#[from] io::Error),
    /// The system does not let us listen to Ctrl-C.
    #[error("cannot listen to Ctrl-C")]
    NoSignals(#[source] io::Error),
    /// Something is missing in the answer, or has another form.
    #[error("the proxy answers otherwise than expected: it may be of another version")]
    Strange(#[from] serde_json::Error),
    /// Numbers begin anew with each process.
    #[error("the proxy was restarted, which ended this redrive: what had not gone is in its queue")]
    Restarted,
}

/// What is to be printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The answer.
    pub answer: String,
    /// What somebody should know beside it, a sentence each; empty where the answer has it.
    pub notes: Vec<String>,
}

/// Asks, and says what was answered.
///
/// # Errors
/// When there is no answer, or a column that there is not was asked for.
pub async fn ask(client: &Client, asked: &cli::Look) -> Result<(Said, Outcome), Failed> {
    let queue = asked.queue();
    let path = request::of_queue(queue, "dead-letters");
    let query = query(asked);
    let answer = match asked {
        cli::Look::List { .. } => client.get(&format!("{path}{query}")).await?,
        cli::Look::Groups { .. } => client.get(&format!("{path}/groups{query}")).await?,
        cli::Look::Show { id, .. } => {
            let id = escaped(id.as_bytes());
            client.get(&format!("{path}/{id}")).await?
        }
    };
    let outcome = Outcome::of_look(answer["stopped"].as_str());
    if queue.printing.output == Output::Json {
        return Ok((Said::json(&answer), outcome));
    }
    let objects = |name: &str| answer[name].as_array().map_or(&[][..], |list| list);
    let headed = !queue.printing.non_interactive;
    let text = match asked {
        cli::Look::List { columns, .. } => {
            let columns = or_usual(columns, &USUAL_OF_LETTER);
            table::table(objects("dead-letters"), &columns, &LETTER, headed)?
        }
        cli::Look::Groups { columns, .. } => {
            let columns = or_usual(columns, &USUAL_OF_GROUP);
            table::table(objects("groups"), &columns, &GROUP, headed)?
        }
        cli::Look::Show { .. } => show::text(&answer),
    };
    Ok((Said::text(&answer, text), outcome))
}

fn or_usual(columns: &[String], usual: &[&str]) -> Vec<String> {
    match columns {
        [] => usual.iter().map(|name| name.to_string()).collect(),
        columns => columns.to_vec(),
    }
}

/// With its `?`; empty if nothing is asked for.
fn query(asked: &cli::Look) -> String {
    let mut query = Query::default();
    if let cli::Look::List { filters, .. } | cli::Look::Groups { filters, .. } = asked {
        query.filters(filters);
    }
    if let cli::Look::List { page, .. } = asked {
        let Page { limit, offset } = page;
        query.number("limit", *limit);
        query.number("offset", *offset);
    }
    query.finish()
}

// === impl Said ===

impl Said {
    /// What the proxy answers.
    fn json(answer: &Value) -> Said {
        Said {
            answer: plain::json(&format!("{answer:#}\n")),
            notes: Vec::new(),
        }
    }

    /// This text, and the notes of the answer.
    fn text(answer: &Value, text: String) -> Said {
        let notes = answer["notes"].as_array().into_iter().flatten();
        Said {
            answer: text,
            notes: notes.filter_map(Value::as_str).map(plain::line).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command, DeadLetters};

    fn asked(arguments: &[&str]) -> cli::Look {
        let all = [&["dlx-proxy", "dead-letters"], arguments].concat();
        match Cli::parse_from(all).command {
            Command::DeadLetters(DeadLetters::Look(asked)) => asked,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_and_filters_are_escaped() {
        let asked = asked(&[
            "list", "--queue", "a/b?c", "--vhost", "ü", "--source", "x&y", "--header", "k=v",
            "--header", "l=+", "--limit", "5",
        ]);
        assert_eq!(
            request::of_queue(asked.queue(), "dead-letters") + &query(&asked),
            "/api/v1/vhosts/%C3%BC/queues/a%2Fb%3Fc/dead-letters?source=x%26y&header=k%3Dv&header=l%3D%2B&limit=5"
        );
    }

    #[test]
    fn notes_of_an_answer_are_lines_of_their_own() {
        let answer = serde_json::json!({"notes": ["what it cost\n", "that it starves"]});
        let said = Said::text(&answer, "moved\n".to_owned());
        assert_eq!(said.notes, ["what it cost\\n", "that it starves"]);
        assert!(Said::text(&Value::Null, String::new()).notes.is_empty());
    }

    #[test]
    fn without_filters_there_is_no_query() {
        assert_eq!(query(&asked(&["groups", "--queue", "q"])), "");
        assert_eq!(query(&asked(&["show", "1", "--queue", "q"])), "");
    }
}
