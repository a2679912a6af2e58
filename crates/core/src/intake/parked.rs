//! Brings parked messages to their targets once these can take them: one lap round the parking queue at a time, on a channel of its own.
//!
//! ```text
//! Idle ──parked-retry has passed──▶ Counting ──some are there──▶ Locking ──▶ Lap: as many as there were, oldest first ──▶ Idle
//!                                      │ none, or in vain           │ refused: another proxy is at it
//!                                      └──────────▶ Idle ◀──────────┘
//! ```
//! What can go is published to its target, what cannot is published to the end of the parking queue; both are the publisher's, and a message is
//! acked when that is confirmed. So one that cannot go is in nobody's way, and none is returned: returns may count against a limit on
//! deliveries. For the same reason messages are fetched one by one (`basic.get`), never more than there were: nothing comes that would have
//! to go back. An exclusive consumer would keep other proxies away only from a classic queue (quorum queues take any number of them), so the
//! lock is an exclusive queue.
//!
//! Each message that a lap does not move costs the broker a publish and an ack. So the more messages there are, the later a lap comes after one that
//! brought none to its target; and there is none while there are as many as that one left, and all of them stay. When policies have changed, there
//! is one, as what had no target may have one by now.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::amqp::method::{MethodId, QueueDeclare, QueueDeclareOk};
use crate::amqp::reply;
use crate::amqp::table::TableBuilder;
use crate::dead_letter::unparked::{of_itself, unparked, without_user_id};
use crate::intake::Effects;
use crate::link::Frame;
use crate::machine::{Cause, Event, Mono, Now, Outcome, Publication, Purpose, Reason, Ticket};
use crate::mover::{Delivery, Keep, Mover};

use self::tally::Tally;
use super::resting::{Resting, Target};
use super::{PARKED, Settings, signals};

mod tally;

/// Maximum messages without an outcome; a pass begins with one.
const WINDOW: usize = 64;
/// Pause after a lost connection with a message in flight, which may be one that cannot be
/// delivered (S10.2).
const AFTER_FAULT: Duration = Duration::from_secs(3600);
/// Missing exchanges remembered per pass; others are tried each time.
const MOST_MISSING: usize = 1_000;
/// Pause after a pass in vain, for each message in the queue, ...
const FOR_EACH: Duration = Duration::from_millis(100);
/// ... up to this.
const LONGEST: Duration = Duration::from_secs(3600);
/// Tickets of this channel; smaller ones are the consumer's.
const OURS: u64 = 1 << 63;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// A passive declare is sent, for the number of messages.
    Counting,
    /// The exclusive queue is declared; with the number of messages.
    Locking(u32),
    Lap,
}

/// A fetched, unacked message.
#[derive(Debug)]
struct Held {
    publication: Publication,
    /// From its header; empty: none.
    cause: ShortStr,
    stays: bool,
    /// Its user-id was removed already.
    hidden: bool,
    /// Not publishable: waits for the next pass.
    stuck: bool,
}

#[derive(Debug)]
pub(super) struct Parked {
    queue: ShortStr,
    lock: ShortStr,
    state: State,
    /// The link is up, and the publisher accepts messages.
    active: bool,
    open: bool,
    /// End of the last pass, or when it was skipped.
    rested: Mono,
    /// End of the last pass, if it was in vain and policies are unchanged. With the number of
    /// messages left, if all of those must stay.
    vain: Option<(Mono, Option<usize>)>,
    changes: u32,
    not_before: Mono,
    /// Messages left in this pass.
    left: u32,
    fetching: bool,
    mover: Mover<Held>,
    /// Current limit of messages without an outcome.
    window: usize,
    missing: BTreeSet<ShortStr>,
    resting: Resting,
    tally: Tally,
}

// === impl Parked ===

impl Parked {
    pub(super) fn new(queue: ShortStr, lock: ShortStr, now: Now) -> Parked {
        Parked {
            queue,
            lock,
            state: State::Idle,
            active: false,
            open: false,
            rested: now.mono,
            vain: None,
            changes: 0,
            not_before: now.mono,
            left: 0,
            fetching: false,
            mover: Mover::new(PARKED, OURS),
            window: 1,
            missing: BTreeSet::new(),
            resting: Resting::default(),
            tally: Tally::default(),
        }
    }

    /// The link is up, and the publisher accepts messages.
    pub(super) fn begin(&mut self, now: Now) {
        self.active = true;
        self.rested = now.mono;
        self.vain = None;
    }

    /// The link is lost; `fault`: because of a delivery.
    pub(super) fn fault(&mut self, fault: bool, now: Now) {
        if fault && self.fetching {
            self.not_before = now.mono.after(AFTER_FAULT);
        }
        self.active = false;
    }

    /// The channel is gone: the broker has requeued unacked messages.
    pub(super) fn closed(&mut self, now: Now) {
        self.open = false;
        self.mover.forget(PARKED);
        self.rest(now);
    }

    pub(super) fn end(&mut self) {
        self.left = 0;
        self.active = false;
    }

