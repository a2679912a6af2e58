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

use crate::amqp::ids::{DeliveryTag, ShortStr};
use crate::dead_letter::Dialect;
use crate::dead_letter::redrive::{Destination, Route, Sent};
use crate::letter::Letter;
use crate::machine::{Cause, Mono, Now, Outcome, Publication, Ticket};

use super::away::{Away, Stage};
use super::rights::{Answer, Rights};
use super::{FACTOR, FIRST, Move};

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
    pub(super) rights: Rights,
    /// In the order of the queue: those that wait for an answer of the broker stand last, as none may overtake them.
    away: BTreeMap<Ticket, Away>,
    octets: usize,
    last: u64,
    held: u64,
    first_held: Option<DeliveryTag>,
    /// None goes before that, if there is a rate.
    next: Mono,
    again: Option<Mono>,
    /// Since when nobody can publish.
    pub(super) waits_since: Option<Mono>,
    /// Nothing waits for a publisher any more: somebody has cancelled it.
    pub(super) given_up: bool,
    /// What it holds is put back, to be met again.
    puts_down: bool,
    pub(super) moved: Moved,
    /// Of those that are gone, so many were when it began to hold what it holds.
    gone_before: u64,
}

// === impl Moving ===

impl Moving {
    pub(super) fn new(settings: Move, most_to_stay: u64, now: Now) -> Moving {
        Moving {
            settings,
            most_to_stay,
            rights: Rights::default(),
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

    /// The exchange and the key of each message, if they are published there.
    fn exchange(&self) -> Option<(&ShortStr, Option<&ShortStr>)> {
        match &self.settings.to.as_ref()?.to {
            Destination::Exchange {
                exchange,
                routing_key,
            } => Some((exchange, routing_key.as_ref())),
            Destination::Source | Destination::Queue(_) => None,
        }
    }

    /// What the user needs in any case, if messages are published.
    pub(super) fn first_question(&self) -> Option<Route> {
        self.settings.to.as_ref()?;
        let none = ShortStr::EMPTY;
        let (exchange, key) = self.exchange().unwrap_or((&none, None));
        Some(Route::new(exchange, key.unwrap_or(&none)))
    }

    /// The broker's first answer does not let the user publish anything.
    pub(super) fn is_barred(&self, answer: &Answer) -> bool {
        let own_keys = matches!(self.exchange(), Some((exchange, None)) if !exchange.is_empty());
        // Each message has a key of its own, and that is asked for later.
        *answer != Answer::May && !(own_keys && answer.is_of_topic())
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

    /// When messages are handed over again, or an answer is late.
    pub(super) fn deadline(&self) -> Option<Mono> {
        let both = [self.again, self.rights.deadline()];
        both.into_iter().flatten().min()
    }

    /// What becomes of a message: it stays, is handed over, or waits for an answer. True: it is gone.
    pub(super) fn take(
        &mut self,
        letter: &Letter,
        tag: DeliveryTag,
        dialect: Dialect,
        now: Now,
        publish: &mut Vec<(Ticket, Publication)>,
    ) -> bool {
        if self.is_done() || !self.settings.filter.takes(letter) {
            self.holds(tag);
            return false;
        }
        let Some(redrive) = &self.settings.to else {
            self.goes(now);
            self.moved.gone += 1;
            return true;
        };
        let Sent {
            publication,
            seen_as,
        } = match self.settings.sent(redrive, letter, true, dialect, now) {
            Ok(sent) => sent,
            Err(why) => {
                self.stays(tag, why.to_string());
                return false;
            }
        };
        let ticket = Ticket(self.last + 1);
        let waits = self.away.values().next_back().is_some_and(Away::waits);
        let stage = match self.rights.of(&seen_as).cloned() {
            Some(Answer::Not(_, why)) => {
                self.stays(tag, why);
                return false;
            }
            Some(Answer::May) if waits => Stage::May,
            Some(Answer::May) => {
                publish.push((ticket, publication.clone()));
                Stage::Published
            }
            None => Stage::Asks(seen_as),
        };
        self.goes(now);
        self.last += 1;
        self.octets += publication.content.len();
        let away = Away {
            tag,
            taken: self
                .settings
                .leads_to_one(&publication)
                .then(|| letter.clone()),
            publication,
            stage,
            in_doubt: false,
        };
        self.away.insert(ticket, away);
        false
    }

    /// The broker's answer to the oldest question: what may be published now is.
    pub(super) fn answered(&mut self, answer: Answer, publish: &mut Vec<(Ticket, Publication)>) {
        let refused = answer != Answer::May;
        let answer = match self.exchange().is_none() && answer.is_of_no_use() {
            true => Answer::May,
            false => answer,
        };
        let Some(route) = self.rights.answered(&answer, refused) else {
            return;
        };
        let asks = |away: &Away| matches!(&away.stage, Stage::Asks(asked) if *asked == route);
        match answer {
            Answer::May => {
                let alike = self.away.values_mut().filter(|away| asks(away));
                alike.for_each(|away| away.stage = Stage::May);
            }
            Answer::Not(_, why) => {
                for away in self.without(asks) {
                    self.stays(away.tag, why.clone());
                }
            }
        }
        for (ticket, away) in &mut self.away {
            match away.stage {
                Stage::Asks(_) => break,
                Stage::May => {
                    away.stage = Stage::Published;
                    publish.push((*ticket, away.publication.clone()));
                }
                Stage::Published | Stage::Again => {}
            }
        }
    }

    /// Some messages wait for an answer.
    pub(super) fn waits_for_answer(&self) -> bool {
        self.away.values().next_back().is_some_and(Away::waits)
    }

    /// The outcome of a publication: the delivery to ack, if it is gone.
    pub(super) fn settled(
        &mut self,
        ticket: Ticket,
        outcome: Outcome,
        dialect: Dialect,
        now: Now,
    ) -> Option<DeliveryTag> {
        let hands_over = !self.given_up && !self.puts_down;
        let no_exchange = outcome == Outcome::Refused(Cause::NoExchange);
        if hands_over && no_exchange && self.goes_by_default(ticket, dialect, now) {
            return None;
        }
        let away = self.away.get_mut(&ticket)?;
        away.in_doubt |= outcome == Outcome::Refused(Cause::Unconfirmed);
        // Not its own fault: it waits, and all behind it.
        if hands_over
            && let Outcome::Refused(Cause::PublisherAway | Cause::Unconfirmed | Cause::TargetBusy) =
                outcome
        {
            away.stage = Stage::Again;
            self.moved.waits = true;
            self.waits_since.get_or_insert(now.mono);
            self.again.get_or_insert(now.mono.after(AGAIN));
            return None;
        }
        let away = self.away.remove(&ticket)?;
        self.octets -= away.publication.content.len();
        match outcome {
            Outcome::Confirmed => {
                self.moved.gone += 1;
                self.waits_since = None;
                Some(away.tag)
            }
            Outcome::Refused(cause) | Outcome::Parked(cause) | Outcome::Dropped(cause) => {
                self.stays(away.tag, away.stays_for(cause));
                None
            }
        }
    }

    /// Nothing can be bound to its queue, as that is exclusive to another connection or gone: it is handed over again, for the default exchange. False: it
    /// was for that already.
    fn goes_by_default(&mut self, ticket: Ticket, dialect: Dialect, now: Now) -> bool {
        let away = self.away.get_mut(&ticket);
        let letter = away.and_then(|away| away.taken.take());
        let redrive = self.settings.to.as_ref();
        let publication = letter.zip(redrive).and_then(|(letter, redrive)| {
            let sent = self.settings.sent(redrive, &letter, false, dialect, now);
            Some(sent.ok()?.publication)
        });
        let Some((away, publication)) = self.away.get_mut(&ticket).zip(publication) else {
            return false;
        };
        self.octets += publication.content.len();
        self.octets -= away.publication.content.len();
        (away.publication, away.stage) = (publication, Stage::Again);
        self.again.get_or_insert(now.mono);
        true
    }

    /// Hands over again what has to be now.
    pub(super) fn again(&mut self, now: Now, publish: &mut Vec<(Ticket, Publication)>) {
        if self.again.take_if(|at| *at <= now.mono).is_none() {
            return;
        }
        self.moved.waits = false;
        for (ticket, away) in &mut self.away {
            if away.stage == Stage::Again {
                away.stage = Stage::Published;
                publish.push((*ticket, away.publication.clone()));
            }
        }
    }

    /// Nothing is handed over any more: what waits for that stays.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
        for (tag, why) in self.withdraw() {
            self.stays(tag, why);
        }
    }

    /// All that is held goes back, and is met again: only what has no outcome yet is waited for.
    pub(super) fn put_down(&mut self) {
        self.moved.waits = false;
        for (tag, _) in self.withdraw() {
            self.holds(tag);
        }
        self.puts_down = true;
    }

    /// Takes back what the publisher does not have: the deliveries, and why each of them would stay.
    fn withdraw(&mut self) -> Vec<(DeliveryTag, String)> {
        self.again = None;
        let back = self.without(|away| away.stage != Stage::Published);
        let back = back.into_iter().map(|away| match away.stage {
            Stage::Again => (away.tag, away.stays_for(Cause::PublisherAway)),
            _ => (away.tag, UNANSWERED.to_owned()),
        });
        back.collect()
    }

    fn without(&mut self, those: impl Fn(&Away) -> bool) -> Vec<Away> {
        let tickets = self.away.iter().filter(|(_, away)| those(away));
        let tickets: Vec<Ticket> = tickets.map(|(ticket, _)| *ticket).collect();
        let those = tickets.iter().filter_map(|it| self.away.remove(it));
        let those: Vec<Away> = those.collect();
        let octets = those.iter().map(|away| away.publication.content.len());
        self.octets -= octets.sum::<usize>();
        those
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
