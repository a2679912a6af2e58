//! What must hold after each step, whatever went wrong: nothing is lost, nothing is settled too early, twice or against the client's word,
//! deaths are counted once, and there are two of something only if a fault explains it.
//!
//! Kept from the broker's facts and the clients' words alone; the proxy is asked only for what it says it dropped by a rule.

use std::collections::{BTreeMap, BTreeSet};

use super::client::{CHANNELS, Said, Verb};
use super::codec::frame::Frame;
use super::codec::methods::Args;
use super::codec::value::{Bytes, Value};
use super::model::{Conn, Fact, How, Why};
use super::net::Micros;
use super::proxy::names;

/// Whose connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Client(usize),
    Publisher,
    Intake,
}

/// All that is known of all messages.
#[derive(Default)]
pub(crate) struct Accounts {
    whose: BTreeMap<Conn, Whose>,
    /// Of these, those that the broker has given up.
    gone: BTreeSet<Conn>,
    verbs: BTreeMap<(Conn, u16, u64), Verb>,
    /// Channels (0: connections) that the broker may close, as their client asked for it.
    wrong: BTreeSet<(Conn, u16)>,
    messages: BTreeMap<Bytes, Message>,
    /// What each tag was.
    delivered: BTreeMap<(Conn, u16, u64), Bytes>,
    /// Of those that intake has: the queue that they died in.
    signals: BTreeMap<(Conn, u16, u64), Bytes>,
    /// Publications of the proxies that have no confirm, by channel and number.
    flying: BTreeMap<(Conn, u16, u64), Letter>,
    /// Proxies said that they dropped so many by a rule.
    pub dropped_by_rule: usize,
    /// Originals that were settled without a confirmed dead letter: at most as many as were dropped by a rule.
    unexplained: usize,
    /// When something happened that can make two of one.
    faults: Vec<Micros>,
    /// An operator deletes exchanges.
    pub exchanges_go: bool,
    /// Declares that a proxy left as they were: of a queue that was taken over before, the broker refuses it (README, "What it costs").
    pub declares_left: bool,
    pub count: Count,
}

/// One body that a client published.
#[derive(Debug, Default)]
struct Message {
    /// In queues, or on the way from a queue to its exchange.
    copies: i64,
    /// A client acked a copy, or a rule of the broker's or of the operator's dropped it.
    ended: bool,
    /// Dead letters that reached a queue and were confirmed; originals that the proxies settled for them.
    confirmed: usize,
    settled: usize,
    /// Deaths that the broker dealt with alone.
    native: usize,
    /// Rejects that the broker has not seen.
    rejected: usize,
    /// There was more than one copy at some time, or one returned whose dead letter may be on its way.
    several: bool,
    /// When its dead letters were published whose originals are not settled: by the queue that it died in, and how many deaths they told of.
    published: BTreeMap<Bytes, BTreeMap<i128, Vec<Micros>>>,
    /// How many deaths the last one from each queue told of.
    told: BTreeMap<Bytes, i128>,
}

impl Message {
    /// A proxy has published a dead letter of it, and its original is not settled.
    fn is_published(&self) -> bool {
        self.published.values().any(|letters| !letters.is_empty())
    }
}

#[derive(Debug)]
struct Letter {
    body: Bytes,
    routed: bool,
}

/// For the report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub messages: usize,
    pub dead_letters: usize,
    pub duplicates: usize,
    pub parked: usize,
}

impl Accounts {
    pub(crate) fn belongs(&mut self, conn: Conn, whose: Whose) {
        self.whose.insert(conn, whose);
    }

    /// The broker has given the connection up.
    pub(crate) fn gone(&mut self, conn: Conn) {
        self.gone.insert(conn);
    }

    /// Something happened after which a dead letter may be published twice.
    pub(crate) fn fault(&mut self, at: Micros) {
        self.faults.push(at);
    }

