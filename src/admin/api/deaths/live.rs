//! Dead letters as they come, as server-sent events: each has its number as its id, so that a reader whose answer has ended goes on there.
//!
//! Nothing waits here for a slow reader: the next ones are looked up when it has taken those before.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::Event;
use futures::stream::{Stream, unfold};
use tokio::time::{Instant, sleep_until};

use super::super::super::login::Credentials;
use super::super::super::problem::Problem;
use super::super::super::watches::{LIVE_FOR, Watches};
use super::super::Peer;
use super::super::rights::Rights;
use super::{Shown, is_meant};
use crate::amqp::ids::{ShortStr, Vhost};
use crate::net::permits::Permit;

/// A reader that hears nothing is told so often that it is still heard.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// How many are looked up at once.
const BATCH: usize = 100;

/// For one answer the broker is asked about so many queues.
const MOST_QUEUES: usize = 100;
const TOO_MANY: &str = "there are more queues than the broker is asked about for one answer: those of some queues are left out";

pub(super) struct Reader {
    pub(super) rights: Rights,
    pub(super) credentials: Credentials,
    pub(super) peer: Peer,
    pub(super) vhost: Vhost,
    /// Only what died in this one.
    pub(super) queue: Option<ShortStr>,
}

pub(super) struct Live {
    watches: Watches,
    reader: Reader,
    /// Those of which it was asked whether they may be read.
    asked: BTreeSet<ShortStr>,
    /// The number of the last one that was looked at.
    at: u64,
    until: Instant,
    ready: VecDeque<Event>,
    noted: bool,
    over: bool,
    _permit: Permit,
}

// === impl Live ===

impl Live {
    /// Of those behind `after`; else of those that come.
    pub(super) fn new(
        watches: Watches,
        reader: Reader,
        after: Option<u64>,
        permit: Permit,
    ) -> Live {
        let at = after.unwrap_or_else(|| watches.recent().newest(&reader.vhost, 0).next);
        let mut live = Live {
            watches,
            reader,
            asked: BTreeSet::new(),
            at,
            until: Instant::now() + LIVE_FOR,
            ready: VecDeque::new(),
            noted: false,
            over: false,
            _permit: permit,
        };
        live.sign_of_life();
        live
    }

    /// What is written, until it is over.
    pub(super) fn events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        unfold(self, |mut live| async move {
            let event = live.next().await?;
            Some((Ok(event), live))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        let stop = self.watches.stop().clone();
        loop {
            if stop.is_cancelled() {
                return None;
            }
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.over || Instant::now() >= self.until {
                return None;
            }
            tokio::select! {
                () = stop.cancelled() => return None,
                () = self.look() => {}
            }
        }
    }

    /// Looks up the next ones, or waits for them.
    async fn look(&mut self) {
        let recent = self.watches.recent().clone();
        let listed = recent.list(&self.reader.vhost, self.at, BATCH);
        if listed.missed {
            self.ready
                .push_back(Event::default().event("missed").data("{}"));
        }
        if listed.deaths.is_empty() {
            self.at = listed.next;
            let later = (Instant::now() + SIGN_OF_LIFE).min(self.until);
            tokio::select! {
                () = recent.more(&self.reader.vhost, self.at) => {}
                () = sleep_until(later) => self.sign_of_life(),
            }
            return;
        }
        self.ask_for(listed.deaths.iter().map(|death| &death.dead.queue))
            .await;
        for death in &listed.deaths {
            let queue = &death.dead.queue;
            match self.may_read(queue).await {
                Ok(true) => self.say("death", Some(death.number), &Shown::of(death)),
                Ok(false) => {}
                // Whoever comes back begins with this one.
                Err(problem) => {
                    self.say("problem", None, &problem.detail());
                    self.over = true;
                    return;
                }
            }
            self.at = death.number;
        }
    }

    /// One connection asks for all of these, so that the answers are there when each is looked up. What it could not ask is asked again then.
    async fn ask_for<'a>(&self, queues: impl Iterator<Item = &'a ShortStr>) {
        let Reader {
            rights,
            credentials,
            peer,
            vhost,
            queue,
        } = &self.reader;
        let room = MOST_QUEUES - self.asked.len();
        let new = queues.filter(|of| is_meant(queue, of) && !self.asked.contains(*of));
        let new: BTreeSet<_> = new.collect();
        let _ = rights
            .readable(credentials, *peer, vhost, new.into_iter().take(room))
            .await;
    }

    /// Whether one is shown that died there.
    async fn may_read(&mut self, queue: &ShortStr) -> Result<bool, Problem> {
        if !is_meant(&self.reader.queue, queue) {
            return Ok(false);
        }
        if !self.asked.contains(queue) {
            if self.asked.len() >= MOST_QUEUES {
                if !std::mem::replace(&mut self.noted, true) {
                    self.say("note", None, &TOO_MANY);
                }
                return Ok(false);
            }
            self.asked.insert(queue.clone());
        }
        let Reader {
            rights,
            credentials,
            peer,
            vhost,
            ..
        } = &self.reader;
        rights.may_read(credentials, *peer, vhost, queue).await
    }

    fn say(&mut self, what: &str, id: Option<u64>, data: &impl serde::Serialize) {
        let event = match id {
            Some(id) => Event::default().id(id.to_string()),
            None => Event::default(),
        };
        if let Ok(data) = serde_json::to_string(data) {
            self.ready.push_back(event.event(what).data(data));
        }
    }

    /// Nothing but the number to go on with.
    fn sign_of_life(&mut self) {
        let event = Event::default().id(self.at.to_string()).comment("");
        self.ready.push_back(event);
    }
}
