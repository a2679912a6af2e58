//! `dlx-proxy dead-letters redrive` and `purge`: asks whoever types them, lets the proxy begin, and follows it.

use std::pin::pin;
use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

use super::request::{self, Query};
use super::words::{self, Meant, Outcome};
use super::{Failed, Said, confirm, follow};
use crate::admin::client::{Client, NoAnswer};
use crate::cli::{Move, Output, To};
use crate::plain;
use crate::redrives::Shown;

/// Whoever interrupts the command before the proxy answers waits so long at most to learn what has begun.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Moves messages, and says what became of them.
///
/// # Errors
/// When there is no answer, or nobody says yes.
pub async fn move_them(client: &Client, wanted: &Move) -> Result<(Said, Outcome), Failed> {
    let Move { queue, to, moving } = wanted;
    let printing = &queue.printing;
    let (page, query) = (page(wanted), query(wanted));
    let to = words::to(to.as_ref());
    if moving.dry_run {
        let (answer, meant) = count(client, &page, query).await?;
        let text = words::dry_run(&meant.number(moving.limit), &queue.queue, to.as_deref());
        return Ok((
            said(printing.output, &answer, text, &meant.notes),
            Outcome::All,
        ));
    }
    if !moving.approve {
        if !confirm::can_ask(printing) {
            return Err(Failed::NotApproved);
        }
        let (answer, meant) = count(client, &page, self::query(wanted)).await?;
        let number = meant.number(moving.limit);
        if meant.is_none() {
            let text = words::dry_run(&number, &queue.queue, to.as_deref());
            return Ok((
                said(printing.output, &answer, text, &meant.notes),
                Outcome::All,
            ));
        }
        for note in &meant.notes {
            eprintln!("dlx-proxy: {}", plain::line(note));
        }
        if !confirm::ask(&number, &queue.queue, to.as_deref())? {
            return Err(Failed::Declined);
        }
    }
    let mut interrupted = signal(SignalKind::interrupt()).map_err(Failed::NoSignals)?;
    let order = format!("{page}{}", query.finish());
    let mut answer = pin!(client.post(&order));
    let answer = tokio::select! {
        answer = &mut answer => answer?,
        _ = interrupted.recv() => return last_words(answer, &mut interrupted).await,
    };
    let begun: Shown = serde_json::from_value(answer.clone())?;
    if moving.no_wait {
        let text = format!("{}.\n", words::goes_on(&begun));
        return Ok((said(printing.output, &answer, text, &[]), Outcome::All));
    }
    let path = format!("{}/{}", request::redrives(&queue.vhost), begun.id);
    let mut screen = follow::Screen::new(moving.limit, printing.non_interactive);
    let ended = tokio::select! {
        ended = follow::to_its_end(client, &path, &begun, &mut screen) => Some(ended),
        _ = interrupted.recv() => None,
    };
    screen.clear();
    let Some(ended) = ended else {
        return Ok(left(words::goes_on(&begun)));
    };
    let (answer, shown) = ended?;
    let text = words::ended(&shown);
    Ok((
        said(printing.output, &answer, text, &shown.notes),
        words::outcome(&shown),
    ))
}

/// Somebody interrupts before the proxy has answered. The work goes on without the command, and only the answer tells under which number.
async fn last_words(
    answer: impl Future<Output = Result<Value, NoAnswer>>,
    interrupted: &mut Signal,
) -> Result<(Said, Outcome), Failed> {
    let note = tokio::select! {
        answer = answer => words::goes_on(&serde_json::from_value(answer?)?),
        _ = interrupted.recv() => words::may_have_begun(),
        () = sleep(LAST_WORDS) => words::may_have_begun(),
    };
    Ok(left(note))
}

/// Nobody waits any more.
fn left(note: String) -> (Said, Outcome) {
    let said = Said {
        answer: String::new(),
        notes: vec![note],
    };
    (said, Outcome::Left)
}

