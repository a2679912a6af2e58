//! `dlx-proxy dead-letters`: asks a proxy what lies in a queue, and prints it for people or for scripts.

use std::ffi::OsStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde_json::Value;
use thiserror::Error;

use crate::admin::client::{Client, NoAnswer};
use crate::cli::{self, Filters, Output, Page};

mod plain;
mod show;
mod table;

/// What needs no escape in a path or a query, whatever it stands for.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

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
pub async fn ask(client: &Client, asked: &cli::DeadLetters) -> Result<Said, Failed> {
    let queue = asked.queue();
    let (path, query) = (path(queue), query(asked));
    let answer = match asked {
        cli::DeadLetters::List { .. } => client.get(&format!("{path}{query}")).await?,
        cli::DeadLetters::Groups { .. } => client.get(&format!("{path}/groups{query}")).await?,
        cli::DeadLetters::Show { id, .. } => {
            let id = percent_encode(id.as_bytes(), ESCAPED);
            client.get(&format!("{path}/{id}")).await?
        }
    };
    if queue.output == Output::Json {
        let json = format!("{answer:#}\n");
        return Ok(Said {
            answer: plain::json(&json),
            notes: Vec::new(),
        });
    }
    let objects = |name: &str| answer[name].as_array().map_or(&[][..], |list| list);
    let headed = !queue.non_interactive;
    let text = match asked {
        cli::DeadLetters::List { columns, .. } => {
            let columns = or_usual(columns, &USUAL_OF_LETTER);
            table::table(objects("dead-letters"), &columns, &LETTER, headed)?
        }
        cli::DeadLetters::Groups { columns, .. } => {
            let columns = or_usual(columns, &USUAL_OF_GROUP);
            table::table(objects("groups"), &columns, &GROUP, headed)?
        }
        cli::DeadLetters::Show { .. } => show::text(&answer),
    };
    let notes = objects("notes").iter().filter_map(Value::as_str);
    Ok(Said {
        answer: text,
        notes: notes.map(plain::line).collect(),
    })
}

fn or_usual(columns: &[String], usual: &[&str]) -> Vec<String> {
    match columns {
        [] => usual.iter().map(|name| name.to_string()).collect(),
        columns => columns.to_vec(),
    }
}

fn path(queue: &cli::Queue) -> String {
    let (vhost, queue) = (escaped(&queue.vhost), escaped(&queue.queue));
    format!("/api/v1/vhosts/{vhost}/queues/{queue}/dead-letters")
}

/// With its `?`; empty if nothing is asked for.
fn query(asked: &cli::DeadLetters) -> String {
    let mut pairs = Vec::new();
    let mut add = |name: &str, value: &OsStr| pairs.push(format!("{name}={}", escaped(value)));
    if let cli::DeadLetters::List { filters, .. } | cli::DeadLetters::Groups { filters, .. } = asked
    {
        let Filters {
            source,
            reason,
            routing_key,
            headers,
            body,
            older_than,
        } = filters;
        let given = [
            ("source", source),
            ("reason", reason),
            ("routing-key", routing_key),
            ("body", body),
            ("older-than", older_than),
        ];
        for (name, value) in given {
            value.iter().for_each(|value| add(name, value));
        }
        headers.iter().for_each(|pair| add("header", pair));
    }
    if let cli::DeadLetters::List { page, .. } = asked {
        let Page { limit, offset } = page;
        for (name, value) in [("limit", limit), ("offset", offset)] {
            if let Some(value) = value {
                add(name, value.to_string().as_ref());
            }
        }
    }
    match pairs.is_empty() {
        true => String::new(),
        false => format!("?{}", pairs.join("&")),
    }
}

/// Octet by octet: names need not be UTF-8.
fn escaped(name: &OsStr) -> String {
    percent_encode(name.as_encoded_bytes(), ESCAPED).to_string()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn asked(arguments: &[&str]) -> cli::DeadLetters {
        let all = [&["dlx-proxy", "dead-letters"], arguments].concat();
        match Cli::parse_from(all).command() {
            Command::DeadLetters(asked) => asked,
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
            path(asked.queue()) + &query(&asked),
            "/api/v1/vhosts/%C3%BC/queues/a%2Fb%3Fc/dead-letters?source=x%26y&header=k%3Dv&header=l%3D%2B&limit=5"
        );
    }

    #[test]
    fn without_filters_there_is_no_query() {
        assert_eq!(query(&asked(&["groups", "--queue", "q"])), "");
        assert_eq!(query(&asked(&["show", "1", "--queue", "q"])), "");
    }
}
