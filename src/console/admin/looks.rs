//! Looks into queues: each is a walk in the name of whoever asked, within bounds, and only so many go on at once.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::http::StatusCode;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::api::{Asked, Remembered};
use super::login::Credentials;
use super::parameters::Place;
use super::problem::Problem;
use super::slow_down::{Attempt, SlowDown};
use crate::amqp::ids::{ShortStr, Vhost};
use crate::import::{self, Imported};
use crate::letter::{ErrorHeaders, Letter};
use crate::machine::{Limit, Limits, LiveLimits, Wall};
use crate::net::clock::Clock;
use crate::net::permits::{Permit, Permits, Shares};
use crate::net::walks::Walks;
use crate::telemetry::Metrics;
use crate::walk::{Answers, Bodies, Bounds, Ended, Failure, Settings, Stopped, Summary, Task};

/// How long a look waits for a permit.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a look waits for another one in the same queue, whose messages it would not see.
const TURN: Duration = Duration::from_secs(5);
/// Concurrent logins: nothing else is held for users before the broker admits them.
const LOGINS: usize = 16;

#[derive(Clone)]
pub struct Looks {
    walks: Walks,
    limits: LiveLimits,
    permits: Permits,
    /// Each user's share of the permits. A wrong password takes nothing from the right one.
    shares: Shares<Credentials>,
    turns: Shares<(Vhost, ShortStr)>,
    logins: Permits,
    metrics: Metrics,
    slow_down: SlowDown,
    error_headers: Arc<ArcSwap<ErrorHeaders>>,
    tasks: TaskTracker,
    stop: CancellationToken,
    pub(super) said: Remembered,
}

// === impl Looks ===

impl Looks {
    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// `permits`: one for each concurrent look.
    pub fn new(
        walks: Walks,
        limits: LiveLimits,
        permits: Permits,
        error_headers: ErrorHeaders,
        metrics: Metrics,
    ) -> Looks {
        Looks {
            walks,
            limits,
            permits,
            shares: Shares::default(),
            turns: Shares::default(),
            logins: Permits::new(LOGINS),
            metrics,
            slow_down: SlowDown::default(),
            error_headers: Arc::new(ArcSwap::from_pointee(error_headers)),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            said: Remembered::default(),
        }
    }

    pub fn change(&self, at_once: usize, error_headers: ErrorHeaders) {
        self.permits.resize(at_once);
        self.error_headers.store(Arc::new(error_headers));
    }

    pub(super) fn error_headers(&self) -> ErrorHeaders {
        ErrorHeaders::clone(&self.error_headers.load())
    }

    pub(super) fn now(&self) -> Wall {
        self.walks.walker.clock.now().wall
    }

    /// Ends all looks, and waits until their messages are requeued.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Asks the broker each time: cached rights must not outlive a login.
    ///
    /// # Errors
    /// When the broker refuses the user.
    pub(super) async fn enter(&self, asked: &Asked) -> Result<(), Problem> {
        self.told(asked, Vec::new()).await.map(drop)
    }

    /// The same for a login that the broker has not accepted before: these share few permits.
    ///
    /// # Errors
    /// When the broker refuses the user.
    pub(super) async fn let_in(&self, asked: &Asked) -> Result<(), Problem> {
        match self.slow_down.has_let_in(self.attempt(asked)) {
            true => Ok(()),
            false => self.enter(asked).await,
        }
    }

