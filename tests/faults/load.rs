//! Numbered messages that die: sources with their publishers and consumers, all of which come back when they lose their connection, and never
//! publish a number twice.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlx_proxy::amqp::table::TableBuilder;

use super::client::{Came, Client};
use super::held::{ACK_TIMEOUT, Held};
use super::lab::Fallible;
use super::retries::{Deliveries, Promise, Which};

/// Publishes of one publisher that wait for their confirms.
const WINDOW: usize = 100;
/// The rest of those who lost their connection.
const REST: Duration = Duration::from_millis(50);
/// Where overflowing queues end.
pub(crate) const LENGTH: usize = 10;
/// The part that is published, in per cent, before the fault is healed.
const BEFORE: usize = 70;

/// In milliseconds, of delayed publishes: for one delay queue, for two in a row (twice), and for three.
const DELAYS: [u64; 4] = [300, 860, 2200, 4850];

/// How messages die in a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dies {
    /// By `basic.reject`.
    Reject,
    /// By `basic.nack`.
    Nack,
    /// By `basic.nack` with `multiple`, that many at once.
    Multiple(usize),
    /// By the queue's TTL, in milliseconds.
    Expire(i64),
    /// By the queue's length.
    Overflow,
    /// By being returned once more than so often, each time for so many milliseconds.
    Return { limit: i64, delay: i64 },
}

/// One queue in which messages die, and what became of them so far.
#[derive(Debug)]
pub(crate) struct Source {
    pub name: String,
    pub kind: &'static str,
    pub at_least_once: bool,
    pub dies: Dies,
    /// "" is the default exchange.
    pub exchange: String,
    pub target: String,
    pub target_kind: &'static str,
    pub durable: bool,
    pub persistent: bool,
    /// How many messages there will be.
    pub number: usize,
    /// Bytes that follow the number in a body.
    pub padding: usize,
    /// Every fourth publish has a delay.
    pub delayed: bool,
    /// It has an ack timeout, and every twentieth delivery is held for longer.
    pub held: bool,
    /// Declared past the proxy: RabbitMQ's own dead-lettering, to compare with.
    pub is_native: bool,
    pub ledger: Ledger,
}

/// What its clients did.
#[derive(Default)]
pub(crate) struct Ledger {
    /// The next number.
    pub next: AtomicUsize,
    /// Numbers whose publish the broker confirmed.
    confirmed: Mutex<Vec<usize>>,
    pub rejected: AtomicUsize,
    /// What consumers got, and gave back.
    deliveries: Mutex<Deliveries>,
    /// Of these, those that consumers hold now.
    pub held: AtomicUsize,
    /// Connections that consumers lost, or did not get.
    pub lost: AtomicUsize,
    /// Of these, those that the broker closed because of a delivery that was settled already.
    pub settled_twice: AtomicUsize,
    /// How often it was declared: each connection does.
    pub declared: AtomicUsize,
    /// Declares that the broker refused: docs/guarantees.md says when one may be.
    pub refused: AtomicUsize,
    /// What an operator has removed.
    purged: Mutex<Purged>,
    /// Numbers from here on were published when all was well again.
    pub healed_at: Mutex<Option<usize>>,
}

/// Of a source: numbers that begin with these digits may be gone.
#[derive(Debug, Default)]
pub(crate) struct Purged {
    digits: Option<String>,
    /// How many were removed, if all purges said so.
    gone: u64,
    unheard: bool,
}

/// Where clients go, and what they wait for.
#[derive(Debug)]
pub(crate) struct Yard {
    pub vhost: String,
    /// Addresses of the proxies; and of the broker, for what is native.
    pub proxies: Vec<SocketAddr>,
    pub broker: SocketAddr,
    /// How long clients wait for an answer.
    pub patience: Duration,
    pub prefetch: u16,
    /// Rejects begin when this is set.
    pub consume: AtomicBool,
    /// The fault is over, and the rest may be published.
    pub healed: AtomicBool,
    pub stop: AtomicBool,
}

// === impl Source ===

