//! One publisher and one intake per vhost, shared by its sessions: who sends what to whom.
//!
//! ```text
//!   sessions ── dead letters ──▶ publisher ◀── dead letters ── intake ◀── "this exchange must exist" ── sessions
//!      ▲                          │      │                       ▲ │                                      ▲
//!      └─────── outcomes ─────────┘      └────── outcomes ───────┘ └────────── it does, or not ───────────┘
//!                                                                ▲
//!        sessions ── "my client bound this" ─────────────────────┴── surveys ── the management API
//! ```
//! Every inbox is bounded. A publisher whose inbox is full slows its sessions (their dead letters wait with them, bounded by their tickets);
//! answers always fit, because each answers a ticket or a request that its receiver has open.
//!
//! What sessions learn of users and queues is kept here for all of them (`registry::shared`).

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::mpsc::error::{SendError, TrySendError};
use tokio::sync::mpsc::{self, OwnedPermit};
use tracing::error;

use crate::amqp::ids::Vhost;
use crate::machine::{
    Cause, Effects, Ensured, Event, Input, Leg, Outcome, Owner, Publication, Recalled, Ticket,
};
use crate::registry::shared::{Shared, Who};
use crate::session::Session;
use crate::telemetry::metrics::{ConnectionMeter, Levels};
use crate::telemetry::{Metrics, Reporter};

use super::drive::{Clock, Outlet};

/// Batches that wait for a publisher.
const PUBLISHER_INBOX: usize = 1024;
/// What waits for an intake: outcomes of at most its prefetch (65,535), and requests of sessions.
const INTAKE_INBOX: usize = 80_000;
/// Of these, so many are kept free of what sessions saw change: who does not hear of that is late, no more.
const INTAKE_OWED: usize = 70_000;
/// What waits for a session besides outcomes.
const SESSION_SPARE: usize = 16;

/// Opens the links of a vhost: given their inboxes, it starts the two tasks.
pub type OpenLinks = Box<dyn Fn(&Hub, &Vhost, LinkInboxes) + Send + Sync>;

/// Where the links of a vhost are told what to do.
#[derive(Debug)]
pub struct LinkInboxes {
    /// Of the publisher.
    pub publisher: mpsc::Receiver<Input>,
    /// Of the intake.
    pub intake: mpsc::Receiver<Input>,
    /// Under which the publisher knows the intake.
    pub intake_owner: Owner,
    /// For what others have to tell the intake.
    pub to_intake: mpsc::Sender<Input>,
    /// For what the intake hands to the publisher.
    pub to_publisher: mpsc::Sender<Input>,
}

/// All links of the process, by vhost. Clones are the same.
#[derive(Clone)]
pub struct Hub(Arc<Inner>);

struct Inner {
    open: OpenLinks,
    links: Mutex<BTreeMap<Vhost, Arc<Links>>>,
    owners: Mutex<HashMap<Owner, mpsc::Sender<Input>>>,
    shared: Mutex<Shared>,
    last_owner: AtomicU64,
}

/// The two links of one vhost.
struct Links {
    publisher: mpsc::Sender<Input>,
    intake: mpsc::Sender<Input>,
}

/// Hands dead letters to a publisher, in order; what does not fit waits with the machine that they come from.
struct Outbox {
    owner: Owner,
    publisher: mpsc::Sender<Input>,
    room: Option<Room>,
}

type Room = Pin<Box<dyn Future<Output = Result<OwnedPermit<Input>, SendError<()>>> + Send>>;

/// What a session's effects become.
pub struct SessionOutlet {
    hub: Hub,
    owner: Owner,
    links: Option<Arc<Links>>,
    /// Once the connection is open.
    who: Option<Who>,
    clock: Clock,
    outbox: Option<Outbox>,
    reporter: Reporter,
    meter: ConnectionMeter,
    bytes: [u64; 2],
}

/// What a link's effects become.
pub struct LinkOutlet {
    hub: Hub,
    outbox: Option<Outbox>,
    reporter: Reporter,
    /// Told of the facts as well: readiness.
    observe: Box<dyn Fn(&Event) + Send>,
    /// Begins a survey.
    survey: Option<Box<dyn Fn() + Send>>,
}

// === impl Hub ===

impl Hub {
    /// No vhost is open yet.
    pub fn new(open: OpenLinks) -> Hub {
        Hub(Arc::new(Inner {
            open,
            links: Mutex::default(),
            owners: Mutex::default(),
            shared: Mutex::default(),
            last_owner: AtomicU64::new(0),
        }))
    }

