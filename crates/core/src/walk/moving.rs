//! What a walk does with the messages that are meant: shows them, sends them back, rejects or removes them. The others stay where they are.
//!
//! ```text
//! a message ─ not meant, or a look ───────────────────▶ stays: held until the end, then put back in its place
//!        └─ meant ─ purge ─────────────────────────────▶ acked
//!               ├─ release of retries ─────────────────▶ rejected: the broker dead-letters it
//!               └─ redrive ─ may the user publish it? ─ no ─▶ stays
//!                                 └─ publisher ─ confirmed ─▶ acked
//!                                        ├─ no route takes it ▶ stays
//!                                        └─ nobody can now ───▶ handed over again after a while
//! ```
//! The publisher's link publishes, as the user-ids of others and the proof of trusted headers would not survive otherwise. A message is acked
//! when it is confirmed elsewhere, so at every moment it is in one place at least; whatever dies in between, the broker puts it back.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::dead_letter::Dialect;
use crate::dead_letter::redrive::{Destination, Route, Sent};
use crate::letter::Letter;
use crate::machine::{Cause, Mono, Now, Outcome, Ticket};
use crate::mover::Mover;

use super::away::{Away, Stage};
use super::rights::{Answer, Rights};
use super::{Bounds, FACTOR, FIRST, Move, Output, Task};

/// Maximum messages that a redrive passes over and holds. Only the broker remembers them, with some
/// hundred bytes each.
pub const MOST_HELD: u64 = 1_000_000;
/// Pending publications: this number, ...
pub const MOST_AWAY: usize = 256;
/// ... and these bytes, unless one is larger.
const MOST_BYTES_AWAY: usize = 4 << 20;
/// Retry interval while nothing can be published.
const AGAIN: Duration = Duration::from_secs(1);
/// With a rate, holds no more than moves in this many seconds, besides messages that stay: RabbitMQ
/// limits the holding time.
const SOON: u64 = 60;
/// Distinct reasons to stay: the broker's words may include the key.
const MOST_REASONS: usize = 32;
const MORE_REASONS: &str = "other reasons";
/// For messages whose permission was not checked in time.
const UNANSWERED: &str = "the broker has not said whether the user may publish it";
/// How much delay the rate may catch up.
const CATCHES_UP: Duration = Duration::from_millis(50);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    pub gone: u64,
    /// Selected messages that stay, by reason.
    pub stay: BTreeMap<String, u64>,
    /// The publisher is not available.
    pub waits: bool,
}

#[derive(Debug)]
pub(super) struct Moving {
    task: Task,
    bounds: Bounds,
    /// Whether the user may publish them.
    pub(super) rights: Rights,
    /// Those waiting for permission are at the end: none may overtake them.
    pub(super) mover: Mover<Away>,
    /// Earliest next message, with a rate.
    next: Mono,
    again: Option<Mono>,
    /// Since when nothing can be published.
    pub(super) waits_since: Option<Mono>,
    /// Cancelled: nothing waits for a publisher any more.
    pub(super) given_up: bool,
    /// Held messages are requeued, to be met again.
    puts_down: bool,
    pub(super) moved: Moved,
    /// Moved messages before the current held ones.
    gone_before: u64,
}

// === impl Moving ===

impl Moving {
    pub(super) fn new(task: Task, bounds: Bounds, now: Now) -> Moving {
        Moving {
            task,
            bounds,
            rights: Rights::default(),
            mover: Mover::new(ChannelId(0), 0),
            next: now.mono,
            again: None,
            waits_since: None,
            given_up: false,
            puts_down: false,
            moved: Moved::default(),
            gone_before: 0,
        }
    }

    /// `None`: browses only.
    pub(super) fn wanted(&self) -> Option<&Move> {
        match &self.task {
            Task::Look(_) => None,
            Task::Move(wanted) => Some(wanted),
        }
    }

    /// Exchange and key of each message, if fixed.
    fn exchange(&self) -> Option<(&ShortStr, Option<&ShortStr>)> {
        match &self.wanted()?.to.as_ref()?.to {
            Destination::Exchange {
                exchange,
                routing_key,
            } => Some((exchange, routing_key.as_ref())),
            Destination::Source | Destination::Queue(_) => None,
        }
    }

    /// The permission that is needed in any case.
    pub(super) fn first_question(&self) -> Option<Route> {
        self.wanted()?.to.as_ref()?;
        let none = ShortStr::EMPTY;
        let (exchange, key) = self.exchange().unwrap_or((&none, None));
        Some(Route::new(exchange, key.unwrap_or(&none)))
    }

    /// The first answer forbids every publish.
    pub(super) fn is_barred(&self, answer: &Answer) -> bool {
        let own_keys = matches!(self.exchange(), Some((exchange, None)) if !exchange.is_empty());
        // Each message has a key of its own, and that is asked for later.
        *answer != Answer::May && !(own_keys && answer.is_of_topic())
    }

