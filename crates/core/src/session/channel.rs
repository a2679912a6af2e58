//! One channel of a session: what passes on it now, who consumes, which replies are due, what is unsettled.
//!
//! ```text
//!            channel.open passes                    channel.close passes (either way)
//!   (no entry) ───────────────▶ Open ──────────────────────────────▶ Closing ── close-ok passes ──▶ (no entry)
//! ```
//! While it is closing the frames of the side that has not heard of it yet pass untouched: the broker ignores them.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use crate::amqp::ids::{ChannelId, DeliveryTag, ShortStr};
use crate::amqp::incoming::Incoming;
use crate::amqp::method::{MethodId, QueueDeclareOk, Settle};
use crate::machine::Leg;
use crate::registry::Registry;

use super::instead::Counts;
use super::replies::{Due, Expected, Replies};
use super::tx::Tx;
use super::unacked::{Retained, Unacked};

/// All channels of a session. Boxed, since a map makes room for eleven values at once, and most connections have one channel.
#[derive(Debug, Default)]
pub(super) struct Channels(BTreeMap<ChannelId, Box<Channel>>);

/// Some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    One(ChannelId),
    All,
}

#[derive(Debug, Default)]
pub(super) struct Channel {
    pub id: ChannelId,
    /// Either side has sent `channel.close`: nothing is decided any more.
    pub closing: bool,
    /// It was a probe's: nothing of it is for the client.
    pub hidden: bool,
    /// Every settlement is the broker's from here on: behind one that the broker refuses; where nobody can tell any more which tags are
    /// outstanding.
    pub native: bool,
    pub tx: Option<Tx>,
    /// A content on its way to the broker.
    pub publishing: Transfer,
    /// The routing key of that content: kept in place, so that it costs no allocation.
    pub published_with: Vec<u8>,
    /// A content on its way to the client.
    pub delivering: Transfer,
    /// The queue of a delivery that has come back to it: its content header is edited for that.
    pub came_back: Option<ShortStr>,
    /// A delivery of a managed queue whose content is being copied.
    pub copying: Option<Incoming<Copying>>,
    /// By tag, as in deliveries.
    pub consumers: BTreeMap<ShortStr, Consumer>,
    /// Deliveries without a word.
    pub unacked: Unacked,
    /// What the client's tag 0 means, while its settlement waits: what comes meanwhile it had not seen.
    pub all: Option<DeliveryTag>,
    /// The settlement at the front has waited for answers as long as it may.
    pub impatient: bool,
    /// Replies that the broker still has to send, in order.
    pub due: Replies,
    /// Something that has no reply was sent after the last request: only a barrier tells whether it failed.
    pub unanswered: bool,
    /// The last queue that was declared here: what an empty name means (S7.7).
    pub last_queue: ShortStr,
    /// The next refusal of the broker is told to the client in these words instead.
    pub reword: Option<Reword>,
    /// The last declare that speaks of dead letters, of which queue and with which arguments, as far as they are short: if it is refused, the
    /// words may need to be the client's.
    pub declared: Option<(ShortStr, Vec<u8>)>,
}

/// A content in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Transfer {
    #[default]
    Idle,
    /// The method has passed, the header has not. True: the content goes nowhere.
    Header(bool),
    /// How many octets of the body are still to come. True: the content goes nowhere.
    Body(u64, bool),
}

/// What a settlement of the client means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meant {
    /// This tag, or all up to this one.
    Tag {
        last: DeliveryTag,
        /// The broker may read it as the client wrote it.
        as_it_is: bool,
    },
    Nothing,
    /// What answers bring that are due.
    Answers,
    /// Only the broker can tell.
    Brokers,
}

/// A delivery that will be retained.
#[derive(Debug)]
pub(super) struct Copying {
    pub tag: DeliveryTag,
    /// All of it but its content.
    pub of: Retained,
    /// Taken from the budget for it.
    pub octets: usize,
    /// Without a copy, where that matters: how near it is to a limit on deliveries.
    pub uncopied: Option<Counts>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Consumer {
    /// Its tag, once the broker has said it; a get has none.
    pub tag: Option<ShortStr>,
    pub queue: ShortStr,
    pub no_ack: bool,
    /// `basic.cancel` has passed.
    pub ending: bool,
    /// When it began, a policy of ours gave its queue retries, whoever declared that.
    pub retried: bool,
}

/// How the refusal of what names an object of ours is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reword {
    /// The text that the client should read.
    pub text: Vec<u8>,
    /// The method that the client should read as the culprit: its own.
    pub culprit: MethodId,
}

// === impl Which ===

impl Which {
    /// Whether this channel is one of them.
    pub(super) fn has(self, channel: ChannelId) -> bool {
        match self {
            Which::One(one) => one == channel,
            Which::All => true,
        }
    }
}

// === impl Channels ===

impl Channels {
    /// Whether a request has to wait for withheld rejects.
    pub(super) fn await_rejects(&self, on: Which) -> bool {
        let awaits = |state: &Channel| state.unacked.awaits();
        match on {
            Which::One(channel) => self.get(&channel).is_some_and(|state| awaits(state)),
            Which::All => self.values().any(|state| awaits(state)),
        }
    }

    /// One consumer less: an auto-delete queue may go with its last one, and then what it delivered does not die any more.
    pub(super) fn consumer_ends(&self, queue: &ShortStr, registry: &mut Registry) {
        let mut consumers = self.values().flat_map(|state| state.consumers.values());
        if registry.is_auto_delete(queue)
            && !consumers.any(|other| other.queue == *queue && !other.ending)
        {
            registry.leave(queue);
        }
    }
}