    /// Opens the links of a vhost, if they are not.
    pub fn open(&self, vhost: &Vhost) {
        self.links(vhost);
    }

    /// An inbox for so many outcomes, and the owner under which it is reached.
    pub fn session(
        &self,
        max_tickets: usize,
        reporter: Reporter,
        meter: ConnectionMeter,
        clock: Clock,
    ) -> (SessionOutlet, mpsc::Receiver<Input>) {
        let (owner, inbox) = self.register(max_tickets + SESSION_SPARE);
        let outlet = SessionOutlet {
            hub: self.clone(),
            owner,
            links: None,
            who: None,
            clock,
            outbox: None,
            reporter,
            meter,
            bytes: [0, 0],
        };
        (outlet, inbox)
    }

    fn register(&self, bound: usize) -> (Owner, mpsc::Receiver<Input>) {
        let owner = Owner(self.0.last_owner.fetch_add(1, Ordering::Relaxed));
        let (sender, inbox) = mpsc::channel(bound);
        lock(&self.0.owners).insert(owner, sender);
        (owner, inbox)
    }

    fn links(&self, vhost: &Vhost) -> Arc<Links> {
        let mut all = lock(&self.0.links);
        if let Some(links) = all.get(vhost) {
            return links.clone();
        }
        let (publisher, publisher_inbox) = mpsc::channel(PUBLISHER_INBOX);
        let (intake_owner, intake_inbox) = self.register(INTAKE_INBOX);
        let intake = lock(&self.0.owners)
            .get(&intake_owner)
            .cloned()
            .expect("it was registered just now");
        let links = Arc::new(Links {
            publisher: publisher.clone(),
            intake: intake.clone(),
        });
        all.insert(vhost.clone(), links.clone());
        drop(all);
        let inboxes = LinkInboxes {
            publisher: publisher_inbox,
            intake: intake_inbox,
            intake_owner,
            to_intake: intake,
            to_publisher: publisher,
        };
        (self.0.open)(self, vhost, inboxes);
        links
    }

