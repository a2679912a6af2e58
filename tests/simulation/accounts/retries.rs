//! Messages that clients return to queues with retries: they come back as often as they may, not before their time, and none is forgotten.

use super::super::client::Verb;
use super::super::codec::frame::Frame;
use super::super::model::Conn;
use super::super::net::Micros;
use super::super::retries::{Attempts, By, Known, Life, Retries, Verdict};
use super::super::world::WALL;
use super::deaths::When;
use super::duties::{Duty, Stay, Told};
use super::history::Counts;
use super::rules::Window;
use super::{Accounts, Bytes, Copy, Delivery, Tag, Value};

/// How often a message has come back, and how often after failures, as a client is told (RabbitMQ 4.3).
const COUNTS: [&str; 2] = ["x-acquired-count", "x-delivery-count"];

/// The same of a content.
pub(super) fn counts(content: &Frame) -> [Option<u64>; 2] {
    COUNTS.map(|name| match content.headers()?.get(name) {
        Some(Value::Integer(_, count)) => u64::try_from(*count).ok(),
        _ => None,
    })
}

pub(crate) fn millis(at: Micros) -> u64 {
    WALL + at / 1000
}

impl Delivery {
    /// How often its message has come back, as its session may count it: one that takes its queue for another does not see what that counts.
    fn attempts(&self) -> Vec<Attempts> {
        let retried = self.copy.attempts_in(&self.queue);
        let counted = [
            Some(retried.plus(self.copy.native(self.counts))),
            self.changed.then_some(retried),
            self.is_guessed.then(|| retried.plus(self.copy.claimed())),
        ];
        counted.into_iter().flatten().collect()
    }

    /// What its session may take for its deaths.
    fn deaths(&self) -> Vec<Counts> {
        match &self.seen {
            Some(seen) => vec![seen.clone()],
            None => self.copy.told(),
        }
    }

    /// What is to be done when it is returned, and when it comes back.
    fn returned(&self, retries: &Retries, by: By, now: u64, latest: u64) -> Vec<(Duty, When)> {
        let own = self.copy.expiration;
        let ttl = [own, self.ttl].into_iter().flatten().min();
        let fixed = self.copy.deadline.map(|deadline| (deadline, deadline));
        let first = || Some((millis(self.at) + ttl?, latest.saturating_add(ttl?)));
        let blind_deadline = own.map(|ttl| latest.saturating_add(ttl));
        let deadline = fixed.or_else(first);
        let duty = |(deaths, before): (Counts, Attempts)| match retries.verdict(before, by) {
            Verdict::Native => None,
            Verdict::Back(..) if retries.stays => None,
            Verdict::Dies => {
                let counts = deaths.and_died(&self.queue, b"delivery_limit");
                Some((Duty::Dies(counts), When::no_sooner(now, now)))
            }
            Verdict::Back(delay, attempts) => {
                let stay = Stay {
                    queue: self.queue.clone(),
                    attempts,
                    deaths,
                };
                let when = When {
                    deadline,
                    blind_deadline,
                    ..When::no_sooner(now, now + delay)
                };
                Some(match delay {
                    0 => (Duty::Returns(stay), when),
                    _ => (Duty::Leaves(stay), when),
                })
            }
        };
        let attempts = self.attempts();
        let each = |deaths: Counts| attempts.iter().map(move |before| (deaths.clone(), *before));
        let all = self.deaths().into_iter().flat_map(each);
        all.filter_map(duty).collect()
    }
}

impl Copy {
    /// What its publisher says of its counts.
    fn claimed(&self) -> Attempts {
        let [all, failed] = self.written.map(|count| count.unwrap_or(0));
        Attempts { all, failed }
    }

    /// As its queue counts it, which writes one number over what it finds, or both.
    fn native(&self, counts: [Option<u64>; 2]) -> Attempts {
        match counts {
            [None, None] => Attempts::default(),
            [all, failed] => {
                let [written, written_failed] = self.written;
                let all = all.or(written).unwrap_or(0);
                let failed = failed.or(written_failed).unwrap_or(0);
                Attempts { all, failed }
            }
        }
    }

    /// It leaves that queue and comes back, and what the queue has counted is not forgotten.
    pub(super) fn goes_aside(&mut self, queue: &Bytes, counts: [Option<u64>; 2]) {
        let attempts = self.attempts_in(queue).plus(self.native(counts));
        // What its publisher wrote is in the queue's words, and goes.
        self.written = [None, None];
        if attempts != Attempts::default() {
            self.stay = Some(Stay {
                queue: queue.clone(),
                attempts,
                deaths: self.given.and(&self.since),
            });
        }
    }

