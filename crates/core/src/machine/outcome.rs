//! Why a message died, what became of its dead letter, and why.

labels! {
/// Why a message died, in RabbitMQ's words (S1).
pub enum Reason {
    Rejected = "rejected",
    Expired = "expired",
    Maxlen = "maxlen",
    DeliveryLimit = "delivery_limit",
}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Confirmed at its target: the original may go.
    Confirmed,
    /// Confirmed in the parking queue instead: the original may go.
    Parked(Cause),
    /// Dropped by the operator's choice or a rule of RabbitMQ: the original may go.
    Dropped(Cause),
    /// Unpublished, or unknown: the original must stay with the broker (forward the reject; reject
    /// the signal).
    Refused(Cause),
}

labels! {
/// Why a dead letter did not simply reach its target. The label of a metric.
pub enum Cause {
    /// Returned: no queue is bound for its key.
    Unroutable = "unroutable",
    /// Returned, but with a positive `x-delay`: an exchange of the type `x-delayed-message` also returns what it delivers later.
    Delayed = "delayed",
    /// The exchange does not exist.
    NoExchange = "no_exchange",
    /// The proxy's user may not publish there (403); or the exchange is internal, and it may not be bound to a bridge.
    Forbidden = "forbidden",
    /// The target nacked it more than `nack-retries` times.
    Nacked = "nacked",
    /// No confirm within `give-up-after`.
    TimedOut = "timed_out",
    /// Larger than a frame of the link may be.
    TooBig = "too_big",
    /// Its `user-id` is not the proxy's user.
    UserId = "user_id",
    /// Publishing it closed the channel or the connection.
    Poison = "poison",
    /// An automatic cycle (S6.1).
    Cycle = "cycle",
    /// A signal without a plausible death.
    Implausible = "implausible",
    /// Too many dead letters of this target are waiting for a retry.
    TargetBusy = "target_busy",
    /// Its queue has no dead-letter exchange.
    NoTarget = "no_target",
    /// Where the dead letters of its queue go is known to the broker alone, which cannot be asked.
    TargetUnknown = "target_unknown",
    /// It comes back to its queue, which does not take it now.
    QueueFull = "queue_full",
    /// The publisher is blocked, away or ending.
    PublisherAway = "publisher_away",
    /// It was published, and the publisher went away before the confirm: it may be at its target. Only for what an operator sends back.
    Unconfirmed = "unconfirmed",
    /// It was to be parked, and the parking queue refuses it or does not answer. The broker could not put it there either.
    ParkingBusy = "parking_busy",
}
}

// === impl Reason ===

impl Reason {
    pub fn parse(name: &[u8]) -> Option<Reason> {
        let mut all = Reason::ALL.into_iter();
        all.find(|reason| reason.as_str().as_bytes() == name)
    }
}

// === impl Outcome ===

impl Outcome {
    pub fn label(self) -> (&'static str, Option<Cause>) {
        match self {
            Outcome::Confirmed => ("confirmed", None),
            Outcome::Parked(cause) => ("parked", Some(cause)),
            Outcome::Dropped(cause) => ("dropped", Some(cause)),
            Outcome::Refused(cause) => ("refused", Some(cause)),
        }
    }
}
