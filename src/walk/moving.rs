//! What a walk does with the messages that are meant: sends them back, or removes them. The others stay where they are.
//!
//! ```text
//! a message ─ not meant ───────────────────────────────▶ stays: held until the end, then put back in its place
//!        └─ meant ─ purge ─────────────────────────────▶ acked
//!               └─ redrive ─ may the user publish it? ─ no ─▶ stays
//!                                 └─ publisher ─ confirmed ─▶ acked
//!                                        ├─ no route takes it ▶ stays
//!                                        └─ nobody can now ───▶ handed over again after a while
//! ```
//! The publisher's link publishes, as the user-ids of others and the proof of trusted headers would not survive otherwise. A message is acked
//! when it is confirmed elsewhere, so at every moment it is in one place at least; whatever dies in between, the broker puts it back.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::amqp::content::Content;
use crate::amqp::ids::DeliveryTag;
use crate::dead_letter::Dialect;
use crate::dead_letter::redrive::{Destination, Here, Redrive, Sent, Standing, Stays};
use crate::letter::Letter;
use crate::machine::{Cause, Mono, Now, Outcome, Publication, Ticket};
use crate::objects::OwnObject;

use super::Move;
use super::asking::{Answer, Asking, Right};
use super::away::Away;
use super::window::{FACTOR, FIRST};

/// So many messages that stay a redrive holds at most. It remembers none of them, but the broker does, with some hundred octets for each.
pub const MOST_HELD: u64 = 1_000_000;
/// Publications without an outcome at once: as many, ...
pub const MOST_AWAY: usize = 256;
/// ... and so many octets, unless one is larger.
const MOST_OCTETS_AWAY: usize = 4 << 20;
/// While nobody can publish, it is tried again after this.
const AGAIN: Duration = Duration::from_secs(1);
/// With a rate no more is held than that moves in so many seconds, besides what stays: RabbitMQ wants each message back in time.
const SOON: u64 = 60;
/// So many reasons to stay are told apart: the broker's words may name the key.
const MOST_REASONS: usize = 32;
/// All others are counted as this.
const MORE_REASONS: &str = "other reasons";
/// The reason to stay of what the broker has not been asked about, or did not answer in time.
const UNANSWERED: &str = "the broker has not said whether the user may publish it";
/// A walk that was held up may catch up with its rate for so long.
const CATCHES_UP: Duration = Duration::from_millis(50);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Messages that are gone from the queue.
    pub gone: u64,
    /// Messages that were meant, and stay: why, and how many.
    pub stay: BTreeMap<String, u64>,
    /// The publisher cannot publish now.
    pub waits: bool,
}

/// The books of a walk that moves messages.
#[derive(Debug)]
pub(super) struct Moving {
    settings: Move,
    /// How many messages that stay it may hold.
    most_to_stay: u64,
    /// Whether the user may publish them.
    pub(super) asking: Asking,
    away: BTreeMap<Ticket, Away>,
    octets: usize,
    last: u64,
    held: u64,
    first_held: Option<DeliveryTag>,
    /// None goes before that, if there is a rate.
    next: Mono,
    again: Option<Mono>,
    /// Since when nobody can publish.
    waits_since: Option<Mono>,
    /// Nothing waits for a publisher any more.
    given_up: bool,
    /// What it holds is put back, to be met again.
    puts_down: bool,
    moved: Moved,
    /// Of those that are gone, so many were when it began to hold what it holds.
    gone_before: u64,
}

/// What becomes of a message.
#[derive(Debug)]
pub(super) enum Fate {
    Stays,
    Gone,
    /// It is handed to the publisher.
    Publish(Ticket, Publication),
    /// It waits for an answer of the broker.
    Waits,
}

// === impl Moving ===

impl Moving {
    pub(super) fn new(settings: Move, most_to_stay: u64, now: Now) -> Moving {
        Moving {
            settings,
            most_to_stay,
            asking: Asking::default(),
            away: BTreeMap::new(),
            octets: 0,
            last: 0,
            held: 0,
            first_held: None,
            next: now.mono,
            again: None,
            waits_since: None,
            given_up: false,
            puts_down: false,
            moved: Moved::default(),
            gone_before: 0,
        }
    }

    pub(super) fn moved(&self) -> &Moved {
        &self.moved
    }