    fn has_come_back_to(&self, queue: &[u8]) -> bool {
        self.stay.as_ref().is_some_and(|stay| stay.queue == queue)
    }

    fn attempts_in(&self, queue: &[u8]) -> Attempts {
        let here = self.stay.as_ref().filter(|stay| stay.queue == queue);
        here.map(|stay| stay.attempts).unwrap_or_default()
    }

    /// What the intake may do with this copy, if it is or was away.
    pub(super) fn comes_out(&self, at: Micros) -> Vec<(Duty, When)> {
        let Some(stay) = &self.stay else {
            return Vec::new();
        };
        let now = millis(at);
        let when = When {
            deadline: self.deadline.map(|deadline| (deadline, deadline)),
            ..When::no_sooner(now, self.due)
        };
        let mut duties = vec![(Duty::Returns(stay.clone()), when)];
        if let Some(deadline) = self.deadline.filter(|_| self.away) {
            let counts = stay.deaths.and_died(&stay.queue, b"expired");
            let when = When {
                due: deadline,
                ..when
            };
            duties.push((Duty::Dies(counts), when));
        }
        // The delay queue was one for a shorter delay, or its own queue has no room. Last, as it left once before.
        if self.away {
            duties.push((Duty::Leaves(stay.clone()), when));
        }
        duties
    }
}

impl Accounts {
    /// What sessions may know of the retries of a queue. One that has read its declare's answer knows its arguments; true: it does not know what it
    /// should. With a queue that is deleted goes what is known of it.
    pub(super) fn retries_of(
        &self,
        conn: Conn,
        queue: &Bytes,
        window: &Window,
    ) -> Vec<(Retries, bool)> {
        let sees = self.sees(conn, queue);
        let known = self.known(conn, queue, window).into_iter();
        let known = known.flat_map(|known| {
            let seen = known.seen.map(|retries| (retries, false));
            let unseen = known.unseen.map(|retries| (retries, sees));
            seen.into_iter().chain(unseen)
        });
        known.collect()
    }

    /// The session of that connection knows the arguments of that queue.
    pub(super) fn sees(&self, conn: Conn, queue: &Bytes) -> bool {
        self.declared.contains(&(conn, queue.clone())) && !self.gone_once.contains(queue)
    }

    /// The same for each life of the queue and each change of its policy.
    pub(super) fn known(&self, conn: Conn, queue: &Bytes, window: &Window) -> Vec<Known> {
        let lives = self.retries.get(queue).map_or(&[][..], Vec::as_slice);
        let rulings = self.rules.in_force(conn, queue, window);
        let of_life = |life: &Life| rulings.iter().map(|ruling| life.known(ruling)).collect();
        lives.iter().flat_map::<Vec<Known>, _>(of_life).collect()
    }

    /// All that may follow when a delivery is returned, if that is decided within that window.
    pub(super) fn returns(
        &self,
        conn: Conn,
        delivery: &Delivery,
        by: By,
        (now, latest): (u64, u64),
        window: Window,
    ) -> Vec<(Duty, When)> {
        let retries = self.retries_of(conn, &delivery.queue, &window);
        let unknowing = !self.sees(conn, &delivery.queue);
        let stranger = self.may_not_know(conn, &delivery.queue);
        let mut duties: Vec<(Duty, When)> = Vec::new();
        for (retries, blind) in &retries {
            for (duty, when) in delivery.returned(retries, by, now, latest) {
                let when = When {
                    blind: *blind,
                    unknowing,
                    stranger,
                    ..when
                };
                match duties.iter_mut().find(|(of, _)| *of == duty) {
                    Some((_, before)) => *before = before.or(when),
                    None => duties.push((duty, when)),
                }
            }
        }
        duties
    }

    /// It is away, and comes back later than that, whoever decided about it.
    pub(crate) fn stays_away(&self, copy: u64, until: Micros) -> bool {
        let copy = self.copies.get(&copy);
        copy.is_some_and(|copy| copy.away && copy.due > millis(until))
    }

    pub(super) fn hear_of(
        &mut self,
        body: &Bytes,
        of: (usize, u64),
        duties: Vec<(Duty, When)>,
        since: Option<Micros>,
    ) {
        for (duty, when) in duties {
            let deaths = &mut self.deaths;
            deaths.heard_of_return(body.clone(), duty, of, when, since);
        }
    }

