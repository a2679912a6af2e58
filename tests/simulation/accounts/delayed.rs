//! Publishes that a proxy delays: each leaves for the delay queues, and returns to no queue in particular. What its client reads of it is true.

use super::deaths::When;
use super::duties::{Duty, Stay, Told};
use super::retries::millis;
use super::{Accounts, Bytes, Conn, Frame, Micros, WALL, may_show};

/// A publish is late by so many milliseconds, or by such a part of its delay (docs/how-to/delayed-publish.md).
const LATE: u64 = 100;
const LATE_PART: u64 = 200;

/// What a proxy has to do first with each of them.
fn leaves() -> Duty {
    Duty::Leaves(Stay::default())
}

/// The moment of such milliseconds.
fn micros(millis: u64) -> Micros {
    millis.saturating_sub(WALL) * 1000
}

impl Stay {
    /// Of a publish.
    pub(super) fn is_nowhere(&self) -> bool {
        self.queue.is_empty()
    }
}

impl Accounts {
    /// A client publishes what is to arrive no sooner than that.
    pub(super) fn is_delayed(&mut self, body: &Bytes, due: u64, at: Micros) {
        let when = When::no_sooner(millis(at), due);
        self.hear_of(body, (0, 0), vec![(leaves(), when)], Some(at));
    }

    /// Its time has come: a proxy that reads it then lets it pass.
    pub(super) fn was_delayed(&self, body: &Bytes, at: Micros) -> bool {
        let death = self.deaths.find(&(body.clone(), leaves()));
        let when = death.and_then(|death| death.when);
        when.is_some_and(|when| when.due <= millis(at))
    }

    /// Of a proxy's publication, with that key.
    ///
    /// # Errors
    /// It is early, or will be late: its delay queue is one for more than what was left of its delay.
    pub(super) fn check_delayed(
        &mut self,
        of: &(Bytes, Duty),
        key: &Bytes,
        (content, parked): (&Frame, bool),
        at: Micros,
    ) -> Result<(), String> {
        let arrives = Duty::Returns(Stay::default());
        let came_out = self.deaths.find(&(of.0.clone(), arrives));
        let came_out = came_out.and_then(|death| death.when);
        // What is published twice may be the first of them again.
        let twice = came_out.is_some_and(|of| may_show(&self.faults, micros(of.heard), at));
        let came_out = came_out.filter(|_| !twice);
        let Some(when) = self.deaths.get(of)?.when.filter(|_| !parked) else {
            return Ok(());
        };
        let body = String::from_utf8_lossy(&of.0);
        let told = Told::of(content).and_then(|told| told.away);
        let due = told.as_ref().map_or(millis(at), |(due, _)| *due);
        if due < when.due {
            let early = when.due - due;
            return Err(format!("{body}, {}: it is {early} ms too early", of.1));
        }
        let Some((due, _)) = told else {
            return Ok(());
        };
        // It was decided no sooner than somebody heard of it.
        let left = due.saturating_sub(came_out.unwrap_or(when).heard);
        let late = LATE.max(due.saturating_sub(when.heard) / LATE_PART);
        let hop = std::str::from_utf8(key)
            .ok()
            .and_then(|key| key.parse().ok());
        match hop.is_none_or(|hop: u64| hop > left + late) {
            true => Err(format!("{body} waits for {hop:?} of {left} ms")),
            false => Ok(()),
        }
    }

    /// The broker confirms a client's publish.
    pub(super) fn answers(&mut self, conn: Conn, body: Bytes, good: bool) {
        *self.answers.entry((conn, body, good)).or_default() += 1;
    }

    /// A client reads what became of its publish.
    ///
    /// # Errors
    /// It is not so.
    pub(super) fn is_answered(
        &mut self,
        conn: Conn,
        body: Bytes,
        good: bool,
    ) -> Result<(), String> {
        let answer = (conn, body, good);
        if let Some(open) = self.answers.get_mut(&answer).filter(|open| **open > 0) {
            *open -= 1;
            return Ok(());
        }
        let (_, body, _) = answer;
        let is_true = match good {
            true => self.deaths.settle(&body, &[leaves()]).is_some(),
            false => self.deaths.find(&(body.clone(), leaves())).is_some(),
        };
        let word = if good { "confirmed" } else { "refused" };
        match is_true {
            true => Ok(()),
            false => Err(format!(
                "{} was {word} to its client alone",
                String::from_utf8_lossy(&body)
            )),
        }
    }
}
