//! Redrives and purges: those at work, and the last that have ended. Each is a walk in the name of whoever began it; one at a time in a queue.
//!
//! What is known of them is in memory only. One that ends with its process has moved what it has moved; the rest is in its queue, in order.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::info;
use utoipa::ToSchema;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::dead_letter::redrive::{Destination, Redrive};
use crate::drain::{Drain, Phase};
use crate::letter::Filter;
use crate::link::Login;
use crate::machine::{Cause, Limit, LiveLimits, Wall};
use crate::net::clock::Clock;
use crate::net::walks::{Progress, Walks};
use crate::objects::Names;
use crate::telemetry::Metrics;
use crate::walk::{Bounds, Ended, Failure, Input, Move, Settings, Stopped, Task};

/// Of those that have ended, so many are kept.
const MOST_ENDED: usize = 100;
/// At the end of the process, for so long the outcomes of what was published are awaited.
const LAST: Duration = Duration::from_secs(5);

/// Begins redrives, and knows what became of them. Clones are the same.
#[derive(Clone)]
pub struct Redrives {
    walks: Walks,
    drain: Drain,
    own_user: ShortStr,
    names: Names,
    limits: LiveLimits,
    metrics: Metrics,
    all: Arc<Mutex<All>>,
}

#[derive(Default)]
struct All {
    last: u64,
    entries: BTreeMap<u64, Entry>,
}

/// Without the password, which only the walk needs.
struct Entry {
    vhost: Vhost,
    queue: ShortStr,
    by: ShortStr,
    /// Where the messages go, in words.
    to: String,
    /// They go somewhere: the publisher has to publish them.
    is_published: bool,
    begun: Wall,
    progress: watch::Receiver<Progress>,
    /// The inbox of the walk.
    tell: mpsc::Sender<Input>,
    paused: bool,
    cancelled: bool,
    ended: Option<(Wall, Ended)>,
    /// Cancelled when `ended` is known.
    over: CancellationToken,
}

/// What somebody wants moved.
#[derive(Clone, Debug)]
pub struct Order {
    /// In whose name, and in which vhost.
    pub login: Login,
    /// Out of which queue.
    pub queue: ShortStr,
    /// Which messages are moved.
    pub filter: Filter,
    /// How many messages it moves at most.
    pub most: u64,
    /// How many messages it moves in a second at most.
    pub per_second: Option<NonZeroU32>,
    /// How many messages that stay in the queue it holds at most.
    pub held: u64,
    /// Where they go; `None`: nowhere, they are removed.
    pub to: Option<Redrive>,
}

/// Why one does not begin.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NotBegun {
    /// One at a time in a queue.
    #[error("redrive {0} is at work in this queue")]
    Busy(u64),
    /// As many as `max-redrives`.
    #[error("as many redrives as `max-redrives` allows are at work: wait for the end of one")]
    TooMany,
    /// Whoever may publish there decides what the proxy believes.
    #[error("{0} is one of the proxy's own: nothing is sent there")]
    Ours(ShortStr),
}

/// A redrive, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = Redrive)]
pub struct Shown {
    /// Its number: begins at 1 with each process.
    pub id: u64,
    /// The queue, in its octets.
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
    /// Messages that it has met.
    pub seen: u64,
    /// Messages that are gone from the queue.
    pub gone: u64,
    /// Messages that were meant, and stay: why, and how many.
    pub stay: BTreeMap<String, u64>,
    /// Why it failed, or went no further. While it is `waiting`: `blocked`, as the broker has an alarm, or `publisher_away`.
    pub cause: Option<String>,
    /// What somebody should know, in sentences.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// What a redrive is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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

// === impl Redrives ===

impl Redrives {
    /// A list without redrives.
    pub fn new(
        walks: Walks,
        drain: Drain,
        (own_user, names): (ShortStr, Names),
        (limits, metrics): (LiveLimits, Metrics),
    ) -> Redrives {
        Redrives {
            walks,
            limits,
            metrics,
            drain,
            own_user,
            names,
            all: Arc::default(),
        }
    }

