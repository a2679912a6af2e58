//! One channel of a session: what passes on it now, who consumes, which replies are due, what is unsettled.
//!
//! ```text
//!            channel.open passes                    channel.close passes (either way)
//!   (no entry) ───────────────▶ Open ──────────────────────────────▶ Closing ── close-ok passes ──▶ (no entry)
//! ```
//! While it is closing the frames of the side that has not heard of it yet pass untouched: the broker ignores them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::amqp::ids::{ChannelId, DeliveryTag, ShortStr};
use crate::amqp::incoming::Incoming;
use crate::amqp::method::{Consume, MethodId, QueueDeclareOk, Settle};
use crate::amqp::reply;
use crate::machine::Leg;
use crate::registry::Registry;

use super::confirms::Confirms;
use super::instead::Counts;
use super::replies::{Due, Expected, Replies};
use super::tx::Tx;
use super::unacked::{Retained, Unacked};

/// Boxed: a map allocates eleven values at once, and most connections have one channel.
pub(super) type Channels = BTreeMap<ChannelId, Box<Channel>>;

#[derive(Debug, Default)]
pub(super) struct Channel {
    pub id: ChannelId,
    /// Either side has sent `channel.close`: nothing is decided any more.
    pub closing: bool,
    /// A probe's channel: hidden from the client.
    pub hidden: bool,
    /// The broker has been sent a settlement that it refuses: it closes the channel, and nothing behind that counts (S9.1).
    pub refused: bool,
    pub tx: Option<Tx>,
    pub publishing: Transfer,
    /// The routing key of that content; reused without allocation.
    pub published_with: Vec<u8>,
    /// In confirm mode, where publishes may be delayed.
    pub confirms: Option<Box<Confirms>>,
    pub delivering: Transfer,
    /// The queue of a returning delivery, whose content header must be edited.
    pub came_back: Option<ShortStr>,
    /// A delivery of a managed queue whose content is being copied. Boxed: idle channels are many.
    pub copying: Option<Box<Incoming<Copying>>>,
    /// By tag.
    pub consumers: BTreeMap<ShortStr, Consumer>,
    /// Queues that it has read from.
    pub read: Vec<ShortStr>,
    pub unacked: Unacked,
    /// The meaning of the client's tag 0 while its settlement waits: it excludes later deliveries.
    pub all: Option<DeliveryTag>,
    /// The settlement at the front has waited too long for answers.
    pub impatient: bool,
    pub due: Replies,
    /// A method without a reply was sent after the last request: only a barrier shows whether it
    /// failed.
    pub unanswered: bool,
    /// The last declared queue, which an empty name means (S7.7).
    pub last_queue: ShortStr,
    /// Words for the client instead of the broker's next refusal.
    pub reword: Option<Reword>,
    /// The last declare with dead-letter arguments: queue, and arguments if short. A refusal may
    /// have to be reworded.
    pub declared: Option<(ShortStr, Vec<u8>)>,
}

/// The state of a content in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Transfer {
    #[default]
    Idle,
    /// The header is still to come. True: the content is dropped.
    Header(bool),
    /// Bytes of the body still to come. True: the content is dropped.
    Body(u64, bool),
}

/// The tags that a settlement covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meant {
    Tag {
        last: DeliveryTag,
        /// The broker may get the client's method unchanged.
        as_it_is: bool,
    },
    Nothing,
    /// It depends on pending answers.
    Answers,
    Brokers,
}

#[derive(Debug)]
pub(super) struct Copying {
    pub tag: DeliveryTag,
    pub of: Box<Retained>,
    /// Taken from the budget for it.
    pub bytes: usize,
    /// Set without a copy: how near the delivery is to a delivery limit.
    pub uncopied: Option<Counts>,
    pub ack_timeout: Option<Duration>,
}

/// Counts facts about queues, and changes of policies.
pub(super) type News = (u32, u32);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Consumer {
    /// Known from the broker's answer; none for `basic.get`.
    pub tag: Option<ShortStr>,
    pub queue: ShortStr,
    pub no_ack: bool,
    /// Bits and arguments of its `basic.consume`, where that says more than the rest.
    pub asked: Option<Arc<(u8, Vec<u8>)>>,
    pub ending: bool,
    /// At its start, a policy of the proxy gave its queue retries.
    pub retried: bool,
    /// The last look at its queue.
    pub looked: Option<Arc<Look>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// What was new then.
    pub news: News,
    pub ack_timeout: Option<Duration>,
}

