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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnObject<'a> {
    /// Collects all signals of a vhost.
    IntakeQueue,
    /// The exchange and the queue for dead letters that cannot be delivered.
    Parking,
    /// Exclusive to the proxy that is trying parked messages.
    Lock,
    /// The stream that records redeclared queues.
    Redeclared,
    /// Names the user of the proxies in the vhost.
    UserMark,
    /// Leads to the delay queues, by their milliseconds.
    DelayExchange,
    /// Receives messages from delay queues; leads to the intake queue.
    DueExchange,
    /// Messages wait here for this many milliseconds.
    DelayQueue(u64),
    /// Leads to this queue alone.
    ReturnExchange(&'a [u8]),
    /// Leads to this internal exchange.
    Bridge(&'a [u8]),
    /// Has the order to make this queue anew.
    Order(&'a [u8]),
    /// Shows whether the broker takes new arguments for this queue; for a moment.
    Trial(&'a [u8]),
    /// Messages of this queue wait here while it is made anew.
    Aside(&'a [u8]),
    /// Who has this exclusive queue works on the order, and is told here what others have to say.
    Claim(&'a [u8]),
    /// A proxy that takes part in that is told here what to do. Its name is only that proxy's.
    Follower(&'a [u8]),
    /// Leads to the intake queue, for queues with these arguments: see
    /// [`OwnObject::intake_exchange`].
    IntakeExchange(DeclaredTarget, QueueType),
}

// === impl OwnObject ===

impl<'a> OwnObject<'a> {
    /// The intake exchange of a queue. Its name includes only those types that policies and
    /// strategies depend on.
    pub fn intake_exchange(said: &DeclaredTarget, queue_type: QueueType) -> OwnObject<'static> {
        let queue_type = match queue_type {
            _ if said.at_least_once() => QueueType::Quorum, // no other type has the strategy
            QueueType::Quorum => QueueType::Quorum,
            QueueType::Classic | QueueType::Default | QueueType::Other => QueueType::Default,
        };
        OwnObject::IntakeExchange(said.clone(), queue_type)
    }

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
            OwnObject::Order(queue) => (Kind::Order, Cow::Borrowed(queue)),
            OwnObject::Trial(queue) => (Kind::Trial, Cow::Borrowed(queue)),
            OwnObject::Aside(queue) => (Kind::Aside, Cow::Borrowed(queue)),
            OwnObject::Claim(queue) => (Kind::Claim, Cow::Borrowed(queue)),
            OwnObject::Follower(proxy) => (Kind::Follower, Cow::Borrowed(proxy)),
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