impl Source {
    /// The arguments of its declare.
    fn arguments(&self) -> Vec<u8> {
        let mut table = TableBuilder::default();
        table.longstr(b"x-queue-type", self.kind.as_bytes());
        table.longstr(b"x-dead-letter-exchange", self.exchange.as_bytes());
        if self.exchange.is_empty() {
            table.longstr(b"x-dead-letter-routing-key", self.target.as_bytes());
        }
        match self.dies {
            Dies::Expire(ttl) => _ = table.long(b"x-message-ttl", ttl),
            Dies::Overflow => _ = table.long(b"x-max-length", LENGTH as i64),
            Dies::Return { limit, delay } => {
                table.long(b"x-delivery-limit", limit);
                table.long(b"x-delayed-retry-min", delay);
                table.long(b"x-delayed-retry-multiplier", 1);
            }
            Dies::Reject | Dies::Nack | Dies::Multiple(_) => {}
        }
        if self.held {
            table.long(b"x-ack-timeout", ACK_TIMEOUT.as_millis() as i64);
        }
        if self.at_least_once {
            table.longstr(b"x-dead-letter-strategy", b"at-least-once");
            table.longstr(b"x-overflow", b"reject-publish");
        }
        table.finish()
    }

    pub(crate) async fn declare(&self, client: &mut Client) -> Fallible<()> {
        let declared = client
            .declare_queue(&self.name, self.durable, &self.arguments())
            .await;
        match declared {
            Ok(_) => _ = self.ledger.declared.fetch_add(1, Relaxed),
            Err(problem) => {
                if problem.starts_with("406") {
                    self.ledger.refused.fetch_add(1, Relaxed);
                }
                return Err(problem);
            }
        }
        Ok(())
    }

    /// Whether its messages need a consumer to die.
    pub(crate) fn is_rejected(&self) -> bool {
        !matches!(self.dies, Dies::Expire(_) | Dies::Overflow)
    }

    /// How many of its messages stay.
    pub(crate) fn keeps(&self) -> usize {
        if self.dies == Dies::Overflow {
            LENGTH
        } else {
            0
        }
    }

    /// What it asks for, if its messages are returned.
    pub(crate) fn retries(&self) -> Option<Promise> {
        match self.dies {
            Dies::Return { limit, delay } => Some(Promise {
                limit: limit as u64,
                delay: Duration::from_millis(delay as u64),
                ack_timeout: self.held.then_some(ACK_TIMEOUT),
            }),
            _ => None,
        }
    }

    /// By how much the publish of this number is delayed.
    pub(crate) fn delay_of(&self, number: usize) -> Option<Duration> {
        let delay = || Duration::from_millis(DELAYS[number / 4 % DELAYS.len()]);
        (self.delayed && number % 4 == 1).then(delay)
    }

    /// The exchange on which publishes may be delayed.
    fn later(&self) -> String {
        format!("later-{}", self.name)
    }

    fn holds(&self, (number, at): Which) -> bool {
        self.held && (number + at) % 20 == 7
    }

    /// The part of its work that is done, of two: published, and rejected.
    pub(crate) fn progress(&self) -> usize {
        let confirmed = self.ledger.confirmed().len();
        match self.is_rejected() {
            true => confirmed + self.ledger.rejected.load(Relaxed).min(self.number),
            false => 2 * confirmed,
        }
    }

    pub(crate) fn is_published(&self) -> bool {
        self.ledger.next.load(Relaxed) >= self.number
    }

    async fn open(&self, yard: &Yard, role: &str, attempt: usize) -> Fallible<Client> {
        let address = match self.is_native {
            true => yard.broker,
            false => yard.proxies[attempt % yard.proxies.len()],
        };
        let name = format!("{role} of {}", self.name);
        let mut client = Client::open(address, &yard.vhost, &name, yard.patience).await?;
        self.declare(&mut client).await?;
        Ok(client)
    }

