//! A queue that is made anew: who tells the sessions and the publisher of its vhost, and hears of them. One at a time.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use crate::alteration::{
    Alteration, Altered, Effects, Failure, Follower, Input, Made, Output, Settings, Task, Told,
};
use crate::amqp::ids::{ShortStr, Vhost};
use crate::machine::{Machine, Mono, Now, Owner};
use crate::publisher;
use crate::registry::catalogue::fact::Source;
use crate::registry::catalogue::{Catalogue, Report, altered};
use crate::registry::reach::Reach;
use crate::session::{self, Ready, Swap};

use super::clock::{Clock, SystemClock};
use super::dial::Line;
use super::drive::{Connector, Drive, Outlet};
use super::stream::Stream;
use super::vhosts::Hub;
use super::walks::Walks;

#[cfg(test)]
mod tests;

/// Two answers of each session.
const INBOX: usize = 1 << 18;
/// How long to go on trying to finish an alteration that clients wait for, and the pause between two tries. Then they go on, and the queue may
/// be missing.
const FINISHED_WITHIN: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(300);

/// How often, and after which pauses, an order is tried that somebody else works on.
const ATTENDED: u32 = 5;
const ATTEND_AGAIN: Duration = Duration::from_secs(2);

/// Makes queues anew, over any connections.
pub struct Altering<S, C> {
    pub hub: Hub,
    pub catalogue: Catalogue,
    pub clock: C,
    pub connector: Arc<dyn Fn() -> Connector<S> + Send + Sync>,
}

/// While it lives, sessions may be held.
pub(super) struct Swapping {
    reach: Arc<Reach>,
    /// What sessions were told last.
    told: Option<Told>,
    to: mpsc::Sender<Input>,
    /// Before sessions go on with another queue: they may declare, or reject, at once.
    anew: Anew,
}

type Anew = Box<dyn Fn(Made) + Send>;

/// Lets all sessions go on when it is dropped.
struct Held {
    hub: Hub,
    made: Made,
}

/// While it lives, its queue is not made anew by this proxy, and by no other one that knows of this.
pub struct Walking {
    pub(super) hub: Hub,
    pub(super) vhost: Vhost,
    queue: ShortStr,
}

struct AlterationOutlet {
    hub: Hub,
    ended: mpsc::Sender<Result<Altered, Failure>>,
}

// === impl Walks ===

impl Walks {
    /// Makes a queue anew. It goes on when the future is dropped.
    ///
    /// # Errors
    /// The queue is as it was, or an error of the link says that this is unknown.
    pub async fn alter(
        &self,
        settings: Settings,
        catalogue: &Catalogue,
    ) -> Result<Altered, Failure> {
        let altering = self.altering(catalogue);
        let thread = self.thread.runtime();
        let altering = thread.spawn(async move { altering.alter(settings).await });
        let silent = crate::walk::Failure::Silent;
        altering.await.unwrap_or(Err(silent.into()))
    }

    /// [`Altering::attend`]. It goes on when the future is dropped.
    pub async fn attend(&self, settings: Settings, catalogue: &Catalogue) -> bool {
        let altering = self.altering(catalogue);
        let thread = self.thread.runtime();
        let attending = thread.spawn(async move { altering.attend(settings).await });
        attending.await.unwrap_or_default()
    }

    fn altering(&self, catalogue: &Catalogue) -> Altering<Line, SystemClock> {
        let dialer = self.walker.dialer.clone();
        Altering {
            hub: self.hub.clone(),
            catalogue: catalogue.clone(),
            clock: self.walker.clock,
            connector: Arc::new(move || dialer.connector(|_| ())),
        }
    }
}

// === impl Altering ===

