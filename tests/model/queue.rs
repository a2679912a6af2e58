//! A queue: its messages, who has them, who wants them. It knows no exchanges and no wire; what dies in it is handed back.

use std::collections::{BTreeMap, VecDeque};

use crate::codec::value::{Bytes, Table, Value};

use super::arguments::Kind;
use super::broker::{Conn, Millis};
use super::call::{integer, string};
use super::channel::At;
use super::message::Message;

/// What a full queue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overflow {
    DropHead,
    RejectPublish,
    RejectPublishDlx,
}

pub(super) struct Queue {
    pub name: Bytes,
    /// Another one of the same name has another number.
    pub life: u64,
    pub kind: Kind,
    pub durable: bool,
    pub exclusive: Option<Conn>,
    pub auto_delete: bool,
    pub arguments: Table,
    pub dlx: Option<Bytes>,
    pub dlx_key: Option<Bytes>,
    pub ttl: Option<Millis>,
    pub expires: Option<Millis>,
    /// When it was used last.
    pub used: Millis,
    pub max_length: Option<u64>,
    pub max_bytes: Option<u64>,
    pub overflow: Overflow,
    pub delivery_limit: Option<u64>,
    pub single_active: bool,
    /// Quorum: what returned goes first, in the order of its return.
    pub returned: VecDeque<Entry>,
    pub ready: VecDeque<Entry>,
    pub unacked: BTreeMap<u64, Taken>,
    /// The one that is served next is first.
    pub consumers: VecDeque<Consumer>,
    /// Quorum, reject-publish: over its length, until well below.
    pub full: bool,
}

/// A message in a queue.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub id: u64,
    pub message: Message,
    pub expires: Option<Millis>,
    /// It was somebody's before.
    pub delivered: bool,
    /// Quorum: how often it was somebody's and came back.
    pub acquired: Option<u64>,
    /// How often that was a failure.
    pub failed: Option<u64>,
    /// Its place in a stream.
    pub offset: Option<u64>,
}

/// One that somebody has.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub entry: Entry,
    pub at: At,
    /// Nothing: by a get.
    pub consumer: Option<Bytes>,
    pub place: Place,
}

/// Among those that return when a channel ends: consumer by consumer in the order of their coming, and each as it was given to him. Gets
/// come last, by the text of their tags (`rabbit_fifo` takes them for consumers of that name).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Consumer { number: u64, turn: u64 },
    Get(String),
}

#[derive(Clone, Debug)]
pub(super) struct Consumer {
    pub at: At,
    pub tag: Bytes,
    /// Order of their coming: the oldest is the active one, if only one may be.
    pub number: u64,
    pub no_ack: bool,
    pub exclusive: bool,
    /// Those of a higher one go first, as long as they have room.
    pub priority: i128,
    /// 0: no bound.
    pub prefetch: u64,
    pub unacked: u64,
    /// Of a stream: what it gets next.
    pub offset: u64,
}

impl Queue {
    pub(super) fn new(name: &[u8], life: u64, kind: Kind, arguments: Table, now: Millis) -> Queue {
        let number = |name: &str| integer(&arguments, name).map(|number| number.max(0) as u64);
        let overflow = match string(&arguments, "x-overflow").as_deref() {
            Some(b"reject-publish") => Overflow::RejectPublish,
            Some(b"reject-publish-dlx") if kind == Kind::Classic => Overflow::RejectPublishDlx,
            _ => Overflow::DropHead,
        };
        // Below zero is: none.
        let limit = match integer(&arguments, "x-delivery-limit") {
            Some(number) => u64::try_from(number).ok(),
            None => Some(20),
        };
        Queue {
            name: name.to_vec(),
            life,
            kind,
            durable: false,
            exclusive: None,
            auto_delete: false,
            dlx: string(&arguments, "x-dead-letter-exchange"),
            dlx_key: string(&arguments, "x-dead-letter-routing-key"),
            ttl: number("x-message-ttl"),
            expires: number("x-expires"),
            used: now,
            max_length: number("x-max-length"),
            max_bytes: number("x-max-length-bytes").filter(|_| kind != Kind::Stream),
            overflow,
            delivery_limit: limit.filter(|_| kind == Kind::Quorum),
            single_active: arguments.get("x-single-active-consumer") == Some(&Value::Bool(true)),
            arguments,
            returned: VecDeque::new(),
            ready: VecDeque::new(),
            unacked: BTreeMap::new(),
            consumers: VecDeque::new(),
            full: false,
        }
    }

