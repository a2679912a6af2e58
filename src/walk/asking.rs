//! As what the user may publish: what is asked, what is known, and which messages wait for an answer.
//!
//! Messages go to an exchange with keys of their own, or back to their queues, where they say by which exchange and key they had come there. The
//! broker is asked once for each exchange and key, as topic permissions are about the key, and a message is handed to the publisher when that is
//! known. All behind it wait, too, as they would overtake it. Answers come in the order of the questions.

use std::collections::{BTreeMap, VecDeque};

use crate::dead_letter::redrive::Route;
use crate::machine::{Mono, Ticket};

use super::message::Arriving;

/// So many answers are remembered; beyond that all are forgotten, and asked for again.
const MOST_KNOWN: usize = 1_024;
/// No more is read for the sake of an answer when so many octets have come before it, and cannot be taken now.
const MOST_STASHED: usize = 16 << 20;

/// What the broker says of an exchange and a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The user may publish so.
    May,
    /// The user may not: in the broker's words.
    Not(String),
}

/// What becomes of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Right {
    /// It may be published now.
    May,
    /// It stays: in the broker's words.
    Not(String),
    /// It waits for an answer, for itself or for one before it.
    Waits,
}

#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    route: Route,
    may: bool,
}

/// The messages that an answer is for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) refused: Vec<Ticket>,
    /// These may be published now, in this order.
    pub(super) may: Vec<Ticket>,
}

/// The questions of one walk.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// Those without an answer, in the order of their questions.
    asked: VecDeque<Route>,
    /// So many of them the broker was sent.
    sent: usize,
    known: BTreeMap<Route, Answer>,
    /// Messages that are not handed over yet, in their order.
    waiting: VecDeque<Waiting>,
    /// Until when there has to be an answer.
    until: Option<Mono>,
    /// The channel of the questions is open.
    pub(super) is_open: bool,
    /// Messages that came before an answer, while none could be taken.
    stash: VecDeque<Arriving>,
    stashed: usize,
}

// === impl Asking ===

impl Asking {
    /// What becomes of a message that says so. If it waits, its ticket is in an answer later.
    pub(super) fn right(&mut self, route: &Route, ticket: Ticket) -> Right {
        // For the default exchange the broker was asked first of all.
        let known = match route.exchange.is_empty() {
            true => Some(&Answer::May),
            false => self.known.get(route),
        };
        match known {
            Some(Answer::Not(why)) => return Right::Not(why.clone()),
            Some(Answer::May) if self.waiting.is_empty() => return Right::May,
            Some(Answer::May) => {}
            None if self.asked.contains(route) => {}
            None => self.asked.push_back(route.clone()),
        }
        self.waiting.push_back(Waiting {
            ticket,
            route: route.clone(),
            may: known.is_some(),
        });
        Right::Waits
    }

    /// What to ask the broker for now; there has to be an answer until then.
    pub(super) fn questions(&mut self, until: Mono) -> Vec<Route> {
        if !self.asked.is_empty() {
            self.until.get_or_insert(until);
        }
        let sent = std::mem::replace(&mut self.sent, self.asked.len());
        self.asked.iter().skip(sent).cloned().collect()
    }

    /// The answer to the oldest question. Where it has closed the channel, what was asked behind it is asked again.
    pub(super) fn answered(&mut self, answer: Answer) -> Answered {
        let mut answered = Answered::default();
        self.until = None;
        self.sent = match self.is_open {
            true => self.sent.saturating_sub(1),
            false => 0,
        };
        let Some(route) = self.asked.pop_front() else {
            return answered;
        };
        match answer {
            Answer::May => {
                let alike = self.waiting.iter_mut().filter(|one| one.route == route);
                alike.for_each(|one| one.may = true);
            }
            Answer::Not(_) => self.waiting.retain(|one| {
                let stays = one.route == route;
                if stays {
                    answered.refused.push(one.ticket);
                }
                !stays
            }),
        }
        let known = self.waiting.iter().take_while(|one| one.may).count();
        let may = self.waiting.drain(..known).map(|one| one.ticket);
        answered.may.extend(may);
        self.learn(route, answer);
        answered
    }

    /// What the broker says. With several keys it would take much room.
    pub(super) fn learn(&mut self, route: Route, answer: Answer) {
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        if route.cc.is_empty() {
            self.known.insert(route, answer);
        }
    }

    /// Nobody waits any more: the tickets of those that did.
    pub(super) fn forget(&mut self) -> Vec<Ticket> {
        self.waiting.drain(..).map(|one| one.ticket).collect()
    }

    /// Some messages wait for an answer.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The broker was sent questions that it has not answered.
    pub(super) fn has_questions(&self) -> bool {
        self.sent > 0
    }

    /// The broker has to be read on, though no message may be taken: an answer is on its way, and there is room for what comes before it.
    pub(super) fn hears(&self) -> bool {
        self.sent > 0 && self.stashed < MOST_STASHED
    }

    /// When the answer is late.
    pub(super) fn deadline(&self) -> Option<Mono> {
        self.until
    }

    /// True once when the answer is late.
    pub(super) fn is_late(&mut self, now: Mono) -> bool {
        self.until.take_if(|at| *at <= now).is_some()
    }

