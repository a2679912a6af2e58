//! What sessions learn for each other. A session tells it ([`Learned`]) and asks for it ([`Recall`]) before it probes; between them stands
//! `registry::shared`, which the shell holds.

use crate::amqp::ids::ShortStr;

/// Something that the broker told a session, and that may spare another one a probe, or tell it what to do without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learned {
    /// The session's user may write to this exchange.
    MayWrite(ShortStr),
    /// The session's user may not open as many channels as it and its probes want.
    ChannelLimit,
    /// A queue with a dead-letter exchange that is there, and whether that is an intake exchange.
    Queue {
        /// The queue.
        queue: ShortStr,
        /// False: it is one of a client's own words.
        taken_over: bool,
    },
    /// A queue that is not there any more.
    Deleted(ShortStr),
}

/// Asks what is known before a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recall {
    /// The queue that the probe is about.
    pub queue: ShortStr,
    /// The exchange that its arguments name.
    pub exchange: Option<ShortStr>,
}

/// The answer to [`Recall`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recalled {
    /// What was asked.
    pub about: Recall,
    /// The user may write to the exchange.
    pub may_write: bool,
    /// One channel more may cost the user a connection.
    pub channel_limit: bool,
    /// Whether the queue has an intake exchange, if anybody saw it.
    pub taken_over: Option<bool>,
}