    /// Where messages go, if they are published.
    pub(super) fn to(&self) -> Option<&Destination> {
        Some(&self.settings.to.as_ref()?.to)
    }

    /// Each message has a key of its own, and an exchange to which the right may be one to some keys.
    pub(super) fn has_own_keys(&self) -> bool {
        matches!(self.to(), Some(Destination::Exchange { exchange, routing_key: None }) if !exchange.is_empty())
    }

    /// Deliveries that its consumer may hold at most.
    pub(super) fn most_held(&self) -> u64 {
        self.most_to_stay.saturating_add(MOST_AWAY as u64)
    }

    /// So many can go at once: no more than are wanted, or than the rate moves soon.
    fn at_once(&self) -> u64 {
        let wanted = self.settings.most - self.moved.gone.min(self.settings.most);
        let soon = self.soon().unwrap_or(u64::MAX);
        wanted.min(MOST_AWAY as u64).min(soon).max(1)
    }

    /// What the rate moves in [`SOON`].
    fn soon(&self) -> Option<u64> {
        let rate = self.settings.per_second?;
        Some(u64::from(rate.get()) * SOON)
    }

    /// The window that it begins with: with a filter it is not known how many have to be passed.
    pub(super) fn first_window(&self) -> u64 {
        match self.settings.filter.is_all() {
            true => self.at_once(),
            false => self.soon().unwrap_or(FIRST).min(FIRST),
        }
    }

    /// So many more than these may be held now: none while more than half of them are to go; with a rate, as many as have no more among them that go
    /// soon, if they are like those that came.
    pub(super) fn more(&self, held: u64) -> u64 {
        if self.held * 2 < held {
            return 0;
        }
        let more = self.held * (FACTOR - 1);
        let went = self.moved.gone - self.gone_before + self.away.len() as u64;
        let soon = self
            .soon()
            .map(|soon| soon.saturating_mul(self.held + went) / went.max(1));
        more.min(soon.unwrap_or(more))
    }

    /// Some have gone since it holds what it holds, or will, or would if they could be published.
    pub(super) fn gets_on(&self) -> bool {
        self.moved.gone > self.gone_before || !self.away.is_empty() || self.moved.waits
    }

    /// As many as wanted have gone, or are on their way.
    pub(super) fn is_done(&self) -> bool {
        self.moved.gone + self.away.len() as u64 >= self.settings.most
    }

    /// More that stay would be too many.
    pub(super) fn holds_enough(&self) -> bool {
        self.held >= self.most_to_stay
    }

    /// Some messages stay, or wait until they can go.
    pub(super) fn holds_any(&self) -> bool {
        self.held > 0 || self.moved.waits
    }

    /// Every message that was handed over has an outcome.
    pub(super) fn is_settled(&self) -> bool {
        self.away.is_empty()
    }

    /// Until when no message may be taken. `None`: one may be taken now; `Some(None)`: nobody knows.
    pub(super) fn rests(&self, now: Now) -> Option<Option<Mono>> {
        let is_full = self.away.len() >= MOST_AWAY || self.octets >= MOST_OCTETS_AWAY;
        if is_full || self.moved.waits {
            return Some(self.again);
        }
        (now.mono < self.next).then_some(Some(self.next))
    }

    /// Since when nothing can be published.
    pub(super) fn waits_since(&self) -> Option<Mono> {
        self.waits_since
    }

    /// When messages are handed over again, or an answer is late.
    pub(super) fn deadline(&self) -> Option<Mono> {
        let both = [self.again, self.asking.deadline()];
        both.into_iter().flatten().min()
    }

    pub(super) fn take(
        &mut self,
        letter: &Letter,
        tag: DeliveryTag,
        dialect: Dialect,
        now: Now,
    ) -> Fate {
        if self.is_done() || !self.settings.filter.takes(letter) {
            self.holds(tag);
            return Fate::Stays;
        }
        let Some(redrive) = &self.settings.to else {
            self.goes(now);
            self.moved.gone += 1;
            return Fate::Gone;
        };
        let Sent {
            publication,
            seen_as,
        } = match self.sent(redrive, letter, true, dialect, now) {
            Ok(sent) => sent,
            Err(why) => {
                self.stays(tag, why.to_string());
                return Fate::Stays;
            }
        };
        let ticket = Ticket(self.last + 1);
        let right = self.asking.right(&seen_as, ticket);
        if let Right::Not(why) = right {
            self.stays(tag, why);
            return Fate::Stays;
        }
        self.goes(now);
        self.last += 1;
        self.octets += publication.content.len();
        let away = Away {
            tag,
            publication: publication.clone(),
            taken: self.leads_to_one(&publication).then(|| letter.clone()),
            again: false,
            in_doubt: false,
        };
        self.away.insert(ticket, away);
        match right {
            Right::May => Fate::Publish(ticket, publication),
            Right::Waits | Right::Not(_) => Fate::Waits,
        }
    }

