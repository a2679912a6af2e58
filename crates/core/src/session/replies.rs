//! Which replies the broker still has to send on a channel, and what each of them means to us.
//!
//! RabbitMQ answers the requests of a channel in order, but for consumers: their queue answers, and that waits in the channel's inbox behind
//! the requests that lay there already. Requests that nobody here asks about are counted all the same, so that we know when a channel is quiet. A
//! client may want no reply to a request; we do ([`asked_for`]), since it says what we cannot know otherwise: whether there is such a queue or
//! binding, which name the broker made, which delivery is the last of a consumer.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::amqp::cursor::Cursor;
use crate::amqp::ids::ShortStr;
use crate::amqp::method::{ConsumerTag, MethodId};
use crate::objects::QueueType;
use crate::registry::Declared;
use crate::registry::lenient::Kept;

use super::channel::Consumer;
use super::delayed_exchange::Shows;

/// Memory of one pending reply, in bytes. Larger ones (long names, arguments of a binding) count
/// as several.
const SHARE: usize = 512;

/// Pending replies of one channel, oldest first.
#[derive(Debug, Default)]
pub(super) struct Replies {
    due: VecDeque<Due>,
    all: Tally,
}

/// Pending replies on all channels of a session; clones share it. (Atomic only to be shared;
/// there are no concurrent writes.)
#[derive(Clone, Debug, Default)]
pub(super) struct Tally(Arc<AtomicUsize>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub what: Expected,
    /// Hidden from the client: it wanted none, or the request was ours.
    pub unseen: bool,
    shares: u32,
}

/// Facts from an accepted declare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Accepted {
    /// Bits and type: its dead letters are left to the broker.
    Type(u8, QueueType),
    /// Of a queue without work for the proxy, as far as known.
    Plain(Declared),
    /// Of a queue that is managed from then on.
    Managed(Declared),
}

/// The meaning of a pending reply. An empty queue name is the last one declared when the reply
/// comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// `queue.declare-ok`: the queue's name in the request, and its facts; none for a passive
    /// declare.
    /// Boxed, as other replies need not have its size.
    Declare(ShortStr, Option<Box<Accepted>>),
    Delete(ShortStr),
    Purge(ShortStr),
    Exchange(ShortStr, Shows),
    /// `basic.consume-ok`; an empty tag: the broker generates one.
    Consume(ShortStr, Consumer),
    /// `basic.get-ok` or `basic.get-empty`.
    Get(Consumer),
    Cancel(ShortStr),
    /// `basic.recover-ok`: earlier deliveries are requeued.
    Recover,
    /// `channel.flow-ok` of a barrier: hidden from the client.
    Barrier,
    /// A barrier after a publish to this exchange, which then exists.
    Published(ShortStr),
    /// `channel.flow-ok`, which the client gets as `queue.unbind-ok`.
    Verdict,
    Open,
    Other,
}

/// Position and bit of a request's `no-wait`.
fn no_wait(id: MethodId, payload: &[u8]) -> Option<(usize, u8)> {
    let (shortstrs, bit) = match id {
        MethodId::EXCHANGE_DECLARE => (2, 4),
        MethodId::EXCHANGE_DELETE => (1, 1),
        MethodId::EXCHANGE_BIND | MethodId::EXCHANGE_UNBIND | MethodId::QUEUE_BIND => (3, 0),
        MethodId::QUEUE_DECLARE => (1, 4),
        MethodId::QUEUE_PURGE | MethodId::BASIC_CANCEL => (1, 0),
        MethodId::QUEUE_DELETE => (1, 2),
        MethodId::BASIC_CONSUME => (2, 3),
        MethodId::CONFIRM_SELECT => (0, 0),
        _ => return None,
    };
    let mut cursor = Cursor::new(payload);
    cursor.take(4).ok()?;
    if !matches!(id, MethodId::BASIC_CANCEL | MethodId::CONFIRM_SELECT) {
        cursor.short().ok()?;
    }
    for _ in 0..shortstrs {
        cursor.shortstr().ok()?;
    }
    let at = payload.len() - cursor.rest().len();
    (cursor.octet().ok()? & 1 << bit != 0).then_some((at, 1 << bit))
}

/// Whether a client's method has a reply.
pub(super) fn has_reply(id: MethodId) -> bool {
    !matches!(
        id,
        MethodId::BASIC_PUBLISH
            | MethodId::BASIC_ACK
            | MethodId::BASIC_NACK
            | MethodId::BASIC_REJECT
            | MethodId::CHANNEL_CLOSE_OK
            | MethodId::CHANNEL_FLOW_OK
    )
}

/// The request without its `no-wait`; `None`: it has none.
pub(super) fn asked_for(id: MethodId, payload: &[u8]) -> Option<Vec<u8>> {
    if id == MethodId::BASIC_RECOVER_ASYNC {
        // The same method with a reply; without `requeue` either closes the connection.
        let MethodId(class, method) = MethodId::BASIC_RECOVER;
        let ids = [class.to_be_bytes(), method.to_be_bytes()].concat();
        let requeue = payload.get(4..).filter(|rest| rest.first() == Some(&1))?;
        return Some([&ids, requeue].concat());
    }
    let (at, bit) = no_wait(id, payload)?;
    let mut asking = payload.to_vec();
    *asking.get_mut(at)? &= !bit;
    Some(asking)
}

/// Whether a broker's method answers a request.
pub(super) fn is_reply(id: MethodId) -> bool {
    !matches!(
        id,
        MethodId::BASIC_DELIVER
            | MethodId::BASIC_RETURN
            | MethodId::BASIC_ACK
            | MethodId::BASIC_NACK
            | MethodId::BASIC_CANCEL
            | MethodId::CHANNEL_CLOSE
            | MethodId::CHANNEL_FLOW
    )
}