    /// Publishes all numbers: what the broker refuses again, as 3.10 does while somebody else's declare still starts the queue. Whatever is not
    /// confirmed when a connection ends may be there or not.
    pub(crate) async fn publish(&self, yard: &Yard, first: usize) {
        for attempt in first.. {
            match self.publish_on_one(yard, attempt).await {
                Ok(()) => return,
                Err(_) => tokio::time::sleep(REST).await,
            }
            if yard.stop.load(Relaxed) {
                return;
            }
        }
    }

    async fn publish_on_one(&self, yard: &Yard, attempt: usize) -> Fallible<()> {
        let mut client = self.open(yard, "publisher", attempt).await?;
        if self.delayed {
            client.declare_delayed(&self.later(), &self.name).await?;
        }
        client.confirm().await?;
        let mut tags = 0;
        let mut open = BTreeMap::new();
        let mut refused = Vec::new();
        let mut out = Vec::new();
        loop {
            out.clear();
            let healed = yard.healed.load(Relaxed);
            let end = match healed {
                true => self.number,
                false => self.number * BEFORE / 100,
            };
            // A proxy without a link refuses what is to be delayed at once.
            let again = open.is_empty() && !refused.is_empty();
            if again {
                tokio::time::sleep(REST).await;
            }
            while open.len() < WINDOW {
                let number = match refused.pop_if(|_| again) {
                    Some(number) => number,
                    None if self.ledger.next.load(Relaxed) < end => {
                        self.ledger.next.fetch_add(1, Relaxed)
                    }
                    None => break,
                };
                self.publish_one(&client, &mut out, number);
                tags += 1;
                open.insert(tags, number);
            }
            client.send(&out).await?;
            if open.is_empty() {
                if self.is_published() || yard.stop.load(Relaxed) {
                    client.close().await;
                    return Ok(());
                }
                // Its turn comes when all is well; until then it learns if its connection ends.
                if let Ok(ended) =
                    tokio::time::timeout(Duration::from_millis(5), client.coming()).await
                {
                    ended?;
                }
                continue;
            }
            if let Came::Settled {
                tag,
                multiple,
                taken,
            } = client.next().await?
            {
                let settled = take(&mut open, tag, multiple).into_values();
                match taken {
                    true => self.ledger.confirmed().extend(settled),
                    false => refused.extend(settled),
                }
            }
        }
    }

    fn publish_one(&self, client: &Client, out: &mut Vec<u8>, number: usize) {
        let mut body = format!("{} {number} ", self.name).into_bytes();
        body.resize(body.len() + self.padding, b'.');
        let delay = self.delay_of(number);
        self.ledger.deliveries().published(number, delay);
        match delay {
            Some(delay) => client.publish_later(out, &self.later(), &body, delay),
            None => client.publish(out, &self.name, &body, self.persistent),
        }
    }

    /// Rejects whatever comes, until it is told to stop.
    pub(crate) async fn consume(&self, yard: &Yard, first: usize) {
        for attempt in first.. {
            if yard.stop.load(Relaxed) {
                return;
            }
            if yard.consume.load(Relaxed) {
                let ended = self.consume_on_one(yard, attempt).await;
                let is_twice = |problem: &String| problem.contains("unknown delivery tag");
                let twice = ended.as_ref().is_err_and(is_twice);
                let Ledger { settled_twice, .. } = &self.ledger;
                settled_twice.fetch_add(usize::from(twice), Relaxed);
                // Before anybody can get what it had.
                self.ledger
                    .lost
                    .fetch_add(usize::from(ended.is_err()), Relaxed);
            }
            tokio::time::sleep(REST).await;
        }
    }

