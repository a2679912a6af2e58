//! Where the effects of a machine go that are not bytes: facts to whoever observes it, all else to other machines, by [`Hub`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::mpsc::error::{SendError, TrySendError};
use tokio::sync::mpsc::{self, OwnedPermit};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::intake::{self, Intake};
use crate::machine::{
    Cause, Ensured, Event, Leg, Limit, Now, Outcome, Owner, Publication, Role, Ticket,
};
use crate::publisher::{self, Publisher};
use crate::pulse::{self, Pulse};
use crate::recorder::{self, Recorder};
use crate::session::{self, Session};
use crate::telemetry::metrics::Levels;

use super::drive::Outlet;
use super::question::Question;
use super::vhosts::{Hub, LinkInboxes, Links, put};

/// Inbox of a careful publisher, and of its answers: each belongs to an item of the publisher, of
/// which there are fewer.
pub const CAREFUL: usize = 1 << 18;

pub trait Observer: Send {
    fn event(&mut self, event: &Event);

    fn passed(&mut self, _from: Leg, _bytes: u64) {}

    fn levels(&mut self, _now: Levels) {}
}

/// Sends dead letters to a publisher, in order. What does not fit stays with its machine.
pub(super) struct Outbox {
    owner: Owner,
    publisher: mpsc::Sender<publisher::Input>,
    room: Option<Room>,
}

type Room =
    Pin<Box<dyn Future<Output = Result<OwnedPermit<publisher::Input>, SendError<()>>> + Send>>;

pub struct SessionOutlet {
    hub: Hub,
    owner: Owner,
    links: Option<Arc<Links>>,
    outbox: Option<Outbox>,
    observer: Box<dyn Observer>,
    bytes: [u64; 2],
}

pub struct PublisherOutlet {
    hub: Hub,
    observer: Box<dyn Observer>,
    open_careful: OpenCareful,
    /// Its link ends when this is dropped.
    careful: Option<(mpsc::Sender<publisher::Input>, DropGuard)>,
}

/// Opens the link of a careful publisher, which ends when the token is cancelled.
pub type OpenCareful = Box<dyn FnMut(mpsc::Receiver<publisher::Input>, CancellationToken) + Send>;

pub struct CarefulOutlet {
    answers: mpsc::Sender<publisher::Input>,
    observer: Box<dyn Observer>,
}

pub struct LinkOutlet {
    hub: Hub,
    observer: Box<dyn Observer>,
    intake: Owner,
    outbox: Outbox,
    /// Cancelled when all recorded entries count.
    recorded: CancellationToken,
}

// === impl Outbox ===

impl Outbox {
    pub(super) fn new(owner: Owner, publisher: mpsc::Sender<publisher::Input>) -> Outbox {
        Outbox {
            owner,
            publisher,
            room: None,
        }
    }

    pub(super) fn hand_over(
        &mut self,
        dead: &mut Vec<(Ticket, Publication)>,
        cx: &mut Context<'_>,
    ) {
        if !dead.is_empty()
            && let Some(permit) = self.room(cx)
        {
            permit.send(publisher::Input::Publish(self.owner, std::mem::take(dead)));
        }
    }

    /// Room for one batch. `None`: wakes the task when there may be some.
    fn room(&mut self, cx: &mut Context<'_>) -> Option<OwnedPermit<publisher::Input>> {
        // One that is closed: the publisher's task has ended, so does the process, and the broker keeps the originals.
        let room = match &mut self.room {
            Some(room) => room,
            None => match self.publisher.clone().try_reserve_owned() {
                Ok(permit) => return Some(permit),
                Err(TrySendError::Closed(_)) => return None,
                Err(TrySendError::Full(publisher)) => {
                    self.room.insert(Box::pin(publisher.reserve_owned()))
                }
            },
        };
        let Poll::Ready(reserved) = room.as_mut().poll(cx) else {
            return None;
        };
        self.room = None;
        reserved.ok()
    }
}

// === impl SessionOutlet ===

impl SessionOutlet {
    pub(super) fn new(hub: Hub, owner: Owner, observer: Box<dyn Observer>) -> SessionOutlet {
        SessionOutlet {
            hub,
            owner,
            links: None,
            outbox: None,
            observer,
            bytes: [0, 0],
        }
    }

    fn answer(&self, input: session::Input) {
        self.hub.to_session(self.owner, input);
    }