    /// Begins one. It goes on by itself.
    ///
    /// # Errors
    /// When another is at work in that queue, or too many are in all, or messages are to go where nobody may send them.
    pub fn begin(&self, order: Order) -> Result<u64, NotBegun> {
        if let Some(name) = order.goes_to().filter(|name| self.names.is_ours(name)) {
            return Err(NotBegun::Ours(name.clone()));
        }
        let mut all = self.all();
        let in_the_way = |entry: &Entry| {
            let is_here = entry.vhost == order.login.vhost && entry.queue == order.queue;
            is_here && entry.ended.is_none()
        };
        if let Some((id, _)) = all.entries.iter().find(|(_, entry)| in_the_way(entry)) {
            return Err(NotBegun::Busy(*id));
        }
        let at_work = all.entries.values().filter(|entry| entry.ended.is_none());
        if at_work.count() >= self.limits.now().max_redrives {
            self.metrics.limit_met(Limit::Redrives);
            return Err(NotBegun::TooMany);
        }
        all.last += 1;
        let id = all.last;
        let (told, progress) = watch::channel(Progress::default());
        let (tell, walking) = self.walks.moving(self.settings(&order), told);
        let entry = Entry {
            vhost: order.login.vhost.clone(),
            queue: order.queue.clone(),
            by: order.login.user.clone(),
            to: order.to(),
            is_published: order.to.is_some(),
            begun: self.walks.clock.now().wall,
            progress,
            tell,
            paused: false,
            cancelled: false,
            ended: None,
            over: CancellationToken::new(),
        };
        let Entry {
            vhost,
            queue,
            by,
            to,
            ..
        } = &entry;
        info!(redrive = id, %vhost, %queue, %by, to, "redrive begun");
        all.entries.insert(id, entry);
        drop(all);
        let (redrives, stopped) = (self.clone(), self.drain.stopped(Phase::Sessions));
        self.drain.spawn(Phase::Sessions, async move {
            let mut walking = std::pin::pin!(walking);
            let ended = tokio::select! {
                ended = &mut walking => Some(ended),
                () = stopped => {
                    redrives.cancel(id);
                    tokio::time::timeout(LAST, walking).await.ok()
                }
            };
            redrives.ended(id, ended);
        });
        Ok(id)
    }

    /// All that are known, the newest first.
    pub fn list(&self) -> Vec<Shown> {
        let all = self.all();
        let shown = all.entries.iter().rev();
        shown.map(|(id, entry)| self.shown(*id, entry)).collect()
    }

    /// The redrive with this id, if it is remembered.
    pub fn show(&self, id: u64) -> Option<Shown> {
        self.all()
            .entries
            .get(&id)
            .map(|entry| self.shown(id, entry))
    }

    fn shown(&self, id: u64, entry: &Entry) -> Shown {
        let blocked = entry.is_published && self.metrics.standing(&entry.vhost).is_blocked;
        entry.show(id, blocked)
    }

    /// Done when the broker has let it in; or when it has ended, which says why it did not. `None`: it never was.
    pub async fn under_way(&self, id: u64) -> Option<Result<Shown, Failure>> {
        let (mut progress, over) = {
            let all = self.all();
            let entry = all.entries.get(&id)?;
            (entry.progress.clone(), entry.over.clone())
        };
        let never = progress
            .wait_for(|progress| progress.under_way)
            .await
            .is_err();
        if never {
            over.cancelled().await;
        }
        let all = self.all();
        let entry = all.entries.get(&id)?;
        match &entry.ended {
            Some((_, Err(failure))) => Some(Err(failure.clone())),
            _ => Some(Ok(self.shown(id, entry))),
        }
    }

    /// Holds it up, or lets it go on. What it holds meanwhile, for some minutes, others do not see. False: it has ended, or never was.
    pub fn pause(&self, id: u64, pause: bool) -> bool {
        self.tell(id, Input::Pause(pause), |entry| entry.paused = pause)
    }

    /// Ends it. What is on its way arrives. False: it has ended, or never was.
    pub fn cancel(&self, id: u64) -> bool {
        self.tell(id, Input::Enough, |entry| entry.cancelled = true)
    }

    fn tell(&self, id: u64, input: Input, note: impl FnOnce(&mut Entry)) -> bool {
        let mut all = self.all();
        let entry = all.entries.get_mut(&id);
        let Some(entry) = entry.filter(|entry| entry.ended.is_none()) else {
            return false;
        };
        let told = entry.tell.try_send(input).is_ok();
        if told {
            note(entry);
        }
        told
    }

