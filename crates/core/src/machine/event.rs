//! Facts for the log and the metrics. The core neither logs nor counts names; `telemetry/events.rs` turns each into one line and one counter.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::amqp::ids::{ShortStr, Vhost};

use super::{Cause, DeadLetter, Leg, Outcome, Trouble, Witness};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    SessionOpened {
        vhost: Vhost,
        user: Option<ShortStr>,
        name: Option<Bytes>,
    },
    QueueManaged {
        queue: ShortStr,
        /// False: the queue keeps its own arguments.
        taken_over: bool,
    },
    /// A client sets a prefetch for a channel, and the broker gives it to each consumer.
    PrefetchOfChannel,
    /// A declare that goes on differs in this from its queue, which keeps what it has.
    DeclareDiffers {
        queue: ShortStr,
        argument: ShortStr,
        /// As text. `None`: it said nothing.
        wanted: Option<String>,
        has: Option<String>,
    },
    /// A declare names another dead-letter target than the last one; it counts from now on.
    Redeclared {
        queue: ShortStr,
        before: DeadLettersTo,
        now: DeadLettersTo,
        /// Where expired and overflowing messages still go: the queue was not taken over.
        own: Option<DeadLettersTo>,
    },
    /// A policy of the proxy names the target of a queue that was not taken over: it applies to
    /// rejects only.
    RejectsOnly {
        queue: ShortStr,
        now: DeadLettersTo,
        own: DeadLettersTo,
    },
    /// A declare could not be recorded in time: other proxies do not know it yet.
    NotRecorded { queue: ShortStr },
    /// The record of redeclared queues cannot be read or is slow: entries of other proxies do not
    /// count here yet.
    RecordUnread { cause: String },
    /// The record has messages that no proxy wrote. They are ignored but take room.
    RecordForeign { messages: u64 },
    /// A declare with a dead-letter exchange went to the broker unchanged.
    DeclareLeft { queue: ShortStr, cause: Fallback },
    /// A reject went to the broker although its queue is managed.
    RejectForwarded { queue: ShortStr, cause: Fallback },
    /// A return to a queue with retries went to the broker: neither delayed nor counted.
    ReturnForwarded { queue: ShortStr, cause: Fallback },
    /// A client was lost, and not all of its unsettled deliveries were counted.
    CrashNotCounted { queue: ShortStr, cause: Fallback },
    /// Retry arguments of a queue that are invalid, wholly or in part.
    RetriesInVain { queue: ShortStr, problem: String },
    /// Arguments that delete the queue together with messages that wait in it.
    GoesWithMessages {
        queue: ShortStr,
        problem: &'static str,
    },
    /// A queue with retries was purged or deleted: messages that wait for a retry are elsewhere.
    StillWaiting { queue: ShortStr, deleted: bool },
    Retried {
        queue: ShortStr,
        delay: Duration,
        outcome: Outcome,
    },
    /// A client's publish: `delay` on its way into a delay queue, none when it is due.
    Published {
        delay: Option<Duration>,
        outcome: Outcome,
    },
    /// The outcome of a dead letter that an operator sends back.
    Redriven { queue: ShortStr, outcome: Outcome },
    /// A client held a delivery for longer than the ack timeout of its queue: it counts as returned.
    TakenBack { queue: ShortStr, timeout: Duration },
    /// A client settled what had been taken back: that is swallowed.
    SettledLate,
    /// A message is in its queue again after a retry.
    CameBack { queue: ShortStr },
    /// A verdict of a client, or a part of it, has no effect.
    VerdictUnused {
        /// Empty: unknown.
        queue: ShortStr,
        cause: Unused,
    },
    /// A reject or a return was withheld because the broker would lose the message, or redeliver it
    /// at once.
    Kept {
        queue: ShortStr,
        returned: bool,
        /// Why nothing is published instead, or not yet.
        cause: Fallback,
    },
    /// The message of a withheld reject or return was requeued.
    KeptReturned { queue: ShortStr },
    /// A delivery of a managed queue was not retained, so its reject would go to the broker.
    NotRetained { queue: ShortStr, limit: Limit },
    /// A client used the name of an object of the proxy.
    NameRefused { name: ShortStr },
    /// A client chose EXTERNAL, or a protocol that would hide this choice.
    ExternalRefused,
    /// Shared with those that keep it for a while.
    DeadLetter(Arc<DeadLetter>),
    /// The edited headers did not fit the frame.
    EditDropped,
    /// A message was published without its `x-opt-delivery-time`, which was too far ahead.
    DeliveryTimeDropped { queue: ShortStr },
    /// A link of the proxy's own is open.
    LinkUp { role: Role, version: Bytes },
    /// A link is lost, or could not be opened.
    LinkDown { role: Role, cause: String },
    /// The proxy's user may not use this vhost, so its queues are left to the broker.
    VhostNative { cause: String },
    /// The broker blocked (true) or unblocked the publisher.
    Blocked(bool),
    /// The broker closed a channel of a link.
    ChannelClosed { role: Role, cause: String },
    /// A dead-letter exchange is internal: it is reached over a bridge from now on.
    InternalExchange { exchange: ShortStr },
    /// Dead letters to this target close the publisher's connection: they are isolated, and tried
    /// seldom.
    TargetClosesConnection {
        exchange: ShortStr,
        routing_key: ShortStr,
    },
    ParkedTried {
        moved: usize,
        waiting: usize,
        staying: usize,
        /// By the cause in their headers; those that did not move.
        causes: Vec<(ShortStr, usize)>,
    },
    /// The intake consumer has begun (true) or stopped.
    Consuming(bool),
    /// The intake consumes. Reported once per connection, and again after a refusal.
    IntakeWorks,
    /// The broker refuses an object that the intake needs, or its consumer. It is tried again.
    IntakeRefused { code: u16, cause: String },
    /// Nothing can be published: the intake has requeued its signals, and consumes again when the
    /// publisher's link is up.
    HandedOver,
    /// The number of declared intake exchanges.
    IntakeExchanges(usize),
    OwnQueue {
        queue: ShortStr,
        witness: Witness,
        trouble: Option<Trouble>,
    },
    /// Proxies with this other user work in the vhost; none: no longer, as far as visible.
    OtherUser(Option<ShortStr>),
    /// The queue existed before. It is made again.
    OwnQueueGone { queue: ShortStr },
    /// The broker closed the client's connection: a probe exceeded its user's channel limit.
    ProbeOverLimit,
    /// Other facts report the consequences.
    LimitMet(Limit),
    /// A violation of the protocol on a leg.
    ProtocolFault { leg: Leg, what: &'static str },
}

