//! Facts for the log and the metrics. The core neither logs nor counts names; `telemetry/events.rs` turns each into one line and one counter.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::amqp::ids::{ShortStr, Vhost};

use super::{Cause, DeadLetter, Leg, Outcome, Trouble, Witness};

/// Something that an operator may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A session saw `connection.open-ok`.
    SessionOpened {
        vhost: Vhost,
        /// The user it authenticated as, when the mechanism shows it.
        user: Option<ShortStr>,
        /// `connection_name` of its client properties.
        name: Option<Bytes>,
    },
    /// A queue is managed from now on.
    QueueManaged {
        queue: ShortStr,
        /// Its declare was rewritten (take-over); false: its own arguments stay (keep).
        taken_over: bool,
    },
    /// A declare said something else of where dead letters go than counted before; it counts from now on.
    Redeclared {
        queue: ShortStr,
        before: DeadLettersTo,
        now: DeadLettersTo,
        /// Where what expires or overflows still goes: the queue was not taken over.
        own: Option<DeadLettersTo>,
    },
    /// A policy of the proxy says where the dead letters of a queue go that was not taken over: it acts on its rejects alone.
    RejectsOnly {
        queue: ShortStr,
        now: DeadLettersTo,
        /// By the arguments that the queue has.
        own: DeadLettersTo,
    },
    /// What the last declare of a queue said could not be written to the record in time: other proxies do not know it yet.
    NotRecorded { queue: ShortStr },
    /// The record of redeclared queues cannot be read, or takes too long: what other proxies wrote there does not count here yet.
    RecordUnread {
        /// The broker's words, or ours.
        cause: String,
    },
    /// The record of redeclared queues has messages that no proxy wrote: they count for nothing, but take room.
    RecordForeign { messages: u64 },
    /// A declare that names a dead-letter exchange was left to the broker.
    DeclareLeft { queue: ShortStr, cause: Fallback },
    /// A reject was left to the broker although its queue is managed.
    RejectForwarded { queue: ShortStr, cause: Fallback },
    /// A message that a client returned to a queue with retries was left to the broker.
    ReturnForwarded { queue: ShortStr, cause: Fallback },
    /// A client was lost, and what it had not settled of a queue that counts that was not counted, or not all.
    CrashNotCounted { queue: ShortStr, cause: Fallback },
    /// What the arguments of a queue say of retries means nothing, wholly or in part.
    RetriesInVain {
        queue: ShortStr,
        /// RabbitMQ's words, or ours.
        problem: String,
    },
    /// The arguments of a queue delete it together with messages that wait in it.
    GoesWithMessages {
        queue: ShortStr,
        problem: &'static str,
    },
    /// The broker has purged or deleted a queue with retries: what waits for its retry is elsewhere.
    StillWaiting { queue: ShortStr, deleted: bool },
    /// A message that a client returned has come to the end of its publication into a delay queue.
    Retried {
        /// The queue it belongs to.
        queue: ShortStr,
        delay: Duration,
        /// What became of it: confirmed, or refused.
        outcome: Outcome,
    },
    /// A dead letter that an operator sends back has come to the end of its publication.
    Redriven {
        /// The queue that it died in.
        queue: ShortStr,
        /// What became of it: confirmed, or refused.
        outcome: Outcome,
    },
    /// A message that was away is in its queue again.
    CameBack { queue: ShortStr },
    /// A reject or a return was kept from the broker, which would lose the message, or give it back at once.
    Kept {
        queue: ShortStr,
        returned: bool,
        /// Why nothing is published in its place, or not yet.
        cause: Fallback,
    },
    /// The message of such a reject or return was returned to its queue.
    KeptReturned { queue: ShortStr },
    /// A delivery of a managed queue was not retained: its reject, if one comes, is the broker's.
    NotRetained { queue: ShortStr, limit: Limit },
    /// A client named an intake or parking object and was refused.
    NameRefused { name: ShortStr },
    /// A client was refused that chose EXTERNAL, or a protocol in which it could choose that unseen.
    ExternalRefused,
    /// A dead letter came to its end. Whoever keeps it for a while shares it.
    DeadLetter(Arc<DeadLetter>),
    /// An edit of a header would not have fitted the frame and was dropped.
    EditDropped,
    /// A message was published without its `x-opt-delivery-time`, which was too far ahead.
    DeliveryTimeDropped {
        /// The queue that it died in, or comes back to.
        queue: ShortStr,
    },
    /// A link of the proxy's own is up.
    LinkUp { role: Role, version: Bytes },
    /// A link is down, or could not be opened.
    LinkDown {
        role: Role,
        /// The broker's words, or ours.
        cause: String,
    },
    /// The proxy's user may not use this vhost: it stays native.
    VhostNative { cause: String },
    /// The broker blocked (true) or unblocked the publisher.
    Blocked(bool),
    /// The broker closed a channel of a link.
    ChannelClosed { role: Role, cause: String },
    /// The broker closed a channel of the publisher, as a dead-letter exchange is internal: it is reached over a bridge from now on.
    InternalExchange { exchange: ShortStr },
    /// Dead letters to this target close the publisher's connection: they are kept apart from others, and tried seldom.
    TargetClosesConnection {
        exchange: ShortStr,
        /// Its key, behind the default exchange.
        routing_key: ShortStr,
    },
    /// Parked messages were tried again, each once.
    ParkedTried {
        /// How many went to their targets.
        moved: usize,
        /// How many could not go now.
        waiting: usize,
        /// How many the proxy does not try again.
        staying: usize,
        /// How many did not go, by the cause that they say; empty: none.
        causes: Vec<(ShortStr, usize)>,
    },
    /// The intake consumer has begun (true) or stopped.
    Consuming(bool),
    /// The intake has all that it needs, and consumes: said once in each life of its link, and after it was refused.
    IntakeWorks,
    /// The broker refuses what the intake needs: an object of its own, or to consume. It is tried again.
    IntakeRefused { code: u16, cause: String },
    /// Nothing can be published: the intake has returned what it held to its queue, and consumes no more until the publisher's link is up.
    HandedOver,
    /// How many intake exchanges are declared.
    IntakeExchanges(usize),
    /// A queue of the proxy's own does its work, or does not any more.
    OwnQueue {
        queue: ShortStr,
        witness: Witness,
        /// What is wrong; none: it does.
        trouble: Option<Trouble>,
    },
    /// Proxies with this other user work in the vhost; none: no more, or none as far as can be seen.
    OtherUser(Option<ShortStr>),
    /// A queue of the proxy's own was there, and is not any more. It is made again.
    OwnQueueGone { queue: ShortStr },
    /// The broker closed the client's connection because a probe's channel was one too many for its user.
    ProbeOverLimit,
    /// A limit was met. What that means for what met it other facts say.
    LimitMet(Limit),
    /// A fault of the protocol on a leg.
    ProtocolFault { leg: Leg, what: &'static str },
}

