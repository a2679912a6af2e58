//! Redrives and purges: those at work, and the last that have ended. Each is a walk in the name of whoever began it; one at a time in a queue.
//!
//! What is known of them is in memory only. One that ends with its process has moved what it has moved; the rest is in its queue.
//!
//! - `order` what somebody wants moved · `book` which are at work · `shown` how one is shown

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::info;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::drain::{Drain, Phase};
use crate::machine::{Limit, LiveLimits};
use crate::net::clock::Clock;
use crate::net::walks::Walks;
use crate::objects::Names;
use crate::telemetry::Metrics;
use crate::walk::{Ended, Failure, Stopped};

pub use self::book::Book;
pub use self::order::{NotBegun, Order};
pub use self::shown::{Shown, State};

mod book;
mod order;
mod shown;

const LAST: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub struct Redrives {
    pub walks: Walks,
    pub drain: Drain,
    pub own_user: ShortStr,
    pub names: Names,
    pub limits: LiveLimits,
    pub metrics: Metrics,
    pub book: Arc<Mutex<Book>>,
}

// === impl Redrives ===

impl Redrives {
    /// Runs in the background.
    ///
    /// # Errors
    /// Another one works in that queue, too many run, or the destination is forbidden.
    pub fn begin(&self, order: Order) -> Result<u64, NotBegun> {
        let now = self.walks.walker.clock.now();
        let most = self.limits.now().max_redrives;
        let (vhost, queue) = (&order.login.vhost, &order.queue);
        let alone = self.walks.hub.walking(vhost, queue);
        let alone = alone.ok_or_else(|| NotBegun::Altered(queue.clone()))?;
        let mut walking = None;
        let begun = self
            .book()
            .begin(&order, &self.names, most, now.wall, |progress| {
                let settings = order.walk(&self.own_user, &self.names);
                let (tell, walk) = self.walks.moving(alone, settings, progress);
                walking = Some(walk);
                tell
            });
        if begun == Err(NotBegun::TooMany) {
            self.metrics.limit_met(Limit::Redrives);
        }
        let id = begun?;
        let (login, queue, to) = (&order.login, &order.queue, order.to());
        let edits = order.to.as_ref().is_some_and(|to| to.edit.is_some());
        info!(redrive = id, vhost = %login.vhost, %queue, by = %login.user, to, edits, "redrive begun");
        let (redrives, stopped) = (self.clone(), self.drain.stopped(Phase::Sessions));
        self.drain.spawn(Phase::Sessions, async move {
            let Some(walking) = walking else { return };
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

    pub fn list(&self) -> Vec<Shown> {
        self.book().list(|vhost| self.is_blocked(vhost))
    }

    pub fn show(&self, id: u64) -> Option<Shown> {
        self.book().show(id, |vhost| self.is_blocked(vhost))
    }

    fn is_blocked(&self, vhost: &Vhost) -> bool {
        self.metrics.standing(vhost).is_blocked
    }

    /// Done when the broker has accepted it, or when it ended early. `None`: unknown id.
    pub async fn under_way(&self, id: u64) -> Option<Result<Shown, Failure>> {
        let (mut progress, over) = self.book().watch(id)?;
        let never = progress
            .wait_for(|progress| progress.under_way)
            .await
            .is_err();
        if never {
            over.cancelled().await;
        }
        self.result(id)
    }

    /// Done when it ended.
    pub async fn over(&self, id: u64) -> Option<Result<Shown, Failure>> {
        let (_, over) = self.book().watch(id)?;
        over.cancelled().await;
        self.result(id)
    }

    fn result(&self, id: u64) -> Option<Result<Shown, Failure>> {
        let book = self.book();
        match book.failure(id) {
            Some(failure) => Some(Err(failure)),
            None => book.show(id, |vhost| self.is_blocked(vhost)).map(Ok),
        }
    }

    /// While paused, its messages are hidden from others for some minutes. False: it has ended, or
    /// never was.
    pub fn pause(&self, id: u64, pause: bool) -> bool {
        self.book().pause(id, pause)
    }

    /// Messages in flight still arrive. False: it has ended, or never was.
    pub fn cancel(&self, id: u64) -> bool {
        self.book().cancel(id)
    }

    /// `None`: it did not end in time.
    fn ended(&self, id: u64, ended: Option<Ended>) {
        let now = self.walks.walker.clock.now();
        if let Some(Ok(summary)) = &ended
            && matches!(summary.stopped, Stopped::Messages | Stopped::Bytes)
        {
            self.metrics.limit_met(Limit::RedriveHeld);
        }
        if let Some(shown) = self.book().ended(id, ended, now.wall) {
            info!(redrive = id, vhost = shown.vhost, queue = shown.queue, state = ?shown.state, gone = shown.gone, stay = ?shown.stay, cause = shown.cause, "redrive ended");
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