    /// What may follow of a delivery that its client has returned or left behind, as far as that was heard.
    pub(super) fn open_returns(&self, tag: Tag, at: Micros) -> Vec<(Duty, When)> {
        let Some(delivery) = self.delivered.get(&tag) else {
            return Vec::new();
        };
        let returned = match self.verbs.get(&tag) {
            Some((Verb::Returned(by), then)) => {
                let window = *then..=at;
                self.returns(tag.0, delivery, *by, (millis(*then), millis(*then)), window)
            }
            _ => Vec::new(),
        };
        let left = match self.crashed.get(&tag.0) {
            Some(then) => self.left(tag, *then..=at, millis(*then)),
            None => Vec::new(),
        };
        [returned, left].concat()
    }

    /// The same again, when something has changed by which sessions decide; `before`: what was heard of already.
    pub(super) fn hear_of_new(&mut self, tag: Tag, before: &[(Duty, When)], at: Micros) {
        let is_new = |(duty, _): &(Duty, When)| before.iter().all(|(known, _)| known != duty);
        let (new, known) = self.open_returns(tag, at).into_iter().partition(is_new);
        let known: Vec<(Duty, When)> = known;
        let Some(delivery) = self.delivered.get(&tag) else {
            return;
        };
        let copy = &delivery.copy;
        let (body, mark) = (copy.body.clone(), copy.mark);
        let lap = (copy.by_itself + 1, mark);
        self.hear_of(&body, lap, new, Some(at));
        for (duty, when) in known {
            self.deaths
                .comes_otherwise(&(body.clone(), duty), mark, when, None);
        }
    }

    /// The queue that a delivery came from is deleted, and made anew as another one. Its session may take what it holds for a message of that one,
    /// where it may count otherwise.
    pub(super) fn queue_changed(&mut self, tag: Tag, before: &[(Duty, When)], at: Micros) {
        if let Some(delivery) = self.delivered.get_mut(&tag) {
            delivery.changed = true;
            self.hear_of_new(tag, before, at);
        }
    }

    /// The broker returns what a client returned.
    ///
    /// # Errors
    /// The proxy should have kept it, or has already sent it away.
    pub(super) fn returned_natively(
        &mut self,
        tag: Tag,
        delivery: &Delivery,
        by: By,
        window: Window,
    ) -> Result<(), String> {
        let body = &delivery.copy.body;
        let duties = self.returns(tag.0, delivery, by, (0, 0), window.clone());
        let now = window.end().saturating_sub(super::FAULT_SHOWS);
        let fault = self.faults.iter().any(|fault| *fault >= now);
        for (duty, _) in &duties {
            let death = self.deaths.find(&(body.clone(), duty.clone()));
            if !fault && death.is_some_and(|death| death.confirmed > death.settled) {
                let body = String::from_utf8_lossy(body);
                return Err(format!("{body} went back, after {duty} was confirmed"));
            }
        }
        let seen = self.must_go_away(tag.0, delivery, by, window);
        let knows = delivery.declared || self.is_stranger(tag.0);
        let forwarded = self.forwarded.entry(delivery.queue.clone()).or_default();
        let recovers = self.recovers.contains(&(tag.0, tag.1));
        if !seen || !knows || recovers || self.declares_left || self.impatient {
            return Ok(());
        }
        match forwarded.checked_sub(1) {
            Some(rest) => *forwarded = rest,
            None => {
                let (body, queue) = (
                    String::from_utf8_lossy(body),
                    String::from_utf8_lossy(&delivery.queue),
                );
                return Err(format!(
                    "{body} went back to {queue} at once, and nobody said why; it has retries"
                ));
            }
        }
        Ok(())
    }

    /// Whatever its session knows of the queue, that is not the broker's; with a queue that is deleted goes what is known of it.
    fn must_go_away(&self, conn: Conn, delivery: &Delivery, by: By, window: Window) -> bool {
        // Where neither arguments nor a policy ask for anything at the declare, the session keeps no copies.
        let queue = &delivery.queue;
        let unknown = self.rules.is_targetless(queue) || self.declares.are_lenient(queue);
        let since = match unknown || self.is_stranger(conn) {
            true => self.rules.began(conn),
            false => *window.start(),
        };
        let forgets = self.gone_once.contains(&delivery.queue) || self.is_stranger(conn);
        let known = |of: &Known| [Some(of.seen), forgets.then_some(of.unseen)];
        let lives = self.known(conn, &delivery.queue, &(since..=*window.end()));
        let mut all = lives.iter().flat_map(known).flatten().peekable();
        let attempts = delivery.attempts();
        let goes = |of: Retries| {
            let mut verdicts = attempts.iter().map(|before| of.verdict(*before, by));
            verdicts.all(|verdict| verdict != Verdict::Native)
        };
        all.peek().is_some() && all.all(|of| of.is_some_and(goes))
    }