    /// It is published to an exchange of ours that leads to its queue alone.
    fn leads_to_one(&self, publication: &Publication) -> bool {
        let object = self.settings.names.parse(&publication.exchange);
        matches!(object, Some(OwnObject::ReturnExchange(_)))
    }

    /// What is published for it. `with_key`: back in its queue, its key has to be its own, as the broker may route it by that when it kills it
    /// again. Whether it does is not known here: that depends on who declared the queue, and how. So it goes by an exchange that leads to that queue
    /// alone; else by the default exchange.
    fn sent(
        &self,
        redrive: &Redrive,
        letter: &Letter,
        with_key: bool,
        dialect: Dialect,
        now: Now,
    ) -> Result<Sent, Stays> {
        let names = &self.settings.names;
        let content = Content {
            properties: letter.properties.clone(),
            body: letter.body.clone(),
        };
        let standing = Standing {
            exchange: &letter.exchange,
            routing_key: &letter.routing_key,
            content: &content,
        };
        let here = Here {
            own_user: &self.settings.own_user,
            dialect,
            is_own_queue: &|queue| names.is_ours(queue),
            return_exchange: &|queue| match with_key {
                true => names.name(&OwnObject::ReturnExchange(queue)),
                false => None,
            },
            bridges: names.bridges(),
        };
        redrive.publication(&standing, &here, now.wall)
    }

    /// The broker's answer to the oldest question: what may be published now.
    pub(super) fn answered(&mut self, answer: Answer) -> Vec<(Ticket, Publication)> {
        let answered = self.asking.answered(answer.clone());
        if let Answer::Not(why) = answer {
            for ticket in answered.refused {
                if let Some(away) = self.away.remove(&ticket) {
                    self.octets -= away.publication.content.len();
                    self.stays(away.tag, why.clone());
                }
            }
        }
        let may = answered.may.into_iter();
        may.filter_map(|ticket| Some((ticket, self.away.get(&ticket)?.publication.clone())))
            .collect()
    }

    /// The outcome of a publication: the delivery to ack, if it is gone.
    pub(super) fn settled(
        &mut self,
        ticket: Ticket,
        outcome: Outcome,
        dialect: Dialect,
        now: Now,
    ) -> Option<DeliveryTag> {
        let no_exchange = outcome == Outcome::Refused(Cause::NoExchange);
        if no_exchange && self.goes_by_default(ticket, dialect, now) {
            return None;
        }
        let away = self.away.get_mut(&ticket)?;
        away.in_doubt |= outcome == Outcome::Refused(Cause::Unconfirmed);
        let cause = match outcome {
            // Not its own fault: it waits, and all behind it.
            Outcome::Refused(Cause::PublisherAway | Cause::Unconfirmed | Cause::TargetBusy)
                if !self.given_up && !self.puts_down =>
            {
                away.again = true;
                self.moved.waits = true;
                self.waits_since.get_or_insert(now.mono);
                self.again.get_or_insert(now.mono.after(AGAIN));
                return None;
            }
            Outcome::Confirmed => None,
            Outcome::Refused(cause) | Outcome::Parked(cause) | Outcome::Dropped(cause) => {
                Some(cause)
            }
        };
        let away = self.away.remove(&ticket)?;
        self.octets -= away.publication.content.len();
        match cause {
            None => {
                self.moved.gone += 1;
                self.waits_since = None;
                Some(away.tag)
            }
            Some(cause) => {
                self.stays(away.tag, away.stays_for(cause).to_owned());
                None
            }
        }
    }