    fn answer(&self, owner: Owner, input: Input) {
        let sender = lock(&self.0.owners).get(&owner).cloned();
        // A session that has ended needs no answer.
        if let Some(sender) = sender
            && let Err(TrySendError::Full(_)) = sender.try_send(input)
        {
            error!(
                owner = owner.0,
                "an inbox is smaller than what its machine is owed"
            );
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Outbox ===

impl Outbox {
    fn new(owner: Owner, publisher: mpsc::Sender<Input>) -> Outbox {
        Outbox {
            owner,
            publisher,
            room: None,
        }
    }

    fn hand_over(&mut self, dead: &mut Vec<(Ticket, Publication)>, cx: &mut Context<'_>) {
        if dead.is_empty() {
            return;
        }
        let permit = match &mut self.room {
            None => match self.publisher.clone().try_reserve_owned() {
                Ok(permit) => permit,
                Err(_) => {
                    self.room = Some(Box::pin(self.publisher.clone().reserve_owned()));
                    return self.hand_over(dead, cx);
                }
            },
            Some(room) => match room.as_mut().poll(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(permit)) => permit,
                // The publisher's task has ended: so does the process, and the broker keeps the originals.
                Poll::Ready(Err(_)) => return,
            },
        };
        self.room = None;
        permit.send(Input::Publish(self.owner, std::mem::take(dead)));
    }
}

// === impl SessionOutlet ===

impl Outlet<Session> for SessionOutlet {
    fn dispatch(&mut self, session: &Session, fx: &mut Effects, cx: &mut Context<'_>) {
        for event in fx.events.drain(..) {
            if let Event::SessionOpened { vhost, user, .. } = &event {
                self.who = Some(Who {
                    vhost: vhost.clone(),
                    user: user.clone(),
                });
                let links = self.hub.links(vhost);
                self.outbox = Some(Outbox::new(self.owner, links.publisher.clone()));
                self.links = Some(links);
            }
            self.reporter.report(&event);
        }
        if !fx.learned.is_empty() || !fx.recall.is_empty() {
            self.share(fx);
        }
        for ensure in fx.ensure.drain(..) {
            let exchange = ensure.exchange.clone();
            let asked = self.links.as_ref().is_some_and(|links| {
                links
                    .intake
                    .try_send(Input::Ensure(self.owner, ensure))
                    .is_ok()
            });
            if !asked {
                self.hub.answer(
                    self.owner,
                    Input::Ensured(Ensured {
                        exchange,
                        ready: false,
                    }),
                );
            }
        }
        if !fx.changes.is_empty() {
            let changes = std::mem::take(&mut fx.changes);
            if let Some(links) = &self.links
                && links.intake.capacity() > INTAKE_OWED
            {
                let _ = links.intake.try_send(Input::Changed(changes));
            }
        }
        match &mut self.outbox {
            Some(outbox) => outbox.hand_over(&mut fx.dead, cx),
            None if fx.dead.is_empty() => {}
            None => {
                let refused = fx
                    .dead
                    .drain(..)
                    .map(|(ticket, _)| (ticket, Outcome::Refused(Cause::PublisherAway)));
                self.hub
                    .answer(self.owner, Input::Settled(refused.collect()));
            }
        }
        for (leg, frames) in [Leg::Client, Leg::Broker]
            .into_iter()
            .zip(std::mem::take(&mut fx.frames))
        {
            let bytes = std::mem::take(&mut self.bytes[leg as usize]);
            if bytes > 0 {
                self.meter.passed(leg, frames, bytes);
            }
        }
        self.meter.levels(Levels {
            channels: session.channels(),
            retained_bytes: session.retained(),
            withheld_rejects: session.withheld(),
        });
    }

    fn count(&mut self, from: Leg, bytes: usize) {
        self.bytes[from as usize] += bytes as u64;
    }
}

impl SessionOutlet {
    /// What this session learned is kept for all; what it asks is answered from there.
    fn share(&mut self, fx: &mut Effects) {
        let Some(who) = &self.who else { return };
        let now = self.clock.now().mono;
        let mut shared = lock(&self.hub.0.shared);
        for learned in fx.learned.drain(..) {
            shared.learn(who, learned, now);
        }
        let answers: Vec<Recalled> = fx
            .recall
            .drain(..)
            .map(|about| shared.recall(who, about, now))
            .collect();
        drop(shared);
        for recalled in answers {
            self.hub.answer(self.owner, Input::Recalled(recalled));
        }
    }
}

impl Drop for SessionOutlet {
    fn drop(&mut self) {
        lock(&self.hub.0.owners).remove(&self.owner);
    }
}

// === impl LinkOutlet ===

impl LinkOutlet {
    /// Of the publisher.
    pub fn publisher(
        hub: &Hub,
        metrics: Metrics,
        vhost: Vhost,
        observe: Box<dyn Fn(&Event) + Send>,
    ) -> LinkOutlet {
        LinkOutlet {
            hub: hub.clone(),
            outbox: None,
            reporter: Reporter::link(metrics, vhost),
            observe,
            survey: None,
        }
    }

    /// Of the intake, which hands its dead letters to the publisher. `survey`: how the vhost is surveyed, if it can be.
    pub fn intake(
        hub: &Hub,
        metrics: Metrics,
        vhost: Vhost,
        observe: Box<dyn Fn(&Event) + Send>,
        outbox: (Owner, mpsc::Sender<Input>),
        survey: Option<Box<dyn Fn() + Send>>,
    ) -> LinkOutlet {
        let (owner, to_publisher) = outbox;
        LinkOutlet {
            outbox: Some(Outbox::new(owner, to_publisher)),
            survey,
            ..LinkOutlet::publisher(hub, metrics, vhost, observe)
        }
    }
}

impl<M> Outlet<M> for LinkOutlet {
    fn dispatch(&mut self, _machine: &M, fx: &mut Effects, cx: &mut Context<'_>) {
        for event in fx.events.drain(..) {
            self.reporter.report(&event);
            (self.observe)(&event);
        }
        if std::mem::take(&mut fx.survey)
            && let Some(survey) = &self.survey
        {
            survey();
        }
        for (owner, ensured) in fx.ensured.drain(..) {
            self.hub.answer(owner, Input::Ensured(ensured));
        }
        // One batch per owner and wake-up; within it, and so for each ticket, order is kept.
        fx.settled.sort_by_key(|(owner, ..)| *owner);
        for batch in fx.settled.chunk_by(|(a, ..), (b, ..)| a == b) {
            if let Some((owner, ..)) = batch.first() {
                let outcomes = batch
                    .iter()
                    .map(|(_, ticket, outcome)| (*ticket, *outcome))
                    .collect();
                self.hub.answer(*owner, Input::Settled(outcomes));
            }
        }
        fx.settled.clear();
        if let Some(outbox) = &mut self.outbox {
            outbox.hand_over(&mut fx.dead, cx);
        }
    }
}