    /// The publisher is unavailable, and has forgotten its items: they get no outcome, and
    /// wait for the next pass.
    pub(super) fn forgotten(&mut self) {
        self.end();
        for (_, held) in self.mover.held_mut() {
            held.stuck = true;
        }
    }

    pub(super) fn held(&self) -> usize {
        self.mover.held().filter(|(_, held)| !held.stuck).count()
    }

    /// Whether to report a refusal on the channel: not if another proxy is at work.
    pub(super) fn is_locking(&self) -> bool {
        matches!(self.state, State::Locking(_))
    }

    /// `every`: the setting; zero for never.
    pub(super) fn deadline(&self, every: Duration) -> Option<Mono> {
        let waits = self.active && self.state == State::Idle && !every.is_zero();
        waits.then(|| self.rested.after(every).max(self.not_before))
    }

    /// Begins a pass when it is due.
    pub(super) fn timeout(&mut self, every: Duration, changes: u32, now: Now, fx: &mut Effects) {
        if self.deadline(every).is_none_or(|due| now.mono < due) {
            return;
        }
        let out = fx.broker.build(&[]);
        if !std::mem::replace(&mut self.open, true) {
            reply::channel_open(out, PARKED);
        }
        self.state = State::Counting;
        if std::mem::replace(&mut self.changes, changes) != changes {
            self.vain = None;
        }
        reply::declare_queue(out, PARKED, &self.queue, QueueDeclare::PASSIVE, &[]);
    }

