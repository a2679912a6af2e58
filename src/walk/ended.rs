//! How a walk ended.

use thiserror::Error;

use super::Moved;

/// What was met, or why nothing was.
pub type Ended = Result<Summary, Failure>;

/// What a walk has met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Messages that were ready when it began, if the user may ask that (from 4.3 on this takes the right to configure the queue).
    pub ready: Option<u64>,
    /// Other consumers of the queue when it began, if that is known.
    pub consumers: Option<u64>,
    /// Messages that it looked at.
    pub seen: u64,
    /// What kind of queue it is.
    pub queue_type: QueueType,
    /// Each message that it looked at counts as one failed delivery more: a delivery limit may kill it in the end.
    pub counted: bool,
    /// Why it went no further.
    pub stopped: Stopped,
    /// What became of those that were meant.
    pub moved: Moved,
}

/// What kind of queue it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueType {
    /// `classic`, or one that the broker does not name.
    #[default]
    Classic,
    /// `quorum`.
    Quorum,
    /// `stream`.
    Stream,
}

/// Why a walk went no further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stopped {
    /// There were no more messages.
    #[default]
    End,
    /// Whoever watched had seen enough.
    Enough,
    /// [`Bounds::messages`](super::Bounds).
    Messages,
    /// [`Bounds::octets`](super::Bounds).
    Octets,
    /// [`Bounds::time`](super::Bounds).
    Time,
}

/// Why nothing can be said of the queue. What was taken is back in its place, or will be when the broker notices that the connection is lost.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Failure {
    /// The connection could not be opened, or was lost: in the broker's words, or ours.
    #[error("{0}")]
    Connection(String),
    /// The broker said no: its code and its words.
    #[error("{text}")]
    Refused {
        /// `404` there is no such queue, `403` the user may not, `405` it is exclusive to another connection.
        code: u16,
        /// In its words, with its name of the code: `ACCESS_REFUSED - …`.
        text: String,
    },
    /// It took too long.
    #[error("the broker does not answer")]
    Silent,
}