// === impl Replies ===

impl Replies {
    pub(super) fn new(all: Tally) -> Replies {
        let due = VecDeque::new();
        Replies { due, all }
    }

    pub(super) fn push(&mut self, what: Expected, unseen: bool) {
        let shares = what.shares();
        self.all.0.fetch_add(shares as usize, Ordering::Relaxed);
        self.due.push_back(Due {
            what,
            unseen,
            shares,
        });
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Due> {
        self.due.iter_mut()
    }

    /// Takes the oldest reply. If it does not match (a misread request): the oldest that does.
    pub(super) fn answered(&mut self, id: MethodId, payload: &[u8]) -> Option<Due> {
        let of_consumer = matches!(id, MethodId::BASIC_CONSUME_OK | MethodId::BASIC_CANCEL_OK);
        let tag = ConsumerTag::parse(payload)
            .ok()
            .filter(|_| of_consumer)
            .map_or(&[][..], |ok| ok.consumer_tag);
        let fits = |due: &Due| match &due.what {
            Expected::Declare(..) => id == MethodId::QUEUE_DECLARE_OK,
            Expected::Delete(_) => id == MethodId::QUEUE_DELETE_OK,
            Expected::Purge(_) => id == MethodId::QUEUE_PURGE_OK,
            Expected::Consume(of, _) => {
                id == MethodId::BASIC_CONSUME_OK && (of.is_empty() || **of == *tag)
            }
            Expected::Get(_) => matches!(id, MethodId::BASIC_GET_OK | MethodId::BASIC_GET_EMPTY),
            Expected::Cancel(of) => id == MethodId::BASIC_CANCEL_OK && **of == *tag,
            Expected::Recover => id == MethodId::BASIC_RECOVER_OK,
            Expected::Barrier | Expected::Published(_) | Expected::Verdict => {
                id == MethodId::CHANNEL_FLOW_OK
            }
            Expected::Open => id == MethodId::CHANNEL_OPEN_OK,
            Expected::Exchange(..) => id == MethodId::EXCHANGE_DECLARE_OK,
            Expected::Other => !of_consumer,
        };
        let at = self.due.iter().position(fits)?;
        let answered = self.due.remove(at)?;
        let mut gone = answered.shares;
        // What is older is not to be waited for any more, but for what comes late. Of a consumer that is cancelled so early nothing comes.
        let mut older = 0..at;
        if !older.is_empty() {
            self.due.retain(|due| {
                let stays = older.next().is_none()
                    || match &due.what {
                        Expected::Consume(of, _) => id != MethodId::BASIC_CANCEL_OK || **of != *tag,
                        Expected::Cancel(_) => true,
                        _ => false,
                    };
                gone += if stays { 0 } else { due.shares };
                stays
            });
        }
        self.all.0.fetch_sub(gone as usize, Ordering::Relaxed);
        if self.due.is_empty() {
            // Most channels ask a few times at their beginning, and then never again.
            self.due = VecDeque::new();
        }
        Some(answered)
    }

    /// The channel is closed: no more replies.
    pub(super) fn clear(&mut self) {
        let gone: u32 = self.due.iter().map(|due| due.shares).sum();
        self.all.0.fetch_sub(gone as usize, Ordering::Relaxed);
        self.due = VecDeque::new();
    }
}

impl Deref for Replies {
    type Target = VecDeque<Due>;
    fn deref(&self) -> &VecDeque<Due> {
        &self.due
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        self.clear();
    }
}

// === impl Tally ===

impl Tally {
    pub(super) fn due(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl Accepted ===

impl Accepted {
    fn bytes(&self) -> usize {
        let declared = match self {
            Accepted::Type(..) => 0,
            Accepted::Plain(declared) | Accepted::Managed(declared) => declared.bytes(),
        };
        size_of::<Accepted>() + declared
    }

    /// Bits of the declare, and type of its queue.
    pub(super) fn kind(&self) -> (u8, QueueType) {
        match self {
            Accepted::Type(bits, queue_type) => (*bits, *queue_type),
            Accepted::Plain(declared) | Accepted::Managed(declared) => {
                (declared.form.bits, declared.queue_type)
            }
        }
    }

    /// In what it differs from its queue.
    pub(super) fn kept(&self) -> &[Kept] {
        match self {
            Accepted::Type(..) => &[],
            Accepted::Plain(declared) | Accepted::Managed(declared) => &declared.kept,
        }
    }
}

// === impl Expected ===

impl Expected {
    /// The effect of this reply outlives a closing channel.
    pub(super) fn lasts(&self) -> bool {
        matches!(
            self,
            Expected::Declare(..)
                | Expected::Delete(_)
                | Expected::Purge(_)
                | Expected::Published(_)
        )
    }

    fn shares(&self) -> u32 {
        let bytes = match self {
            Expected::Declare(queue, accepted) => {
                queue.len() + accepted.as_ref().map_or(0, |accepted| accepted.bytes())
            }
            Expected::Consume(tag, consumer) => tag.len() + consumer.queue.len(),
            Expected::Get(consumer) => consumer.queue.len(),
            Expected::Delete(name)
            | Expected::Purge(name)
            | Expected::Cancel(name)
            | Expected::Exchange(name, _)
            | Expected::Published(name) => name.len(),
            Expected::Recover
            | Expected::Barrier
            | Expected::Verdict
            | Expected::Open
            | Expected::Other => 0,
        };
        // A queue that grows has room for as many again.
        let place = 2 * size_of::<Due>();
        let shares = (place + bytes).div_ceil(SHARE);
        u32::try_from(shares).unwrap_or(u32::MAX)
    }
}
