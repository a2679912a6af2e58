//! Messages into files and out of them: what exports and imports need beside a look.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Body as _;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};
use utoipa::ToSchema;

use super::api::Asked;
use super::incoming::Incoming;
use super::looks::Looks;
use super::pace::time_for;
use super::parameters::bad;
use super::problem::Problem;
use super::room::{Room, Taken};
use super::slow_down::{Attempt, SlowDown};
use crate::amqp::ids::ShortStr;
use crate::dead_letter::RuleSettings;
use crate::import::{Imported, Settings};
use crate::machine::{Limit, LiveLimits};
use crate::objects::Names;
use crate::telemetry::Metrics;

/// After an early refusal, bytes discarded and how long: a client that still sends could not read
/// the reason.
const THROWN_AWAY: (usize, Duration) = (8 << 20, Duration::from_secs(2));

#[derive(Clone)]
pub struct Files {
    pub looks: Looks,
    pub own_user: ShortStr,
    pub names: Names,
    pub rules: RuleSettings,
    pub limits: LiveLimits,
    pub room: Room,
    pub metrics: Metrics,
    pub unread: Unread,
}

/// Slows down clients that send unreadable files, like failed logins.
#[derive(Clone, Default)]
pub struct Unread(SlowDown);

pub(super) struct Part {
    pub(super) first: u64,
    pub(super) bytes: Body,
}

/// A file that is not checked yet. Dropping this counts as unreadable.
struct Begun<'a> {
    unread: &'a SlowDown,
    attempt: Attempt,
    was_read: bool,
}

/// What became of a file.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[schema(as = Imported)]
pub(in crate::console) struct Answer {
    /// Messages that are confirmed in the queue.
    pub(in crate::console) imported: u64,
    /// The lines that the queue refused, or that fit no frame of the broker; the first is 1.
    pub(in crate::console) refused: Vec<u64>,
    /// Messages that may be in the queue.
    pub(in crate::console) unsure: u64,
    /// Messages that were not sent.
    pub(in crate::console) left: u64,
    /// Why not.
    pub(in crate::console) cause: Option<String>,
}

// === impl Files ===

impl Files {
    /// Imports all messages, or none if any line is invalid.
    ///
    /// # Errors
    /// When the file cannot be read, or no message can be imported.
    pub(super) async fn import(&self, asked: Asked, mut file: Part) -> Result<Answer, Problem> {
        // Before anything is read or kept of a file.
        if let Err(problem) = self.may_begin(&asked).await {
            throw_away(&mut file.bytes).await;
            return Err(problem);
        }
        let attempt = self.unread.0.attempt(asked.peer, &asked.who);
        self.unread.0.turn(attempt).await.map_err(|wait| {
            Problem::too_often(wait, "too many files of this user could not be read")
        })?;
        let taken = self.room.begin().await?;
        let mut begun = Begun {
            unread: &self.unread.0,
            attempt,
            was_read: false,
        };
        let received = self.clone().receive(file, taken);
        let received = self.looks.aside(received).await;
        // That there is no room for it is no fault of the file.
        begun.was_read = received.as_ref().map_or_else(Problem::is_to_wait, |_| true);
        let (
            Incoming {
                messages, lines, ..
            },
            _taken,
        ) = received?;
        let place = asked.place.clone();
        let settings = Settings {
            login: asked.who.clone().login(place.vhost),
            queue: place.queue,
            messages: messages.into(),
            rules: self.rules,
            max_history: self.limits.now().max_history,
        };
        let imported = self.looks.import(&asked, settings).await?;
        Answer::of(imported, &lines)
    }

