//! The whole contract between the pure core and the shell: what a machine is told, and what it may ask for.
//!
//! A machine (session, publisher, intake, recorder, pulse, walk, import, alteration) is a plain value. It is handed bytes, outcomes and the time, and writes what
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
pub use event::{DeadLettersTo, Event, Fallback, Limit, Role, Unused};
pub use limits::{Limits, LiveLimits};
pub use outcome::{Cause, Outcome, Reason};
pub use own_queue::{Trouble, Witness};
pub use publication::{Owner, Publication, Purpose, Ticket};
pub use rejecter::{ClientConnection, Rejecter};
pub use time::{Mono, Now, Wall};
pub use topology::{Ensure, Ensured};
pub use wire::Wire;

// === legs and bytes ===

/// One side of a machine. The proxy's own links have only the broker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leg {
    Client,
    Broker,
}

impl Leg {
    pub fn other(self) -> Leg {
        match self {
            Leg::Client => Leg::Broker,
            Leg::Broker => Leg::Client,
        }
    }
}

// === effects and inputs ===

/// What a machine wants done. The driver owns and reuses it, so that no frame allocates. `O`:
/// output for other machines.
#[derive(Debug, Default)]
pub struct Effects<O> {
    pub client: Wire,
    pub broker: Wire,
    pub events: Vec<Event>,
    pub out: O,
}

impl<O> Effects<O> {
    pub fn wire(&mut self, leg: Leg) -> &mut Wire {
        match leg {
            Leg::Client => &mut self.client,
            Leg::Broker => &mut self.broker,
        }
    }

    /// Takes buffers, where it has none.
    pub fn borrow(&mut self, spare: &mut Spare) {
        self.client.borrow(&mut spare.client);
        self.broker.borrow(&mut spare.broker);
        if self.events.capacity() == 0 {
            self.events = std::mem::take(&mut spare.events);
        }
    }

    /// Gives back the buffers that are empty: an idle machine keeps none.
    pub fn release(&mut self, spare: &mut Spare) {
        self.client.release(&mut spare.client);
        self.broker.release(&mut spare.broker);
        if self.events.is_empty() {
            wire::keep(&mut spare.events, std::mem::take(&mut self.events));
        }
    }
}

/// Buffers of a thread, for whichever of its machines is at work: those that grow anew at each
/// wake-up cost more than what is written to them.
#[derive(Debug, Default)]
pub struct Spare {
    client: Vec<u8>,
    broker: Vec<u8>,
    events: Vec<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Open,
    /// The client's stream has ended: end the broker's behind the buffered bytes, and go on with
    /// what the broker still sends.
    HalfClosed,
    /// Write the buffered bytes, then close both legs: the machine has ended.
    Finish,
    /// The connection of a link is lost; it wants a new one at this time.
    Reconnect(Mono),
}

/// The one shape of all machines: session, publisher, intake, recorder, pulse, walk, import and alteration.
pub trait Machine {
    type Input;
    type Output: Default;

    /// The leg is connected. Not called for the client leg of a session.
    fn connected(&mut self, leg: Leg, now: Now, fx: &mut Effects<Self::Output>);

    /// Bytes of a leg. Returns the number consumed; the rest is offered again, with more behind it
    /// or after a pause.
    fn read(&mut self, from: Leg, bytes: &[u8], now: Now, fx: &mut Effects<Self::Output>) -> usize;

    /// The leg ended: by end of stream (the peer may still read) or by a socket error.
    fn closed(&mut self, leg: Leg, now: Now, fx: &mut Effects<Self::Output>);

    fn input(&mut self, input: Self::Input, now: Now, fx: &mut Effects<Self::Output>);

    /// The process is ending: finish open work, accept nothing new.
    fn drain(&mut self, now: Now, fx: &mut Effects<Self::Output>);

    fn timeout(&mut self, now: Now, fx: &mut Effects<Self::Output>);

    fn deadline(&self) -> Option<Mono>;

    /// The only pause switch: whether to read this leg while `backlog` bytes wait to be written to
    /// the other one (for a link: to its own).
    fn wants_read(&self, leg: Leg, backlog: usize) -> bool;

    fn drained(&mut self, _now: Now, _fx: &mut Effects<Self::Output>) {}

    /// False leaves inputs in the inbox, whose bound then slows their senders.
    fn accepts(&self) -> bool {
        true
    }

    fn flow(&self) -> Flow;
}
