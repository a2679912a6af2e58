//! What is said of moves: before, meanwhile and at the end, and what that means for the exit code. Names are strangers': none is printed as it came.

use std::ffi::OsStr;

use serde::Deserialize;

use crate::cli::To;
use crate::plain;
use crate::redrives::{Shown, State};

/// The bar has so many characters.
const BAR: u64 = 10;

/// What became of the messages that were meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All have gone; or it was only asked for a beginning or a number, and there is one.
    All,
    /// Some stay, or it was cancelled.
    InPart,
    /// None has gone, or it failed.
    Failed,
    /// Nobody waits for the end any more.
    Left,
}

// === impl Outcome ===

impl Outcome {
    /// Of an answer that went no further for this reason, if it has one: whether it shows all that was asked for.
    pub(super) fn of_look(stopped: Option<&str>) -> Outcome {
        match stopped {
            None | Some("end" | "enough") => Outcome::All,
            Some(_) => Outcome::InPart,
        }
    }
}

/// What a dry run answers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Meant {
    ready: Option<u64>,
    matched: u64,
    stopped: String,
    pub(super) notes: Vec<String>,
}

/// Where messages go: what follows `send messages`. `None`: they are removed.
pub(super) fn to(to: Option<&To>) -> Option<String> {
    let to = to?;
    Some(match (&to.to_queue, &to.to_exchange, &to.to_routing_key) {
        (Some(queue), _, _) => format!("to the queue {}", name(queue)),
        (_, Some(exchange), Some(key)) if key.is_empty() => {
            format!("to {} with an empty routing key", self::exchange(exchange))
        }
        (_, Some(exchange), Some(key)) => {
            let (exchange, key) = (self::exchange(exchange), name(key));
            format!("to {exchange} with the routing key {key}")
        }
        (_, Some(exchange), None) => format!("to {}", self::exchange(exchange)),
        (None, None, _) => "back to the queues that they died in".to_owned(),
    })
}

/// The question before a move.
pub(super) fn question(meant: &str, queue: &OsStr, to: Option<&str>) -> String {
    let queue = name(queue);
    match to {
        Some(to) => format!("Send {meant} in {queue} {to}? [y/N] "),
        None => {
            format!("Remove {meant} in {queue} for good? Type the name of the queue to say yes: ")
        }
    }
}

/// Whether the answer is a yes.
pub(super) fn is_yes(answer: &[u8], queue: &OsStr, to: Option<&str>) -> bool {
    let answer = answer.trim_ascii();
    match to {
        Some(_) => answer.eq_ignore_ascii_case(b"y") || answer.eq_ignore_ascii_case(b"yes"),
        None => answer == queue.as_encoded_bytes(),
    }
}

pub(super) fn dry_run(meant: &str, queue: &OsStr, to: Option<&str>) -> String {
    let queue = name(queue);
    match to {
        Some(to) => format!("In {queue}, {meant} would go {to}.\n"),
        None => format!("In {queue}, {meant} would be removed.\n"),
    }
}

/// What is said when nobody waits for the end.
pub(super) fn goes_on(shown: &Shown) -> String {
    let id = shown.id;
    format!(
        "{} {id} goes on; `dlx-proxy dead-letters redrives show {id}` says how far it is, `dlx-proxy dead-letters redrives cancel {id}` ends it",
        what(shown)
    )
}

/// Nobody has waited for the proxy's answer.
pub(super) fn may_have_begun() -> String {
    "the proxy has not answered: it may have begun; `dlx-proxy dead-letters redrives list` says whether it has"
        .into()
}

/// How far it is, on one line that fits a terminal.
pub(super) fn progress(shown: &Shown, limit: Option<u64>) -> String {
    let Shown { id, seen, gone, .. } = shown;
    let stay: u64 = shown.stay.values().sum();
    let (ready, share) = match shown.ready {
        Some(ready) => (format!(" of {ready}"), share(*seen, Some(ready))),
        None => (String::new(), None),
    };
    let share = share.max(self::share(*gone, limit));
    let share = share.map_or(String::new(), |share| {
        let done = "#".repeat((share * BAR / 100) as usize);
        format!("[{done:-<width$}] {share:3} % ", width = BAR as usize)
    });
    let stay = match stay {
        0 => String::new(),
        stay => format!(", {}", stays(stay)),
    };
    let state = match shown.state {
        State::Paused => ", paused".to_owned(),
        State::Waiting => match &shown.cause {
            Some(cause) => format!(", waits for the broker ({})", plain::line(cause)),
            None => ", waits for the broker".to_owned(),
        },
        State::Running | State::Completed | State::Cancelled | State::Failed => String::new(),
    };
    let what = what(shown);
    format!("{what} {id}: {share}{seen}{ready} seen, {gone} gone{stay}{state}")
}

