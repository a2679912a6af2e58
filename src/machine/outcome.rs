//! Why a message died, what became of its dead letter, and why.

/// Why a message died, in RabbitMQ's words (S1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// `basic.reject` or `basic.nack` with `requeue=false`.
    Rejected,
    /// The message's or the queue's TTL.
    Expired,
    /// The queue's length limit.
    Maxlen,
    /// A quorum queue's limit on deliveries.
    DeliveryLimit,
}

impl Reason {
    /// All there are: the proxy adds none.
    pub const ALL: [Reason; 4] = [
        Reason::Rejected,
        Reason::Expired,
        Reason::Maxlen,
        Reason::DeliveryLimit,
    ];

    /// As in `x-death.reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Rejected => "rejected",
            Reason::Expired => "expired",
            Reason::Maxlen => "maxlen",
            Reason::DeliveryLimit => "delivery_limit",
        }
    }

    /// The reason of that name.
    pub fn parse(name: &[u8]) -> Option<Reason> {
        let mut all = Reason::ALL.into_iter();
        all.find(|reason| reason.as_str().as_bytes() == name)
    }
}

/// What became of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The broker confirmed it at its target: the original may go.
    Confirmed,
    /// Confirmed in the parking queue instead: the original may go.
    Parked(Cause),
    /// Dropped by a rule that the operator chose or RabbitMQ has: the original may go.
    Dropped(Cause),
    /// It is nowhere, or nobody knows: the original must stay with the broker (forward the reject; reject the signal).
    Refused(Cause),
}

/// Why a dead letter did not simply reach its target. The label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Returned: no queue is bound for its key.
    Unroutable,
    /// Returned, but with a positive `x-delay`: an exchange of the type `x-delayed-message` also returns what it delivers later.
    Delayed,
    /// The exchange does not exist.
    NoExchange,
    /// The proxy's user may not publish there (403); or the exchange is internal, and it may not be bound to a bridge.
    Forbidden,
    /// The target nacked it more than `nack-retries` times.
    Nacked,
    /// No confirm within `retry-for`.
    TimedOut,
    /// Larger than a frame of the link may be.
    TooBig,
    /// Its `user-id` is not the proxy's user.
    UserId,
    /// Publishing it closed the channel or the connection.
    Poison,
    /// An automatic cycle (S6.1).
    Cycle,
    /// A signal without a plausible death.
    Implausible,
    /// Too many dead letters of this target are waiting for a retry.
    TargetBusy,
    /// Its queue has no dead-letter exchange.
    NoTarget,
    /// Where the dead letters of its queue go is known to the broker alone, which cannot be asked.
    TargetUnknown,
    /// It comes back to its queue, which does not take it now.
    QueueFull,
    /// The publisher is blocked, away or ending.
    PublisherAway,
    /// The same, but it had been published before that: it may be at its target. Only what an operator sends back is told apart so.
    Unconfirmed,
    /// It was to be parked, and the parking queue refuses it or does not answer. The broker could not put it there either.
    ParkingBusy,
}

impl Cause {
    /// As in metrics, logs and the header `x-parked-cause`.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Unroutable => "unroutable",
            Cause::Delayed => "delayed",
            Cause::NoExchange => "no_exchange",
            Cause::Forbidden => "forbidden",
            Cause::Nacked => "nacked",
            Cause::TimedOut => "timed_out",
            Cause::TooBig => "too_big",
            Cause::UserId => "user_id",
            Cause::Poison => "poison",
            Cause::Cycle => "cycle",
            Cause::Implausible => "implausible",
            Cause::TargetBusy => "target_busy",
            Cause::NoTarget => "no_target",
            Cause::TargetUnknown => "target_unknown",
            Cause::QueueFull => "queue_full",
            Cause::PublisherAway => "publisher_away",
            Cause::Unconfirmed => "unconfirmed",
            Cause::ParkingBusy => "parking_busy",
        }
    }
}