    pub(crate) fn said(&mut self, conn: Conn, said: Said) {
        match said {
            Said::Verb(channel, tag, verb) => {
                let key = (conn, channel, tag);
                self.verbs.insert(key, verb);
                let dead = |_: &&Bytes| verb == Verb::Dead;
                if let Some(body) = self.delivered.get(&key).filter(dead) {
                    let message = self.messages.entry(body.clone()).or_default();
                    message.rejected += 1;
                    // The broker has taken it back already, and neither client nor proxy knows.
                    message.several |= self.gone.contains(&conn);
                }
            }
            Said::Opened(channel) => {
                self.verbs
                    .retain(|(of, id, _), _| (*of, *id) != (conn, channel));
                self.wrong.remove(&(conn, channel));
            }
            Said::Wrong(channel) => drop(self.wrong.insert((conn, channel))),
        }
    }

    /// # Errors
    /// What does not hold.
    pub(crate) fn fact(&mut self, fact: &Fact, at: Micros) -> Result<(), String> {
        match fact {
            Fact::Published {
                conn,
                channel,
                publish,
                body,
                properties,
                into,
                ..
            } => self.published((*conn, *channel, *publish), body, properties, into, at),
            Fact::Confirmed {
                conn,
                channel,
                tag,
                nacked,
            } => {
                self.confirmed((*conn, *channel, *tag), *nacked, at);
                Ok(())
            }
            Fact::Settled {
                conn,
                channel,
                tag,
                queue,
                body,
                how,
            } => self.settled((*conn, *channel, *tag), queue, body, *how, at),
            Fact::Died { body, to, .. } => {
                // Who has it, for all he knows, may still reject it.
                let ghost = self.delivered.values().any(|of| *of == id(body));
                let message = self.message(body);
                message.several |= ghost || message.rejected > 0;
                if !to.starts_with(b"dlx-proxy") {
                    message.native += 1;
                    message.published.clear();
                }
                Ok(())
            }
            Fact::Routed { body, into, .. } => {
                let message = self.message(body);
                message.copies += into.len() as i64 - 1;
                message.several |= into.len() > 1;
                if !into.iter().any(|queue| queue.starts_with(b"dlx-proxy")) {
                    // The broker's own hand-over: whether there is room is its affair.
                    message.published.clear();
                }
                Ok(())
            }
            Fact::Dropped { body, queue, why } => self.dropped(body, queue, *why, at),
            Fact::ChannelClosed {
                conn,
                channel,
                code,
                text,
            } => self.closed(*conn, *channel, *code, text),
            Fact::ConnectionClosed { conn, code, text } => self.closed(*conn, 0, *code, text),
            Fact::Delivered {
                conn,
                channel,
                tag,
                body,
                redelivered,
                ..
            } => {
                // The publisher may still have it from an earlier life of intake.
                let again = *redelivered && self.whose.get(conn) == Some(&Whose::Intake);
                self.delivered.insert((*conn, *channel, *tag), id(body));
                let message = self.message(body);
                message.several |= message.rejected > 0 || again;
                Ok(())
            }
            Fact::Returned { .. } => Ok(()),
        }
    }

    /// Intake has a message that died in this queue.
    pub(crate) fn signal(&mut self, key: (Conn, u16, u64), properties: &Args) {
        self.signals.insert(key, died_in(properties));
    }

    pub(crate) fn is_intake(&self, conn: Conn) -> bool {
        self.whose.get(&conn) == Some(&Whose::Intake)
    }

    fn message(&mut self, body: &[u8]) -> &mut Message {
        self.messages.entry(id(body)).or_default()
    }

    fn published(
        &mut self,
        (conn, channel, seq): (Conn, u16, u64),
        body: &Bytes,
        properties: &Args,
        into: &[Bytes],
        at: Micros,
    ) -> Result<(), String> {
        let whose = self.whose.get(&conn).copied();
        let message = self.message(body);
        message.copies += into.len() as i64;
        message.several |= into.len() > 1;
        if matches!(whose, Some(Whose::Client(_))) {
            self.count.messages += 1;
            // Nobody wanted it.
            self.message(body).ended |= into.is_empty();
            return Ok(());
        }
        // Parked, as it was late at its target: it may be there too.
        let parked = into
            .iter()
            .any(|queue| queue == names().parking().as_bytes());
        let late = parked && message.is_published();
        let one = !message.several && !parked;
        message.several |= parked;
        let (queue, deaths) = (died_in(properties), deaths(properties));
        let again = message.told.insert(queue.clone(), deaths) == Some(deaths);
        message.several |= again;
        let letters = message.published.entry(queue).or_default();
        letters.entry(deaths).or_default().push(at);
        if late {
            self.faults.push(at);
        }
        if again && one {
            self.explained(body, at, at)?;
        }
        let message = self.message(body);
        let should = (message.settled + message.native + 1) as i128;
        let flying: usize = message.published.values().map(BTreeMap::len).sum();
        let alone = !message.several && flying == 1;
        if alone && deaths != should {
            return Err(format!(
                "a dead letter of {} tells of {deaths} deaths, it died {should} times",
                String::from_utf8_lossy(&id(body))
            ));
        }
        self.count.parked += usize::from(parked);
        let letter = Letter {
            body: id(body),
            routed: !into.is_empty(),
        };
        self.flying.insert((conn, channel, seq), letter);
        Ok(())
    }

