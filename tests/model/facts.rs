//! What happened, in order, for whoever keeps accounts.

use crate::codec::methods::Args;
use crate::codec::value::Bytes;

use super::broker::Conn;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    /// By a client, whatever `into`: nothing if it was returned or dropped.
    Published {
        conn: Conn,
        channel: u16,
        exchange: Bytes,
        key: Bytes,
        body: Bytes,
        /// As they were sent.
        properties: Args,
        /// Its number, if the channel is in confirm mode.
        publish: u64,
        into: Vec<Bytes>,
    },
    /// By the publish or the dead letter that was told of last; it may be refused.
    Queued {
        queue: Bytes,
        /// Its number from now on.
        copy: u64,
    },
    Returned {
        conn: Conn,
        channel: u16,
        body: Bytes,
    },
    /// The confirm was sent.
    Confirmed {
        conn: Conn,
        channel: u16,
        tag: u64,
        nacked: bool,
    },
    /// What it is given may go back before any of it is delivered.
    Consumed {
        conn: Conn,
        queue: Bytes,
    },
    Delivered {
        conn: Conn,
        channel: u16,
        tag: u64,
        queue: Bytes,
        copy: u64,
        body: Bytes,
        redelivered: bool,
        /// What a quorum queue says of it: `x-acquired-count`, `x-delivery-count`.
        counts: [Option<u64>; 2],
    },
    /// By a client.
    Settled {
        conn: Conn,
        channel: u16,
        tag: u64,
        queue: Bytes,
        copy: u64,
        body: Bytes,
        how: How,
    },
    /// It is on its way to that exchange.
    Died {
        queue: Bytes,
        reason: Reason,
        copy: u64,
        body: Bytes,
        to: Bytes,
    },
    /// A dead letter has reached these queues.
    Routed {
        queue: Bytes,
        copy: u64,
        body: Bytes,
        into: Vec<Bytes>,
    },
    /// It is nowhere any more.
    Dropped {
        queue: Bytes,
        copy: u64,
        body: Bytes,
        why: Why,
    },
    ChannelClosed {
        conn: Conn,
        channel: u16,
        code: u16,
        text: Bytes,
    },
    ConnectionClosed {
        conn: Conn,
        code: u16,
        text: Bytes,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Ack,
    RejectDrop,
    Requeue,
}

/// Of a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Rejected,
    Expired,
    Maxlen,
    DeliveryLimit,
}

/// Why a message is gone without having been acked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It died for that reason, and its queue has no dead-letter exchange, or one that is not there.
    NoTarget(Reason),
    /// A dead letter that would enter a queue again.
    Cycle,
    /// A dead letter that no queue is bound for.
    Unroutable,
    /// Refused by a full queue: the publisher was told, or it was a dead letter.
    Full,
    Purged,
    QueueDeleted,
    Restarted,
    /// Delivered without wanting an ack, to somebody who was gone.
    NoAck,
    /// The fault `nack`: the queue has lost it.
    Lost,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Rejected => "rejected",
            Reason::Expired => "expired",
            Reason::Maxlen => "maxlen",
            Reason::DeliveryLimit => "delivery_limit",
        }
    }
}
