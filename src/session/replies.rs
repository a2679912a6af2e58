//! Which replies the broker owes on a channel, and what each of them means to us.
//!
//! RabbitMQ answers the requests of a channel in order. Requests that nobody here asks about are counted all the same, so that we know
//! when a channel is quiet.

use std::collections::VecDeque;

use crate::amqp::ids::ShortStr;
use crate::amqp::method::MethodId;
use crate::machine::Change;
use crate::registry::Declared;

/// A reply that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// `queue.declare-ok`; what is known of the queue from then on.
    Declare(Option<Declared>),
    /// `queue.delete-ok` of this queue.
    Delete(ShortStr),
    /// The reply by which the broker accepts a change of exchanges or bindings.
    Change(Change),
    /// `basic.consume-ok`.
    Consume(super::channel::Consumer),
    /// `basic.get-ok` or `basic.get-empty`; whether a delivery wants to be settled.
    Get(super::channel::Consumer),
    /// `basic.cancel-ok`.
    Cancel,
    /// `channel.flow-ok` of our barrier: the client never sees it.
    Barrier,
    /// `channel.open-ok`.
    Open,
    /// Any other reply.
    Other,
}

/// Whether a request of the client wants a reply: by the specification, with the position of each `no_wait` bit.
pub(super) fn wants_reply(id: MethodId, payload: &[u8]) -> bool {
    use crate::amqp::cursor::Cursor;
    let no_wait = |shortstrs: usize, bit: u8| -> bool {
        let mut cursor = Cursor::new(payload);
        let bits = (|| {
            cursor.take(4)?;
            if !matches!(id, MethodId::BASIC_CANCEL | MethodId::CONFIRM_SELECT) {
                cursor.short()?;
            }
            for _ in 0..shortstrs {
                cursor.shortstr()?;
            }
            cursor.octet()
        })();
        bits.is_ok_and(|bits| bits & (1 << bit) != 0)
    };
    match id {
        MethodId::BASIC_PUBLISH
        | MethodId::BASIC_ACK
        | MethodId::BASIC_NACK
        | MethodId::BASIC_REJECT
        | MethodId::BASIC_RECOVER_ASYNC => false,
        MethodId::CHANNEL_CLOSE_OK | MethodId::CHANNEL_FLOW_OK => false,
        MethodId::EXCHANGE_DECLARE => !no_wait(2, 4),
        MethodId::EXCHANGE_DELETE => !no_wait(1, 1),
        MethodId::EXCHANGE_BIND | MethodId::EXCHANGE_UNBIND => !no_wait(3, 0),
        MethodId::QUEUE_DECLARE => !no_wait(1, 4),
        MethodId::QUEUE_BIND => !no_wait(3, 0),
        MethodId::QUEUE_PURGE => !no_wait(1, 0),
        MethodId::QUEUE_DELETE => !no_wait(1, 2),
        MethodId::BASIC_CONSUME => !no_wait(2, 3),
        MethodId::BASIC_CANCEL => !no_wait(1, 0),
        MethodId::CONFIRM_SELECT => !no_wait(0, 0),
        _ => true,
    }
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

/// Takes the reply that `id` answers: the oldest. Where the two disagree (a request that we misread), the oldest that fits.
pub(super) fn answered(expected: &mut VecDeque<Expected>, id: MethodId) -> Option<Expected> {
    let fits = |expected: &Expected| match expected {
        Expected::Declare(_) => id == MethodId::QUEUE_DECLARE_OK,
        Expected::Delete(_) => id == MethodId::QUEUE_DELETE_OK,
        Expected::Consume(_) => id == MethodId::BASIC_CONSUME_OK,
        Expected::Get(_) => matches!(id, MethodId::BASIC_GET_OK | MethodId::BASIC_GET_EMPTY),
        Expected::Cancel => id == MethodId::BASIC_CANCEL_OK,
        Expected::Barrier => id == MethodId::CHANNEL_FLOW_OK,
        Expected::Open => id == MethodId::CHANNEL_OPEN_OK,
        Expected::Change(_) | Expected::Other => true,
    };
    let at = expected.iter().position(fits)?;
    expected.drain(..=at).last()
}
