//! Walks along queues, imports and questions for rights as tasks: each has a connection of its own, in the name of whoever asked for it.

use std::future::Future;
use std::task::Context;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::amqp::ids::ShortStr;
use crate::import::{self, Import, Imported};
use crate::letter::Letter;
use crate::link::Login;
use crate::machine::{Effects, Machine, Now, Owner};
use crate::registry::refusal::is_channel_limit;
use crate::walk::{self, Answers, Ended, Failure, Input, Progress, Readable, Settings, Walk};

use super::alterations::Walking;
use super::background::Background;
use super::clock::{Clock, SystemClock};
use super::dial::Dialer;
use super::drive::{Connector, Drive, Outlet};
use super::nodes::Nodes;
use super::outlet::Outbox;
use super::stream::Stream;
use super::vhosts::Hub;

#[derive(Clone)]
pub struct Walks {
    pub walker: Walker,
    pub hub: Hub,
    /// A separate thread: long redrives and large files must not delay sessions.
    pub thread: Background,
}

#[derive(Clone)]
pub struct Walker {
    pub dialer: Dialer,
    pub clock: SystemClock,
}

/// Passes the machine's output to a function.
struct Gives<F>(F);

pub struct Mover {
    walking: Walking,
    owner: Owner,
    /// Opened at the first message: a user without permissions opens no links of a vhost.
    outbox: Option<Outbox>,
    progress: watch::Sender<Progress>,
    ended: mpsc::Sender<Ended>,
}

// === impl Walks ===

impl Walks {
    /// The sender pauses or ends the walk.
    pub fn moving(
        &self,
        walking: Walking,
        settings: Settings,
        progress: watch::Sender<Progress>,
    ) -> (mpsc::Sender<Input>, impl Future<Output = Ended> + use<>) {
        let Walker { dialer, clock } = &self.walker;
        let connector = dialer.connector(|_| ());
        let (sender, mut told, mut drive) =
            Mover::drive(walking, settings, progress, *clock, connector);
        let (thread, nodes) = (self.thread.clone(), dialer.nodes.clone());
        let walking = async move {
            let walking = thread.run(async move {
                drive.run(std::future::pending()).await;
                told.try_recv().unwrap_or(Err(Failure::Silent))
            });
            with_nodes(&nodes, walking.await.unwrap_or(Err(Failure::Silent)))
        };
        (sender, walking)
    }
}

// === impl Walker ===

impl Walker {
    /// Browses until `wants_more` returns false or `stopped` is done. Dropping this drops the
    /// connection: the broker requeues the messages, and may count failed deliveries.
    ///
    /// # Errors
    /// When the broker refuses, or cannot be reached.
    pub async fn walk(
        &self,
        settings: Settings,
        stopped: impl Future<Output = ()>,
        mut wants_more: impl FnMut(Letter) -> bool + Send,
    ) -> Ended {
        let (stop, inbox) = mpsc::channel(1);
        let mut ended = Err(Failure::Silent);
        let gives = |fx: &mut walk::Effects| {
            for letter in fx.out.letters.drain(..) {
                if !wants_more(letter) {
                    // One is enough.
                    let _ = stop.try_send(Input::Enough);
                }
            }
            if let Some(end) = fx.out.ended.take() {
                ended = end;
            }
        };
        let walk = Walk::new(settings, self.clock.now());
        self.run(walk, gives, inbox, stopped).await;
        with_nodes(&self.dialer.nodes, ended)
    }

    async fn run<M: Machine>(
        &self,
        machine: M,
        gives: impl FnMut(&mut Effects<M::Output>),
        inbox: mpsc::Receiver<M::Input>,
        stopped: impl Future<Output = ()>,
    ) {
        let connector = self.dialer.connector(|_| ());
        let mut drive = Drive::link(machine, Gives(gives), inbox, self.clock, connector);
        drive.run(stopped).await;
    }

