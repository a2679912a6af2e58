//! `dlx-proxy dead-letters redrive` and `purge`: asks whoever types them, lets the proxy begin, and follows it.

use std::ffi::OsStr;
use std::io::{self, BufRead, IsTerminal, Write};
use std::pin::pin;
use std::time::{Duration, Instant};

use hyper::Method;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

use super::{Failed, Outcome, Query, Said};
use crate::console::admin::client::{Client, NoAnswer};
use crate::console::admin::wanted::{Pace, To};
use crate::console::cli::{Moving, Output, Place};
use crate::console::count::count;
use crate::plain;

/// After an interrupt: how long to wait for the number of a redrive that may have begun.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Before the first poll: many redrives are short. Pauses double, because each poll logs in to the
/// broker.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(1);
const MOST_UNANSWERED: u32 = 10;
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// Moves messages and reports the result. `to`: `None` removes them.
///
/// # Errors
/// No answer, or no approval.
pub(super) async fn carry_out(
    client: &Client,
    place: &Place,
    queue: &OsStr,
    query: Query,
    to: Option<&To>,
    moving: &Moving,
) -> Result<(Said, Outcome), Failed> {
    let printing = &place.printing;
    let page = match to {
        Some(_) => "redrives",
        None => "purges",
    };
    let page = super::path(client, [&"queues", &queue, &page]);
    let order = format!("{page}{}", query.text());
    if (moving.pace.dry_run || !moving.approve)
        && let Some(said) = counted(client, &page, query, (queue, to), (moving, printing)).await?
    {
        return Ok((said, Outcome::All));
    }
    let mut interrupted = signal(SignalKind::interrupt()).map_err(Failed::NoSignals)?;
    let mut answer = pin!(client.json(Method::POST, &order, ""));
    let begun = tokio::select! {
        begun = &mut answer => begun?,
        _ = interrupted.recv() => return last_words(answer, &mut interrupted).await,
    };
    let goes_on = goes_on(&begun)?;
    if moving.no_wait {
        let said = match printing.output {
            Output::Json => Said::of(&begun, printing, None)?,
            Output::Table | Output::Tsv => Said::text(goes_on + ".\n", &Value::Null),
        };
        return Ok((said, Outcome::All));
    }
    let path = super::path(client, [&"redrives", &begun["id"].to_string()]);
    let mut screen = Screen::new();
    let ended = tokio::select! {
        ended = to_its_end(client, &path, &begun, &mut screen) => Some(ended),
        _ = interrupted.recv() => None,
    };
    screen.clear();
    match ended {
        None => Ok(left(goes_on)),
        Some(ended) => {
            let ended = ended?;
            Ok((Said::of(&ended, printing, None)?, outcome(&ended)))
        }
    }
}

/// Counts the messages and asks for approval. `Some`: the output of a command that ends here.
async fn counted(
    client: &Client,
    page: &str,
    mut query: Query,
    (queue, to): (&OsStr, Option<&To>),
    (moving, printing): (&Moving, &super::Printing),
) -> Result<Option<Said>, Failed> {
    let Pace { limit, dry_run, .. } = moving.pace;
    let is_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !dry_run && !is_terminal {
        return Err(Failed::NotApproved);
    }
    if !dry_run {
        query.add("dry-run", "true");
    }
    let order = format!("{page}{}", query.text());
    let counted = client.json(Method::POST, &order, "").await?;
    let words = would_go(&counted, queue, to, limit);
    if dry_run || counted["matched"] == 0 && counted["stopped"] == "end" {
        return Ok(Some(match printing.output {
            Output::Json => Said::of(&counted, printing, None)?,
            Output::Table | Output::Tsv => Said::text(format!("{words}.\n"), &counted),
        }));
    }
    for note in Said::text(String::new(), &counted).notes {
        eprintln!("dlx-proxy: {note}");
    }
    match is_approved(&words, queue, to.is_none())? {
        true => Ok(None),
        false => Err(Failed::Declined),
    }
}

/// Interrupted before the proxy has answered: the work goes on, and only the answer has its number.
async fn last_words(
    answer: impl Future<Output = Result<Value, NoAnswer>>,
    interrupted: &mut Signal,
) -> Result<(Said, Outcome), Failed> {
    let begun = tokio::select! {
        answer = answer => Some(answer?),
        _ = interrupted.recv() => None,
        () = sleep(LAST_WORDS) => None,
    };
    let unknown = "the proxy has not answered: it may have begun; `dlx-proxy dead-letters redrives list` says whether it has";
    let note = begun.map_or(Ok(unknown.to_owned()), |begun| goes_on(&begun));
    Ok(left(note?))
}

