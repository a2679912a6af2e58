//! What must hold after each step, whatever went wrong: nothing is lost, nothing is settled too early, twice or against the client's word,
//! deaths are counted once, over all lives of a copy, and there are two of something only if a fault explains it.
//!
//! Kept from the broker's facts and the clients' words alone; the proxy is asked only for what it says it dropped by a rule. The broker
//! numbers the copies of a message, and each has a history of its own.

pub(crate) mod alterations;
mod copies;
mod count;
mod crashes;
mod deaths;
mod declares;
mod delayed;
mod deliveries;
mod duties;
mod entries;
mod going_on;
pub(crate) mod history;
mod ids;
mod lives;
mod overdue;
mod redrives;
mod retries;
mod rules;
mod targets;
mod unknown;
mod walks;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::client::Verb;
use super::codec::frame::Frame;
use super::codec::methods::Arg;
use super::codec::value::{Bytes, Value};
use super::faults::DELAY_QUEUES;
use super::model::{Conn, Fact, How, Reason, Why};
use super::net::Micros;
use super::plan::Plan;
use super::proxy::names;
use super::retries::Life;
use super::world::WALL;
use copies::{Copy, Delivery, expiration, is_parking, told_in};
pub(crate) use count::Count;
use deaths::Deaths;
use declares::Declares;
use duties::Duty;
use history::History;
use ids::Ids;
use redrives::{died_in, mark};
use retries::counts;
pub(crate) use retries::millis;
use rules::Rules;
use unknown::Unknown;
use walks::Walks;

/// Whose connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Client(usize),
    Publisher,
    Intake,
    Recorder,
    /// A redrive or a purge, by the operator's number.
    Walk(u64),
    Alteration,
}

/// Connection, channel, number.
type Tag = (Conn, u16, u64);
/// A delivery, the milliseconds, and when.
type MoreTime = (u64, u64, Micros);

/// All that is known of all messages.
#[derive(Default)]
pub(crate) struct Accounts {
    whose: BTreeMap<Conn, Whose>,
    /// With the moment in which it was said.
    verbs: BTreeMap<Tag, (Verb, Micros)>,
    /// When the broker heard such a word of that connection last.
    heard: BTreeMap<Conn, Micros>,
    /// Channels (0: connections) that the broker may close, as their client asked for it.
    wrong: BTreeSet<(Conn, u16)>,
    /// Channels on which somebody wanted all back: what is kept of them goes back, too.
    recovers: BTreeSet<(Conn, u16)>,
    /// Those in queues, or on the way from a queue to its exchange.
    copies: BTreeMap<u64, Copy>,
    /// What enters queues: of the last publish or dead letter.
    entering: Copy,
    delivered: BTreeMap<Tag, Delivery>,
    /// Messages whose TTL has ended while they were away.
    over_away: BTreeSet<Bytes>,
    /// What clients have published, and the broker has not read yet.
    on_the_way: BTreeMap<Conn, VecDeque<(Bytes, History)>>,
    /// What the broker said of their publishes, and they have not read; those without a word.
    answers: BTreeMap<(Conn, Bytes, bool), usize>,
    unanswered: BTreeMap<Tag, Bytes>,
    /// Deliveries for which clients asked for more time.
    asked: BTreeMap<(Conn, u16), VecDeque<MoreTime>>,
    deaths: Deaths,
    ids: Ids,
    /// Publications of the proxies that have no confirm.
    flying: BTreeMap<Tag, (Bytes, Duty)>,
    /// Proxies said that they dropped so many by a rule: cycles, and what the operator wants dropped.
    pub cycles: usize,
    pub unroutable: usize,
    /// Signals that the intake rejects, and so the broker parks; and how many there may be: somebody said why.
    rejected: usize,
    pub given_up: usize,
    /// Originals that were settled without a confirmed dead letter: at most as many. Of these, those that went no lap.
    unexplained: usize,
    without_lap: usize,
    /// When something happened that can make two of one.
    faults: Vec<Micros>,
    rules: Rules,
    declares: Declares,
    /// Who published what enters queues.
    publishing: Option<Conn>,
    /// Queues, and the connections on which their declares were answered.
    declared: BTreeSet<(Conn, Bytes)>,
    /// What is returned to a queue comes back so; a queue that was made anew as another one had others before, which sessions may still go by.
    retries: BTreeMap<Bytes, Vec<Life>>,
    /// Clients that are lost, and since when; what counts of them, where that is one delivery of each queue and channel.
    crashed: crashes::Lost,
    oldest: BTreeSet<(Conn, u16, Bytes)>,
    /// Queues of returns that proxies said they keep.
    kept: BTreeSet<Bytes>,
    /// Returns that proxies said they leave to the broker, by queue.
    forwarded: BTreeMap<Bytes, usize>,
    /// A session has waited for too long for an answer that may close its channel: then returns are the broker's.
    pub impatient: bool,
    /// By queue, in milliseconds.
    ttls: BTreeMap<Bytes, u64>,
    /// An operator deletes exchanges.
    pub exchanges_go: bool,
    /// Sources that were deleted. Some of them were made anew as others, and a declare of those was refused.
    pub gone_once: BTreeSet<Bytes>,
    changed: BTreeSet<Bytes>,
    /// What was in queues that are deleted: some of it may be on its way to a consumer.
    deleted: BTreeMap<u64, Copy>,
    pub refused: Vec<Bytes>,
    /// Declares that a proxy left as they were: of a queue that was taken over before, the broker refuses it (docs/guarantees.md, "What it costs").
    pub declares_left: bool,
    /// The broker refused to say what queues are.
    pub declares_refused: bool,
    unknown: Unknown,
    walks: Walks,
    alterations: alterations::Alterations,
    pub count: Count,
}