    fn confirmed(&mut self, key: (Conn, u16, u64), nacked: bool, at: Micros) {
        let Some(letter) = self.flying.remove(&key) else {
            return;
        };
        if nacked {
            // Of several queues some may have taken it.
            self.faults.push(at);
        } else if letter.routed {
            self.count.dead_letters += 1;
            self.message(&letter.body).confirmed += 1;
        }
    }

    fn settled(
        &mut self,
        key: (Conn, u16, u64),
        queue: &[u8],
        body: &Bytes,
        how: How,
        at: Micros,
    ) -> Result<(), String> {
        let name = String::from_utf8_lossy(&id(body)).into_owned();
        let whose = self.whose.get(&key.0).copied();
        let verb = self.verbs.remove(&key);
        let signal = self.signals.remove(&key);
        self.delivered.remove(&key);
        if verb == Some(Verb::Dead) {
            let message = self.message(body);
            message.rejected = message.rejected.saturating_sub(1);
        }
        let by_proxy = match (whose, how, verb) {
            (_, How::Requeue, _) => return Ok(()),
            (Some(Whose::Client(_)), How::Ack, Some(Verb::Ack)) => false,
            (Some(Whose::Client(_)), How::Ack, Some(Verb::Dead)) => true,
            (Some(Whose::Client(_)), How::RejectDrop, Some(Verb::Dead)) => {
                // The publisher may still have it: `close-wait` has passed.
                self.message(body).several = true;
                return Ok(());
            }
            (Some(Whose::Intake), How::Ack, None) => true,
            // The broker parks it.
            (Some(Whose::Intake), How::RejectDrop, None) => return Ok(()),
            _ => {
                let queue = String::from_utf8_lossy(queue);
                return Err(format!(
                    "{how:?} of {name} from {queue}, by {whose:?} {key:?}, who said {verb:?}"
                ));
            }
        };
        let message = self.message(body);
        message.copies -= 1;
        if !by_proxy {
            message.ended = true;
            return Ok(());
        }
        message.settled += 1;
        let confirmed = message.confirmed >= message.settled;
        if !confirmed {
            // As if it had been, or each later one would be counted again.
            message.confirmed = message.settled;
            message.ended = true;
        }
        let queue = match whose {
            Some(Whose::Intake) => signal.unwrap_or_default(),
            _ => queue.to_vec(),
        };
        let flying = message.published.entry(queue).or_default();
        // Which of several deaths in that queue it was is not known.
        let twice = flying.iter().find(|(_, letters)| letters.len() > 1);
        let which = twice
            .or(flying.first_key_value())
            .map(|(deaths, _)| *deaths);
        let letters = which.and_then(|deaths| flying.remove(&deaths));
        let letters = letters.unwrap_or_default();
        let twice = letters.len() > 1;
        let first = letters.first().copied().unwrap_or(at);
        if !confirmed {
            self.unexplained += 1;
            if self.unexplained > self.dropped_by_rule {
                return Err(format!(
                    "{name} was settled, and none of its dead letters is confirmed"
                ));
            }
        }
        if twice {
            self.count.duplicates += 1;
            self.explained(body, first, at)?;
        }
        self.still_somewhere(body)
    }

    /// Published again, and something happened that explains it.
    fn explained(&self, body: &[u8], first: Micros, at: Micros) -> Result<(), String> {
        let then = first.saturating_sub(FAULT_SHOWS)..=at;
        match self.faults.iter().any(|fault| then.contains(fault)) {
            true => Ok(()),
            false => Err(format!(
                "{} was published twice, and nothing had happened",
                String::from_utf8_lossy(&id(body))
            )),
        }
    }