labels! {
/// A limit that a client or an operator can meet. The label of a metric.
pub enum Limit {
    /// Clients at once.
    Connections = "max-connections",
    /// Octets that are retained in all.
    Retained = "retained-bytes",
    /// Octets that are retained for one connection.
    RetainedPerConnection = "retained-bytes-per-connection",
    /// Dead letters in flight of one session.
    Tickets = "max-tickets-per-connection",
    /// A request waited for too long behind rejects, or a settlement for an answer.
    CloseWait = "close-wait",
    /// A declare was examined for too long.
    ProbeTimeout = "probe-timeout",
    /// A client took too long until its connection was open.
    HandshakeTimeout = "handshake-timeout",
    /// Whoever asked at the admin port took too long.
    AdminTimeout = "admin-timeout",
    /// Connections to the admin port at once.
    AdminConnections = "max-admin-connections",
    /// Looks into queues at once.
    Looks = "max-looks",
    /// Messages that a look passes.
    LookLimit = "look-limit",
    /// Redrives at once.
    Redrives = "max-redrives",
    /// Messages that a redrive holds, as they stay.
    RedriveHeld = "redrive-held",
    /// Octets of messages that a look passes.
    LookBytes = "look-bytes",
    /// How long a look lasts.
    LookTimeout = "look-timeout",
    /// Dead letters of which the hook is not told yet.
    HookLetters = "max-hook-letters",
    /// Queues that a session knows.
    Queues = "max-queues-per-connection",
    /// Replies for which a client waits.
    Replies = "max-replies-per-connection",
    /// Intake exchanges of a vhost.
    IntakeExchanges = "max-intake-exchanges",
    /// Queues that were declared otherwise than they are.
    RedeclaredQueues = "max-redeclared-queues",
    /// A message came to an intake only after it had heard nothing for so long, and opened its channel anew.
    IntakeQuiet = "intake-quiet",
    /// Signals that an intake holds.
    IntakeBytes = "intake-bytes",
    /// How long it may hold them.
    IntakeHeld = "intake-held",
    /// Dead letters that a publisher holds.
    PublisherBytes = "publisher-bytes",
    /// A dead letter was not confirmed in time, and is published again.
    ConfirmTimeout = "confirm-timeout",
    /// Entries of a history.
    History = "max-history",
    /// How far ahead the `x-opt-delivery-time` of a message is.
    DeliveryTime = "x-opt-delivery-time",
    /// Queues that are taken from a list of the management API.
    ListedQueues = "listed-queues",
    /// Queues that the management API is still to be asked for.
    Questions = "asked-queues",
}
}