impl Accounts {
    pub(crate) fn new(plan: &Plan) -> Accounts {
        let retries = plan.asked();
        let mut accounts = Accounts {
            retries: retries
                .map(|(of, asked)| (of, vec![Life::Asked(asked)]))
                .collect(),
            ttls: plan.ttls(),
            ..Accounts::default()
        };
        for queue in plan.sources.iter().chain(&plan.targets) {
            let target = plan.argued_target(queue);
            accounts.rules.argue(queue.clone().into(), target);
        }
        if let Some(redeclares) = &plan.redeclares {
            let lenient = plan.sources.iter().filter(|of| redeclares.of(of).is_some());
            for queue in lenient {
                accounts.declares.may_differ(queue.clone().into());
            }
        }
        accounts
    }

    /// A connection to the broker begins, of that proxy.
    pub(crate) fn belongs(&mut self, conn: Conn, whose: Whose, proxy: usize, at: Micros) {
        self.whose.insert(conn, whose);
        self.rules.belongs(conn, proxy, at);
        self.declares.belongs(conn, proxy);
    }

    /// Something happened after which a dead letter may be published twice.
    pub(crate) fn fault(&mut self, at: Micros) {
        self.faults.push(at);
    }

    /// # Errors
    /// What does not hold.
    pub(crate) fn fact(&mut self, fact: &Fact, at: Micros) -> Result<(), String> {
        if let Some(of_alteration) = self.is_of_alteration(fact) {
            return of_alteration;
        }
        self.disturbs_walks(fact);
        match fact {
            Fact::Published {
                conn,
                channel,
                publish,
                exchange,
                key,
                body,
                properties,
                into,
            } => {
                let content = Frame::new("", properties.clone());
                let tag = (*conn, *channel, *publish);
                self.publishing = Some(*conn);
                if self.whose.get(conn) == Some(&Whose::Recorder) {
                    return self.recorder_publishes(&content, into);
                }
                self.published(tag, (exchange, key), body, &content, into, at)
            }
            Fact::Queued { copy, .. } => {
                self.copies.insert(*copy, self.entering.clone());
                self.entered(self.publishing, *copy, at);
                Ok(())
            }
            Fact::Confirmed {
                conn,
                channel,
                tag,
                nacked,
            } => self.confirmed((*conn, *channel, *tag), *nacked, at),
            Fact::Delivered {
                conn,
                channel,
                tag,
                queue,
                copy,
                redelivered,
                counts,
                ..
            } => {
                let place = (*conn, *channel, *tag);
                self.delivered(place, queue, *copy, (*redelivered, *counts), at)
            }
            Fact::Settled {
                conn,
                channel,
                tag,
                copy,
                how,
                ..
            } => {
                self.heard.insert(*conn, at);
                self.settled((*conn, *channel, *tag), *copy, *how, at)
            }
            Fact::Died {
                copy,
                queue,
                reason,
                ..
            } => {
                let second = (WALL + at / 1000) / 1000;
                let copy = self.copy(*copy)?;
                if copy.away {
                    return Ok(());
                }
                copy.since.died(queue, reason.name(), second.into());
                copy.died_in(queue);
                copy.by_itself = match reason {
                    Reason::Rejected => 0,
                    _ => copy.by_itself + 1,
                };
                Ok(())
            }
            Fact::Routed { copy, .. } => {
                self.entering = self.gone(*copy)?;
                self.entering.moved();
                Ok(())
            }
            Fact::Dropped {
                copy, queue, why, ..
            } => self.dropped(*copy, queue, *why, at),
            Fact::ChannelClosed {
                conn,
                channel,
                code,
                text,
            } => self.closed(*conn, *channel, *code, text),
            Fact::ConnectionClosed { conn, code, text } => self.closed(*conn, 0, *code, text),
            Fact::Consumed { .. } | Fact::Returned { .. } => Ok(()),
        }
    }