fn left(note: String) -> (Said, Outcome) {
    let (answer, notes) = (String::new(), vec![note]);
    (Said { answer, notes }, Outcome::Left)
}

fn would_go(counted: &Value, queue: &OsStr, to: Option<&To>, limit: Option<u64>) -> String {
    let name = |name: &OsStr| plain::line(&name.to_string_lossy());
    let matched = counted["matched"].as_u64().unwrap_or(0);
    let at_least = match counted["stopped"] == "end" || limit == Some(matched) {
        true => "",
        false => "at least ",
    };
    let ready = counted["ready"].as_u64();
    let messages = match ready {
        Some(ready) => format!("{matched} of {}", count(ready, "message")),
        None => count(matched, "message"),
    };
    let to = match to.map(|to| (&to.to_queue, &to.to_exchange, &to.to_routing_key)) {
        None => "be removed".to_owned(),
        Some((Some(queue), ..)) => format!("go to the queue {}", name(queue)),
        Some((_, Some(exchange), key)) => {
            let key = key
                .as_ref()
                .map(|key| format!(" with the routing key \"{}\"", name(key)));
            format!(
                "go to the exchange \"{}\"{}",
                name(exchange),
                key.unwrap_or_default()
            )
        }
        Some(_) => "go back to the queues that they died in".to_owned(),
    };
    let queue = name(queue);
    format!("In {queue}, {at_least}{messages} would {to}")
}

fn is_approved(words: &str, queue: &OsStr, for_good: bool) -> io::Result<bool> {
    let mut terminal = io::stderr();
    match for_good {
        true => write!(
            terminal,
            "{words} for good. Type the name of the queue to say yes: "
        )?,
        false => write!(terminal, "{words}. Is that right? [y/N] ")?,
    }
    terminal.flush()?;
    let mut answer = Vec::new();
    io::stdin().lock().read_until(b'\n', &mut answer)?;
    Ok(is_yes(answer.trim_ascii(), queue, for_good))
}

fn is_yes(answer: &[u8], queue: &OsStr, for_good: bool) -> bool {
    match for_good {
        true => answer == queue.as_encoded_bytes(),
        false => answer.eq_ignore_ascii_case(b"y") || answer.eq_ignore_ascii_case(b"yes"),
    }
}

fn goes_on(begun: &Value) -> Result<String, Failed> {
    let id = begun["id"].as_u64().ok_or(Failed::Strange)?;
    let redrives = "dlx-proxy dead-letters redrives";
    Ok(format!(
        "redrive {id} goes on; `{redrives} show {id}` says how far it is, `{redrives} cancel {id}` ends it"
    ))
}

fn outcome(ended: &Value) -> Outcome {
    let stays = ended["stay"]
        .as_object()
        .is_some_and(|stay| !stay.is_empty());
    match ended["state"].as_str() {
        Some("completed") if stays && ended["gone"] == 0 => Outcome::Failed,
        Some("completed") if !stays && ended["cause"].is_null() => Outcome::All,
        Some("completed" | "cancelled") => Outcome::InPart,
        _ => Outcome::Failed,
    }
}

async fn to_its_end(
    client: &Client,
    path: &str,
    begun: &Value,
    screen: &mut Screen,
) -> Result<Value, Failed> {
    let (mut pause, mut unanswered) = (FIRST, 0);
    loop {
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
        match client.get(path).await {
            Ok(shown) if shown["begun"] != begun["begun"] => return Err(Failed::Restarted),
            Ok(shown) if !shown["ended"].is_null() => return Ok(shown),
            Ok(shown) => {
                unanswered = 0;
                screen.show(&shown);
            }
            Err(why) if why.may_pass() && unanswered < MOST_UNANSWERED => unanswered += 1,
            Err(why) => return Err(why.into()),
        }
    }
}