    pub(super) fn is_quorum(&self) -> bool {
        self.kind == Kind::Quorum
    }

    pub(super) fn is_stream(&self) -> bool {
        self.kind == Kind::Stream
    }

    /// How many are ready.
    pub(super) fn depth(&self) -> u64 {
        (self.returned.len() + self.ready.len()) as u64
    }

    /// A quorum queue counts whoever has a message, also a get, or a consumer that was cancelled.
    pub(super) fn consumer_count(&self) -> u64 {
        let lives = |number: &u64| self.consumers.iter().any(|of| of.number == *number);
        let mut others: Vec<String> = Vec::new();
        for taken in self.unacked.values().filter(|_| self.is_quorum()) {
            match &taken.place {
                Place::Consumer { number, .. } if lives(number) => {}
                Place::Consumer { number, .. } => others.push(format!("{number}")),
                Place::Get(tag) => others.push(format!("{:?} {tag}", taken.at)),
            }
        }
        others.sort_unstable();
        others.dedup();
        (self.consumers.len() + others.len()) as u64
    }

    /// Of their bodies; looked at only where there is a bound.
    pub(super) fn bytes(&self) -> u64 {
        if self.max_bytes.is_none() {
            return 0;
        }
        let all = self.returned.iter().chain(&self.ready);
        all.map(|entry| entry.message.body.len() as u64).sum()
    }

    pub(super) fn head(&self) -> Option<&Entry> {
        self.returned.front().or(self.ready.front())
    }

    pub(super) fn take_head(&mut self) -> Option<Entry> {
        self.returned.pop_front().or_else(|| self.ready.pop_front())
    }

    /// It has no room for a message of that size, and drops none for it.
    pub(super) fn refuses(&self, size: u64) -> bool {
        match self.overflow {
            Overflow::DropHead => false,
            Overflow::RejectPublish if self.is_quorum() => self.full,
            _ => self.is_over(self.depth() + 1, self.bytes() + size),
        }
    }

    pub(super) fn is_over(&self, depth: u64, bytes: u64) -> bool {
        self.max_length.is_some_and(|most| depth > most)
            || self.max_bytes.is_some_and(|most| bytes > most)
    }

    /// Behind the others; in quorum queues before those of a lower priority.
    pub(super) fn put(&mut self, entry: Entry) {
        let first = match self.is_quorum() {
            true => entry.message.priority(),
            false => return self.ready.push_back(entry),
        };
        let behind = |other: &Entry| other.message.priority() >= first;
        let at = self.ready.partition_point(behind);
        self.ready.insert(at, entry);
    }

    /// Back where it was; in quorum queues before what was never delivered.
    pub(super) fn put_back(&mut self, entry: Entry) {
        if self.is_quorum() {
            return self.returned.push_back(entry);
        }
        let at = self.ready.partition_point(|other| other.id < entry.id);
        self.ready.insert(at, entry);
    }

    /// The next one whose turn it is, moved behind the others.
    pub(super) fn next_consumer(&mut self) -> Option<Consumer> {
        let active = match self.single_active {
            true => self.consumers.iter().map(|of| of.number).min(),
            false => None,
        };
        let ready = |of: &Consumer| {
            (of.prefetch == 0 || of.no_ack || of.unacked < of.prefetch)
                && active.is_none_or(|number| of.number == number)
        };
        let most = self.consumers.iter().filter(|of| ready(of));
        let most = most.map(|of| of.priority).max()?;
        let first = |of: &Consumer| of.priority == most && ready(of);
        let at = self.consumers.iter().position(first)?;
        let mut consumer = self.consumers.remove(at)?;
        if !consumer.no_ack {
            consumer.unacked += 1;
        }
        self.consumers.push_back(consumer.clone());
        Some(consumer)
    }

    /// A consumer has one less. Who had as many as he may have waits behind the others again.
    pub(super) fn released(&mut self, taken: &Taken) {
        let Some(tag) = &taken.consumer else { return };
        let is = |of: &Consumer| of.at == taken.at && of.tag == *tag;
        let Some(at) = self.consumers.iter().position(is) else {
            return;
        };
        let consumer = &mut self.consumers[at];
        let was_full = consumer.prefetch > 0 && consumer.unacked >= consumer.prefetch;
        consumer.unacked = consumer.unacked.saturating_sub(1);
        if was_full && let Some(consumer) = self.consumers.remove(at) {
            self.consumers.push_back(consumer);
        }
    }
}
