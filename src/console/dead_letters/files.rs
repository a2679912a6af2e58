//! `dlx-proxy dead-letters export` and `import`: messages as lines of JSON.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use bytes::Bytes;
use hyper::Method;
use serde_json::Value;

use super::{Failed, Outcome, Said, foreign};
use crate::console::admin::client::Client;
use crate::console::admin::files::Answer as Imported;
use crate::console::cli::Printing;
use crate::plain;

/// A request ends after this many lines, or at the first line beyond this size.
const LINES: u64 = 500;
const BYTES: usize = 4 << 20;

pub(super) async fn export(client: &Client, path: &str) -> Result<(Said, Outcome), Failed> {
    let file = client.ask(Method::GET, path, Bytes::new()).await?;
    let text = String::from_utf8_lossy(&file);
    // Without its last line it is cut.
    let (lines, last) = text.trim_end().rsplit_once('\n').unwrap_or(("", &text));
    let last: Value = serde_json::from_str(last).map_err(|_| Failed::Strange)?;
    let stopped = last["end"]["stopped"].as_str().ok_or(Failed::Strange)?;
    let mut answer = plain::json(lines);
    if !lines.is_empty() {
        answer.push('\n');
    }
    let outcome = Outcome::of_look(Some(stopped));
    Ok((Said::text(answer, &last["end"]), outcome))
}

pub(super) async fn import(
    client: &Client,
    path: &str,
    file: Option<&Path>,
    printing: &Printing,
) -> Result<(Said, Outcome), Failed> {
    let mut lines: Box<dyn BufRead> = match file.filter(|path| *path != Path::new("-")) {
        Some(path) => Box::new(BufReader::new(File::open(path).map_err(Failed::NoFile)?)),
        None => Box::new(io::stdin().lock()),
    };
    // A list is what the management API prints; an export has an object on each line.
    if lines
        .fill_buf()
        .map_err(Failed::NoFile)?
        .trim_ascii_start()
        .starts_with(b"[")
    {
        let messages = serde_json::from_reader::<_, Vec<Value>>(lines);
        let messages = messages.map_err(|error| Failed::NoMessages(error.to_string()))?;
        let messages = foreign::lines(&messages).map_err(Failed::NoMessages)?;
        lines = Box::new(io::Cursor::new(messages));
    }
    let (mut all, mut next) = (Imported::default(), 1);
    while all.cause.is_none() {
        let (part, number) = part(&mut lines).map_err(Failed::NoFile)?;
        if number == 0 {
            break;
        }
        let path = format!("{path}?first-line={next}");
        match client.json(Method::POST, &path, part).await {
            Ok(answer) => {
                let part = serde_json::from_value(answer);
                add(&mut all, part.map_err(|_| Failed::Strange)?);
            }
            Err(error) if next == 1 => return Err(error.into()),
            Err(error) => all.cause = Some(error.to_string()),
        }
        next += number;
    }
    let json = serde_json::to_value(&all).map_err(|_| Failed::Strange)?;
    let mut said = Said::of(&json, printing, None)?;
    if all.cause.is_some() {
        let last = next - 1;
        said.notes = vec![format!(
            "it ended at line {last} or before: messages that are `unsure` may be in the queue, and nothing behind that line was read"
        )];
    }
    Ok((said, outcome(&all)))
}

fn part(lines: &mut dyn BufRead) -> io::Result<(Vec<u8>, u64)> {
    let (mut part, mut number) = (Vec::new(), 0);
    while number < LINES && part.len() < BYTES {
        if lines.read_until(b'\n', &mut part)? == 0 {
            break;
        }
        number += 1;
    }
    Ok((part, number))
}

fn add(all: &mut Imported, part: Imported) {
    all.imported += part.imported;
    all.refused.extend(part.refused);
    all.unsure += part.unsure;
    all.left += part.left;
    all.cause = part.cause;
}

fn outcome(all: &Imported) -> Outcome {
    let is_all = all.cause.is_none() && all.refused.is_empty();
    match all.imported {
        _ if is_all => Outcome::All,
        0 => Outcome::Failed,
        _ => Outcome::InPart,
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
    fn what_was_not_imported_is_in_the_exit_code() {
        let mut all = Imported {
            imported: 500,
            ..Imported::default()
        };
        assert_eq!(outcome(&all), Outcome::All);
        let part = Imported {
            imported: 1,
            refused: vec![502],
            unsure: 3,
            left: 4,
            cause: Some("NOT_FOUND".to_owned()),
        };
        add(&mut all, part);
        assert_eq!(outcome(&all), Outcome::InPart);
    }
}