    fn copy(&mut self, copy: u64) -> Result<&mut Copy, String> {
        let unknown = || format!("copy {copy} is not there any more");
        self.copies.get_mut(&copy).ok_or_else(unknown)
    }

    fn gone(&mut self, copy: u64) -> Result<Copy, String> {
        let unknown = || format!("copy {copy} is gone already");
        self.copies.remove(&copy).ok_or_else(unknown)
    }

    fn published(
        &mut self,
        tag: Tag,
        (exchange, key): (&Bytes, &Bytes),
        body: &Bytes,
        content: &Frame,
        into: &[Bytes],
        at: Micros,
    ) -> Result<(), String> {
        let body = id(body);
        let another_life = usize::from(content.args.iter().any(is_another_life));
        let given = History::of(content);
        self.entering = Copy {
            body: body.clone(),
            given: given.clone(),
            expiration: expiration(content),
            written: counts(content),
            mark: mark(content),
            died_in: died_in(content),
            ..Copy::default()
        };
        if self.is_client(tag.0) {
            if ids::id_of(content).is_some() {
                return Err(format!(
                    "a client's {} has an id",
                    String::from_utf8_lossy(&body)
                ));
            }
            self.count.messages += 1;
            self.count.carbon += into.len().saturating_sub(1);
            self.unanswered.insert(tag, body.clone());
            let number = body.clone();
            let heard = Some((body, given));
            let said = self.on_the_way.entry(tag.0).or_default();
            let said = match said.front() == heard.as_ref() {
                true => said.pop_front(),
                false => said.front().cloned(),
            };
            self.count.again += another_life;
            return match said == heard {
                true => Ok(()),
                false if self.was_delayed(&number, at) => Ok(()),
                false => Err(format!(
                    "a client published {said:?}, the broker read {heard:?}"
                )),
            };
        }
        let parked = into.iter().any(is_parking);
        if let Some(of) = self.redriven(&body, (exchange, key), content) {
            return self.publishes_redriven(tag, of, (content, into), at);
        }
        let of = self.deaths.named(body, content, (exchange, key), parked);
        self.count.died_again += another_life;
        self.hear_of_overdue(&of, parked, at);
        let heard = self.deaths.get(&of)?.heard + self.count_overdue(&of.0, at);
        self.ids.published(tag, &of, (content, parked), heard)?;
        match &of.1 {
            Duty::Leaves(stay) | Duty::Returns(stay) if stay.is_nowhere() => {
                self.check_delayed(&of, key, (content, parked), at)?;
            }
            _ => self.check_return(&of, content, parked, at)?,
        }
        let death = self.deaths.get(&of)?;
        if !death.marks.contains(&self.entering.mark) {
            let (body, mark) = (String::from_utf8_lossy(&of.0), self.entering.mark);
            let marks = &death.marks;
            return Err(format!("{body} was sent back {marks:?} times, not {mark}"));
        }
        self.entering.by_itself = death.by_itself;
        self.entering.is_on_its_way(
            &of.1,
            death.when.map_or(0, |when| when.due_if(self.declares_left)),
            content,
        );
        if let Duty::Dies(_) = of.1 {
            self.check_target(tag, &of, (exchange, key), content, at)?;
        }
        self.entering.targets = self.decided(tag, &of, content, at)?;
        if parked {
            self.count.parked += 1;
            self.deaths.get(&of)?.parked += 1;
        } else {
            self.published_once_more(&of, at)?;
        }
        if !into.is_empty() {
            self.flying.insert(tag, of);
        }
        Ok(())
    }