pub(super) fn ended(shown: &Shown) -> String {
    let what = what(shown);
    let id = shown.id;
    let (gone, stay) = (shown.gone, reasons(shown));
    let verb = match (shown.to.as_str(), gone) {
        ("nowhere", 1) => "was removed",
        ("nowhere", _) => "were removed",
        _ => "went",
    };
    let went = match gone {
        0 => format!("no message {}", verb.replace("were", "was")),
        1 => format!("1 message {verb}"),
        gone => format!("{gone} messages {verb}"),
    };
    let stay = match stay.is_empty() {
        true => String::new(),
        false => format!("; {stay}"),
    };
    match (&shown.state, &shown.cause) {
        (State::Failed, cause) => {
            let cause = plain::line(cause.as_deref().unwrap_or("nobody knows why"));
            format!("{what} {id} failed: {cause}. Until then {went}{stay}.\n")
        }
        (State::Cancelled, cause) => {
            let cause = cause
                .as_deref()
                .map(|cause| format!(": {}", plain::line(cause)));
            let cause = cause.unwrap_or_default();
            format!("{what} {id} was cancelled{cause}. Until then {went}{stay}.\n")
        }
        (State::Completed, Some(cause)) => {
            let cause = plain::line(cause);
            format!("{what} {id} has ended: {went}{stay}; {cause}.\n")
        }
        (State::Completed, _) if gone == 0 && stay.is_empty() => {
            format!("{what} {id} has ended: no message was meant.\n")
        }
        _ => format!("{what} {id} has ended: {went}{stay}.\n"),
    }
}

/// What the end means for whoever began it.
pub(super) fn outcome(shown: &Shown) -> Outcome {
    match (shown.state, shown.gone, shown.stay.is_empty()) {
        (State::Failed, _, _) => Outcome::Failed,
        (State::Cancelled, _, _) => Outcome::InPart,
        (_, _, true) if shown.cause.is_some() => Outcome::InPart,
        (_, _, true) => Outcome::All,
        (_, 0, false) => Outcome::Failed,
        (_, _, false) => Outcome::InPart,
    }
}

/// How many stay, and why; empty if none does.
pub(super) fn reasons(shown: &Shown) -> String {
    let stay: u64 = shown.stay.values().sum();
    let reasons = shown.stay.iter();
    let reasons = reasons.map(|(why, count)| format!("{}: {count}", plain::line(why)));
    match stay {
        0 => String::new(),
        stay => format!(
            "{} ({})",
            stays(stay),
            reasons.collect::<Vec<_>>().join(", ")
        ),
    }
}

pub(super) fn what(shown: &Shown) -> &'static str {
    match shown.to.as_str() {
        "nowhere" => "Purge",
        _ => "Redrive",
    }
}

fn stays(count: u64) -> String {
    match count {
        1 => "1 stays".to_owned(),
        count => format!("{count} stay"),
    }
}

/// In percent, if the whole is known.
fn share(part: u64, whole: Option<u64>) -> Option<u64> {
    let (part, whole) = (u128::from(part), u128::from(whole?));
    let share = (part * 100).checked_div(whole)?;
    u64::try_from(share.min(100)).ok()
}

fn exchange(exchange: &OsStr) -> String {
    match exchange.is_empty() {
        true => "the default exchange".to_owned(),
        false => format!("the exchange {}", name(exchange)),
    }
}

fn name(name: &OsStr) -> String {
    plain::line(&name.to_string_lossy())
}

// === impl Meant ===

impl Meant {
    /// Nothing is meant, as far as the whole queue goes.
    pub(super) fn is_none(&self) -> bool {
        self.matched == 0 && self.is_whole()
    }

    pub(super) fn number(&self, limit: Option<u64>) -> String {
        let most = limit.unwrap_or(u64::MAX);
        let count = self.matched.min(most);
        let at_least = match self.is_whole() || self.matched >= most {
            true => "",
            false => "at least ",
        };
        match self.ready {
            Some(1) => format!("{at_least}{count} of 1 message"),
            Some(ready) => format!("{at_least}{count} of {ready} messages"),
            None if count == 1 => format!("{at_least}1 message"),
            None => format!("{at_least}{count} messages"),
        }
    }

    fn is_whole(&self) -> bool {
        self.stopped == "end"
    }
}

#[cfg(test)]
mod tests;
