//! The commands that ask the API of a running proxy: which path each asks, and which lists of the answer are shown. What is typed behind a flag
//! that is none of the command's own is a parameter of the API with the same name.

use std::ffi::OsString;
use std::io;

use hyper::Method;
use serde_json::Value;
use thiserror::Error;

use crate::console::admin::client::{Client, NoAnswer};
use crate::console::cli::{self, DeadLetters, OneRedrive, Output, Place, Printing, Redrives, What};
use crate::console::columns::Screen;
use crate::plain;

mod adoption;
mod files;
mod foreign;
mod moves;
mod print;
mod request;
mod status;

pub use print::List;
pub use request::Query;
pub use status::{status, watch};

use self::request::path;

const LETTERS: List = List {
    name: "dead-letters",
    usual: "id,died-at,source-queue,reason,deaths,routing-key,size,error",
    more: "",
    empty: "No dead letters in `QUEUE`.",
};
const GROUPS: List = List {
    name: "groups",
    usual: "messages,source,reason,error,oldest,newest",
    more: "",
    empty: "No dead letters in `QUEUE`.",
};
const QUEUES: List = List {
    name: "dead-letter-queues",
    usual: "queue,messages,oldest-seconds,dead-letters,targets,parking",
    more: "elsewhere",
    empty: "No dead-letter queues that you may read.",
};
const REDRIVES: List = List {
    name: "redrives",
    usual: "id,queue,to,state,begun,ready,gone,stay",
    more: "",
    empty: "No redrives or purges since the proxy started.",
};
const HANDLED: List = List {
    name: "queues",
    usual: "state,queue,cause,target,leads-to,retries,ack-timeout-seconds,reported-by,reported-seconds,own-arguments,differs",
    more: "causes",
    empty: "No queues with dead letters or retries.",
};

pub const WAITING: List = List {
    name: "delay-queues",
    usual: "vhost,queue,waiting,leaving,scanned",
    more: "queues,intake",
    empty: "Nothing waits for a retry.",
};
pub const RELEASED: List = List {
    name: "delay-queues",
    usual: "vhost,queue,released,removed,put-back,cut-short",
    more: "",
    empty: "Nothing waited for a retry.",
};