labels! {
/// A limit that clients or operators can reach. The label of a metric.
pub enum Limit {
    Connections = "max-connections",
    Retained = "retained-bytes",
    RetainedPerConnection = "retained-bytes-per-connection",
    Tickets = "max-tickets-per-connection",
    /// Taken back from a channel, and not settled by its client since.
    TakenBack = "taken-back",
    /// A request waited too long behind rejects, or a settlement for an answer.
    CloseWait = "close-wait",
    ProbeTimeout = "probe-timeout",
    HandshakeTimeout = "handshake-timeout",
    AdminTimeout = "admin-timeout",
    AdminConnections = "max-admin-connections",
    Browses = "max-browses",
    BrowseLimit = "browse-limit",
    Redrives = "max-redrives",
    RedriveHeld = "redrive-held",
    BrowseBytes = "browse-bytes",
    BrowseTimeout = "browse-timeout",
    HookLetters = "max-hook-letters",
    Queues = "max-queues-per-connection",
    Replies = "max-replies-per-connection",
    IntakeExchanges = "max-intake-exchanges",
    RedeclaredQueues = "max-redeclared-queues",
    /// The intake received a message only after a quiet period, in a channel opened anew.
    IntakeQuiet = "intake-quiet",
    IntakeBytes = "intake-bytes",
    IntakeHeld = "intake-held",
    PublisherBytes = "publisher-bytes",
    ConfirmTimeout = "confirm-timeout",
    History = "max-history",
    /// How far ahead an `x-opt-delivery-time` may be.
    DeliveryTime = "x-opt-delivery-time",
    ListedQueues = "listed-queues",
    Questions = "asked-queues",
}
}

labels! {
/// Why a verdict, or a part of it, has no effect.
pub enum Unused {
    /// Its tag, or a part of it, cannot be read.
    Malformed = "malformed",
    /// A header that only the proxy or the broker writes, or one too many.
    HeaderRefused = "header_refused",
    /// The delivery is not known, or is settled.
    UnknownTag = "unknown_tag",
    /// The delivery is of a queue that is left to the broker, or was not retained.
    NotRetained = "not_retained",
    /// No memory is left for it.
    Budget = "budget",
    /// Its client settles the delivery in a transaction.
    Transaction = "transaction",
    /// The broker deals with the reject or the return.
    LeftToBroker = "left_to_broker",
}
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLettersTo {
    pub exchange: Option<ShortStr>,
    /// Replaces the message's own keys.
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
pub enum Role {
    /// Publishes dead letters: confirm mode, mandatory.
    Publisher = "publisher",
    /// Publishes one at a time what may have closed the publisher's connection.
    Careful = "careful",
    Intake = "intake",
    Recorder = "recorder",
    Pulse = "pulse",
    /// Browses or moves messages of a queue for an operator.
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
    /// The probe did not end in time, or the queue's node is down.
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