    /// `None`: it did not end in time.
    fn ended(&self, id: u64, ended: Option<Ended>) {
        let mut all = self.all();
        if let Some(entry) = all.entries.get_mut(&id) {
            entry.cancelled |= ended.is_none();
            let ended = ended.unwrap_or_else(|| Ok(Default::default()));
            entry.ended = Some((self.walks.clock.now().wall, ended));
            entry.over.cancel();
            let shown = entry.show(id, false);
            info!(redrive = id, vhost = shown.vhost, queue = shown.queue, state = ?shown.state, gone = shown.gone, stay = ?shown.stay, cause = shown.cause, "redrive ended");
        }
        let ended = all
            .entries
            .iter()
            .filter(|(_, entry)| entry.ended.is_some());
        let ended: Vec<u64> = ended.map(|(id, _)| *id).collect();
        for id in ended.iter().rev().skip(MOST_ENDED) {
            all.entries.remove(id);
        }
    }

    fn settings(&self, order: &Order) -> Settings {
        Settings {
            login: order.login.clone(),
            queue: order.queue.clone(),
            bounds: Bounds {
                messages: u64::MAX,
                octets: u64::MAX,
                time: Duration::MAX,
            },
            task: Task::Move(Box::new(Move {
                filter: order.filter.clone(),
                most: order.most,
                per_second: order.per_second,
                held: order.held,
                to: order.to.clone(),
                own_user: self.own_user.clone(),
                names: self.names.clone(),
            })),
        }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Order ===

impl Order {
    /// The queue or the exchange that was named.
    fn goes_to(&self) -> Option<&ShortStr> {
        match &self.to.as_ref()?.to {
            Destination::Source => None,
            Destination::Queue(name) | Destination::Exchange { exchange: name, .. } => Some(name),
        }
    }

    /// Where messages go, in words.
    fn to(&self) -> String {
        match self.to.as_ref().map(|redrive| &redrive.to) {
            None => "nowhere".to_owned(),
            Some(Destination::Source) => "source".to_owned(),
            Some(Destination::Queue(queue)) => format!("queue {queue}"),
            Some(Destination::Exchange { exchange, .. }) => format!("exchange {exchange}"),
        }
    }
}

// === impl Entry ===

impl Entry {
    /// `is_blocked`: the broker blocks the publisher by an alarm.
    fn show(&self, id: u64, is_blocked: bool) -> Shown {
        let Progress {
            ready,
            seen,
            moved,
            blocked,
            ..
        } = self.progress.borrow().clone();
        let (state, cause) = match &self.ended {
            None if self.paused => (State::Paused, None),
            None if blocked || is_blocked => (State::Waiting, Some(BLOCKED.to_owned())),
            None if moved.waits => {
                let why = Cause::PublisherAway.as_str();
                (State::Waiting, Some(why.to_owned()))
            }
            None => (State::Running, None),
            Some((_, Err(failure))) => (State::Failed, Some(failure.to_string())),
            Some(_) if self.cancelled => (State::Cancelled, None),
            Some((_, Ok(summary))) => match summary.stopped {
                Stopped::Messages => (State::Failed, Some(TOO_MANY_STAY.to_owned())),
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
            seen,
            gone: moved.gone,
            stay: moved.stay,
            cause,
            notes: self.notes(),
        }
    }

    /// What somebody should know.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let summary = match &self.ended {
            Some((_, Ok(summary))) => summary,
            Some((_, Err(_))) => return notes,
            None if self.progress.borrow().starves => return vec![STARVES.to_owned()],
            None => return notes,
        };
        if summary.counted {
            let back = summary.taken.saturating_sub(summary.moved.gone);
            notes.push(format!(
                "what was put back ({back}) counts as a failed delivery of each message: the queue's delivery limit may kill messages"
            ));
        }
        let published = [Cause::Unconfirmed, Cause::TimedOut].map(Cause::as_str);
        let published = published
            .iter()
            .filter_map(|why| summary.moved.stay.get(*why));
        let published: u64 = published.sum();
        if published > 0 {
            notes.push(format!(
                "{published} that stay were published without a confirm: they may have arrived, too"
            ));
        }
        if summary.unread > 0 {
            notes.push(format!(
                "{} that have gone may be in the queue, too: the broker, in an alarm, did not read that they were to go",
                summary.unread
            ));
        }
        notes
    }
}

/// Why a redrive waits in an alarm.
const BLOCKED: &str = "blocked";
/// Of a walk that gets nothing.
const STARVES: &str =
    "nothing comes, though the queue has messages: is another consumer the only active one?";
/// Of a walk that holds `look-limit` messages.
const TOO_MANY_STAY: &str = "too many messages in front stay where they are (look-limit)";