fn progress(shown: &Value) -> String {
    let number = |name: &str| shown[name].as_u64().unwrap_or(0);
    let ready = shown["ready"].as_u64();
    let of = ready.map_or(String::new(), |ready| format!(" of {ready}"));
    let stay = shown["stay"].as_object().into_iter().flatten();
    let stay: u64 = stay.filter_map(|(_, count)| count.as_u64()).sum();
    let why = shown["cause"]
        .as_str()
        .map(|why| format!(" ({})", plain::line(why)));
    format!(
        "redrive {}: {}{of} seen, {} gone, {stay} stay, {}{}",
        number("id"),
        number("seen"),
        number("gone"),
        plain::line(shown["state"].as_str().unwrap_or_default()),
        why.unwrap_or_default()
    )
}

struct Screen {
    bar: ProgressBar,
    last: Instant,
}

// === impl Screen ===

impl Screen {
    fn new() -> Screen {
        let bar = ProgressBar::no_length(); // on standard error, if that is a terminal
        if let Ok(style) = ProgressStyle::with_template("[{bar:20}] {wide_msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Screen {
            bar,
            last: Instant::now(),
        }
    }

    fn show(&mut self, shown: &Value) {
        let line = progress(shown);
        if !self.bar.is_hidden() {
            if let Some(ready) = shown["ready"].as_u64() {
                self.bar.set_length(ready);
            }
            self.bar.set_position(shown["seen"].as_u64().unwrap_or(0));
            let (rate, left) = (self.bar.per_sec(), HumanDuration(self.bar.eta()));
            self.bar
                .set_message(format!("{line}, {rate:.0}/s, {left} left"));
        } else if self.last.elapsed() >= BETWEEN_LINES {
            self.last = Instant::now();
            eprintln!("{line}");
        }
    }

    fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::request::tests::typed;
    use super::*;
    use crate::console::cli::What;
    use crate::tests::lines_hold;

    #[tokio::test]
    async fn the_question_says_what_will_be() {
        lines_hold("console/dead_letters/testdata/moves.txt", async |line| {
            let Some((counted, line)) = line.split_once("} ") else {
                return String::new();
            };
            let counted = serde_json::from_str(&format!("{counted}}}")).expect("JSON");
            let (to, queue, moving) = match typed(line).expect("a command").0.what {
                What::Redrive { queue, to, moving } => (Some(to), queue.queue, moving),
                What::Purge { queue, moving } => (None, queue.queue, moving),
                other => panic!("{other:?}"),
            };
            would_go(&counted, &queue, to.as_ref(), moving.pace.limit)
        })
        .await;
    }

    #[test]
    fn a_purge_is_confirmed_by_the_name_of_its_queue() {
        let queue = OsStr::new("dead");
        for (answer, redrive, purge) in [
            ("y", true, false),
            ("YES", true, false),
            ("dead", false, true),
            ("", false, false),
        ] {
            let is_yes = |for_good| is_yes(answer.as_bytes(), queue, for_good);
            assert_eq!((is_yes(false), is_yes(true)), (redrive, purge), "{answer}");
        }
    }

    #[test]
    fn the_end_decides_the_exit_code() {
        let one = || json!({"unroutable": 1});
        for (state, gone, stay, cause, expected) in [
            ("completed", 3, json!({}), None, Outcome::All),
            ("completed", 0, json!({}), None, Outcome::All),
            ("completed", 3, json!({}), Some("why"), Outcome::InPart),
            ("completed", 3, one(), None, Outcome::InPart),
            ("completed", 0, one(), None, Outcome::Failed),
            ("cancelled", 3, json!({}), None, Outcome::InPart),
            ("failed", 3, json!({}), Some("why"), Outcome::Failed),
        ] {
            let ended = json!({"state": state, "gone": gone, "stay": stay, "cause": cause});
            assert_eq!(outcome(&ended), expected, "{ended}");
        }
    }

    #[test]
    fn progress_is_one_line() {
        let shown = json!({"id": 7, "seen": 12, "ready": 40, "gone": 9, "stay": {"a": 1, "b": 2}, "state": "waiting", "cause": "blocked\n"});
        let line = r"redrive 7: 12 of 40 seen, 9 gone, 3 stay, waiting (blocked\n)";
        assert_eq!(progress(&shown), line);
        let shown = json!({"id": 7, "seen": 0, "gone": 0, "stay": {}, "state": "paused"});
        let line = "redrive 7: 0 seen, 0 gone, 0 stay, paused";
        assert_eq!(progress(&shown), line);
    }
}
