//! The exchanges and queues that the proxy makes at the broker, as one closed type. [`Names`] has their names.
//!
//! Each has a kind (`kind.rs`), which says what its name has behind the prefix. From that follow its name, what is read of a name, and which
//! names clients may not use: the compiler asks for each when an object is added.

use std::borrow::Cow;

use self::kind::Kind;

pub use self::declared_target::{DeclaredTarget, QueueType};
pub use self::names::{BadPrefix, Names};

mod declared_target;
mod intake_name;
mod kind;
mod names;
#[cfg(test)]
mod tests;

/// An exchange or a queue of the proxy's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnObject<'a> {
    /// The queue that collects all signals of a vhost.
    IntakeQueue,
    /// The exchange, and the queue, of dead letters that nothing else takes.
    Parking,
    /// The queue that a proxy has to itself while it tries what is parked.
    Lock,
    /// The stream in which proxies record what the last declares of queues said.
    Redeclared,
    /// The queue that says with which user the proxies of a vhost work.
    UserMark,
    /// The exchange that leads to the delay queues, by their milliseconds.
    DelayExchange,
    /// The exchange into which delay queues let go what they hold, and which leads to the intake queue.
    DueExchange,
    /// The queue in which messages wait for so many milliseconds.
    DelayQueue(u64),
    /// The exchange that leads to this queue alone.
    ReturnExchange(&'a [u8]),
    /// The exchange by which this internal one is reached.
    Bridge(&'a [u8]),
    /// The exchange of queues whose arguments say this, which leads to the intake queue: see [`OwnObject::intake_exchange`].
    IntakeExchange(DeclaredTarget, QueueType),
}

// === impl OwnObject ===

impl<'a> OwnObject<'a> {
    /// The intake exchange of a queue of that type. It tells of the type only what policies and strategies depend on.
    pub fn intake_exchange(said: &DeclaredTarget, queue_type: QueueType) -> OwnObject<'static> {
        let queue_type = match queue_type {
            _ if said.at_least_once() => QueueType::Quorum, // no other type has the strategy
            QueueType::Quorum => QueueType::Quorum,
            QueueType::Classic | QueueType::Default | QueueType::Other => QueueType::Default,
        };
        OwnObject::IntakeExchange(said.clone(), queue_type)
    }

    /// Its kind, and what its name has behind the start of that kind.
    fn spelled(&self) -> (Kind, Cow<'a, [u8]>) {
        let nothing = Cow::Borrowed(&[][..]);
        match self {
            OwnObject::IntakeQueue => (Kind::IntakeQueue, nothing),
            OwnObject::Parking => (Kind::Parking, nothing),
            OwnObject::Lock => (Kind::Lock, nothing),
            OwnObject::Redeclared => (Kind::Redeclared, nothing),
            OwnObject::UserMark => (Kind::UserMark, nothing),
            OwnObject::DelayExchange => (Kind::DelayExchange, nothing),
            OwnObject::DueExchange => (Kind::DueExchange, nothing),
            OwnObject::DelayQueue(millis) => {
                (Kind::DelayQueue, millis.to_string().into_bytes().into())
            }
            OwnObject::ReturnExchange(queue) => (Kind::ReturnExchange, Cow::Borrowed(queue)),
            OwnObject::Bridge(exchange) => (Kind::Bridge, Cow::Borrowed(exchange)),
            OwnObject::IntakeExchange(said, queue_type) => {
                let kind = match queue_type {
                    _ if said.at_least_once() => Kind::AtLeastOnceIntake,
                    QueueType::Quorum => Kind::QuorumIntake,
                    QueueType::Classic | QueueType::Default | QueueType::Other => Kind::Intake,
                };
                (kind, intake_name::encode(said).into())
            }
        }
    }
}