    /// Keeps a message that cannot be taken now.
    pub(super) fn stash(&mut self, whole: Arriving) {
        self.stashed += whole.octets();
        self.stash.push_back(whole);
    }

    /// The oldest message that was kept.
    pub(super) fn unstash(&mut self) -> Option<Arriving> {
        let whole = self.stash.pop_front()?;
        self.stashed = self.stashed.saturating_sub(whole.octets());
        Some(whole)
    }

    /// Messages are kept: what comes goes behind them.
    pub(super) fn has_stash(&self) -> bool {
        !self.stash.is_empty()
    }

    /// What is kept is not wanted any more.
    pub(super) fn drop_stash(&mut self) {
        self.stash.clear();
        self.stashed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::ids::name;

    fn key(text: &str) -> Route {
        Route::new(&name("x"), &name(text))
    }

    /// The broker's channel is closed by a refusal.
    fn refused(asking: &mut Asking) -> Answered {
        asking.is_open = false;
        asking.answered(not())
    }

    fn not() -> Answer {
        Answer::Not("no".to_owned())
    }

    fn asks(asking: &mut Asking) -> Vec<Route> {
        asking.is_open = true;
        asking.questions(Mono(5))
    }

    #[test]
    fn each_key_is_asked_once_and_nothing_overtakes_what_waits() {
        let mut asking = Asking::default();
        assert_eq!(asking.right(&key("a"), Ticket(1)), Right::Waits);
        assert_eq!(asking.right(&key("b"), Ticket(2)), Right::Waits);
        assert_eq!(asking.right(&key("a"), Ticket(3)), Right::Waits);
        assert_eq!(asks(&mut asking), [key("a"), key("b")]);
        assert!(asks(&mut asking).is_empty());
        assert_eq!(asking.answered(Answer::May).may, [Ticket(1)]);
        assert_eq!(asking.right(&key("a"), Ticket(4)), Right::Waits);
        let answered = refused(&mut asking);
        assert_eq!(answered.refused, [Ticket(2)]);
        assert_eq!(answered.may, [Ticket(3), Ticket(4)]);
        assert_eq!(asking.right(&key("a"), Ticket(5)), Right::May);
        let refused = Right::Not("no".to_owned());
        assert_eq!(asking.right(&key("b"), Ticket(6)), refused);
        assert!(!asking.waits() && !asking.hears());
    }

    #[test]
    fn what_was_asked_behind_a_refusal_is_asked_again() {
        let mut asking = Asking::default();
        for (name, ticket) in [("a", 1), ("b", 2), ("c", 3)] {
            asking.right(&key(name), Ticket(ticket));
        }
        assert_eq!(asks(&mut asking).len(), 3);
        refused(&mut asking);
        assert_eq!(asks(&mut asking), [key("b"), key("c")]);
        assert_eq!(asking.answered(Answer::May).may, [Ticket(2)]);
        assert_eq!(asking.answered(Answer::May).may, [Ticket(3)]);
        assert_eq!(asking.answered(Answer::May), Answered::default());
    }

    #[test]
    fn not_more_answers_are_remembered_than_fit() {
        let mut asking = Asking::default();
        for number in 0..=MOST_KNOWN as u64 {
            asking.right(&key(&number.to_string()), Ticket(number));
            asks(&mut asking);
            assert_eq!(asking.answered(Answer::May).may, [Ticket(number)]);
            assert!(asking.known.len() <= MOST_KNOWN);
        }
        assert_eq!(asking.known.len(), 1);
        assert_eq!(asking.right(&key("0"), Ticket(9_999)), Right::Waits);
    }

    #[test]
    fn an_answer_is_late_once_and_what_is_forgotten_has_no_outcome() {
        let mut asking = Asking::default();
        asking.right(&key("a"), Ticket(1));
        asks(&mut asking);
        assert_eq!(asking.deadline(), Some(Mono(5)));
        assert!(!asking.is_late(Mono(4)));
        assert!(asking.is_late(Mono(5)) && !asking.is_late(Mono(6)));
        assert_eq!(asking.forget(), [Ticket(1)]);
        assert_eq!(asking.answered(Answer::May), Answered::default());
        assert_eq!(asking.right(&key("a"), Ticket(2)), Right::May);
    }

    #[test]
    fn what_came_by_the_default_exchange_is_not_asked_for_but_overtakes_nothing() {
        let mut asking = Asking::default();
        let plain = Route::new(&name(""), &name("q"));
        assert_eq!(asking.right(&plain, Ticket(1)), Right::May);
        assert_eq!(asking.right(&key("a"), Ticket(2)), Right::Waits);
        assert_eq!(asking.right(&plain, Ticket(3)), Right::Waits);
        assert_eq!(asks(&mut asking), [key("a")]);
        assert_eq!(asking.answered(Answer::May).may, [Ticket(2), Ticket(3)]);
    }

    #[test]
    fn several_keys_are_asked_for_each_time() {
        let mut asking = Asking::default();
        let route = Route {
            cc: vec![name("c")],
            ..key("a")
        };
        for ticket in [Ticket(1), Ticket(2)] {
            assert_eq!(asking.right(&route, ticket), Right::Waits);
            assert_eq!(asks(&mut asking), std::slice::from_ref(&route));
            assert_eq!(asking.answered(Answer::May).may, [ticket]);
        }
    }
}
