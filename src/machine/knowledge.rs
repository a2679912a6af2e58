//! What sessions learn for each other. A session tells it ([`Learned`]) and asks for it ([`Recall`]) before it probes; between them stands
//! `registry::shared`, which the shell holds.

use crate::amqp::ids::ShortStr;

/// Something that the broker told a session, and that tells another one what to do where it cannot ask. No permission is among it: whose it
/// would be, only the client says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learned {
    /// The session's user may not open as many channels as it and its probes want.
    ChannelLimit,
    /// A queue with a dead-letter exchange that is there.
    Queue {
        /// The queue.
        queue: ShortStr,
        /// Its dead-letter exchange, if that is an intake exchange. None: it is one of a client's own words.
        intake: Option<ShortStr>,
    },
    /// A queue that is not there any more.
    Deleted(ShortStr),
}

/// Asks what is known before a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recall {
    /// The queue that the probe is about.
    pub queue: ShortStr,
}

/// The answer to [`Recall`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recalled {
    /// What was asked.
    pub about: Recall,
    /// One channel more may cost the user a connection.
    pub channel_limit: bool,
    /// Which intake exchange the queue has, if anybody saw it. `Some(None)`: none.
    pub seen: Option<Option<ShortStr>>,
}