    async fn consume_on_one(&self, yard: &Yard, attempt: usize) -> Fallible<()> {
        let mut client = self.open(yard, "consumer", attempt).await?;
        client.qos(yard.prefetch).await?;
        let limit = self.retries().map_or(0, |promise| promise.limit);
        let mut held = Held::new(&self.ledger, limit);
        client.consume(&self.name, false).await?;
        let mut out = Vec::new();
        // Deliveries that are not rejected yet: more than one only for `multiple`.
        let mut open = Vec::new();
        let mut returned = Vec::new();
        while !yard.stop.load(Relaxed) {
            let came = tokio::time::timeout(Duration::from_millis(20), client.coming()).await;
            let waits = came.is_ok() && client.has_unread();
            let mut which = None;
            if let Some(Came::Delivery {
                tag, body, count, ..
            }) = came.ok().transpose()?
            {
                open.push(tag);
                let lost = self.ledger.lost.load(Relaxed);
                which = source_and_number(&body)
                    .map(|(_, number)| self.ledger.deliveries().came(number, count, lost));
            }
            match (self.dies, open.last()) {
                (_, None) => {}
                (Dies::Multiple(many), Some(_)) if open.len() < many && waits => continue,
                (Dies::Multiple(_), Some(tag)) => Client::nack(&mut out, *tag, true),
                (Dies::Nack, Some(tag)) => Client::nack(&mut out, *tag, false),
                (Dies::Return { .. }, Some(tag)) => match which {
                    Some(which) if self.holds(which) => held.hold(*tag, which),
                    _ => {
                        Client::give_back(&mut out, *tag);
                        returned.extend(which);
                    }
                },
                (_, Some(tag)) => Client::reject(&mut out, *tag),
            }
            self.ledger.rejected.fetch_add(open.len(), Relaxed);
            open.clear();
            held.settle(&mut out);
            if !waits || out.len() > 4096 {
                self.ledger.deliveries().returned(returned.drain(..));
                client.send(&out).await?;
                out.clear();
            }
        }
        client.close().await;
        Ok(())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let strategy = if self.at_least_once { "+" } else { "" };
        write!(f, "{}{strategy}/{:?}", self.kind, self.dies)
    }
}

// === impl Ledger ===

impl Ledger {
    pub(crate) fn confirmed(&self) -> MutexGuard<'_, Vec<usize>> {
        self.confirmed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn deliveries(&self) -> MutexGuard<'_, Deliveries> {
        self.deliveries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn purged(&self) -> MutexGuard<'_, Purged> {
        self.purged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers from the next one on are published to a world that is whole again.
    pub(crate) fn heal(&self) {
        let next = self.next.load(Relaxed);
        let mut healed_at = self
            .healed_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        healed_at.get_or_insert(next);
    }

    /// Whether this number was published before that.
    pub(crate) fn is_before(&self, number: usize) -> bool {
        let healed_at = *self
            .healed_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        healed_at.is_none_or(|first| number < first)
    }
}

impl Purged {
    /// What is to be removed: always the same.
    pub(crate) fn begin(&mut self, digits: usize) -> String {
        self.digits.get_or_insert(digits.to_string()).clone()
    }

    /// So many are gone, if that was heard.
    pub(crate) fn end(&mut self, gone: Option<u64>) {
        self.gone += gone.unwrap_or(0);
        self.unheard |= gone.is_none();
    }

    pub(crate) fn may_have(&self, number: usize) -> bool {
        let digits = self.digits.as_ref();
        digits.is_some_and(|digits| number.to_string().starts_with(digits))
    }

    /// Whether so many of these may be missing.
    pub(crate) fn explains(&self, missing: usize) -> bool {
        self.unheard || missing as u64 <= self.gone
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (confirmed, delivered) = (self.confirmed().len(), self.deliveries().len());
        let Ledger {
            next,
            rejected,
            declared,
            ..
        } = self;
        write!(
            f,
            "published={next:?} confirmed={confirmed} delivered={delivered} rejected={rejected:?} declared={declared:?}"
        )
    }
}

/// What a confirm settles.
fn take(open: &mut BTreeMap<u64, usize>, tag: u64, multiple: bool) -> BTreeMap<u64, usize> {
    let later = open.split_off(&(tag + 1));
    let mut settled = std::mem::replace(open, later);
    if multiple {
        return settled;
    }
    let one = settled.split_off(&tag);
    open.append(&mut settled);
    one
}

/// A body begins with the source's name and the number.
pub(crate) fn source_and_number(body: &[u8]) -> Option<(&str, usize)> {
    let mut words = body.split(|byte| *byte == b' ');
    let mut word = || std::str::from_utf8(words.next()?).ok();
    Some((word()?, word()?.parse().ok()?))
}