/// A rewritten refusal about an object of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reword {
    pub code: u16,
    pub text: Vec<u8>,
    pub culprit: MethodId,
}

// === impl Channel ===

impl Channel {
    pub(super) fn new(id: ChannelId, due: Replies) -> Channel {
        Channel {
            id,
            due,
            ..Channel::default()
        }
    }

    /// The channel is closing: returns its state, except contents in transit.
    pub(super) fn end(&mut self) -> Channel {
        let closing = Channel {
            id: self.id,
            closing: true,
            publishing: self.publishing,
            delivering: self.delivering,
            due: std::mem::take(&mut self.due),
            last_queue: std::mem::take(&mut self.last_queue),
            // Until its end the broker confirms.
            confirms: self.confirms.take(),
            ..Channel::default()
        };
        std::mem::replace(self, closing)
    }

    pub(super) fn transfer(&mut self, from: Leg) -> &mut Transfer {
        match from {
            Leg::Client => &mut self.publishing,
            Leg::Broker => &mut self.delivering,
        }
    }

    pub(super) fn meant(&mut self, settle: Settle) -> Meant {
        let tag = settle.delivery_tag;
        let all = settle.multiple && tag == DeliveryTag(0);
        let is_open = !all && self.unacked.may_settle(tag);
        let is_late = self.unacked.is_taken_back(tag);
        if is_late && !settle.multiple {
            return Meant::Nothing;
        }
        if self.refused {
            return Meant::Brokers;
        }
        let impatient = self.impatient && self.is_getting();
        if !is_open && !is_late && self.is_getting() && !impatient {
            return Meant::Answers;
        }
        self.unanswered = true;
        let last_open = |to| self.unacked.last_open(to);
        let last = if is_open {
            Some(tag)
        } else if all {
            self.all = last_open(self.all.unwrap_or(DeliveryTag(u64::MAX)));
            self.all
        } else if is_late {
            last_open(tag)
        } else if impatient || self.tx.is_some() && self.unacked.is_taken(tag) {
            // What is still to come stays unsettled, since nobody can tell whether it is meant. After a rollback a client may settle once more
            // what is kept: that stays so.
            last_open(tag).filter(|_| settle.multiple)
        } else {
            return Meant::Brokers;
        };
        let as_it_is = !all && !impatient && !is_late;
        last.map_or(Meant::Nothing, |last| Meant::Tag { last, as_it_is })
    }

    /// The queue that a name means on this channel. Empty while only the broker knows: a pending
    /// reply generates the name.
    pub(super) fn queue(&self, name: &[u8]) -> ShortStr {
        match ShortStr::copy(name) {
            Some(name) if !name.is_empty() => name,
            _ => self.last_declared().clone(),
        }
    }

    fn last_declared(&self) -> &ShortStr {
        let on_its_way = self.due.iter().rev().find_map(|due| match &due.what {
            Expected::Declare(queue, ..) => Some(queue),
            _ => None,
        });
        on_its_way.unwrap_or(&self.last_queue)
    }

    /// Handles `queue.declare-ok` and returns the queue. Pending consumers of "the last queue" mean
    /// this one, even if their replies come after that of another declare.
    pub(super) fn declared(&mut self, payload: &[u8]) -> ShortStr {
        (self.reword, self.declared) = (None, None);
        let ok = QueueDeclareOk::parse(payload).ok();
        let queue = ok.and_then(|ok| ShortStr::copy(ok.queue));
        self.last_queue = queue.unwrap_or_default();
        let newer = self.due.iter_mut();
        for due in newer.take_while(|due| !matches!(due.what, Expected::Declare(..))) {
            if let Expected::Consume(_, consumer) = &mut due.what
                && consumer.queue.is_empty()
            {
                consumer.queue = self.last_queue.clone();
            }
        }
        self.last_queue.clone()
    }

    pub(super) fn expect(&mut self, what: Expected, unseen: bool) {
        self.due.push(what, unseen);
        self.unanswered = false;
    }

    /// Deliveries of that queue may be unsettled from now on.
    pub(super) fn reads(&mut self, queue: &ShortStr) {
        if !self.has_read(queue) {
            self.read.push(queue.clone());
        }
    }

    pub(super) fn has_read(&self, queue: &ShortStr) -> bool {
        self.read.contains(queue)
    }

    /// Whether a reply is due that must not pass as it is.
    pub(super) fn expects_unseen(&self) -> bool {
        let unlike = |due: &Due| due.unseen || due.what == Expected::Verdict;
        self.hidden || self.due.iter().any(unlike)
    }

