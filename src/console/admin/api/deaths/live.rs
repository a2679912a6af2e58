//! Dead letters as they come, as server-sent events: each has its number as its id, so that a reader whose answer has ended goes on there.
//!
//! Nothing waits here for a slow reader: the next ones are looked up when it has taken those before.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::Event;
use futures::stream::{Stream, unfold};
use tokio::time::{Instant, sleep_until};

use super::super::super::rooms::LIVE_FOR;
use super::super::{Api, Asked};
use super::{Shown, is_meant};
use crate::amqp::ids::ShortStr;
use crate::net::permits::Permit;

/// An idle live answer sends its number this often, so that a lost reader is noticed.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
const BATCH: usize = 100;

pub(super) struct Live {
    api: Api,
    asked: Asked,
    queue: Option<ShortStr>,
    at: u64,
    until: Instant,
    ready: VecDeque<Event>,
    over: bool,
    _permit: Permit,
}

// === impl Live ===

impl Live {
    /// Starts after `after`; without it, with new deaths.
    pub(super) fn new(
        api: Api,
        asked: Asked,
        queue: Option<ShortStr>,
        after: Option<u64>,
        permit: Permit,
    ) -> Live {
        let newest = || api.known.recent().newest(&asked.place.vhost, 0).next;
        let at = after.unwrap_or_else(newest);
        let mut live = Live {
            api,
            asked,
            queue,
            at,
            until: Instant::now() + LIVE_FOR,
            ready: VecDeque::new(),
            over: false,
            _permit: permit,
        };
        live.sign_of_life();
        live
    }

    pub(super) fn events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        unfold(self, |mut live| async move {
            let event = live.next().await?;
            Some((Ok(event), live))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        let stop = self.api.rooms.stop().clone();
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

    async fn look(&mut self) {
        let (known, vhost) = (self.api.known.clone(), &self.asked.place.vhost);
        let listed = known.recent().list(vhost, self.at, BATCH);
        if listed.missed {
            self.ready
                .push_back(Event::default().event("missed").data("{}"));
        }
        if listed.deaths.is_empty() {
            self.at = listed.next;
            let later = (Instant::now() + SIGN_OF_LIFE).min(self.until);
            tokio::select! {
                () = known.more(vhost, self.at) => {}
                () = sleep_until(later) => self.sign_of_life(),
            }
            return;
        }
        // Of a batch all queues are asked for by one connection.
        let queues = listed.deaths.iter().map(|death| &death.dead.queue);
        let queues = queues.filter(|of| is_meant(&self.queue, of));
        let readable = match self.api.looks.readable(&self.asked, queues).await {
            Ok((readable, _)) => readable,
            // Whoever comes back begins with the first of these.
            Err(problem) => {
                self.say("problem", None, &problem.detail());
                self.over = true;
                return;
            }
        };
        for death in &listed.deaths {
            if readable.contains(&death.dead.queue) {
                self.say("death", Some(death.number), &Shown::of(death));
            }
            self.at = death.number;
        }
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

    fn sign_of_life(&mut self) {
        let event = Event::default().id(self.at.to_string()).comment("");
        self.ready.push_back(event);
    }
}