#[derive(Debug, Error)]
pub enum Failed {
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    #[error("there is no column `{name}`; there are: {all}")]
    NoColumn { name: String, all: String },
    #[error(
        "this moves messages, and nobody can be asked here: add --approve, or --dry-run to only count them"
    )]
    NotApproved,
    #[error("nothing was changed, as nobody can be asked here: add --approve")]
    PlanNotApproved,
    #[error("nothing was changed")]
    PlanDeclined,
    #[error("nothing was moved")]
    Declined,
    #[error("cannot read the file")]
    NoFile(#[source] io::Error),
    #[error("{0}")]
    NoMessages(String),
    #[error("cannot ask")]
    NotAsked(#[from] io::Error),
    #[error("cannot listen to Ctrl-C")]
    NoSignals(#[source] io::Error),
    #[error("the proxy answers otherwise than expected: it may be of another version")]
    Strange,
    #[error("the proxy was restarted, which ended this redrive: what had not gone is in its queue")]
    Restarted,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    pub answer: String,
    /// One sentence each; empty if the answer contains them.
    pub notes: Vec<String>,
}

/// Determines the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All messages moved; with `--no-wait` or `--dry-run`: the request succeeded.
    All,
    /// Some messages stay, or it was cancelled.
    InPart,
    Failed,
    Left,
    /// Something is wrong at the broker or the proxy.
    Unhealthy,
}

pub async fn dead_letters(
    client: &Client,
    asked: &DeadLetters,
    query: Query,
) -> Result<(Said, Outcome), Failed> {
    let DeadLetters { place, what } = asked;
    let of = |queue: &OsString, page: &str| path(client, [&"queues", queue]) + page;
    let (path, list) = match what {
        What::Queues(_) => (path(client, [&"dead-letter-queues"]), Some(&QUEUES)),
        What::List { queue, .. } => (of(&queue.queue, "/dead-letters"), Some(&LETTERS)),
        What::Groups { queue, .. } => (of(&queue.queue, "/dead-letters/groups"), Some(&GROUPS)),
        What::Show { queue, id } => {
            let names = path(client, [&"queues", &queue.queue, &"dead-letters", id]);
            (names, None)
        }
        What::Redrives(Redrives::List) => (path(client, [&"redrives"]), Some(&REDRIVES)),
        What::Redrives(Redrives::Show(one)) => (path(client, [&"redrives", &one.id]), None),
        What::Redrives(Redrives::Pause(one)) => return change(client, place, one, "pause").await,
        What::Redrives(Redrives::Resume(one)) => return change(client, place, one, "resume").await,
        What::Redrives(Redrives::Cancel(one)) => return change(client, place, one, "cancel").await,
        What::Export { queue, .. } => {
            let page = of(&queue.queue, "/dead-letters/export") + &query.text();
            return files::export(client, &page).await;
        }
        What::Import { queue, file } => {
            let page = of(&queue.queue, "/dead-letters/import");
            return files::import(client, &page, file.as_deref(), &place.printing).await;
        }
        What::Redrive { queue, to, moving } => {
            let to = Some(to);
            return moves::carry_out(client, place, &queue.queue, query, to, moving).await;
        }
        What::Purge { queue, moving } => {
            return moves::carry_out(client, place, &queue.queue, query, None, moving).await;
        }
    };
    get(client, &(path + &query.text()), &place.printing, list).await
}

async fn change(
    client: &Client,
    place: &Place,
    one: &OneRedrive,
    verb: &str,
) -> Result<(Said, Outcome), Failed> {
    let path = path(client, [&"redrives", &one.id, &verb]);
    let answer = client.json(Method::POST, &path, "").await?;
    Ok((Said::of(&answer, &place.printing, None)?, Outcome::All))
}

pub async fn handled(
    client: &Client,
    asked: &cli::Handled,
    query: Query,
) -> Result<(Said, Outcome), Failed> {
    if let Some(what) = &asked.what {
        return adoption::carry_out(client, &asked.place.printing, what, query).await;
    }
    let path = path(client, [&"queues"]) + &query.text();
    get(client, &path, &asked.place.printing, Some(&HANDLED)).await
}

async fn get(
    client: &Client,
    path: &str,
    printing: &Printing,
    list: Option<&List>,
) -> Result<(Said, Outcome), Failed> {
    let answer = client.get(path).await?;
    let said = Said::of(&answer, printing, list)?;
    Ok((said, Outcome::of_look(answer["stopped"].as_str())))
}

// === impl Said ===

impl Said {
    pub fn of(answer: &Value, printing: &Printing, list: Option<&List>) -> Result<Said, Failed> {
        let screen = Screen::of_stdout(printing.color);
        let screen = match printing.output {
            Output::Json => {
                let answer = plain::json(&format!("{answer:#}\n"));
                let notes = Vec::new();
                return Ok(Said { answer, notes });
            }
            Output::Table => Some(screen),
            Output::Tsv => None,
        };
        let columns = &printing.columns;
        let text = match list {
            Some(list) => list.text(answer, columns, screen)?,
            None => print::facts(answer, columns, screen.unwrap_or_default()),
        };
        Ok(Said::text(text, answer))
    }

    fn text(text: String, answer: &Value) -> Said {
        let left_out = answer["left-out"].as_u64().filter(|left_out| *left_out > 0);
        let left_out = left_out.map(|left_out| format!("{left_out} more are left out"));
        let scanned = answer["scanned"].as_u64();
        let ready = answer["ready"]
            .as_u64()
            .filter(|_| answer["stopped"] == "enough");
        let more = ready.filter(|ready| Some(*ready) > scanned).map(|ready| {
            format!("The queue has {ready} messages: --limit and --offset show more.")
        });
        let notes = answer["notes"].as_array().into_iter().flatten();
        let notes = notes.filter_map(Value::as_str).map(plain::line);
        Said {
            answer: text,
            notes: left_out.into_iter().chain(more).chain(notes).collect(),
        }
    }
}

// === impl Outcome ===

impl Outcome {
    fn of_look(stopped: Option<&str>) -> Outcome {
        match stopped {
            None | Some("end" | "enough") => Outcome::All,
            Some(_) => Outcome::InPart,
        }
    }
}