    /// Browses until `see` has enough. Runs as its own task: if the caller gives up, it requeues
    /// its messages; a cut connection may count as a failed delivery of each message. `messages`:
    /// a limit below `browse-limit`.
    ///
    /// # Errors
    /// When the broker refuses the login or the queue, or cannot be asked.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        asked: &Asked,
        (messages, bodies): (Option<u64>, Bodies),
        mut seen: T,
        see: fn(&mut T, Letter) -> bool,
    ) -> Result<(Summary, T), Problem> {
        self.let_in(asked).await?;
        let share = self.share(&asked.who).await?;
        let permit = self.permit().await?;
        let turn = self.turn_at(&asked.place).await?;
        let (vhost, queue) = (&asked.place.vhost, &asked.place.queue);
        let walking = self.walks.hub.walking(vhost, queue);
        let walking = walking.ok_or_else(is_altered)?;
        let attempt = self.attempt(asked);
        let settings = self.settings(asked, messages, bodies);
        let most = settings.bounds.messages;
        let (looks, stopped) = (self.clone(), self.stop.child_token());
        // Nobody waits any more when this is dropped.
        let _waits = stopped.clone().drop_guard();
        let walk = async move {
            let _held = (share, permit, turn, walking);
            let wants_more = |letter| see(&mut seen, letter);
            let ended = looks
                .walks
                .walker
                .walk(settings, stopped.cancelled_owned(), wants_more)
                .await;
            (ended, seen)
        };
        // Messages are read and written beside the sessions.
        let walk = self.tasks.spawn_on(walk, self.walks.thread.runtime());
        let (ended, seen) = walk.await.map_err(|_| broke_off())?;
        self.count(&ended, most);
        self.came(attempt, ended.as_ref().err());
        Ok((ended?, seen))
    }

    /// What the broker tells this user of these queues, over one connection.
    ///
    /// # Errors
    /// When the broker refuses the login or the vhost, or cannot be asked.
    pub(super) async fn told(
        &self,
        asked: &Asked,
        queues: Vec<ShortStr>,
    ) -> Result<Answers, Problem> {
        let attempt = self.attempt(asked);
        let _permit = self.login(attempt).await?;
        let within = self.limits.now().browse_timeout;
        let login = asked.who.clone().login(asked.place.vhost.clone());
        let stopped = self.stop.child_token().cancelled_owned();
        let answers = self
            .walks
            .walker
            .readable(login, queues, within, stopped)
            .await;
        if answers == Err(Failure::Silent) {
            self.metrics.limit_met(Limit::BrowseTimeout);
        }
        self.came(attempt, answers.as_ref().err());
        Ok(answers?)
    }

    /// Runs as its own task, like a look.
    ///
    /// # Errors
    /// When it broke off, or too many looks run.
    pub(super) async fn import(
        &self,
        asked: &Asked,
        settings: import::Settings,
    ) -> Result<Imported, Problem> {
        let share = self.share(&asked.who).await?;
        let permit = self.permit().await?;
        let attempt = self.attempt(asked);
        let (walker, stopped) = (self.walks.walker.clone(), self.stop.child_token());
        let import = async move {
            let _held = (share, permit);
            walker.import(settings, stopped.cancelled_owned()).await
        };
        let import = self.tasks.spawn_on(import, self.walks.thread.runtime());
        let imported = import.await.ok().flatten().ok_or_else(broke_off)?;
        for _ in 0..imported.without_time {
            self.metrics.limit_met(Limit::DeliveryTime);
        }
        self.came(attempt, imported.failure.as_ref());
        Ok(imported)
    }

    /// Runs on the thread beside the sessions. Dropped if the caller gives up.
    ///
    /// # Errors
    /// When it broke off.
    pub(super) async fn aside<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        let done = self.walks.thread.run(work).await;
        done.unwrap_or_else(|_| Err(broke_off()))
    }

    /// Waits for the permission to try a login.
    ///
    /// # Errors
    /// When too many logins have failed, or are under way.
    async fn login(&self, attempt: Attempt) -> Result<Permit, Problem> {
        self.slow_down.turn(attempt).await?;
        let permit = timeout(PATIENCE, self.logins.acquire(|| {})).await;
        permit.map_err(|_| {
            self.metrics.limit_met(Limit::AdminConnections);
            Problem::busy("Too many logins at a time. Try again soon.")
        })
    }

    /// One of `max-browses`, after the login.
    ///
    /// # Errors
    /// When none is free.
    async fn permit(&self) -> Result<Permit, Problem> {
        let met = || self.metrics.limit_met(Limit::Browses);
        let permit = timeout(PATIENCE, self.permits.acquire(met)).await;
        permit.map_err(|_| {
            Problem::busy("Too many searches are running (`max-browses`). Try again soon.")
        })
    }

    /// The user's share of `max-browses`.
    ///
    /// # Errors
    /// When it is used up.
    async fn share(&self, credentials: &Credentials) -> Result<Permit, Problem> {
        let all = Limits::of_one_user(self.permits.all());
        let share = self.shares.acquire(credentials.clone(), all, PATIENCE);
        self.or_busy(
            share.await,
            "Your searches use half of `max-browses` already. Try again soon.",
        )
    }

    /// Exclusive access to looks in this queue.
    ///
    /// # Errors
    /// When another look takes too long.
    pub(super) async fn turn_at(&self, place: &Place) -> Result<Permit, Problem> {
        let queue = (place.vhost.clone(), place.queue.clone());
        let turn = self.turns.acquire(queue, 1, TURN);
        self.or_busy(
            turn.await,
            "Another search of this queue is running. Try again soon.",
        )
    }

    fn or_busy(&self, permit: Permit, detail: &str) -> Result<Permit, Problem> {
        if permit.is_none() {
            self.metrics.limit_met(Limit::Browses);
            return Err(Problem::busy(detail));
        }
        Ok(permit)
    }

    pub(super) fn attempt(&self, asked: &Asked) -> Attempt {
        self.slow_down.attempt(asked.peer, &asked.who)
    }

    pub(super) fn came(&self, attempt: Attempt, failure: Option<&Failure>) {
        match failure {
            Some(Failure::Login(_)) => self.slow_down.failed(attempt),
            None | Some(Failure::Refused { .. } | Failure::Stream) => {
                self.slow_down.succeeded(attempt)
            }
            Some(Failure::Connection(_) | Failure::Silent | Failure::Blocked) => {}
        }
    }

    fn settings(&self, asked: &Asked, messages: Option<u64>, bodies: Bodies) -> Settings {
        let (limits, place) = (self.limits.now(), asked.place.clone());
        let wanted = messages.unwrap_or(u64::MAX);
        Settings {
            login: asked.who.clone().login(place.vhost),
            queue: place.queue,
            bounds: Bounds {
                messages: wanted.min(limits.browse_limit),
                held: limits.browse_limit,
                bytes: limits.browse_bytes as u64,
                time: limits.browse_timeout,
            },
            task: Task::Look(bodies),
        }
    }

    fn count(&self, ended: &Ended, most: u64) {
        let met = match ended {
            Err(Failure::Silent) => Limit::BrowseTimeout,
            Ok(summary) => match summary.stopped {
                Stopped::Messages if most >= self.limits.now().browse_limit => Limit::BrowseLimit,
                Stopped::Bytes => Limit::BrowseBytes,
                Stopped::Time => Limit::BrowseTimeout,
                _ => return,
            },
            Err(_) => return,
        };
        self.metrics.limit_met(met);
    }
}

fn is_altered() -> Problem {
    let text = "The queue is being altered. Look again when that has ended.";
    Problem::new(StatusCode::CONFLICT, text)
}

fn broke_off() -> Problem {
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "it broke off: this is a bug of the proxy",
    )
}
