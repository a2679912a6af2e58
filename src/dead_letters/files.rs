//! `dlx-proxy dead-letters export` and `import`: messages as lines of JSON.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::request::{self, Query};
use super::{Failed, Outcome, Said};
use crate::admin::client::Client;
use crate::cli::{Filters, Output, Queue};
use crate::plain;

/// A request has at most so many lines, and after so many octets no further one.
const LINES: u64 = 500;
const OCTETS: usize = 4 << 20;

/// The last line of an export.
#[derive(Deserialize)]
struct Last {
    end: End,
}

#[derive(Deserialize)]
struct End {
    stopped: String,
    notes: Vec<String>,
}

/// What became of a request.
#[derive(Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
struct Imported {
    imported: u64,
    refused: Vec<u64>,
    unsure: u64,
    left: u64,
    cause: Option<String>,
}

/// The messages of a queue, a line each.
///
/// # Errors
/// When there is no answer.
pub async fn export(
    client: &Client,
    queue: &Queue,
    filters: &Filters,
    limit: Option<u64>,
) -> Result<(Said, Outcome), Failed> {
    let mut query = Query::default();
    query.filters(filters);
    query.number("limit", limit);
    let path = request::of_queue(queue, "dead-letters/export") + &query.finish();
    let file = client.file(&path).await?;
    let text = String::from_utf8_lossy(&file);
    // Without its last line it is cut.
    let (lines, last) = text.trim_end().rsplit_once('\n').unwrap_or(("", &text));
    let Last { end } = serde_json::from_str(last)?;
    let mut answer = plain::json(lines);
    if !lines.is_empty() {
        answer.push('\n');
    }
    let said = Said {
        answer,
        notes: end.notes.iter().map(|note| plain::line(note)).collect(),
    };
    Ok((said, Outcome::of_look(Some(&end.stopped))))
}

/// Puts the messages of a file into a queue.
///
/// # Errors
/// When the file cannot be read, or nothing of it could be imported.
pub async fn import(
    client: &Client,
    queue: &Queue,
    file: Option<&Path>,
) -> Result<(Said, Outcome), Failed> {
    let mut lines: Box<dyn BufRead> = match file {
        Some(path) => Box::new(BufReader::new(File::open(path).map_err(Failed::NoFile)?)),
        None => Box::new(io::stdin().lock()),
    };
    let path = request::of_queue(queue, "dead-letters/import");
    let (mut all, mut next) = (Imported::default(), 1);
    while all.cause.is_none() {
        let (part, number) = part(&mut lines).map_err(Failed::NoFile)?;
        if number == 0 {
            break;
        }
        let mut query = Query::default();
        query.number("first-line", Some(next));
        let answer = client
            .send(&format!("{path}{}", query.finish()), part.into())
            .await;
        match answer {
            Ok(answer) => all.add(serde_json::from_value(answer)?),
            Err(error) if next == 1 => return Err(error.into()),
            Err(error) => all.cause = Some(error.to_string()),
        }
        next += number;
    }
    let outcome = all.outcome();
    let said = match queue.printing.output {
        Output::Json => {
            let json: Value = serde_json::to_value(&all)?;
            Said::json(&json)
        }
        Output::Table => all.said(next - 1),
    };
    Ok((said, outcome))
}

/// The next lines, as they are, and how many.
fn part(lines: &mut dyn BufRead) -> io::Result<(Vec<u8>, u64)> {
    let (mut part, mut number) = (Vec::new(), 0);
    while number < LINES && part.len() < OCTETS {
        if lines.read_until(b'\n', &mut part)? == 0 {
            break;
        }
        number += 1;
    }
    Ok((part, number))
}

// === impl Imported ===

impl Imported {
    fn add(&mut self, part: Imported) {
        self.imported += part.imported;
        self.refused.extend(part.refused);
        self.unsure += part.unsure;
        self.left += part.left;
        self.cause = part.cause;
    }

    fn outcome(&self) -> Outcome {
        let is_all = self.cause.is_none() && self.refused.is_empty();
        match self.imported {
            _ if is_all => Outcome::All,
            0 => Outcome::Failed,
            _ => Outcome::InPart,
        }
    }

    /// `last`: the number of the last line that was sent.
    fn said(&self, last: u64) -> Said {
        let mut notes = Vec::new();
        if !self.refused.is_empty() {
            let lines: Vec<String> = self.refused.iter().map(u64::to_string).collect();
            notes.push(format!("refused: line {}", lines.join(", ")));
        }
        if let Some(cause) = &self.cause {
            let (cause, unsure, left) = (plain::line(cause), self.unsure, self.left);
            notes.push(format!("it ended at line {last} or before: {cause}"));
            notes.push(format!(
                "{unsure} messages may be in the queue, {left} were not sent, and nothing behind line {last} was read"
            ));
        }
        let plural = if self.imported == 1 { "" } else { "s" };
        Said {
            answer: format!("{} message{plural} imported\n", self.imported),
            notes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_sent_in_parts() {
        let file = "line\n".repeat(LINES as usize) + "last";
        let mut lines = file.as_bytes();
        let (first, number) = part(&mut lines).expect("lines");
        assert_eq!((first.len(), number), (5 * LINES as usize, LINES));
        assert_eq!(part(&mut lines).expect("a line"), (b"last".to_vec(), 1));
        assert_eq!(part(&mut lines).expect("the end"), (Vec::new(), 0));
    }

    #[test]
    fn what_was_not_imported_is_said() {
        let mut all = Imported {
            imported: 500,
            ..Imported::default()
        };
        assert_eq!(all.outcome(), Outcome::All);
        all.add(Imported {
            imported: 1,
            refused: vec![502],
            unsure: 3,
            left: 4,
            cause: Some("NOT_FOUND".to_owned()),
        });
        assert_eq!(all.outcome(), Outcome::InPart);
        let said = all.said(509);
        assert_eq!(said.answer, "501 messages imported\n");
        assert_eq!(
            said.notes,
            [
                "refused: line 502",
                "it ended at line 509 or before: NOT_FOUND",
                "3 messages may be in the queue, 4 were not sent, and nothing behind line 509 was read"
            ]
        );
    }
}
