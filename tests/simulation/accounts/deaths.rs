//! What proxies have to publish, and what they did about each. Copies of one message for which the same is to be done are alike: they are
//! counted together.

use std::collections::{BTreeMap, BTreeSet};

use super::super::codec::frame::Frame;
use super::super::codec::value::Bytes;
use super::super::net::Micros;
use super::super::rulings::Target;
use super::duties::Duty;
use super::history::History;

/// By message, and by what is to be done.
#[derive(Default)]
pub(super) struct Deaths {
    all: BTreeMap<(Bytes, Duty), Death>,
    /// By message: originals that were settled for one of several.
    guesses: BTreeMap<Bytes, Vec<Guess>>,
}

/// An original was settled, and several of its dead letters were confirmed.
struct Guess {
    /// The one for which it counts.
    of: Duty,
    /// It may have been for one of these.
    others: Vec<Duty>,
}

/// One death, or return, or several that look the same.
#[derive(Debug, Default)]
pub(super) struct Death {
    /// How often a proxy heard of it: what returns to its queue is heard of again.
    pub heard: usize,
    /// Its dead letters, but for those that were parked: an attempt that fails comes before.
    pub published: Vec<Micros>,
    pub parked: usize,
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
    /// A proxy could decide about it since then. Nothing: it was decided before, and so where it goes.
    pub since: Option<Micros>,
    pub decided: BTreeSet<Target>,
    /// The broker has it in the intake, with the key of its policy.
    pub signalled: bool,
    /// A session may have decided that does not know the arguments of its queue.
    pub unknowing: bool,
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
    /// Its own TTL is over no later: that counts alone for sessions that do not know the queue's.
    pub blind_deadline: Option<u64>,
    /// Only a session would do that which does not know what its client has declared.
    pub blind: bool,
    /// Its session may not have seen the declare of its client.
    pub unknowing: bool,
    /// Its session may know nothing of the queue.
    pub stranger: bool,
}

impl Deaths {
    /// A client has rejected it, or the intake has it.
    pub(super) fn heard(
        &mut self,
        body: Bytes,
        duty: Duty,
        (by_itself, mark): (usize, u64),
        since: Option<Micros>,
    ) {
        let death = self.all.entry((body, duty)).or_default();
        death.since = death.since.or(since);
        death.heard += 1;
        death.by_itself = death.by_itself.max(by_itself);
        death.marks.insert(mark);
        death.at_once = true;
    }

    /// Who decides goes by that.
    pub(super) fn is_decided_by(&mut self, of: (Bytes, Duty), signalled: bool, unknowing: bool) {
        if let Some(death) = self.all.get_mut(&of) {
            death.signalled |= signalled;
            death.unknowing |= unknowing;
        }
    }

    /// A client has returned it, or it comes out of a delay queue.
    pub(super) fn heard_of_return(
        &mut self,
        body: Bytes,
        duty: Duty,
        (by_itself, mark): (usize, u64),
        when: When,
        since: Option<Micros>,
    ) {
        let death = self.all.entry((body, duty)).or_default();
        death.since = death.since.or(since);
        death.heard += 1;
        death.by_itself = death.by_itself.max(by_itself);
        death.marks.insert(mark);
        death.when = Some(match death.when {
            Some(before) => before.or(when),
            None => when,
        });
    }

    /// What was heard of may be another delivery of that message, and come back at another moment. `since`: it may have been decided about earlier.
    pub(super) fn comes_otherwise(
        &mut self,
        of: &(Bytes, Duty),
        mark: u64,
        when: When,
        since: Option<Micros>,
    ) {
        if let Some(death) = self.all.get_mut(of) {
            death.marks.insert(mark);
            death.when = death.when.map(|before| before.or(when));
            death.since = [death.since, since].into_iter().flatten().min();
        }
    }

    /// Where its dead letter goes was decided before the intake had it again.
    pub(super) fn was_decided(&mut self, body: &Bytes, duty: &Duty, targets: &BTreeSet<Target>) {
        if let Some(death) = self.all.get_mut(&(body.clone(), duty.clone())) {
            death.decided.extend(targets.iter().cloned());
        }
    }

    /// What is published so. What is parked may have come back once, and have died since.
    pub(super) fn named(
        &self,
        body: Bytes,
        content: &Frame,
        (exchange, key): (&Bytes, &Bytes),
        parked: bool,
    ) -> (Bytes, Duty) {
        let of = (body, Duty::of(content, exchange, key, parked));
        let died = (of.0.clone(), Duty::Dies(History::of(content).counts()));
        let is_death = parked && self.find(&of).is_none() && self.find(&died).is_some();
        if is_death { died } else { of }
    }

    pub(super) fn find(&self, of: &(Bytes, Duty)) -> Option<&Death> {
        self.all.get(of)
    }

    /// An original is settled: for which of these? One that is confirmed, and for no other original.
    pub(super) fn settle(&mut self, body: &Bytes, duties: &[Duty]) -> Option<Duty> {
        let Deaths { all, guesses } = self;
        let guesses = guesses.entry(body.clone()).or_default();
        let of = |duty: &Duty| (body.clone(), duty.clone());
        let is_open = |duty: &&Duty| {
            let death = all.get(&of(duty));
            death.is_some_and(|death| death.confirmed > death.settled)
        };
        let open: Vec<Duty> = duties.iter().filter(is_open).cloned().collect();
        let (takes, settled) = match open.split_first() {
            Some((first, others)) => {
                guesses.push(Guess {
                    of: first.clone(),
                    others: others.to_vec(),
                });
                (first.clone(), first.clone())
            }
            // One that was settled for one of these was settled for another, then.
            None => {
                let wrong = guesses.iter_mut().filter(|it| duties.contains(&it.of));
                let mut right = wrong.filter_map(|guess| {
                    let at = guess.others.iter().position(|other| is_open(&other))?;
                    Some((guess, at))
                });
                let (guess, at) = right.next()?;
                let free = std::mem::replace(&mut guess.of, guess.others[at].clone());
                let takes = std::mem::replace(&mut guess.others[at], free.clone());
                (takes, free)
            }
        };
        all.get_mut(&of(&takes))?.settled += 1;
        Some(settled)
    }

    /// # Errors
    /// It never happened.
    pub(super) fn get(&mut self, of: &(Bytes, Duty)) -> Result<&mut Death, String> {
        if !self.all.contains_key(of) {
            let body = String::from_utf8_lossy(&of.0);
            let same = self.all.keys().filter(|(body, _)| *body == of.0);
            let known: Vec<String> = same.map(|(_, duty)| duty.to_string()).collect();
            return Err(format!(
                "{body}: a proxy publishes {}; known is {}",
                of.1,
                known.join(" or ")
            ));
        }
        Ok(self.all.get_mut(of).expect("it is there"))
    }
}

impl When {
    /// Of what nobody knows more.
    pub(super) fn no_sooner(heard: u64, due: u64) -> When {
        When {
            heard,
            due,
            blind_due: due,
            deadline: None,
            blind_deadline: None,
            blind: false,
            unknowing: false,
            stranger: false,
        }
    }

    /// It comes back no sooner. `forgets`: its session may not know any more what its client has declared.
    pub(super) fn due_if(&self, forgets: bool) -> u64 {
        match forgets {
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
            blind_deadline: self.blind_deadline.max(other.blind_deadline),
            blind: self.blind && other.blind,
            unknowing: self.unknowing || other.unknowing,
            stranger: self.stranger || other.stranger,
        }
    }
}