    /// True when all requests are answered, so that nothing can still fail.
    pub(super) fn is_quiet(&self) -> bool {
        self.due.is_empty() && !self.unanswered
    }

    /// Whether a `basic.get` is pending: its tag may be guessed by the client.
    pub(super) fn is_getting(&self) -> bool {
        let get = |due: &Due| matches!(due.what, Expected::Get(_));
        self.due.iter().any(get)
    }

    pub(super) fn getting(&self) -> Option<Consumer> {
        let get = |due: &Due| match &due.what {
            Expected::Get(of) => Some(of.clone()),
            _ => None,
        };
        let mut of = self.due.iter().find_map(get)?;
        if of.queue.is_empty() {
            of.queue = self.last_queue.clone();
        }
        Some(of)
    }

    /// Whether a pending request may make the broker close the channel.
    pub(super) fn may_fail(&self, registry: &Registry) -> bool {
        self.due.iter().any(|due| match &due.what {
            Expected::Get(of) => registry.get(&of.queue).is_none(),
            Expected::Recover | Expected::Cancel(_) | Expected::Verdict | Expected::Open => false,
            Expected::Declare(..)
            | Expected::Delete(_)
            | Expected::Purge(_)
            | Expected::Exchange(..)
            | Expected::Consume(..)
            | Expected::Barrier
            | Expected::Published(_)
            | Expected::Other => true,
        })
    }

    /// Whether a consumer begins whose reply is hidden from the client. Before 4.1 RabbitMQ crashes
    /// if it is cancelled before that reply.
    pub(super) fn begins_unseen(&self) -> bool {
        let begins = |due: &Due| due.unseen && matches!(due.what, Expected::Consume(..));
        self.due.iter().any(begins)
    }

    /// Whether `basic.recover` is pending: earlier deliveries are requeued at its reply.
    pub(super) fn is_recovering(&self) -> bool {
        self.due.iter().any(|due| due.what == Expected::Recover)
    }
}

// === impl Consumer ===

impl Consumer {
    pub(super) fn has_ack_timeout(&self) -> bool {
        let looked = self.looked.as_ref();
        looked.is_some_and(|looked| looked.ack_timeout.is_some())
    }

    /// Its `basic.consume`, with the tag that it has.
    pub(super) fn asked(&self, out: &mut Vec<u8>, channel: ChannelId, tag: &[u8]) {
        let plain = if self.no_ack { Consume::NO_ACK } else { 0 };
        let asked = self.asked.as_deref();
        let (bits, arguments) = asked.map_or((plain, &[][..]), |(bits, of)| (*bits, of));
        reply::method(out, channel, MethodId::BASIC_CONSUME, |a| {
            let a = a.short(0).shortstr(&self.queue).shortstr(tag).octet(bits);
            a.longstr(arguments).end();
        });
    }
}

// === impl Transfer ===

impl Transfer {
    /// No method may come between the frames of a content.
    pub(super) fn is_idle(self) -> bool {
        self == Transfer::Idle
    }

    pub(super) fn discards(self) -> bool {
        matches!(self, Transfer::Header(true) | Transfer::Body(_, true))
    }

    pub(super) fn header(&mut self, bytes: u64) {
        *self = match *self {
            Transfer::Header(discard) if bytes > 0 => Transfer::Body(bytes, discard),
            Transfer::Header(_) | Transfer::Idle | Transfer::Body(..) => Transfer::Idle,
        };
    }

    pub(super) fn body(&mut self, bytes: u64) {
        *self = match *self {
            Transfer::Body(left, discard) if left > bytes => Transfer::Body(left - bytes, discard),
            Transfer::Body(..) | Transfer::Idle => Transfer::Idle,
            Transfer::Header(discard) => Transfer::Header(discard),
        };
    }
}

/// Whether a request has to wait for withheld rejects, of one channel or of all.
pub(super) fn await_rejects(channels: &Channels, on: Option<ChannelId>) -> bool {
    match on {
        Some(channel) => channels
            .get(&channel)
            .is_some_and(|state| state.unacked.awaits()),
        None => channels.values().any(|state| state.unacked.awaits()),
    }
}

/// An auto-delete queue may go with its last consumer; then its deliveries do not die any more.
pub(super) fn consumer_ends(channels: &Channels, queue: &ShortStr, registry: &mut Registry) {
    let mut consumers = channels.values().flat_map(|state| state.consumers.values());
    let reads = |other: &Consumer| other.queue == *queue && !other.ending;
    if registry.is_auto_delete(queue) && !consumers.any(reads) {
        registry.leave(queue);
    }
}
