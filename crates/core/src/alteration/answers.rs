//! What the answers of the broker and of the sessions lead to.

use std::collections::BTreeSet;

use crate::amqp::method::QueueDeclareOk;
use crate::machine::{Now, Owner};
use crate::walk::Failure as LinkFailure;

use super::{Alteration, Effects, Failure, QUICK, SLOW, State, Task};

impl Alteration {
    /// The broker's count of the queue.
    pub(super) fn counted(&mut self, ok: QueueDeclareOk<'_>, now: Now, fx: &mut Effects) {
        let (messages, consumers) = (ok.message_count, ok.consumer_count);
        match self.state {
            State::Waiting if messages == 0 => self.enter(State::Holding, now, fx),
            State::Waiting if now.mono >= self.ends => {
                let busy = format!("{messages} messages are ready");
                self.fail(Failure::Busy(busy), now, fx);
            }
            State::Waiting => self.ask_at = Some(now.mono.after(SLOW)),
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
            State::Counting | State::Recounting { .. } if messages > 0 => {
                self.undo(format!("{messages} messages came back to it"), now, fx);
            }
            State::Counting if consumers > 0 => {
                let busy = format!("{consumers} consumers read from it past this proxy");
                self.undo(busy, now, fx);
            }
            State::Counting if self.order().quorum => self.enter(State::Unbinding(0), now, fx),
            State::Counting | State::Recounting { .. } => self.enter(State::Deleting, now, fx),
            _ => {}
        }
    }

    /// Whether a `declare-ok` says that something is done.
    pub(super) fn is_declaring(&self) -> bool {
        matches!(
            self.state,
            State::Recording | State::Comparing | State::Trying | State::Declaring { .. }
        )
    }

    /// The broker has done what was asked.
    pub(super) fn done(&mut self, now: Now, fx: &mut Effects) {
        let is_left_behind = self.settings.task == Task::Finish;
        if self.state == State::Claiming {
            // The claim keeps its channel: what the broker refuses closes another one.
            self.open(fx);
        }
        let next = match self.state {
            State::Recording => State::Claiming,
            State::Claiming if is_left_behind => State::Withdrawing,
            State::Claiming => State::Comparing,
            State::Comparing => State::Trying,
            State::Trying => State::Withdrawing,
            State::Withdrawing if is_left_behind => State::Declaring { old: false },
            State::Withdrawing => State::Testing(0),
            State::Testing(at) => State::Testing(at + 1),
            State::Unbinding(at) => State::Unbinding(at + 1),
            State::Proving { last } => State::Ending { last },
            State::Ending { last } => State::Recounting { last },
            State::Undoing(at) => State::Undoing(at + 1),
            State::Binding(at) => State::Binding(at + 1),
            State::Deleting => State::Declaring { old: false },
            State::Declaring { .. } => {
                self.anew = true;
                State::Binding(0)
            }
            State::Cleaning => State::Ended,
            _ => return,
        };
        self.enter(next, now, fx);
    }

    /// The broker has closed the channel.
    pub(super) fn refused(&mut self, code: u16, text: String, now: Now, fx: &mut Effects) {
        self.open(fx);
        match self.state {
            State::Claiming => self.end(Failure::Claimed, now, fx),
            State::Recording => self.end(refusal(code, text), now, fx),
            State::Deleting => {
                self.undo("a message came in its last moment".to_owned(), now, fx);
            }
            State::Unbinding(_) => self.undo(text, now, fx),
            // A consumer of its clients is exclusive: it has got all there was.
            State::Proving { last: false } => self.enter(State::Settling, now, fx),
            State::Proving { last: true } => self.undo(text, now, fx),
            // It is there as it was.
            State::Declaring { old: false } if self.settings.task == Task::Finish => {
                self.enter(State::Binding(0), now, fx);
            }
            State::Declaring { old: false } => {
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
        let left = self.awaited.as_ref().map_or(0, BTreeSet::len);
        let busy = match self.state {
            State::Holding => format!("what {left} connections had published was not settled"),
            State::Cancelling if left == 0 => {
                "what the proxy had published was not confirmed".to_owned()
            }
            State::Settling => format!("{left} connections had messages of it unsettled"),
            State::Cancelling => format!("{left} connections could not end their consumers"),
            State::Draining => std::mem::take(&mut self.busy),
            state if state.is_within_pause() => "the broker was slow".to_owned(),
            _ => {
                self.once.fails(LinkFailure::Silent);
                return self.enter(State::Ended, now, fx);
            }
        };
        self.undo(busy, now, fx);
    }

    pub(super) fn heard_of(&mut self, owner: Owner, now: Now, fx: &mut Effects) {
        if let Some(awaited) = &mut self.awaited {
            awaited.remove(&owner);
        }
        self.go_on(now, fx);
    }

    /// Goes on when all that were told are as far.
    pub(super) fn go_on(&mut self, now: Now, fx: &mut Effects) {
        let are_ready = self.awaited.as_ref().is_some_and(BTreeSet::is_empty);
        match self.state {
            State::Holding if are_ready => self.enter(State::Draining, now, fx),
            State::Settling if are_ready => self.enter(State::Cancelling, now, fx),
            State::Cancelling if are_ready && self.publisher_pauses => {
                self.enter(State::Counting, now, fx);
            }
            _ => {}
        }
    }
}

fn refusal(code: u16, text: String) -> Failure {
    Failure::Link(LinkFailure::Refused { code, text })
}