/// Where a declare says that dead letters go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLettersTo {
    /// Nothing: it names none.
    pub exchange: Option<ShortStr>,
    /// Instead of the message's own keys.
    pub routing_key: Option<ShortStr>,
}

impl Display for DeadLettersTo {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (&self.exchange, &self.routing_key) {
            (None, _) => f.write_str("none"),
            (Some(exchange), None) => write!(f, "exchange {exchange:?}"),
            (Some(exchange), Some(key)) => write!(f, "exchange {exchange:?}, key {key:?}"),
        }
    }
}

labels! {
/// A connection of the proxy's own.
pub enum Role {
    /// Confirm mode, mandatory: puts dead letters out.
    Publisher = "publisher",
    /// Tries, one at a time, what may have closed the publisher's connection.
    Careful = "careful",
    /// Consumes the intake queue and owns the topology.
    Intake = "intake",
    /// Writes and reads the record of redeclared queues.
    Recorder = "recorder",
    /// Asks whether the proxy's own queues do their work.
    Pulse = "pulse",
    /// Looks at the messages of a queue, in the name of whoever asked.
    Walk = "walk",
}
}

labels! {
/// Why the broker was left to do it. The label of a metric.
pub enum Fallback {
    /// The intake exchange could not be had (link away or refused, bound).
    NoIntake = "no_intake",
    /// The name of the intake exchange would be over 255 bytes.
    NameTooLong = "name_too_long",
    /// A stream, or arguments that cannot be read.
    NotSupported = "not_supported",
    /// The broker generates the name, and how that ends decides which policy of ours the queue has.
    GeneratedName = "generated_name",
    /// With an intake exchange, or what asks for it, the declare would be larger than the client's frames may be.
    FrameMax = "frame_max",
    /// The user may not write to the dead-letter exchange: the broker tells the client so.
    Forbidden = "forbidden",
    /// The user may not write to the intake exchange.
    NoPermission = "no_permission",
    /// The queue exists with native arguments.
    NativeQueue = "native_queue",
    /// Nobody declared the queue here, and it cannot be asked what it is.
    Undeclared = "undeclared",
    /// No channel was free for a probe.
    NoChannel = "no_channel",
    /// The user has met a limit on channels: a probe might cost a connection.
    ChannelLimit = "channel_limit",
    /// The probe did not end in time.
    ProbeTimeout = "probe_timeout",
    /// Its content was not retained: over the budget.
    Budget = "budget",
    /// Its client settles it in a transaction.
    Transaction = "transaction",
    /// Its content could not be read.
    Unreadable = "unreadable",
    /// The queue is exclusive, and the broker itself may kill what comes back to it: nobody else can bind it to an exchange.
    Exclusive = "exclusive",
    /// A request waited for too long behind it.
    CloseWait = "close_wait",
    /// Knowledge of the queue was too old at consume.
    Stale = "stale",
    /// The client was lost within a frame, behind which the broker reads nothing.
    InsideFrame = "inside_frame",
    /// As many dead letters as there may be are in flight.
    NoTicket = "no_ticket",
    /// Where its dead letters go is known only to the broker: a policy of ours is gone, or one of the broker's cannot be told from here.
    TargetUnknown = "target_unknown",
    ..
    /// The publisher refused it.
    Refused(Cause),
}
}