impl<S: Stream, C: Clock + Send + 'static> Altering<S, C> {
    /// Makes a queue anew, or takes part in it.
    ///
    /// # Errors
    /// The queue is as it was, or an error of the link says that this is unknown.
    pub async fn alter(&self, settings: Settings) -> Result<Altered, Failure> {
        let reach = settings.order.reach(&settings.login.vhost);
        let (to, inbox) = mpsc::channel(INBOX);
        let mut held = self.hub.begin_swap(reach, self.anew(&settings), to)?;
        let mut altered = self.run(settings.clone(), inbox).await;
        if matches!(altered, Err(Failure::Link(_))) && self.hub.is_swapping() {
            altered = self.finish_for_clients(settings).await.or(altered);
        }
        held.made = altered.as_ref().map_or(Made::Stays, |of| of.made);
        drop(held);
        altered
    }

    /// What all sessions know of the queue from then on.
    fn anew(&self, settings: &Settings) -> Anew {
        let (catalogue, clock) = (self.catalogue.clone(), self.clock.clone());
        let settings = settings.clone();
        Box::new(move |made| learn(&catalogue, &settings, made, clock.now().mono))
    }

    /// Another proxy makes a queue anew, or has left that behind: takes part in it, or finishes it. Returns whether it may be another queue
    /// now.
    pub async fn attend(&self, settings: Settings) -> bool {
        let (vhost, queue) = (settings.login.vhost.clone(), settings.order.name());
        if self.hub.swaps(&vhost, &queue) {
            return false;
        }
        for _ in 0..ATTENDED {
            match self.finish(settings.clone()).await {
                Ok(altered) => {
                    self.anew(&settings)(altered.made);
                    warn!(%vhost, %queue, "an alteration of the queue that another proxy had begun is finished");
                    break;
                }
                Err(Failure::Finished) => break,
                Err(Failure::Claimed) => {
                    info!(%vhost, %queue, "another proxy alters the queue: this one takes part");
                }
                Err(error) => {
                    warn!(%vhost, %queue, %error, "an alteration of the queue that another proxy had begun cannot be finished now");
                    return false;
                }
            }
            match self.alter(settings.clone()).await {
                Ok(_) | Err(Failure::Finished) => break,
                // It is at work on another one, or takes messages from this one. The next look for orders comes back to it.
                Err(Failure::Claimed | Failure::Walked) => return false,
                // Who had begun is silent. The broker may not know yet that it is gone.
                Err(error) => {
                    debug!(%vhost, %queue, %error, "the proxy that alters the queue is silent");
                }
            }
            self.sleep(ATTEND_AGAIN).await;
        }
        true
    }

    /// Clients wait for the queue, and nothing is heard of who makes it.
    async fn finish_for_clients(&self, settings: Settings) -> Result<Altered, Failure> {
        let mut finished = Err(Failure::Claimed);
        let until = self.clock.now().mono.after(FINISHED_WITHIN);
        while self.clock.now().mono < until {
            if self.hub.has_told(Told::Cancel) {
                self.hub.tell_of_swap(Told::Moving); // the publisher's pause goes on
            }
            finished = self.finish(settings.clone()).await;
            if matches!(finished, Err(Failure::Claimed)) {
                // That one can be heard of again, or it finishes it.
                let task = Task::Follow;
                let settings = Settings {
                    task,
                    ..settings.clone()
                };
                finished = self.run(settings, self.hub.hear_anew()).await;
            }
            if !matches!(finished, Err(Failure::Link(_))) || !self.hub.is_swapping() {
                break;
            }
            self.sleep(PAUSE).await;
        }
        finished
    }

    /// Finishes what a proxy that has ended left behind.
    async fn finish(&self, settings: Settings) -> Result<Altered, Failure> {
        let (_to, inbox) = mpsc::channel(1);
        let task = Task::Finish;
        self.run(Settings { task, ..settings }, inbox).await
    }

    async fn run(
        &self,
        settings: Settings,
        inbox: mpsc::Receiver<Input>,
    ) -> Result<Altered, Failure> {
        let now = self.clock.now();
        match settings.task {
            Task::Follow => {
                let follower = Follower::new(settings, self.hub.is_swapping(), now);
                self.drive(follower, inbox).await
            }
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
        let connector = (self.connector)();
        let mut drive = Drive::link(machine, outlet, inbox, self.clock.clone(), connector);
        drive.run(std::future::pending()).await;
        let silent = crate::walk::Failure::Silent;
        told.try_recv().unwrap_or(Err(silent.into()))
    }

    async fn sleep(&self, pause: Duration) {
        let (mut timer, until) = (C::Timer::default(), self.clock.now().mono.after(pause));
        poll_fn(|cx| self.clock.poll_until(&mut timer, until, cx)).await;
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

fn learn(catalogue: &Catalogue, settings: &Settings, made: Made, now: Mono) {
    let (vhost, queue) = (&settings.login.vhost, &settings.order.name());
    let anew = settings.order.declared(&settings.names);
    let hear = |told| catalogue.learn(vhost, queue, &told, Source::Management, now);
    if made == Made::Ordered {
        let known = catalogue.get(vhost, queue);
        let known = known.as_ref().and_then(|known| known.declared());
        return hear(Report::Declared(Arc::new(match known {
            Some(known) => anew.in_place_of(&known.value, &settings.names),
            None => anew,
        })));
    }
    catalogue.doubt(vhost, queue);
    if let Some(names) = altered(&anew) {
        hear(Report::Altered(names));
    }
}

// === impl Hub ===

impl Hub {
    /// # Errors
    /// One is under way, or a walk may have messages of the queue.
    fn begin_swap(
        &self,
        reach: Reach,
        anew: Anew,
        to: mpsc::Sender<Input>,
    ) -> Result<Held, Failure> {
        let mut swapping = self.swapping();
        if swapping.is_some() {
            return Err(Failure::Claimed);
        }
        let walked = self.walked();
        if walked
            .iter()
            .any(|(vhost, queue)| reach.is_of(vhost, queue))
        {
            return Err(Failure::Walked);
        }
        *swapping = Some(Swapping {
            reach: Arc::new(reach),
            told: None,
            to,
            anew,
        });
        Ok(Held {
            hub: self.clone(),
            made: Made::Stays,
        })
    }

    /// What sessions say comes here from now on.
    fn hear_anew(&self) -> mpsc::Receiver<Input> {
        let (to, inbox) = mpsc::channel(INBOX);
        if let Some(swapping) = self.swapping().as_mut() {
            swapping.to = to;
        }
        inbox
    }

    /// For a walk, which may hold messages without a consumer: so it is not seen at the broker, and its queue must stay. `None`: this
    /// queue is being made anew.
    pub fn walking(&self, vhost: &Vhost, queue: &ShortStr) -> Option<Walking> {
        let swapping = self.swapping();
        if swapping
            .as_ref()
            .is_some_and(|of| of.reach.is_of(vhost, queue))
        {
            return None;
        }
        let (vhost, queue) = (vhost.clone(), queue.clone());
        self.walked().push((vhost.clone(), queue.clone()));
        Some(Walking {
            hub: self.clone(),
            vhost,
            queue,
        })
    }

    /// Whether this proxy is at work on the queue.
    fn swaps(&self, vhost: &Vhost, queue: &ShortStr) -> bool {
        let swapping = self.swapping();
        swapping
            .as_ref()
            .is_some_and(|of| of.reach.is_of(vhost, queue))
    }

    /// Whether sessions wait.
    pub fn is_swapping(&self) -> bool {
        let swapping = self.swapping();
        let told = swapping.as_ref().and_then(|swapping| swapping.told);
        matches!(told, Some(Told::Hold | Told::Settle | Told::Cancel))
    }

    fn has_told(&self, told: Told) -> bool {
        let swapping = self.swapping();
        swapping.as_ref().is_some_and(|of| of.told == Some(told))
    }

    fn tell_of_swap(&self, told: Told) {
        let mut swapping = self.swapping();
        let Some(swapping) = swapping.as_mut() else {
            return;
        };
        let swap = match told {
            Told::Moving => return self.pause_publisher(&swapping.reach, true),
            Told::Hold => Swap::Hold(swapping.reach.clone()),
            Told::Settle => Swap::Settle,
            Told::Cancel => Swap::Cancel,
            Told::Over(made) => Swap::Over {
                anew: made != Made::Stays,
            },
        };
        swapping.told = Some(told);
        if let Told::Over(made @ (Made::Ordered | Made::Otherwise)) = told {
            (swapping.anew)(made);
        }
        // Behind that: who registers later asks for it.
        let sessions = self.sessions();
        let owners = sessions.iter().map(|(owner, _)| *owner);
        // Before they can answer.
        swapping.say(Input::Told(owners.collect::<BTreeSet<_>>()));
        for (_, inbox) in &sessions {
            // One that has no room is at its end.
            let _ = inbox.try_send(Box::new(session::Input::Swap(swap.clone())));
        }
        if let Told::Cancel | Told::Over(_) = told {
            self.pause_publisher(&swapping.reach, told == Told::Cancel);
        }
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
            Some(Told::Over(_)) | None => Vec::new(),
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
        if self.hub.is_swapping() {
            let made = match self.made {
                // Before that, nobody deletes it: these sessions may have messages of it.
                Made::Stays if self.hub.has_told(Told::Cancel) => Made::Otherwise,
                made => made,
            };
            self.hub.tell_of_swap(Told::Over(made));
        }
        *self.hub.swapping() = None;
    }
}

// === impl Walking ===

impl Drop for Walking {
    fn drop(&mut self) {
        let mut walked = self.hub.walked();
        let is_it = |(vhost, queue): &(_, _)| *vhost == self.vhost && *queue == self.queue;
        if let Some(at) = walked.iter().position(is_it) {
            walked.swap_remove(at);
        }
    }
}