    /// A frame of the channel, except its close.
    ///
    /// # Errors
    /// When the broker violates the protocol.
    pub(super) fn frame(
        &mut self,
        frame: Frame<'_>,
        id: Option<MethodId>,
        settings: &Settings,
        now: Now,
        fx: &mut Effects,
    ) -> Result<(), &'static str> {
        match (self.state, id) {
            (State::Counting, Some(MethodId::QUEUE_DECLARE_OK)) => {
                let ok = QueueDeclareOk::parse(frame.payload);
                self.counted(ok.map_or(0, |ok| ok.message_count), now, fx);
            }
            (State::Locking(count), Some(MethodId::QUEUE_DECLARE_OK)) => {
                self.state = State::Lap;
                self.left = if self.active { count } else { 0 };
            }
            (State::Lap, Some(MethodId::BASIC_GET_EMPTY)) => {
                self.fetching = false;
                self.left = 0;
            }
            _ => {}
        }
        if let Some(delivery) = self.mover.frame(frame, Keep::Whole)? {
            self.fetching = false;
            self.fetched(delivery, settings, now, fx);
        }
        Ok(())
    }

    fn counted(&mut self, count: u32, now: Now, fx: &mut Effects) {
        if !self.active || count == 0 && self.mover.count() == 0 {
            self.tell(fx);
            return self.rest(now);
        }
        if let Some((ended, stay)) = self.vain {
            let pause = match stay == usize::try_from(count).ok() {
                true => LONGEST,
                false => FOR_EACH.saturating_mul(count).min(LONGEST),
            };
            if now.mono < ended.after(pause) {
                return self.rest(now);
            }
        }
        self.state = State::Locking(count);
        // Of that type wherever it is declared: no other can be exclusive.
        let mut arguments = TableBuilder::default();
        arguments.longstr(b"x-queue-type", b"classic");
        let out = fx.broker.build(&[]);
        let bits = QueueDeclare::EXCLUSIVE;
        reply::declare_queue(out, PARKED, &self.lock, bits, &arguments.finish());
        // What found no place in the last lap has the first turn.
        for (ticket, held) in self.mover.held_mut() {
            held.stuck = false;
            fx.out.dead.push((ticket, held.publication.clone()));
        }
    }

    /// A complete message: to its target, or to the end of its queue.
    fn fetched(&mut self, mut delivery: Delivery, settings: &Settings, now: Now, fx: &mut Effects) {
        let Some(content) = delivery.content() else {
            // Nobody can put it to the end. It is not acked, so it returns when the channel ends.
            self.mover.leave(delivery.tag);
            self.tally.staying += 1;
            self.tally.caused(&ShortStr::EMPTY);
            return;
        };
        let own_user = &settings.login.user;
        let lookup = |queue: &[u8]| settings.lookup(queue);
        let movable = unparked(&content.properties, own_user, now.wall, lookup);
        let stays = movable.is_none();
        let movable = movable.map(|(to, properties)| {
            let key = to
                .routing_key
                .unwrap_or_else(|| delivery.routing_key.clone());
            ((to.exchange, key), properties)
        });
        let movable = movable.filter(|(target, _)| {
            !self.missing.contains(&target.0) && self.resting.may_try(target)
        });
        let purpose = match movable {
            Some(_) => Purpose::Unpark,
            None => Purpose::Tail,
        };
        let ((exchange, routing_key), properties) = movable.unwrap_or_else(|| {
            let tail = (self.queue.clone(), delivery.routing_key.clone());
            (tail, of_itself(&content.properties))
        });
        let body = content.body;
        let publication = Publication {
            exchange,
            routing_key,
            content: Content { properties, body },
            queue: self.queue.clone(),
            reason: Reason::Rejected,
            at_least_once: true,
            history_cut: false,
            purpose,
            by: None,
        };
        let held = Held {
            publication: publication.clone(),
            cause: tally::cause(&content.properties),
            stays,
            hidden: false,
            // It was on its way when the publisher left: nobody would give it an outcome.
            stuck: !self.active,
        };
        let bytes = publication.content.len();
        let ticket = self.mover.hold(delivery.tag, bytes, now.mono, held);
        if self.active {
            fx.out.dead.push((ticket, publication));
        }
    }

    /// An outcome. False: not of a parked message.
    pub(super) fn settle(
        &mut self,
        ticket: Ticket,
        outcome: Outcome,
        own_user: &[u8],
        fx: &mut Effects,
    ) -> bool {
        if ticket.0 < OURS {
            return false;
        }
        let Some((tag, held)) = self.mover.of(ticket) else {
            return true; // of an earlier life of the channel
        };
        if let Outcome::Parked(_) | Outcome::Dropped(_) = outcome {
            self.tally.caused(&held.cause);
        }
        match outcome {
            Outcome::Refused(Cause::UserId)
                if self.active && !std::mem::replace(&mut held.hidden, true) =>
            {
                hide_user(&mut held.publication, own_user);
                fx.out.dead.push((ticket, held.publication.clone()));
                return true;
            }
            Outcome::Refused(_) => {
                held.stuck = true;
                self.left = 0;
                return true;
            }
            Outcome::Confirmed => {
                self.tally.moved += 1;
                self.resting.taken(&held.target());
            }
            Outcome::Parked(_) | Outcome::Dropped(_) if held.stays => self.tally.staying += 1,
            Outcome::Parked(cause) | Outcome::Dropped(cause) => {
                self.tally.waiting += 1;
                if held.publication.purpose == Purpose::Unpark && may_have_copied(cause) {
                    self.resting.refused(held.target());
                }
                if cause == Cause::NoExchange && self.missing.len() < MOST_MISSING {
                    self.missing.insert(held.publication.exchange.clone());
                }
            }
        }
        self.window = (self.window + 1).min(WINDOW);
        self.mover.ack(tag);
        true
    }

    /// Fetches the next message if there is room, or ends the pass.
    pub(super) fn after(&mut self, room: usize, now: Now, fx: &mut Effects) {
        self.mover.flush(fx);
        if self.state != State::Lap || self.fetching {
            return;
        }
        let flying = self.held();
        if self.left == 0 {
            if flying == 0 {
                self.tell(fx);
                let Tally {
                    moved,
                    waiting,
                    staying,
                    ..
                } = self.tally;
                // What is still held has the first turn in the next lap.
                let in_vain = moved == 0 && self.mover.count() == 0;
                let stay = (waiting == 0).then_some(staying);
                self.vain = in_vain.then_some((now.mono, stay));
                delete(fx.broker.build(&[]), &self.lock);
                self.rest(now);
            }
        } else if flying < self.window && self.mover.bytes < room {
            self.left -= 1;
            self.fetching = true;
            reply::get(fx.broker.build(&[]), PARKED, &self.queue);
        }
    }

    fn tell(&mut self, fx: &mut Effects) {
        let mut tally = self.tally.clone();
        for (_, held) in self.mover.held() {
            tally.caused(&held.cause);
        }
        fx.events.push(Event::ParkedTried {
            moved: tally.moved,
            waiting: tally.waiting + self.mover.count(),
            staying: tally.staying,
            causes: tally.causes.into_iter().collect(),
        });
    }

    fn rest(&mut self, now: Now) {
        self.state = State::Idle;
        self.rested = now.mono;
        self.left = 0;
        self.fetching = false;
        self.window = 1;
        self.missing.clear();
        self.resting.lap();
        self.tally = Tally::default();
    }
}

// === impl Held ===

impl Held {
    fn target(&self) -> Target {
        let Publication {
            exchange,
            routing_key,
            ..
        } = &self.publication;
        (exchange.clone(), routing_key.clone())
    }
}

/// Whether some queues may have received it anyway.
fn may_have_copied(cause: Cause) -> bool {
    matches!(cause, Cause::Nacked | Cause::TimedOut)
}

/// Hides a user-id that the proxy may not publish.
fn hide_user(publication: &mut Publication, own_user: &[u8]) {
    if publication.purpose == Purpose::Tail {
        let hidden = without_user_id(&publication.content.properties);
        publication.content.properties =
            hidden.unwrap_or_else(|| publication.content.properties.clone());
    } else {
        signals::hide_user(publication, own_user);
    }
}

fn delete(out: &mut Vec<u8>, queue: &ShortStr) {
    const NO_WAIT: u8 = 4;
    reply::method(out, PARKED, MethodId::QUEUE_DELETE, |a| {
        a.short(0).shortstr(queue).octet(NO_WAIT).end();
    });
}
