//! A redrive, as it is kept and as it is shown.

use std::collections::BTreeMap;

use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::console::count::count;
use crate::machine::{Cause, Wall};
use crate::walk::{Ended, Input, Progress, REORDERED, Stopped, Summary};

/// Without the password, which only the walk needs.
pub(super) struct Entry {
    pub(super) vhost: Vhost,
    pub(super) queue: ShortStr,
    pub(super) by: ShortStr,
    pub(super) to: String,
    pub(super) is_published: bool,
    pub(super) most: u64,
    pub(super) begun: Wall,
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) tell: mpsc::Sender<Input>,
    pub(super) paused: bool,
    pub(super) cancelled: bool,
    pub(super) ended: Option<(Wall, Ended)>,
    /// Cancelled after `ended` is set.
    pub(super) over: CancellationToken,
}

/// A redrive, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = Redrive)]
pub struct Shown {
    /// Its number: begins at 1 with each process.
    pub id: u64,
    /// The queue, in its bytes.
    #[serde(skip)]
    pub of: ShortStr,
    /// The vhost of its queue.
    pub vhost: String,
    /// Out of which messages go.
    pub queue: String,
    /// Who began it.
    pub by: String,
    /// Where messages go: `source`, `queue NAME`, `exchange NAME`, or `nowhere` for a purge.
    pub to: String,
    /// What it is doing.
    pub state: State,
    /// Milliseconds since 1970.
    pub begun: u64,
    /// When it ended, in milliseconds since 1970.
    pub ended: Option<u64>,
    /// Messages that were there when it began: it meets no others. `None`: that is not known yet.
    pub ready: Option<u64>,
    /// At most so many go. `None`: no limit was given.
    pub limit: Option<u64>,
    /// Messages that it has met.
    pub seen: u64,
    /// Messages that are gone from the queue.
    pub gone: u64,
    /// Messages that were meant, and stay: why, and how many.
    pub stay: BTreeMap<String, u64>,
    /// Why it failed, or went no further. While it is `waiting`: `blocked`, as the broker has an alarm, or `publisher_away`.
    pub cause: Option<String>,
    /// What somebody should know, in sentences.
    pub notes: Vec<String>,
}

/// What a redrive is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It moves messages.
    Running,
    /// Somebody has paused it.
    Paused,
    /// Nothing can be published now, and `cause` says why: it goes on when it can.
    Waiting,
    /// It has come to the end of what there was when it began, or to its limit.
    Completed,
    /// Somebody has cancelled it, or the process ended.
    Cancelled,
    /// It could not go on: `cause` says why.
    Failed,
}

// === impl Entry ===