    /// Hands on what the session asks of intake, recorder and management; what cannot be asked is answered at once.
    fn ask_links(&mut self, out: &mut session::Output) {
        let SessionOutlet {
            hub,
            owner,
            links,
            observer,
            ..
        } = self;
        let links = links.as_ref();
        let answer = |input| hub.to_session(*owner, input);
        for ensure in out.ensure.drain(..) {
            let exchange = ensure.exchange.clone();
            let ensure = intake::Input::Ensure(*owner, ensure);
            let asked = links.is_some_and(|links| links.intake.try_send(ensure).is_ok());
            if !asked {
                let ready = false;
                answer(session::Input::Ensured(Ensured { exchange, ready }));
            }
        }
        if std::mem::take(&mut out.gave_up)
            && let Some(links) = links
        {
            let gave_up = recorder::Input::GaveUp(*owner);
            let _ = links.recorder.try_send(gave_up);
        }
        for (queue, entry, waits) in out.record.drain(..) {
            let owner = waits.then_some(*owner);
            let record = recorder::Input::Record(queue.clone(), entry, owner);
            let asked = links.is_some_and(|links| links.recorder.try_send(record).is_ok());
            if waits && !asked {
                answer(session::Input::Recorded(queue, false));
            }
        }
        for queue in out.unknown.drain(..) {
            let question = Question::new(queue, *owner, hub);
            let asked = links.map(|links| links.questions.try_send(question));
            if let Some(Err(TrySendError::Full(_))) = asked {
                observer.event(&Event::LimitMet(Limit::Questions));
            }
        }
    }
}

impl Outlet<Session> for SessionOutlet {
    fn dispatch(
        &mut self,
        session: &Session,
        fx: &mut session::Effects,
        _: Now,
        cx: &mut Context<'_>,
    ) {
        for event in fx.events.drain(..) {
            if let Event::SessionOpened { vhost, .. } = &event {
                let links = self.hub.links(vhost);
                self.outbox = Some(Outbox::new(self.owner, links.publisher.clone()));
                self.links = Some(links);
            }
            self.observer.event(&event);
        }
        self.ask_links(&mut fx.out);
        if let Some(ready) = fx.out.swap.take() {
            self.hub.said_of_swap(self.owner, ready);
        }
        match &mut self.outbox {
            Some(outbox) => outbox.hand_over(&mut fx.out.dead, cx),
            None if fx.out.dead.is_empty() => {}
            None => {
                let away = Outcome::Refused(Cause::PublisherAway);
                let refused = fx.out.dead.drain(..).map(|(ticket, _)| (ticket, away));
                let refused = refused.collect();
                self.answer(session::Input::Settled(refused));
            }
        }
        for leg in [Leg::Client, Leg::Broker] {
            let bytes = std::mem::take(&mut self.bytes[leg as usize]);
            if bytes > 0 {
                self.observer.passed(leg, bytes);
            }
        }
        self.observer.levels(Levels {
            channels: session.channels(),
            retained_bytes: session.retained(),
            withheld_rejects: session.withheld(),
        });
    }

    fn count(&mut self, from: Leg, bytes: usize) {
        self.bytes[from as usize] += bytes as u64;
    }
}

impl Drop for SessionOutlet {
    fn drop(&mut self) {
        self.hub.forget(self.owner);
    }
}

// === impl PublisherOutlet ===

impl PublisherOutlet {
    pub fn new(
        hub: &Hub,
        observer: Box<dyn Observer>,
        open_careful: OpenCareful,
    ) -> PublisherOutlet {
        PublisherOutlet {
            hub: hub.clone(),
            observer,
            open_careful,
            careful: None,
        }
    }
}

impl Outlet<Publisher> for PublisherOutlet {
    fn dispatch(
        &mut self,
        publisher: &Publisher,
        fx: &mut publisher::Effects,
        _: Now,
        _: &mut Context<'_>,
    ) {
        for event in fx.events.drain(..) {
            self.observer.event(&event);
        }
        // One batch per owner and wake-up; within it, and so for each ticket, order is kept.
        fx.out.settled.sort_by_key(|(owner, ..)| *owner);
        for batch in fx.out.settled.chunk_by(|(a, ..), (b, ..)| a == b) {
            if let Some((owner, ..)) = batch.first() {
                let outcomes = batch
                    .iter()
                    .map(|(_, ticket, outcome)| (*ticket, *outcome))
                    .collect();
                self.hub.settled(*owner, outcomes);
            }
        }
        fx.out.settled.clear();
        for (owner, takes) in fx.out.takes.drain(..) {
            self.hub.to_intake(owner, intake::Input::Publisher(takes));
        }
        for input in fx.out.careful.drain(..) {
            let (careful, _) = self.careful.get_or_insert_with(|| {
                let (careful, inbox) = mpsc::channel(CAREFUL);
                let ends = CancellationToken::new();
                (self.open_careful)(inbox, ends.clone());
                (careful, ends.drop_guard())
            });
            put(careful, input);
        }
        if std::mem::take(&mut fx.out.paused) {
            self.hub.publisher_pauses();
        }
        if !publisher.needs_careful() {
            self.careful = None;
        }
    }
}