    /// `None`: it broke off, which is a bug of the proxy.
    pub async fn import(
        &self,
        settings: import::Settings,
        stopped: impl Future<Output = ()>,
    ) -> Option<Imported> {
        self.told(Import::new(settings, self.clock.now()), stopped)
            .await
    }

    /// Which of these queues that user may read.
    ///
    /// # Errors
    /// When the broker refuses the user, or cannot be asked.
    pub async fn readable(
        &self,
        login: Login,
        queues: Vec<ShortStr>,
        within: Duration,
        stopped: impl Future<Output = ()>,
    ) -> Result<Answers, Failure> {
        let mut stopped = std::pin::pin!(stopped);
        let mut at_once = walk::AT_ONCE;
        loop {
            let (login, queues) = (login.clone(), queues.clone());
            let readable = Readable::new(login, queues, (at_once, within), self.clock.now());
            let told = self.told(readable, &mut stopped).await;
            match told.unwrap_or(Err(Failure::Silent)) {
                // The user may have fewer channels.
                Err(Failure::Refused { code, text })
                    if at_once > 1 && is_channel_limit(code, text.as_bytes()) =>
                {
                    at_once = 1;
                }
                told => return with_nodes(&self.dialer.nodes, told),
            }
        }
    }

    async fn told<M: Machine<Output = Option<T>>, T>(
        &self,
        machine: M,
        stopped: impl Future<Output = ()>,
    ) -> Option<T> {
        let (_sender, inbox) = mpsc::channel(1);
        let mut told = None;
        let gives = |fx: &mut Effects<Option<T>>| {
            if let Some(end) = fx.out.take() {
                told = Some(end);
            }
        };
        self.run(machine, gives, inbox, stopped).await;
        told
    }
}

fn with_nodes<T>(nodes: &Nodes, ended: Result<T, Failure>) -> Result<T, Failure> {
    ended.map_err(|failure| match (failure, nodes.away()) {
        (Failure::Connection(cause), away) if !away.is_empty() => {
            Failure::Connection(format!("{cause}: {}", away.join("; ")))
        }
        (failure, _) => failure,
    })
}

// === impl Gives ===

impl<M: Machine, F: FnMut(&mut Effects<M::Output>)> Outlet<M> for Gives<F> {
    fn dispatch(&mut self, _: &M, fx: &mut Effects<M::Output>, _: Now, _: &mut Context<'_>) {
        (self.0)(fx);
    }
}

// === impl Mover ===

impl Mover {
    /// A moving walk over any connections: its sender, its result, and its driver.
    pub fn drive<S: Stream, C: Clock>(
        walking: Walking,
        settings: Settings,
        progress: watch::Sender<Progress>,
        clock: C,
        connector: Connector<S>,
    ) -> (
        mpsc::Sender<Input>,
        mpsc::Receiver<Ended>,
        Drive<Walk, Mover, S, C>,
    ) {
        let (owner, tell, inbox) = walking.hub.walk();
        let (ended, told) = mpsc::channel(1);
        let mover = Mover {
            walking,
            owner,
            outbox: None,
            progress,
            ended,
        };
        let walk = Walk::new(settings, clock.now());
        let drive = Drive::link(walk, mover, inbox, clock, connector);
        (tell, told, drive)
    }
}

impl Outlet<Walk> for Mover {
    fn dispatch(&mut self, walk: &Walk, fx: &mut walk::Effects, _: Now, cx: &mut Context<'_>) {
        if !fx.out.publish.is_empty() {
            let outbox = self.outbox.get_or_insert_with(|| {
                let links = self.walking.hub.links(&self.walking.vhost);
                Outbox::new(self.owner, links.publisher.clone())
            });
            outbox.hand_over(&mut fx.out.publish, cx);
        }
        let now = walk.progress();
        self.progress.send_if_modified(|told| {
            let is_new = *told != now;
            *told = now;
            is_new
        });
        if let Some(ended) = fx.out.ended.take() {
            let _ = self.ended.try_send(ended);
        }
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.walking.hub.forget(self.owner);
    }
}