    /// A proxy publishes what it has heard of.
    ///
    /// # Errors
    /// It does so more often than it may.
    fn published_once_more(&mut self, of: &(Bytes, Duty), at: Micros) -> Result<(), String> {
        let death = self.deaths.get(of)?;
        death.published.push(at);
        let (first, heard, times) = (death.published[0], death.heard, death.published.len());
        self.count.duplicates += usize::from(times > 1);
        match times > heard {
            true => self.explained(of, first, at),
            false => Ok(()),
        }
    }

    /// Published again, and something happened that explains it.
    fn explained(&self, of: &(Bytes, Duty), first: Micros, at: Micros) -> Result<(), String> {
        match may_show(&self.faults, first, at) {
            true => Ok(()),
            false => Err(format!(
                "{} was published twice for {}, and nothing had happened",
                String::from_utf8_lossy(&of.0),
                of.1
            )),
        }
    }

    fn confirmed(&mut self, tag: Tag, nacked: bool, at: Micros) -> Result<(), String> {
        if let Some(body) = self.unanswered.remove(&tag) {
            self.answers(tag.0, body, !nacked);
        }
        let Some(of) = self.flying.remove(&tag) else {
            return Ok(());
        };
        self.ids.answered(tag, &of, nacked);
        if nacked {
            // Of several queues some may have taken it.
            self.faults.push(at);
        } else {
            match &of.1 {
                Duty::Dies(_) => self.count.dead_letters += 1,
                Duty::Leaves(_) => self.count.away += 1,
                Duty::Returns(stay) if stay.is_nowhere() => self.count.arrived += 1,
                Duty::Returns(_) => self.count.back += 1,
                Duty::Redriven(_) => self.count.redriven += 1,
            }
            self.deaths.get(&of)?.confirmed += 1;
        }
        Ok(())
    }

    fn dropped(&mut self, copy: u64, queue: &Bytes, why: Why, at: Micros) -> Result<(), String> {
        let it = self.gone(copy)?;
        let body = it.body.clone();
        if why == Why::QueueDeleted {
            self.deleted.insert(copy, it);
        }
        if matches!(why, Why::Full | Why::Lost) {
            // The publisher is told of it: the client, or a proxy that still has the original.
            self.faults.push(at);
        }
        let full = why == Why::Full && queue.starts_with(DELAY_QUEUES.as_bytes());
        let ours = queue.starts_with(b"dlx-proxy") && !full;
        if ours && !matches!(why, Why::Restarted | Why::Lost) {
            let (body, queue) = (
                String::from_utf8_lossy(&body),
                String::from_utf8_lossy(queue),
            );
            return Err(format!("{body} was dropped from {queue}: {why:?}"));
        }
        Ok(())
    }

    /// What is open when nothing is under way any more.
    ///
    /// # Errors
    /// A copy that is nowhere, or that nobody knows.
    pub(crate) fn balance(&self, there: &BTreeSet<u64>) -> Result<(), String> {
        for (number, copy) in &self.copies {
            if !there.contains(number) {
                let body = String::from_utf8_lossy(&copy.body);
                return Err(format!("copy {number} of {body} is lost"));
            }
        }
        match there
            .iter()
            .find(|number| !self.copies.contains_key(number))
        {
            Some(number) => Err(format!("copy {number} is in a queue, and should be gone")),
            None => Ok(()),
        }
    }
}

/// Whether a fault may show itself between these two moments.
fn may_show(faults: &[Micros], since: Micros, until: Micros) -> bool {
    let then = since.saturating_sub(FAULT_SHOWS)..=until;
    faults.iter().any(|fault| then.contains(fault))
}

/// A fault may show itself so much later: half-open connections, confirms that are waited for.
const FAULT_SHOWS: Micros = 90_000_000;

/// What tells messages apart: the first eight bytes.
pub(crate) fn id(body: &[u8]) -> Bytes {
    body.iter().take(8).copied().collect()
}

/// A client has counted the lives of the message.
fn is_another_life((_, arg): &(&str, Arg)) -> bool {
    matches!(arg, Arg::Table(headers) if headers.get(super::client::LIVES).is_some())
}
