//! The whole contract between the pure core and the shell: what a machine is told, and what it may ask for.
//!
//! A machine (session, publisher, intake, recorder, pulse, walk, import) is a plain value. It is handed bytes, outcomes and the time, and writes what
//! should happen into [`Effects`]. It never waits, reads no clock and owns no socket; `net/drive.rs` pumps it. Everything to the right of this
//! module knows it; it knows nothing of them but the words of `amqp`.

#[macro_use]
mod label;

mod budget;
mod dead_letter;
mod event;
mod limits;
mod outcome;
mod own_queue;
mod publication;
mod rejecter;
mod time;
mod topology;
mod wire;

pub use budget::Budget;
pub use dead_letter::DeadLetter;
pub use event::{DeadLettersTo, Event, Fallback, Limit, Role};
pub use limits::{Fixed, Limits, LiveLimits};
pub use outcome::{Cause, Outcome, Reason};
pub use own_queue::{Trouble, Witness};
pub use publication::{Owner, Publication, Purpose, Ticket};
pub use rejecter::{ClientConnection, Rejecter};
pub use time::{Mono, Now, Wall};
pub use topology::{Binding, Destination, Ensure, Ensured, Exchange, Survey};
pub use wire::Wire;

// === legs and bytes ===

/// One side of a machine: the client's connection or the broker's. The proxy's own links have only the broker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leg {
    /// Towards the AMQP client.
    Client,
    Broker,
}

impl Leg {
    /// The leg to which bytes of this one pass.
    pub fn other(self) -> Leg {
        match self {
            Leg::Client => Leg::Broker,
            Leg::Broker => Leg::Client,
        }
    }
}

// === effects and inputs ===

/// What a machine wants done. Owned by the driver and reused, so that nothing is allocated per frame. `O`: what it has for other machines.
#[derive(Debug, Default)]
pub struct Effects<O> {
    /// Bytes for the client leg.
    pub client: Wire,
    /// Bytes for the broker leg.
    pub broker: Wire,
    /// Facts for the log and the metrics.
    pub events: Vec<Event>,
    /// What is for other machines.
    pub out: O,
}

impl<O> Effects<O> {
    pub fn wire(&mut self, leg: Leg) -> &mut Wire {
        match leg {
            Leg::Client => &mut self.client,
            Leg::Broker => &mut self.broker,
        }
    }
}

/// Whether a machine goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It goes on with the legs that it has.
    Open,
    /// The client's stream has ended: end that to the broker, behind what is buffered, and go on with what the broker still says.
    HalfClosed,
    /// Write what is buffered, then close both legs: the machine has ended.
    Finish,
    /// A link: its connection is over, it wants a new one at this moment.
    Reconnect(Mono),
}

/// The one shape of all machines: session, publisher, intake, recorder, pulse, walk and import.
pub trait Machine {
    /// What reaches it besides the bytes of its legs.
    type Input;
    /// What it has for other machines.
    type Output: Default;

    /// The leg is connected. A session never hears it of its client.
    fn connected(&mut self, leg: Leg, now: Now, fx: &mut Effects<Self::Output>);

    /// Bytes of a leg. Returns how many were consumed; the rest is offered again, with more behind it or after a pause.
    fn read(&mut self, from: Leg, bytes: &[u8], now: Now, fx: &mut Effects<Self::Output>) -> usize;

    /// The leg ended: by the peer (end of stream; it may still read) or by an error of the socket.
    fn closed(&mut self, leg: Leg, now: Now, fx: &mut Effects<Self::Output>);

    /// Something from another machine.
    fn input(&mut self, input: Self::Input, now: Now, fx: &mut Effects<Self::Output>);

    /// The process is ending: finish what can be finished, take nothing new.
    fn drain(&mut self, now: Now, fx: &mut Effects<Self::Output>);

    fn timeout(&mut self, now: Now, fx: &mut Effects<Self::Output>);

    /// When [`Machine::timeout`] wants to be called.
    fn deadline(&self) -> Option<Mono>;

    /// The only pause switch: whether this leg should be read while `backlog` bytes wait to be written to the other one (for a link:
    /// to its own).
    fn wants_read(&self, leg: Leg, backlog: usize) -> bool;

    /// All that was buffered for the legs has been written.
    fn drained(&mut self, _now: Now, _fx: &mut Effects<Self::Output>) {}

    /// Whether [`Machine::input`] may be called: false leaves inputs in the inbox, whose bound then slows those who fill it.
    fn accepts(&self) -> bool {
        true
    }

    /// Whether the machine goes on.
    fn flow(&self) -> Flow;
}
