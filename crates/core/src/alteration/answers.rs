//! What the answers of the broker and of the sessions lead to.

use crate::amqp::method::QueueDeclareOk;
use crate::amqp::reply_code::{PRECONDITION_FAILED, RESOURCE_LOCKED};
use crate::machine::Now;
use crate::registry::refusal::is_of_a_missing_queue;
use crate::session::Ready;
use crate::walk::Failure as LinkFailure;

use super::moving::Way;
use super::{Alteration, Aside, Effects, Failure, Made, QUICK, SLOW, State, Task, Word};

const CAME_BACK: &str = "messages came back to it";
const SLOW_BROKER: &str = "the broker was slow";

impl Alteration {
    /// The broker's count of the queue.
    pub(super) fn counted(&mut self, ok: QueueDeclareOk<'_>, now: Now, fx: &mut Effects) {
        let (messages, consumers) = (ok.message_count, ok.consumer_count);
        match self.state {
            State::Waiting => self.waits(ok, now, fx),
            // It counts this consumer at least, or it did not answer (S12.12). Another one aside is that of a proxy that is gone: what it was
            // given comes back when the broker knows.
            State::Moving(Way::Back) => self.is_moved(messages == 0 && consumers == 1, fx),
            State::Moving(Way::Out) => self.is_moved(messages == 0 && consumers > 0, fx),
            State::Looking => self.enter(State::Moving(Way::Back), now, fx),
            State::Draining if messages == 0 && self.order().quorum => {
                self.enter(State::Proving { last: false }, now, fx);
            }
            State::Draining | State::Recounting { last: false } if messages == 0 => {
                self.enter(State::Settling, now, fx);
            }
            State::Draining | State::Recounting { last: false } => {
                self.state = State::Draining;
                self.busy = format!("{messages} messages were ready");
                self.ask_at = Some(now.mono.after(QUICK));
            }
            State::Counting | State::Recounting { .. } if messages > 0 && !self.moves => {
                self.undo(CAME_BACK.to_owned(), now, fx);
            }
            State::Counting if consumers > 0 && !self.order().allow_direct => {
                let busy = format!("{consumers} consumers read from it past this proxy");
                self.undo(busy, now, fx);
            }
            State::Counting => self.enter(State::Keeping(0), now, fx),
            State::Recounting { .. } if messages > 0 => {
                self.enter(State::Moving(Way::Out), now, fx);
            }
            State::Recounting { .. } => self.enter(State::Deleting, now, fx),
            _ => {}
        }
    }

    /// For an empty queue, and for the other proxies.
    fn waits(&mut self, ok: QueueDeclareOk<'_>, now: Now, fx: &mut Effects) {
        let (missing, messages) = (self.missing(), ok.message_count);
        if missing == 0
            && let Some(wait) = self.begins_with_all.take()
        {
            self.ends = now.mono.after(wait);
            self.moves_from = now.mono.after(wait / 2);
        }
        if missing == 0 && messages == 0 {
            return self.enter(State::Holding, now, fx);
        }
        if missing == 0 && self.may_move(ok, now) {
            self.moves = true;
            return self.enter(State::Storing, now, fx);
        }
        if now.mono >= self.ends {
            let busy = match missing {
                0 if messages > self.most_moved() => format!(
                    "{messages} messages are ready, more than can be moved within `max-pause`"
                ),
                0 => format!("{messages} messages are ready"),
                _ => format!(
                    "{missing} other proxies did not answer, which need version 0.4, `management-url` and the same user"
                ),
            };
            return self.fail(Failure::Busy(busy), now, fx);
        }
        self.say(Word::Waits, fx);
        self.ask_at = Some(now.mono.after(SLOW));
    }

    /// The answer to a `basic.get`.
    pub(super) fn got(&mut self, is_empty: bool, now: Now, fx: &mut Effects) {
        match (self.state, is_empty) {
            (State::Getting, true) => self.enter(State::Deleting, now, fx),
            (State::Getting, false) => self.undo(CAME_BACK.to_owned(), now, fx),
            _ => {}
        }
    }

    /// Whether a `declare-ok` says that something is done.
    pub(super) fn is_declaring(&self) -> bool {
        matches!(
            self.state,
            State::Claiming
                | State::Finding
                | State::Recognizing
                | State::Recording
                | State::Comparing
                | State::Trying
                | State::Storing
                | State::Declaring { .. }
        )
    }

    /// The broker has done what was asked.
    pub(super) fn done(&mut self, now: Now, fx: &mut Effects) {
        let is_left_behind = self.settings.task == Task::Finish;
        if self.state == State::Listening {
            // The claim keeps its channel: what the broker refuses closes another one.
            self.open(fx);
        }
        match self.state {
            State::Storing => self.backlog = Aside::Empty,
            // Another proxy may have left some there.
            State::Recognizing => self.backlog = Aside::MayWait,
            _ => {}
        }
        let next = match self.state {
            State::Claiming => State::Listening,
            State::Listening if is_left_behind => State::Finding,
            State::Listening => State::Recording,
            State::Finding => State::Recognizing,
            State::Recognizing => State::Withdrawing,
            State::Recording => State::Announcing,
            State::Announcing => State::Comparing,
            State::Comparing => State::Trying,
            State::Trying => State::Withdrawing,
            State::Deleting if self.order().quorum => State::Vanishing,
            State::Withdrawing if is_left_behind && self.order().quorum => State::Vanishing,
            State::Withdrawing if is_left_behind => State::Declaring { old: false },
            State::Withdrawing => State::Testing(0),
            State::Testing(at) => State::Testing(at + 1),
            State::Storing => State::Holding,
            State::Keeping(at) => State::Keeping(at + 1),
            State::Unbinding(at) => State::Unbinding(at + 1),
            State::Proving { last } => State::Ending { last },
            State::Ending { last } => State::Recounting { last },
            State::Undoing(at) => State::Undoing(at + 1),
            State::Binding(at) => State::Binding(at + 1),
            State::Deleting => State::Declaring { old: false },
            State::Declaring { old } => {
                self.altered.made = if old { Made::Otherwise } else { Made::Ordered };
                State::Binding(0)
            }
            State::Clearing => State::Cleaning,
            State::Cleaning => State::Ended,
            _ => return,
        };
        self.enter(next, now, fx);
    }