impl Entry {
    /// `is_blocked`: an alarm blocks the publisher.
    pub(super) fn show(&self, id: u64, is_blocked: bool) -> Shown {
        let Progress {
            blocked, summary, ..
        } = self.progress.borrow().clone();
        let Summary {
            ready, seen, moved, ..
        } = summary;
        let (state, cause) = match &self.ended {
            None if self.paused => (State::Paused, None),
            None if blocked || is_blocked => (State::Waiting, Some(BLOCKED.to_owned())),
            None if moved.waits => {
                let why = Cause::PublisherAway.as_str();
                (State::Waiting, Some(why.to_owned()))
            }
            None => (State::Running, None),
            Some((_, Err(failure))) => (
                State::Failed,
                Some(format!("{failure}; {}", failure.next())),
            ),
            Some(_) if self.cancelled => (State::Cancelled, None),
            Some((_, Ok(summary))) => match summary.stopped {
                Stopped::Messages => (State::Failed, Some(too_many_stay(summary))),
                Stopped::Bytes => (State::Failed, Some(too_heavy(summary))),
                Stopped::Time => (State::Failed, Some(format!("{NOTHING_MOVED} {IN_FRONT}"))),
                Stopped::Paused => (State::Cancelled, Some(PAUSED_FOR_LONG.to_owned())),
                _ if summary.some_did_not_come() => {
                    (State::Completed, Some(SOME_DID_NOT_COME.to_owned()))
                }
                _ => (State::Completed, None),
            },
        };
        Shown {
            id,
            of: self.queue.clone(),
            vhost: self.vhost.to_string(),
            queue: self.queue.to_string(),
            by: self.by.to_string(),
            to: self.to.clone(),
            state,
            begun: self.begun.0,
            ended: self.ended.as_ref().map(|(at, _)| at.0),
            ready,
            limit: (self.most < u64::MAX).then_some(self.most),
            seen,
            gone: moved.gone,
            stay: moved.stay,
            cause,
            notes: self.notes(),
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let summary = match &self.ended {
            Some((_, Ok(summary))) => summary,
            Some((_, Err(_))) => return notes,
            None if self.progress.borrow().summary.starves => return vec![STARVES.to_owned()],
            None => return notes,
        };
        if summary.counted {
            let back = summary.taken.saturating_sub(summary.moved.gone);
            let back = count(back, "message");
            notes.push(format!(
                "This counted as a failed delivery of {back} that did not go. At its delivery limit, the queue removes a message."
            ));
        }
        if summary.reordered {
            notes.push(REORDERED.to_owned());
        }
        let published = [Cause::Unconfirmed, Cause::TimedOut].map(Cause::as_str);
        let published = published
            .iter()
            .filter_map(|why| summary.moved.stay.get(*why));
        let published: u64 = published.sum();
        if published > 0 {
            let published = count(published, "message");
            notes.push(format!(
                "No confirm came for {published}. Each stays, and its copy may have arrived, too."
            ));
        }
        if summary.unread > 0 {
            notes.push(format!(
                "{} may be in the queue though sent: the broker had an alarm and did not read the acknowledgements.",
                count(summary.unread, "message")
            ));
        }
        notes
    }
}

const BLOCKED: &str = "blocked";
const STARVES: &str = "No message arrives, though the queue has some. Is another consumer the single active consumer?";
const PAUSED_FOR_LONG: &str = "Cancelled, as it was paused for an hour.";
const SOME_DID_NOT_COME: &str =
    "Some messages did not arrive: consumers hold or took them, or they expired.";
const NOTHING_MOVED: &str = "Stopped: nothing was moved for 20 minutes, and RabbitMQ lends messages for no longer (consumer_timeout).";

const IN_FRONT: &str =
    "Send back or purge the messages in front first, with another filter or a limit.";

fn too_many_stay(summary: &Summary) -> String {
    let held = summary.seen.saturating_sub(summary.moved.gone);
    format!(
        "Stopped: the first {held} messages do not match or cannot go, and no more can be held. {IN_FRONT}"
    )
}

fn too_heavy(summary: &Summary) -> String {
    let held = summary.seen.saturating_sub(summary.moved.gone);
    format!(
        "Stopped: the first {held} messages do not match or cannot go. They need too much of the broker's memory, or it has an alarm. {IN_FRONT}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::Failure;

    fn shown(ended: Ended) -> Shown {
        let entry = Entry {
            vhost: Vhost::ROOT,
            queue: ShortStr::EMPTY,
            by: ShortStr::EMPTY,
            to: String::new(),
            is_published: true,
            most: u64::MAX,
            begun: Wall(1),
            progress: watch::channel(Progress::default()).1,
            tell: mpsc::channel(1).0,
            paused: false,
            cancelled: false,
            ended: Some((Wall(2), ended)),
            over: CancellationToken::new(),
        };
        entry.show(1, false)
    }

    #[test]
    fn each_failure_says_what_to_do() {
        let stopped = |stopped| {
            Ok(Summary {
                stopped,
                seen: 12,
                ..Summary::default()
            })
        };
        let refused = |code, text: &str| {
            let text = text.to_owned();
            Err(Failure::Refused { code, text })
        };
        let timed_out = "delivery acknowledgement on channel 3 timed out.";
        for (ended, next) in [
            (
                stopped(Stopped::Messages),
                "no more can be held. Send back or purge",
            ),
            (
                stopped(Stopped::Bytes),
                "or it has an alarm. Send back or purge",
            ),
            (
                stopped(Stopped::Time),
                "(consumer_timeout). Send back or purge",
            ),
            (Err(Failure::Connection("lost".to_owned())), "begin again"),
            (Err(Failure::Login("no".to_owned())), "log in"),
            (refused(403, "no"), "the right"),
            (refused(404, "none"), "still there"),
            (refused(405, "alone"), "mend what"),
            (refused(406, timed_out), "consumer_timeout"),
            (Err(Failure::Stream), "an export"),
            (Err(Failure::Silent), "begin again"),
            (Err(Failure::Blocked), "the alarm"),
        ] {
            let shown = shown(ended);
            assert_eq!(shown.state, State::Failed);
            let cause = shown.cause.expect("a cause");
            assert!(cause.contains(next), "{cause}");
        }
    }
}