/// What would be moved.
async fn count(client: &Client, page: &str, mut query: Query) -> Result<(Value, Meant), Failed> {
    query.add("dry-run", "true");
    let answer = client.post(&format!("{page}{}", query.finish())).await?;
    let meant = serde_json::from_value(answer.clone())?;
    Ok((answer, meant))
}

fn said(output: Output, answer: &Value, text: String, notes: &[String]) -> Said {
    match output {
        Output::Json => Said::json(answer),
        Output::Table => Said {
            answer: text,
            notes: notes.iter().map(|note| plain::line(note)).collect(),
        },
    }
}

fn page(wanted: &Move) -> String {
    let page = match wanted.to {
        Some(_) => "redrives",
        None => "purges",
    };
    request::of_queue(&wanted.queue, page)
}

fn query(wanted: &Move) -> Query {
    let mut query = Query::default();
    if let Some(to) = &wanted.to {
        let To {
            to_queue,
            to_exchange,
            to_routing_key,
            history,
        } = to;
        query.text("to-queue", to_queue);
        query.text("to-exchange", to_exchange);
        query.text("to-routing-key", to_routing_key);
        query.text("history", history);
    }
    let moving = &wanted.moving;
    query.filters(&moving.filters);
    moving.ids.iter().for_each(|id| query.add("id", id));
    query.number("limit", moving.limit);
    query.number("rate", moving.rate);
    query
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command, DeadLetters};

    fn wanted(arguments: &[&str]) -> Option<Move> {
        let all = [&["dlx-proxy", "dead-letters"], arguments].concat();
        match Cli::try_parse_from(all).ok()?.command {
            Command::DeadLetters(DeadLetters::Redrive { queue, to, moving }) => Some(Move {
                queue,
                to: Some(to),
                moving,
            }),
            Command::DeadLetters(DeadLetters::Purge { queue, moving }) => Some(Move {
                queue,
                to: None,
                moving,
            }),
            other => panic!("{other:?}"),
        }
    }

    fn asked(arguments: &[&str]) -> String {
        let wanted = wanted(arguments).expect("it may be typed");
        page(&wanted) + &query(&wanted).finish()
    }

    #[test]
    fn what_is_typed_is_asked_for() {
        let queue = "/api/v1/vhosts/%2F/queues/a%2Fb";
        assert_eq!(
            asked(&["redrive", "--queue", "a/b"]),
            format!("{queue}/redrives")
        );
        assert_eq!(
            asked(&[
                "redrive",
                "--queue",
                "a/b",
                "--to-exchange",
                "x&y",
                "--to-routing-key",
                "",
                "--history",
                "new",
                "--source",
                "s",
                "--id",
                "1",
                "--id",
                "2",
                "--limit",
                "3",
                "--rate",
                "4",
            ]),
            format!(
                "{queue}/redrives?to-exchange=x%26y&to-routing-key=&history=new&source=s&id=1&id=2&limit=3&rate=4"
            )
        );
        assert_eq!(
            asked(&[
                "purge",
                "--queue",
                "a/b",
                "--reason",
                "expired",
                "--approve"
            ]),
            format!("{queue}/purges?reason=expired")
        );
    }

    #[test]
    fn what_makes_no_sense_cannot_be_typed() {
        for words in [
            &["redrive", "--to-queue", "a", "--to-exchange", "b"][..],
            &["redrive", "--to-queue", "a", "--to-routing-key", "b"],
            &["redrive", "--to-routing-key", "b"],
            &["redrive", "--history", "old"],
            &["purge", "--limit", "0"],
            &["purge", "--rate", "1000001"],
            &["purge", "--to-queue", "a"],
            &["purge", "--id", ""],
            &["purge", "--id="],
            &["purge", "--source", ""],
            &["purge", "--reason", ""],
            &["purge", "--body", ""],
            &["purge", "--older-than", ""],
            &["purge", "--limit", ""],
            &["redrive", "--rate", ""],
            &["redrive", "--to-queue", ""],
            &["redrive", "--vhost", ""],
        ] {
            let words = [words, &["--queue", "q"]].concat();
            assert!(wanted(&words).is_none(), "{words:?}");
        }
    }
}
