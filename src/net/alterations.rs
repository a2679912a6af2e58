//! A queue that is made anew: who tells the sessions and the publisher of its vhost, and hears of them. One at a time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::alteration::{
    Alteration, Altered, Effects, Failure, Follower, Input, Output, Settings, Task, Told,
};
use crate::machine::{Machine, Now, Owner};
use crate::publisher;
use crate::registry::reach::Reach;
use crate::session::{self, Ready, Swap};

use super::clock::Clock;
use super::drive::{Drive, Outlet};
use super::vhosts::Hub;
use super::walks::Walks;

/// Two answers of each session.
const INBOX: usize = 1 << 18;
/// How often, and after which pauses, an alteration is finished that clients wait for.
const TIMES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(300);

/// While it lives, sessions may be held.
pub(super) struct Swapping {
    reach: Arc<Reach>,
    /// What sessions were told last.
    told: Option<Told>,
    to: mpsc::Sender<Input>,
}

/// Lets all sessions go on when it is dropped.
struct Held(Hub);

struct AlterationOutlet {
    hub: Hub,
    ended: mpsc::Sender<Result<Altered, Failure>>,
}

// === impl Walks ===

impl Walks {
    /// Makes a queue anew, or takes part in it. It goes on when the future is dropped.
    ///
    /// # Errors
    /// The queue is as it was, or an error of the link says that this is unknown.
    pub async fn alter(&self, settings: Settings) -> Result<Altered, Failure> {
        let reach = settings.order.reach(&settings.login.vhost);
        let (to, inbox) = mpsc::channel(INBOX);
        let held = self.hub.begin_swap(reach, to).ok_or(Failure::Claimed)?;
        let this = self.clone();
        let altering = self.thread.runtime().spawn(async move {
            let mut altered = this.run(settings.clone(), inbox).await;
            if matches!(altered, Err(Failure::Link(_))) && this.hub.is_swapping() {
                altered = this.finish_for_clients(settings).await.or(altered);
            }
            drop(held);
            altered
        });
        let silent = crate::walk::Failure::Silent;
        altering.await.unwrap_or(Err(silent.into()))
    }

    /// Clients wait for the queue, and nothing is heard of who makes it.
    async fn finish_for_clients(&self, settings: Settings) -> Result<Altered, Failure> {
        let mut finished = Err(Failure::Claimed);
        for _ in 0..TIMES {
            finished = self.finish(settings.clone()).await;
            if !matches!(finished, Err(Failure::Link(_) | Failure::Claimed)) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        finished
    }

    /// Finishes what a proxy that has ended left behind.
    ///
    /// # Errors
    /// It could not be done now.
    pub async fn finish(&self, settings: Settings) -> Result<Altered, Failure> {
        let (_to, inbox) = mpsc::channel(1);
        let task = Task::Finish;
        self.run(Settings { task, ..settings }, inbox).await
    }

    async fn run(
        &self,
        settings: Settings,
        inbox: mpsc::Receiver<Input>,
    ) -> Result<Altered, Failure> {
        let now = Clock::now(&self.walker.clock);
        match settings.task {
            Task::Follow => self.drive(Follower::new(settings, now), inbox).await,
            Task::Alter { .. } | Task::Finish => {
                self.drive(Alteration::new(settings, now), inbox).await
            }
        }
    }

    async fn drive<M: Machine<Input = Input, Output = Output>>(
        &self,
        machine: M,
        inbox: mpsc::Receiver<Input>,
    ) -> Result<Altered, Failure> {
        let (ended, mut told) = mpsc::channel(1);
        let outlet = AlterationOutlet {
            hub: self.hub.clone(),
            ended,
        };
        let connector = self.walker.dialer.connector(|_| ());
        let mut drive = Drive::link(machine, outlet, inbox, self.walker.clock, connector);
        drive.run(std::future::pending()).await;
        let silent = crate::walk::Failure::Silent;
        told.try_recv().unwrap_or(Err(silent.into()))
    }
}

impl<M: Machine<Input = Input, Output = Output>> Outlet<M> for AlterationOutlet {
    fn dispatch(&mut self, _: &M, fx: &mut Effects, _: Now, _: &mut Context<'_>) {
        for told in fx.out.swap.drain(..) {
            self.hub.tell_of_swap(told);
        }
        if let Some(ended) = fx.out.ended.take() {
            let _ = self.ended.try_send(ended);
        }
    }
}

// === impl Hub ===

impl Hub {
    /// `None`: one is under way.
    fn begin_swap(&self, reach: Reach, to: mpsc::Sender<Input>) -> Option<Held> {
        let mut swapping = self.swapping();
        if swapping.is_some() {
            return None;
        }
        *swapping = Some(Swapping {
            reach: Arc::new(reach),
            told: None,
            to,
        });
        Some(Held(self.clone()))
    }