    /// The broker has closed the channel.
    pub(super) fn refused(&mut self, code: u16, text: String, now: Now, fx: &mut Effects) {
        self.open(fx);
        let is_missing = is_of_a_missing_queue(code, text.as_bytes());
        match self.state {
            State::Claiming if code == RESOURCE_LOCKED => self.end(Failure::Claimed, now, fx),
            State::Finding if is_missing => self.end(Failure::Finished, now, fx),
            State::Recognizing if code == PRECONDITION_FAILED => {
                self.end(Failure::Finished, now, fx);
            }
            State::Recording if code == PRECONDITION_FAILED => {
                self.end(Failure::Claimed, now, fx);
            }
            State::Claiming
            | State::Listening
            | State::Finding
            | State::Recognizing
            | State::Recording => self.end(refusal(code, text), now, fx),
            State::Deleting => {
                self.undo("a message came in its last moment".to_owned(), now, fx);
            }
            State::Keeping(_) | State::Unbinding(_) => self.undo(text, now, fx),
            // A consumer of its clients is exclusive: it has got all there was.
            State::Proving { last: false } => self.enter(State::Settling, now, fx),
            State::Proving { last: true } => self.undo(text, now, fx),
            // It is there as it was.
            State::Declaring { .. }
                if self.settings.task == Task::Finish && code == PRECONDITION_FAILED =>
            {
                self.enter(State::Binding(0), now, fx);
            }
            State::Declaring { old } if old || self.settings.task == Task::Finish => {
                self.altered.made = Made::Otherwise; // what clients had is gone
                self.leave(refusal(code, text), now, fx);
            }
            State::Declaring { .. } => {
                self.failure = Some(Failure::Back(text));
                self.enter(State::Declaring { old: true }, now, fx);
            }
            State::Binding(at) => {
                self.altered.unbound.push(text);
                self.enter(State::Binding(at + 1), now, fx);
            }
            State::Undoing(at) => {
                self.altered.unbound.push(text);
                self.enter(State::Undoing(at + 1), now, fx);
            }
            State::Getting if code == RESOURCE_LOCKED => {
                self.enter(State::Proving { last: true }, now, fx);
            }
            State::Getting => self.undo(text, now, fx),
            State::Looking if is_missing => self.moved_back(Aside::Missing, now, fx),
            State::Moving(Way::Out) => self.undo(text, now, fx),
            State::Moving(Way::Back) | State::Looking => self.stays_aside(text, now, fx),
            State::Clearing => self.enter(State::Cleaning, now, fx),
            State::Cleaning | State::Ended => self.enter(State::Ended, now, fx),
            _ => self.fail(refusal(code, text), now, fx),
        }
    }

    /// Nothing was begun.
    fn end(&mut self, failure: Failure, now: Now, fx: &mut Effects) {
        self.failure.get_or_insert(failure);
        self.enter(State::Ended, now, fx);
    }

    pub(super) fn late(&mut self, now: Now, fx: &mut Effects) {
        let left = self.awaited.sessions();
        let wanted = self.awaited.wanted;
        let behind = wanted.map_or(0, |ready| self.others.behind(ready));
        let busy = match self.state {
            State::Holding if left > 0 => {
                format!("what {left} connections had published was not settled")
            }
            State::Settling if left > 0 => {
                format!("{left} connections had messages of it unsettled")
            }
            State::Cancelling if left > 0 => {
                format!("{left} connections could not end their consumers")
            }
            State::Holding | State::Settling | State::Cancelling if behind > 0 => {
                format!("clients of {behind} other proxies were not so far")
            }
            State::Cancelling => "what the proxy had published was not confirmed".to_owned(),
            State::Draining => std::mem::take(&mut self.busy),
            State::Moving(Way::Out) => SLOW_BROKER.to_owned(),
            State::Moving(Way::Back) => return self.stays_aside(SLOW_BROKER.to_owned(), now, fx),
            state if state.is_within_pause() => SLOW_BROKER.to_owned(),
            _ => {
                self.once.fails(LinkFailure::Silent);
                return self.enter(State::Ended, now, fx);
            }
        };
        self.undo(busy, now, fx);
    }

    /// Goes on when all that were told are so far.
    pub(super) fn go_on(&mut self, now: Now, fx: &mut Effects) {
        let done = self.awaited.done();
        let next = match (self.state, done) {
            // Consumers of a backlog would be given more of it again and again.
            (State::Holding, Some(Ready::Held)) if self.moves => State::Cancelling,
            (State::Holding, Some(Ready::Held)) => State::Draining,
            (State::Settling, Some(Ready::Settled)) => State::Cancelling,
            (State::Cancelling, Some(Ready::Cancelled)) => State::Counting,
            _ => return,
        };
        if done.is_some_and(|ready| self.others.behind(ready) == 0) {
            self.enter(next, now, fx);
        }
    }
}

fn refusal(code: u16, text: String) -> Failure {
    Failure::Link(LinkFailure::Refused { code, text })
}