    fn dropped(&mut self, body: &Bytes, queue: &[u8], why: Why, at: Micros) -> Result<(), String> {
        let message = self.message(body);
        message.copies -= 1;
        match why {
            Why::NoTarget(_) | Why::Cycle | Why::Unroutable | Why::Purged | Why::QueueDeleted => {
                message.ended = true;
            }
            // By the hand-over of the broker itself, or transient.
            Why::Restarted | Why::NoAck => message.ended = true,
            // The publisher is told of it: the client, or a proxy that still has the original.
            Why::Full | Why::Lost => {
                message.ended |= !message.is_published();
                self.faults.push(at);
            }
        }
        let ours = queue.starts_with(b"dlx-proxy");
        if ours && !matches!(why, Why::Restarted | Why::Lost) {
            let (body, queue) = (
                String::from_utf8_lossy(body),
                String::from_utf8_lossy(queue),
            );
            return Err(format!("{body} was dropped from {queue}: {why:?}"));
        }
        self.still_somewhere(body)
    }

    fn still_somewhere(&mut self, body: &Bytes) -> Result<(), String> {
        let message = self.message(body);
        if message.copies <= 0 && !message.ended {
            return Err(format!("{} is lost", String::from_utf8_lossy(&id(body))));
        }
        Ok(())
    }

    fn closed(&mut self, conn: Conn, channel: u16, code: u16, text: &[u8]) -> Result<(), String> {
        if channel == 0 {
            self.gone.insert(conn);
        }
        let whose = self.whose.get(&conn).copied();
        let asked_for = self.wrong.contains(&(conn, channel));
        // A shutdown or an operator; an exchange that an operator has deleted.
        let by_others = code == 320 || code == 404 && self.exchanges_go;
        let left =
            code == 406 && self.declares_left && text.windows(9).any(|part| part == b"dlx-proxy");
        if left {
            return Ok(());
        }
        match whose {
            // A probe's channel is the proxy's own.
            Some(Whose::Client(client)) if !asked_for && !by_others && channel <= CHANNELS => {
                Err(format!(
                    "the broker closed channel {channel} of client {client}, who did nothing wrong: {code} {}",
                    String::from_utf8_lossy(text)
                ))
            }
            _ => Ok(()),
        }
    }

    /// What is open when nothing is under way any more.
    ///
    /// # Errors
    /// A message that is nowhere.
    pub(crate) fn balance(&self, copies: &BTreeMap<Bytes, i64>) -> Result<(), String> {
        for (body, message) in &self.messages {
            let there = copies.get(body).copied().unwrap_or(0);
            let body = String::from_utf8_lossy(body);
            if there != message.copies {
                return Err(format!(
                    "{body}: {} copies by the facts, {there} in queues",
                    message.copies
                ));
            }
            if there == 0 && !message.ended {
                return Err(format!("{body} is lost"));
            }
        }
        Ok(())
    }
}

/// A fault may show itself so much later: half-open connections, confirms that are waited for.
const FAULT_SHOWS: Micros = 90_000_000;

/// What tells messages apart: the first eight octets.
pub(crate) fn id(body: &[u8]) -> Bytes {
    body.iter().take(8).copied().collect()
}

/// The queue of the newest death.
fn died_in(properties: &Args) -> Bytes {
    let frame = Frame::new("", properties.clone());
    match frame.newest_death().and_then(|death| death.get("queue")) {
        Some(Value::Text(queue)) => queue.clone(),
        _ => Bytes::new(),
    }
}

/// The sum of the counts in `x-death`.
fn deaths(properties: &Args) -> i128 {
    let frame = Frame::new("", properties.clone());
    let Some(Value::Array(deaths)) = frame.headers().and_then(|headers| headers.get("x-death"))
    else {
        return 0;
    };
    let count = |death: &Value| match death {
        Value::Table(death) => match death.get("count") {
            Some(Value::Integer(_, count)) => *count,
            _ => 0,
        },
        _ => 0,
    };
    deaths.items.iter().map(count).sum()
}