    pub(super) fn most_held(&self) -> u64 {
        match self.task {
            Task::Look(_) => self.bounds.messages,
            Task::Move(_) => self.bounds.held.saturating_add(MOST_AWAY as u64),
        }
    }

    /// Messages per [`SOON`] at the rate.
    fn soon(&self) -> Option<u64> {
        let rate = self.wanted()?.per_second?;
        Some(u64::from(rate.get()) * SOON)
    }

    /// First window: with a filter, unknown; else at most the wanted number, or what the rate moves
    /// soon.
    pub(super) fn first_window(&self) -> u64 {
        let soon = self.soon().unwrap_or(u64::MAX);
        match self.wanted().filter(|wanted| wanted.filter.is_all()) {
            Some(wanted) => {
                let left = wanted.most.saturating_sub(self.moved.gone);
                left.min(MOST_AWAY as u64).min(soon).max(1)
            }
            None => soon.min(FIRST),
        }
    }

    /// How many more may be held: none while more than half are to be moved; with a rate, as many
    /// as would contain enough to move soon, judging by earlier ones.
    pub(super) fn more(&self, held: u64) -> u64 {
        if self.wanted().is_none() {
            return held * (FACTOR - 1);
        }
        let left = self.mover.left;
        if left * 2 < held {
            return 0;
        }
        let more = left * (FACTOR - 1);
        let went = self.moved.gone - self.gone_before + self.mover.count() as u64;
        let soon = self
            .soon()
            .map(|soon| soon.saturating_mul(left + went) / went.max(1));
        more.min(soon.unwrap_or(more))
    }

    /// Some held messages have moved, or will, or would if publishable.
    pub(super) fn gets_on(&self) -> bool {
        self.moved.gone > self.gone_before || self.mover.count() > 0 || self.moved.waits
    }

    /// The wanted number has moved or is in flight.
    pub(super) fn is_done(&self) -> bool {
        let goes = self.moved.gone + self.mover.count() as u64;
        self.wanted().is_some_and(|wanted| goes >= wanted.most)
    }

    /// The maximum of staying messages is reached.
    pub(super) fn holds_enough(&self) -> bool {
        self.wanted().is_some() && self.mover.left >= self.bounds.held
    }

    pub(super) fn holds_any(&self) -> bool {
        self.mover.left > 0 || self.moved.waits
    }

    /// All published messages have an outcome.
    pub(super) fn is_settled(&self) -> bool {
        self.mover.count() == 0
    }

    /// Until when no message may be taken. `None`: no wait; `Some(None)`: unknown.
    pub(super) fn rests(&self, now: Now) -> Option<Option<Mono>> {
        let is_full = self.mover.count() >= MOST_AWAY || self.mover.bytes >= MOST_BYTES_AWAY;
        if is_full || self.moved.waits {
            return Some(self.again);
        }
        (now.mono < self.next).then_some(Some(self.next))
    }

    /// When to publish again, or when an answer is late.
    pub(super) fn deadline(&self) -> Option<Mono> {
        let both = [self.again, self.rights.deadline()];
        both.into_iter().flatten().min()
    }

    /// A message stays, is published, or waits for permission. True: it is gone.
    pub(super) fn take(
        &mut self,
        letter: Letter,
        tag: u64,
        dialect: Dialect,
        now: Now,
        out: &mut Output,
    ) -> bool {
        let Task::Move(wanted) = &self.task else {
            self.mover.leave(tag);
            out.letters.push(letter);
            return false;
        };
        if self.is_done() || !wanted.filter.takes(&letter) {
            self.mover.leave(tag);
            return false;
        }
        let Some(redrive) = &wanted.to else {
            self.goes(now);
            self.moved.gone += 1;
            return true;
        };
        let Sent {
            publication,
            seen_as,
        } = match wanted.sent(redrive, &letter, true, dialect, now) {
            Ok(sent) => sent,
            Err(why) => {
                self.stays(tag, why.to_string());
                return false;
            }
        };
        let taken = wanted.leads_to_one(&publication).then_some(letter);
        let stage = match self.rights.of(&seen_as).cloned() {
            Some(Answer::Not(_, why)) => {
                self.stays(tag, why);
                return false;
            }
            Some(Answer::May) if self.waits_for_answer() => Stage::May,
            Some(Answer::May) => Stage::Published,
            None => Stage::Asks(seen_as),
        };
        self.goes(now);
        let publish = (stage == Stage::Published).then(|| publication.clone());
        let bytes = publication.content.len();
        let away = Away {
            publication,
            taken,
            stage,
            in_doubt: false,
        };
        let ticket = self.mover.hold(tag, bytes, now.mono, away);
        out.publish.extend(publish.map(|it| (ticket, it)));
        false
    }