    async fn may_begin(&self, asked: &Asked) -> Result<(), Problem> {
        self.looks.let_in(asked).await?;
        let queue = &asked.place.queue;
        if self.names.is_ours(queue) {
            let whose = format!("{queue} is one of the proxy's own");
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                format!("{whose}: nothing is imported there"),
            ));
        }
        Ok(())
    }

    async fn receive(self, file: Part, taken: Taken) -> Result<(Incoming, Taken), Problem> {
        let in_time = self.limits.now().browse_timeout;
        let received = timeout(in_time, self.read(file, taken)).await;
        received.unwrap_or_else(|_| Err(late("the file did not come within `browse-timeout`")))
    }

    async fn read(&self, mut file: Part, mut taken: Taken) -> Result<(Incoming, Taken), Problem> {
        let (most, patience) = {
            let limits = self.limits.now();
            (limits.browse_bytes, limits.admin_timeout)
        };
        let (mut bytes, mut waited) = (0, Duration::ZERO);
        // Of several that have not all room, one is read, where all would end in the middle.
        let told = usize::try_from(file.bytes.size_hint().lower()).unwrap_or(usize::MAX);
        let told = told.min(most);
        let incoming = taken.resize(2 * told);
        let mut incoming = incoming.map(|()| Incoming::new(file.first));
        loop {
            let (began, most_wait) = (Instant::now(), patience + time_for(bytes as u64));
            let frame = timeout(most_wait.saturating_sub(waited), file.bytes.frame()).await;
            let frame = frame.map_err(|_| {
                self.metrics.limit_met(Limit::AdminTimeout);
                late("the file comes too slowly")
            })?;
            waited += began.elapsed();
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| bad(format_args!("the file broke off: {error}")))?;
            let Ok(piece) = frame.into_data() else {
                continue;
            };
            bytes += piece.len();
            if bytes > most {
                return Err(Problem::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "the file is larger than `browse-bytes`: send it in parts",
                ));
            }
            // Behind what is wrong it is read to its end all the same: whoever still sends could not read what that is.
            if let Ok(coming) = &mut incoming {
                // What comes, and the messages that are made of it.
                let room = taken.resize(2 * bytes.max(told));
                let read = room.and_then(|()| coming.take(&piece));
                if let Err(problem) = read {
                    incoming = Err(problem);
                }
            }
        }
        let mut incoming = incoming?;
        incoming.finish()?;
        Ok((incoming, taken))
    }
}

async fn throw_away(file: &mut Body) {
    let (mut left, in_time) = THROWN_AWAY;
    let thrown = async {
        while let Some(Ok(frame)) = file.frame().await {
            let bytes = frame.data_ref().map_or(0, |piece| piece.len());
            left = match left.checked_sub(bytes) {
                Some(left) => left,
                None => return,
            };
        }
    };
    let _ = timeout(in_time, thrown).await;
}

pub(super) fn late(detail: &str) -> Problem {
    Problem::new(StatusCode::REQUEST_TIMEOUT, detail)
}

// === impl Begun ===

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        match self.was_read {
            true => self.unread.succeeded(self.attempt),
            false => self.unread.failed(self.attempt),
        }
    }
}

// === impl Answer ===

impl Answer {
    fn of(imported: Imported, lines: &[u64]) -> Result<Answer, Problem> {
        let Imported {
            imported,
            refused,
            unsure,
            left,
            without_time: _,
            failure,
        } = imported;
        let nothing_went = imported == 0 && refused.is_empty();
        match failure {
            // The broker says so of the first one, and of all.
            Some(failure) if nothing_went => Err(failure.into()),
            failure => {
                let line = |place: &u64| lines.get(usize::try_from(*place).ok()?).copied();
                Ok(Answer {
                    imported,
                    refused: refused.iter().filter_map(line).collect(),
                    unsure,
                    left,
                    cause: failure.map(|failure| failure.to_string()),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_lines_have_the_numbers_of_the_file() {
        let imported = Imported {
            imported: 1,
            refused: vec![1],
            ..Imported::default()
        };
        let answer = Answer::of(imported, &[2, 4]).expect("an answer");
        assert_eq!(answer.refused, [4]);
    }
}
