//! Which replies the broker owes on a channel, and what each of them means to us.
//!
//! RabbitMQ answers the requests of a channel in order, but for consumers: their queue answers, and that waits in the channel's inbox behind
//! the requests that lay there already. Requests that nobody here asks about are counted all the same, so that we know when a channel is quiet. A
//! client may want no reply to a request; we do ([`asked_for`]), since it says what we cannot know otherwise: whether there is such a queue or
//! binding, which name the broker made, which delivery is the last of a consumer.

use std::collections::VecDeque;

use crate::amqp::cursor::Cursor;
use crate::amqp::ids::ShortStr;
use crate::amqp::method::{ConsumerTag, MethodId};
use crate::machine::Change;
use crate::registry::Declared;

use super::channel::Consumer;

/// A reply that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub what: Expected,
    /// The client wanted none, or it answers us: it goes nowhere.
    pub unseen: bool,
}

/// What a reply means to us. A queue without a name is the last one declared when the reply comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// `queue.declare-ok`; the queue as it was asked for, and what is known of it from then on.
    Declare(ShortStr, Option<Declared>),
    /// `queue.delete-ok` of this queue.
    Delete(ShortStr),
    /// The reply by which the broker accepts a change of exchanges or bindings.
    Change(Change),
    /// `basic.consume-ok` of this consumer tag; empty: the broker makes one.
    Consume(ShortStr, Consumer),
    /// `basic.get-ok` or `basic.get-empty`; whether a delivery wants to be settled.
    Get(Consumer),
    /// `basic.cancel-ok` of this consumer tag.
    Cancel(ShortStr),
    /// `basic.recover-ok`: what was delivered before is back in its queues.
    Recover,
    /// `channel.flow-ok` of our barrier: the client never sees it.
    Barrier,
    /// The same behind a publish to this exchange: it is there.
    Published(ShortStr),
    /// `channel.open-ok`.
    Open,
    /// Any other reply.
    Other,
}

/// Where a request of the client says that it wants no reply: the place in the payload and the bit.
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

/// Whether there is a reply to a method of the client.
pub(super) fn has_reply(id: MethodId) -> bool {
    !matches!(
        id,
        MethodId::BASIC_PUBLISH
            | MethodId::BASIC_ACK
            | MethodId::BASIC_NACK
            | MethodId::BASIC_REJECT
            | MethodId::BASIC_RECOVER_ASYNC
            | MethodId::CHANNEL_CLOSE_OK
            | MethodId::CHANNEL_FLOW_OK
    )
}

/// A request that wants no reply, as one that does.
pub(super) fn asked_for(id: MethodId, payload: &[u8]) -> Option<Vec<u8>> {
    let (at, bit) = no_wait(id, payload)?;
    let mut asking = payload.to_vec();
    *asking.get_mut(at)? &= !bit;
    Some(asking)
}

/// Whether a method of the broker answers a request; else it came by itself.
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

/// Takes the reply that this method is: the oldest. Where the two disagree (a request that we misread), the oldest that fits.
pub(super) fn answered(due: &mut VecDeque<Due>, id: MethodId, payload: &[u8]) -> Option<Due> {
    let of_consumer = matches!(id, MethodId::BASIC_CONSUME_OK | MethodId::BASIC_CANCEL_OK);
    let tag = ConsumerTag::parse(payload)
        .ok()
        .filter(|_| of_consumer)
        .map_or(&[][..], |ok| ok.consumer_tag);
    let fits = |due: &Due| match &due.what {
        Expected::Declare(..) => id == MethodId::QUEUE_DECLARE_OK,
        Expected::Delete(_) => id == MethodId::QUEUE_DELETE_OK,
        Expected::Consume(of, _) => {
            id == MethodId::BASIC_CONSUME_OK && (of.is_empty() || **of == *tag)
        }
        Expected::Get(_) => matches!(id, MethodId::BASIC_GET_OK | MethodId::BASIC_GET_EMPTY),
        Expected::Cancel(of) => id == MethodId::BASIC_CANCEL_OK && **of == *tag,
        Expected::Recover => id == MethodId::BASIC_RECOVER_OK,
        Expected::Barrier | Expected::Published(_) => id == MethodId::CHANNEL_FLOW_OK,
        Expected::Open => id == MethodId::CHANNEL_OPEN_OK,
        Expected::Change(_) | Expected::Other => !of_consumer,
    };
    let at = due.iter().position(fits)?;
    let newer = due.split_off(at + 1);
    let answered = due.pop_back();
    // What is older is not to be waited for any more, but for what comes late. Of a consumer that is cancelled so early nothing comes.
    due.retain(|older| match &older.what {
        Expected::Consume(of, _) => id != MethodId::BASIC_CANCEL_OK || **of != *tag,
        Expected::Cancel(_) => true,
        _ => false,
    });
    due.extend(newer);
    answered
}