impl Deref for Channels {
    type Target = BTreeMap<ChannelId, Box<Channel>>;
    fn deref(&self) -> &BTreeMap<ChannelId, Box<Channel>> {
        &self.0
    }
}

impl DerefMut for Channels {
    fn deref_mut(&mut self) -> &mut BTreeMap<ChannelId, Box<Channel>> {
        &mut self.0
    }
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

    /// It is closing: returns what it was, but for what is still on its way.
    pub(super) fn end(&mut self) -> Channel {
        let closing = Channel {
            id: self.id,
            closing: true,
            publishing: self.publishing,
            delivering: self.delivering,
            due: std::mem::take(&mut self.due),
            last_queue: std::mem::take(&mut self.last_queue),
            ..Channel::default()
        };
        std::mem::replace(self, closing)
    }

    /// The content that passes on it.
    pub(super) fn transfer(&mut self, from: Leg) -> &mut Transfer {
        match from {
            Leg::Client => &mut self.publishing,
            Leg::Broker => &mut self.delivering,
        }
    }

    /// Which tags a settlement means.
    pub(super) fn meant(&mut self, settle: Settle) -> Meant {
        let tag = settle.delivery_tag;
        let all = settle.multiple && tag == DeliveryTag(0);
        let is_open = !all && self.unacked.may_settle(tag);
        let impatient = self.impatient && self.is_getting();
        if !is_open && self.is_getting() && !impatient && !self.native {
            return Meant::Answers;
        }
        self.unanswered = true;
        let last_open = |to| self.unacked.last_open(to);
        let last = if self.native {
            return Meant::Brokers;
        } else if is_open {
            Some(tag)
        } else if all {
            self.all = last_open(self.all.unwrap_or(DeliveryTag(u64::MAX)));
            self.all
        } else if impatient || self.tx.is_some() && self.unacked.is_taken(tag) {
            // What is still to come stays unsettled, since nobody can tell whether it is meant. After a rollback a client may settle once more
            // what is kept: that stays so.
            last_open(tag).filter(|_| settle.multiple)
        } else {
            return Meant::Brokers;
        };
        let as_it_is = !all && !impatient;
        last.map_or(Meant::Nothing, |last| Meant::Tag { last, as_it_is })
    }

    /// The queue that a name means in a request on this channel. Empty while only the broker knows: it has yet to make a name, and the
    /// reply to the request will come behind that.
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

    /// A queue is declared (`queue.declare-ok`), which is returned: consumers of the queue that was declared last mean this one, also when their
    /// reply comes behind that of another declare.
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

    /// A request goes to the broker, and this is its reply.
    pub(super) fn expect(&mut self, what: Expected, unseen: bool) {
        self.due.push(what, unseen);
        self.unanswered = false;
    }

    /// Whether a reply is on its way that the client must not see.
    pub(super) fn expects_unseen(&self) -> bool {
        self.hidden || self.due.iter().any(|due| due.unseen)
    }

    /// True when all that was sent on it has been answered, so that nothing of it can still fail.
    pub(super) fn is_quiet(&self) -> bool {
        self.due.is_empty() && !self.unanswered
    }

    /// Whether a reply to `basic.get` is on its way: it brings a tag that the client may have guessed.
    pub(super) fn is_getting(&self) -> bool {
        let get = |due: &Due| matches!(due.what, Expected::Get(_));
        self.due.iter().any(get)
    }

    /// The `basic.get` that is answered next.
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

    /// Whether the broker may answer a request that is on its way by closing the channel.
    pub(super) fn may_fail(&self, registry: &Registry) -> bool {
        self.due.iter().any(|due| match &due.what {
            Expected::Get(of) => registry.get(&of.queue).is_none(),
            Expected::Recover | Expected::Cancel(_) | Expected::Open => false,
            Expected::Declare(..)
            | Expected::Delete(_)
            | Expected::Purge(_)
            | Expected::Exchange(_)
            | Expected::Consume(..)
            | Expected::Barrier
            | Expected::Published(_)
            | Expected::Other => true,
        })
    }

    /// Whether a consumer begins whose reply only we want. Before 4.1 RabbitMQ does not survive that it is cancelled until it has given it.
    pub(super) fn begins_unseen(&self) -> bool {
        let begins = |due: &Due| due.unseen && matches!(due.what, Expected::Consume(..));
        self.due.iter().any(begins)
    }

    /// Whether `basic.recover` is on its way: what was delivered before its reply is in its queue again.
    pub(super) fn is_recovering(&self) -> bool {
        self.due.iter().any(|due| due.what == Expected::Recover)
    }
}

// === impl Transfer ===

impl Transfer {
    /// No method may be put between the frames of a content.
    pub(super) fn is_idle(self) -> bool {
        self == Transfer::Idle
    }

    /// The content goes nowhere.
    pub(super) fn discards(self) -> bool {
        matches!(self, Transfer::Header(true) | Transfer::Body(_, true))
    }

    /// A header that announces so many octets.
    pub(super) fn header(&mut self, octets: u64) {
        *self = match *self {
            Transfer::Header(discard) if octets > 0 => Transfer::Body(octets, discard),
            Transfer::Header(_) | Transfer::Idle | Transfer::Body(..) => Transfer::Idle,
        };
    }

    /// A body frame with so many octets has ended.
    pub(super) fn body(&mut self, octets: u64) {
        *self = match *self {
            Transfer::Body(left, discard) if left > octets => {
                Transfer::Body(left - octets, discard)
            }
            Transfer::Body(..) | Transfer::Idle => Transfer::Idle,
            Transfer::Header(discard) => Transfer::Header(discard),
        };
    }
}
