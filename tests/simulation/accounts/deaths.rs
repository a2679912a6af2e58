//! What proxies have to publish, and what they did about each. Copies of one message for which the same is to be done are alike: they are
//! counted together.

use std::collections::{BTreeMap, BTreeSet};

use super::super::codec::value::Bytes;
use super::super::net::Micros;
use super::duties::Duty;

/// By message, and by what is to be done.
#[derive(Default)]
pub(super) struct Deaths(BTreeMap<(Bytes, Duty), Death>);

/// One death, or return, or several that look the same.
#[derive(Debug, Default)]
pub(super) struct Death {
    /// How often a proxy heard of it: what returns to its queue is heard of again.
    pub heard: usize,
    /// Its dead letters, but for those that were parked: an attempt that fails comes before.
    pub published: Vec<Micros>,
    /// Those that reached a queue, as the proxy knows.
    pub confirmed: usize,
    /// Originals that were settled for them.
    pub settled: usize,
    /// At most so many deaths of it by itself, this one among them, lie behind it since somebody published or rejected it.
    pub by_itself: usize,
    /// How often an operator had sent it back then: one of these.
    pub marks: BTreeSet<u64>,
    /// It is dead already.
    pub at_once: bool,
    /// Of what was returned.
    pub when: Option<When>,
}

/// When a message comes back, or dies while it is away, in milliseconds of the wall clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct When {
    /// Somebody heard of it no sooner.
    pub heard: u64,
    /// It comes back no sooner.
    pub due: u64,
    /// The same, if sessions do not know what their clients have declared.
    pub blind_due: u64,
    /// Its TTL is over no sooner, and no later; nothing: it has none.
    pub deadline: Option<(u64, u64)>,
    /// Only a session would do that which does not know what its client has declared.
    pub blind: bool,
}

impl Deaths {
    /// A client has rejected it, or the intake has it.
    pub(super) fn heard(&mut self, body: Bytes, duty: Duty, (by_itself, mark): (usize, u64)) {
        let death = self.0.entry((body, duty)).or_default();
        death.heard += 1;
        death.by_itself = death.by_itself.max(by_itself);
        death.marks.insert(mark);
        death.at_once = true;
    }

    /// A client has returned it, or it comes out of a delay queue.
    pub(super) fn heard_of_return(
        &mut self,
        body: Bytes,
        duty: Duty,
        (by_itself, mark): (usize, u64),
        when: When,
    ) {
        let death = self.0.entry((body, duty)).or_default();
        death.heard += 1;
        death.by_itself = death.by_itself.max(by_itself);
        death.marks.insert(mark);
        death.when = Some(match death.when {
            Some(before) => before.or(when),
            None => when,
        });
    }

    pub(super) fn find(&self, of: &(Bytes, Duty)) -> Option<&Death> {
        self.0.get(of)
    }

    /// # Errors
    /// It never happened.
    pub(super) fn get(&mut self, of: &(Bytes, Duty)) -> Result<&mut Death, String> {
        if !self.0.contains_key(of) {
            let body = String::from_utf8_lossy(&of.0);
            let same = self.0.keys().filter(|(body, _)| *body == of.0);
            let known: Vec<String> = same.map(|(_, duty)| duty.to_string()).collect();
            return Err(format!(
                "{body}: a proxy publishes {}; known is {}",
                of.1,
                known.join(" or ")
            ));
        }
        Ok(self.0.get_mut(of).expect("it is there"))
    }
}

impl When {
    pub(super) fn due_if(&self, declares_left: bool) -> u64 {
        match declares_left {
            true => self.blind_due,
            false => self.due,
        }
    }

    /// Of one or the other.
    pub(super) fn or(self, other: When) -> When {
        let deadline = match (self.deadline, other.deadline) {
            (Some(one), Some(two)) => Some((one.0.min(two.0), one.1.max(two.1))),
            (one, two) => one.or(two),
        };
        When {
            heard: self.heard.min(other.heard),
            due: match (self.blind, other.blind) {
                (true, false) => other.due,
                (false, true) => self.due,
                _ => self.due.min(other.due),
            },
            blind_due: self.blind_due.min(other.blind_due),
            deadline,
            blind: self.blind && other.blind,
        }
    }
}