// === impl CarefulOutlet ===

impl CarefulOutlet {
    pub fn new(
        observer: Box<dyn Observer>,
        answers: mpsc::Sender<publisher::Input>,
    ) -> CarefulOutlet {
        CarefulOutlet { answers, observer }
    }
}

impl Outlet<Publisher> for CarefulOutlet {
    fn dispatch(
        &mut self,
        _: &Publisher,
        fx: &mut publisher::Effects,
        _: Now,
        _: &mut Context<'_>,
    ) {
        for event in fx.events.drain(..) {
            match event {
                // Of these the publisher tells; that it is up, nobody needs to know.
                Event::LinkUp { .. } | Event::Blocked(_) | Event::VhostNative { .. } => {}
                event => self.observer.event(&event),
            }
        }
        if !fx.out.settled.is_empty() {
            let settled = std::mem::take(&mut fx.out.settled);
            put(&self.answers, publisher::Input::Careful(settled));
        }
    }
}

// === impl LinkOutlet ===

impl LinkOutlet {
    pub fn new(hub: &Hub, observer: Box<dyn Observer>, inboxes: &LinkInboxes) -> LinkOutlet {
        LinkOutlet {
            hub: hub.clone(),
            observer,
            intake: inboxes.intake_owner,
            outbox: Outbox::new(inboxes.intake_owner, inboxes.to_publisher.clone()),
            recorded: inboxes.recorded.clone(),
        }
    }
}

impl Outlet<Intake> for LinkOutlet {
    fn dispatch(&mut self, _: &Intake, fx: &mut intake::Effects, _: Now, cx: &mut Context<'_>) {
        for event in fx.events.drain(..) {
            self.observer.event(&event);
        }
        for (owner, ensured) in fx.out.ensured.drain(..) {
            self.hub.to_session(owner, session::Input::Ensured(ensured));
        }
        self.outbox.hand_over(&mut fx.out.dead, cx);
        // Behind all that it is about.
        if fx.out.hand_over
            && fx.out.dead.is_empty()
            && let Some(permit) = self.outbox.room(cx)
        {
            permit.send(publisher::Input::HandOver);
            fx.out.hand_over = false;
        }
    }
}

impl Outlet<Recorder> for LinkOutlet {
    fn dispatch(
        &mut self,
        recorder: &Recorder,
        fx: &mut recorder::Effects,
        _: Now,
        _: &mut Context<'_>,
    ) {
        if !recorder.is_wanted() {
            self.recorded.cancel();
        }
        for event in fx.events.drain(..) {
            // Of an alarm the publisher tells.
            if !matches!(event, Event::Blocked(_)) {
                self.observer.event(&event);
            }
        }
        for (owner, queue, is_recorded) in fx.out.recorded.drain(..) {
            let recorded = session::Input::Recorded(queue, is_recorded);
            self.hub.to_session(owner, recorded);
        }
        if let Some(current) = fx.out.current.take() {
            if current {
                self.recorded.cancel();
            }
            let current = intake::Input::Record(current);
            self.hub.to_intake(self.intake, current);
        }
    }
}

impl Outlet<Pulse> for LinkOutlet {
    fn dispatch(&mut self, _: &Pulse, fx: &mut pulse::Effects, _: Now, _: &mut Context<'_>) {
        for event in fx.events.drain(..) {
            match event {
                // Of an alarm the publisher tells.
                Event::Blocked(_) => {}
                // Whether the vhost is native, publisher and intake tell: for them there may be room.
                Event::VhostNative { cause } => {
                    let role = Role::Pulse;
                    self.observer.event(&Event::LinkDown { role, cause });
                }
                event => self.observer.event(&event),
            }
        }
        if std::mem::take(&mut fx.out.missing) {
            self.hub.to_intake(self.intake, intake::Input::Missing);
        }
    }
}

#[cfg(test)]
mod tests;