    /// The answer to the oldest question: publishes what is permitted now.
    pub(super) fn answered(&mut self, answer: Answer, out: &mut Output) {
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
                let alike = self.mover.held_mut().filter(|(_, away)| asks(away));
                alike.for_each(|(_, away)| away.stage = Stage::May);
            }
            Answer::Not(_, why) => {
                let alike = self.mover.held().filter(|(_, away)| asks(away));
                let alike: Vec<u64> = alike.map(|(tag, _)| tag).collect();
                for tag in alike {
                    self.stays(tag, why.clone());
                }
            }
        }
        for (ticket, away) in self.mover.held_mut() {
            match away.stage {
                Stage::Asks(_) => break,
                Stage::May => {
                    away.stage = Stage::Published;
                    out.publish.push((ticket, away.publication.clone()));
                }
                Stage::Published | Stage::Again => {}
            }
        }
    }

    /// Some messages wait for an answer.
    pub(super) fn waits_for_answer(&self) -> bool {
        let last = self.mover.held().next_back();
        last.is_some_and(|(_, away)| away.waits())
    }

    /// An outcome; returns the delivery to ack.
    pub(super) fn settled(
        &mut self,
        ticket: Ticket,
        outcome: Outcome,
        dialect: Dialect,
        now: Now,
    ) -> Option<u64> {
        let hands_over = !self.given_up && !self.puts_down;
        let no_exchange = outcome == Outcome::Refused(Cause::NoExchange);
        if hands_over && no_exchange && self.goes_by_default(ticket, dialect, now) {
            return None;
        }
        let (tag, away) = self.mover.of(ticket)?;
        away.in_doubt |= outcome == Outcome::Refused(Cause::Unconfirmed);
        match outcome {
            Outcome::Confirmed => {
                self.moved.gone += 1;
                self.waits_since = None;
                return Some(tag);
            }
            // Not its own fault: it waits, and all behind it.
            Outcome::Refused(Cause::PublisherAway | Cause::Unconfirmed | Cause::TargetBusy)
                if hands_over =>
            {
                away.stage = Stage::Again;
                self.moved.waits = true;
                self.waits_since.get_or_insert(now.mono);
                self.again.get_or_insert(now.mono.after(AGAIN));
            }
            Outcome::Refused(cause) | Outcome::Parked(cause) | Outcome::Dropped(cause) => {
                let why = away.stays_for(cause);
                self.stays(tag, why);
            }
        }
        None
    }

    /// Its queue cannot be bound, being exclusive or gone: publishes over the default exchange.
    /// False: it already was.
    fn goes_by_default(&mut self, ticket: Ticket, dialect: Dialect, now: Now) -> bool {
        let Some((_, away)) = self.mover.of(ticket) else {
            return false;
        };
        let Task::Move(wanted) = &self.task else {
            return false;
        };
        let publication = away.taken.take().zip(wanted.to.as_ref());
        let publication = publication.and_then(|(letter, redrive)| {
            let sent = wanted.sent(redrive, &letter, false, dialect, now);
            Some(sent.ok()?.publication)
        });
        let Some(publication) = publication else {
            return false;
        };
        (away.publication, away.stage) = (publication, Stage::Again);
        self.again.get_or_insert(now.mono);
        true
    }

    /// Publishes again what is due.
    pub(super) fn again(&mut self, now: Now, out: &mut Output) {
        if self.again.take_if(|at| *at <= now.mono).is_none() {
            return;
        }
        self.moved.waits = false;
        for (ticket, away) in self.mover.held_mut() {
            if away.stage == Stage::Again {
                away.stage = Stage::Published;
                out.publish.push((ticket, away.publication.clone()));
            }
        }
    }

    /// No more publishing: waiting messages stay.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
        for (tag, why) in self.withdraw() {
            self.stays(tag, why);
        }
    }

    /// Requeues all held messages, to be met again; only pending outcomes are awaited.
    pub(super) fn put_down(&mut self) {
        self.moved.waits = false;
        for (tag, _) in self.withdraw() {
            self.mover.leave(tag);
        }
        self.puts_down = true;
    }

    /// Deliveries without a pending publish, and why each would stay.
    fn withdraw(&mut self) -> Vec<(u64, String)> {
        self.again = None;
        let back = self.mover.held();
        let back = back.filter_map(|(tag, away)| match away.stage {
            Stage::Published => None,
            Stage::Again => Some((tag, away.stays_for(Cause::PublisherAway))),
            Stage::Asks(_) | Stage::May => Some((tag, UNANSWERED.to_owned())),
        });
        back.collect()
    }

    pub(super) fn begin_anew(&mut self) {
        self.gone_before = self.moved.gone;
        self.moved.stay.clear();
        self.puts_down = false;
    }

    fn goes(&mut self, now: Now) {
        if let Some(rate) = self.wanted().and_then(|wanted| wanted.per_second) {
            let step = Duration::from_secs(1) / rate.get();
            let behind = Mono(now.mono.0.saturating_sub(CATCHES_UP.as_micros() as u64));
            self.next = self.next.max(behind).after(step);
        }
    }

    fn stays(&mut self, tag: u64, why: String) {
        self.mover.leave(tag);
        let stay = &mut self.moved.stay;
        let why = match stay.len() < MOST_REASONS || stay.contains_key(&why) {
            true => why,
            false => MORE_REASONS.to_owned(),
        };
        *stay.entry(why).or_default() += 1;
    }
}