    /// Whether sessions wait.
    fn is_swapping(&self) -> bool {
        let swapping = self.swapping();
        let told = swapping.as_ref().and_then(|swapping| swapping.told);
        matches!(told, Some(Told::Hold | Told::Settle | Told::Cancel))
    }

    fn tell_of_swap(&self, told: Told) {
        let mut swapping = self.swapping();
        let Some(swapping) = swapping.as_mut() else {
            return;
        };
        if told == Told::Moving {
            return self.pause_publisher(&swapping.reach, true);
        }
        swapping.told = Some(told);
        // Behind that: who registers later asks for it.
        let sessions = self.sessions();
        let owners = sessions.iter().map(|(owner, _)| *owner);
        // Before they can answer.
        swapping.say(Input::Told(owners.collect::<BTreeSet<_>>()));
        let swap = match told {
            Told::Hold => Swap::Hold(swapping.reach.clone()),
            Told::Settle => Swap::Settle,
            Told::Cancel | Told::Moving => Swap::Cancel,
            Told::Over { anew } => Swap::Over { anew },
        };
        for (_, inbox) in &sessions {
            // One that has no room is at its end.
            let _ = inbox.try_send(Box::new(session::Input::Swap(swap.clone())));
        }
        let pauses = match told {
            Told::Hold | Told::Settle => return,
            Told::Cancel | Told::Moving => true,
            Told::Over { .. } => false,
        };
        self.pause_publisher(&swapping.reach, pauses);
    }

    fn pause_publisher(&self, reach: &Reach, pauses: bool) {
        let publisher = self.links(&reach.vhost).publisher.clone();
        // Its pause ends by itself, too.
        let _ = publisher.try_send(publisher::Input::Pause(pauses));
    }

    /// What a session that begins has to know.
    pub(super) fn swap_for_new(&self) -> Vec<Swap> {
        let swapping = self.swapping();
        let Some(Swapping { reach, told, .. }) = swapping.as_ref() else {
            return Vec::new();
        };
        let hold = Swap::Hold(reach.clone());
        match told {
            Some(Told::Hold) => vec![hold],
            Some(Told::Settle) => vec![hold, Swap::Settle],
            Some(Told::Cancel | Told::Moving) => vec![hold, Swap::Cancel],
            Some(Told::Over { .. }) | None => Vec::new(),
        }
    }

    pub(super) fn said_of_swap(&self, owner: Owner, ready: Ready) {
        if let Some(swapping) = self.swapping().as_ref() {
            swapping.say(Input::Ready(owner, ready));
        }
    }

    pub(super) fn left_swap(&self, owner: Owner) {
        if let Some(swapping) = self.swapping().as_ref() {
            swapping.say(Input::Gone(owner));
        }
    }

    pub(super) fn publisher_pauses(&self) {
        if let Some(swapping) = self.swapping().as_ref() {
            swapping.say(Input::Paused);
        }
    }
}

// === impl Swapping ===

impl Swapping {
    fn say(&self, input: Input) {
        // It ends by its own clock if it misses one.
        let _ = self.to.try_send(input);
    }
}

// === impl Held ===

impl Drop for Held {
    fn drop(&mut self) {
        if self.0.is_swapping() {
            self.0.tell_of_swap(Told::Over { anew: true });
        }
        *self.0.swapping() = None;
    }
}