    /// Of a proxy's publication.
    ///
    /// # Errors
    /// A message comes back too early or too often, or its TTL begins anew.
    pub(super) fn check_return(
        &mut self,
        of: &(Bytes, Duty),
        content: &Frame,
        parked: bool,
        at: Micros,
    ) -> Result<(), String> {
        let now = millis(at);
        let (stay, leaves) = match &of.1 {
            Duty::Dies(_) => return self.check_death(of, now),
            Duty::Leaves(stay) => (stay, true),
            Duty::Returns(stay) => (stay, false),
            Duty::Redriven(_) => return Ok(()),
        };
        let body = String::from_utf8_lossy(&of.0).into_owned();
        let wrong = |what: String| Err(format!("{body}, {}: {what}", of.1));
        let lives = self.retries.get(&stay.queue).into_iter().flatten();
        let rulings = self.rules.ever(&stay.queue);
        let known = lives.flat_map(|life| rulings.iter().map(|ruling| life.known(ruling)));
        let mut known = known.flat_map(|of| [of.seen, of.unseen]).flatten();
        if known.all(|of| of.forbids(stay.attempts)) {
            return wrong("it comes back more often than it may".into());
        }
        let (Some(told), Some(when)) = (Told::of(content), self.deaths.get(of)?.when) else {
            return wrong("nobody knows when it comes back".into());
        };
        let forgets = self.declares_left || self.gone_once.contains(&stay.queue);
        if when.blind && !forgets {
            return wrong("its arguments do not count".into());
        }
        let due = told.away.as_ref().map_or(now, |(due, _)| *due);
        let least = when.due_if(forgets);
        if due < least && (leaves || !parked) {
            return wrong(format!("it comes back {} ms too early", least - due));
        }
        let blind = when.blind_deadline.filter(|_| forgets || when.stranger);
        let bounds = when.deadline;
        let bounds = bounds.map(|(first, last)| (first, last.max(blind.unwrap_or(0))));
        match (told.deadline, bounds) {
            (Some(deadline), Some((first, last))) if deadline < first || deadline > last => {
                return wrong(format!(
                    "its TTL is over at {deadline}, and not from {first} to {last}"
                ));
            }
            (Some(_), None) => return wrong("it has no TTL".into()),
            (None, Some(_)) => self.count.without_ttl += 1,
            _ => {}
        }
        let rest = super::expiration(content);
        match (leaves || parked, told.deadline, rest) {
            (true, ..) | (_, None, None) => Ok(()),
            (_, Some(deadline), Some(rest))
                if now + rest >= deadline && rest <= deadline.saturating_sub(when.heard) =>
            {
                Ok(())
            }
            (_, deadline, rest) => wrong(format!(
                "its TTL is over at {deadline:?}, and it has {rest:?} ms at {now}"
            )),
        }
    }

    fn check_death(&mut self, of: &(Bytes, Duty), now: u64) -> Result<(), String> {
        let death = self.deaths.get(of)?;
        match death.when.filter(|_| !death.at_once) {
            Some(when) if when.blind && !self.declares_left && self.gone_once.is_empty() => {
                Err(format!("{}: its arguments do not count", of.1))
            }
            Some(when) if now < when.due => {
                let body = String::from_utf8_lossy(&of.0);
                Err(format!("{body}: {} comes before its TTL is over", of.1))
            }
            _ => Ok(()),
        }
    }

    /// # Errors
    /// A client is told of another number of attempts than there were.
    pub(super) fn check_told(delivery: &Delivery, frame: &Frame) -> Result<(), String> {
        let attempts = delivery.attempts();
        let should: Vec<[u64; 2]> = match delivery.copy.has_come_back_to(&delivery.queue) {
            true => attempts.iter().map(|of| [of.all, of.failed]).collect(),
            // What nobody has counted is as it was published.
            false => {
                let count = |at: usize| delivery.counts[at].or(delivery.copy.written[at]);
                vec![[0, 1].map(|at| count(at).unwrap_or(0))]
            }
        };
        let told = counts(frame).map(|count| count.unwrap_or(0));
        if !should.contains(&told) {
            let body = String::from_utf8_lossy(&delivery.copy.body);
            let queue = String::from_utf8_lossy(&delivery.queue);
            let attempts = attempts[0];
            return Err(format!(
                "{body} came back to {queue} {attempts}; a client reads {told:?}, and not {should:?}"
            ));
        }
        Ok(())
    }

    /// A proxy says that it leaves a return to the broker.
    pub(crate) fn forwarded(&mut self, queue: &[u8]) {
        *self.forwarded.entry(queue.to_vec()).or_default() += 1;
    }
}