    /// Nothing can be bound to its queue, as that is exclusive to another connection or gone: it is handed over again, for the default exchange. False: it
    /// was for that already, or nothing is handed over any more.
    fn goes_by_default(&mut self, ticket: Ticket, dialect: Dialect, now: Now) -> bool {
        let away = self.away.get_mut(&ticket);
        let letter = away
            .filter(|_| !self.given_up && !self.puts_down)
            .and_then(|away| away.taken.take());
        let redrive = self.settings.to.as_ref();
        let publication = letter.zip(redrive).and_then(|(letter, redrive)| {
            let sent = self.sent(redrive, &letter, false, dialect, now);
            Some(sent.ok()?.publication)
        });
        let Some((away, publication)) = self.away.get_mut(&ticket).zip(publication) else {
            return false;
        };
        self.octets += publication.content.len();
        self.octets -= away.publication.content.len();
        (away.publication, away.again) = (publication, true);
        self.again.get_or_insert(now.mono);
        true
    }

    /// What has to be handed over again now.
    pub(super) fn again(&mut self, now: Now) -> Vec<(Ticket, Publication)> {
        if self.again.take_if(|at| *at <= now.mono).is_none() {
            return Vec::new();
        }
        self.moved.waits = false;
        let waiting = self.away.iter_mut().filter(|(_, away)| away.again);
        let again = waiting.map(|(ticket, away)| {
            away.again = false;
            (*ticket, away.publication.clone())
        });
        again.collect()
    }

    /// Nothing is handed over any more: what waits for that stays.
    pub(super) fn give_up(&mut self) {
        (self.again, self.given_up) = (None, true);
        for tag in self.without_answer() {
            self.stays(tag, UNANSWERED.to_owned());
        }
        for (tag, why) in self.no_longer_wait() {
            self.stays(tag, why.to_owned());
        }
    }

    /// Somebody has cancelled it.
    pub(super) fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// All that is held goes back, and is met again: only what has no outcome yet is waited for.
    pub(super) fn put_down(&mut self) {
        (self.again, self.moved.waits) = (None, false);
        let waited = self.no_longer_wait().into_iter().map(|(tag, _)| tag);
        for tag in self.without_answer().into_iter().chain(waited) {
            self.holds(tag);
        }
        self.octets = self
            .away
            .values()
            .map(|away| away.publication.content.len())
            .sum();
        self.puts_down = true;
    }

    /// Nothing is held any more.
    pub(super) fn begin_anew(&mut self) {
        (self.held, self.first_held) = (0, None);
        self.gone_before = self.moved.gone;
        self.moved.stay.clear();
        self.puts_down = false;
    }

    fn goes(&mut self, now: Now) {
        if let Some(rate) = self.settings.per_second {
            let step = Duration::from_secs(1) / rate.get();
            let behind = Mono(now.mono.0.saturating_sub(CATCHES_UP.as_micros() as u64));
            self.next = self.next.max(behind).after(step);
        }
    }

    /// The oldest delivery that is not to be acked, or not yet.
    pub(super) fn first_unacked(&self) -> Option<DeliveryTag> {
        let away = self.away.values().next().map(|away| away.tag);
        self.first_held.into_iter().chain(away).min()
    }

    /// The deliveries whose right to be published was asked for, and is not known.
    fn without_answer(&mut self) -> Vec<DeliveryTag> {
        let waiting = self.asking.forget().into_iter();
        let away = waiting.filter_map(|ticket| self.away.remove(&ticket));
        away.map(|away| away.tag).collect()
    }

    /// The deliveries that were to be handed over again, and why each of them stays.
    fn no_longer_wait(&mut self) -> Vec<(DeliveryTag, &'static str)> {
        let waiting = self.away.values().filter(|away| away.again);
        let waiting = waiting.map(|away| (away.tag, away.stays_for(Cause::PublisherAway)));
        let waiting = waiting.collect();
        self.away.retain(|_, away| !away.again);
        waiting
    }

    fn holds(&mut self, tag: DeliveryTag) {
        self.held += 1;
        self.first_held = self.first_held.into_iter().chain([tag]).min();
    }

    fn stays(&mut self, tag: DeliveryTag, why: String) {
        self.holds(tag);
        let stay = &mut self.moved.stay;
        let why = match stay.len() < MOST_REASONS || stay.contains_key(&why) {
            true => why,
            false => MORE_REASONS.to_owned(),
        };
        *stay.entry(why).or_default() += 1;
    }
}
