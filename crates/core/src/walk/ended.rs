//! How a walk ended.

use thiserror::Error;

use super::Moved;

/// What was met, or why nothing was.
pub type Ended = Result<Summary, Failure>;

/// How far a walk has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The broker has let it in, and refuses nothing any more.
    pub under_way: bool,
    /// The broker has an alarm, and reads nothing of this connection until that is over: it has been asked something in it.
    pub blocked: bool,
    pub summary: Summary,
}

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
    /// Messages that it took; those that it only held are among them, and count each time.
    pub taken: u64,
    /// Nothing comes to it though the queue has messages.
    pub starves: bool,
    /// Each message that it took and put back counts as one failed delivery more: a delivery limit may kill it in the end.
    pub counted: bool,
    /// What it put back may stand behind other messages that had come back to the queue before (S12.9).
    pub reordered: bool,
    /// Messages that have gone, and may be there all the same: the broker, in an alarm, had not read that they were to go when the connection was cut.
    pub unread: u64,
    /// Why it went no further.
    pub stopped: Stopped,
    /// What became of those that were meant.
    pub moved: Moved,
}

/// What a note says of [`Summary::reordered`].
pub const REORDERED: &str = "what was put back may stand behind other messages that had come back to this quorum queue before";

/// What kind of queue it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueType {
    /// `classic`, or one that the broker does not name.
    #[default]
    Classic,
    Quorum,
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
    /// It was paused for too long.
    Paused,
}

/// Why nothing can be said of the queue. What was taken is back in its place, or will be when the broker notices that the connection is lost.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Failure {
    /// The connection could not be opened, or was lost: in the broker's words, or ours.
    #[error("{0}")]
    Connection(String),
    /// The broker knows no such user with this password: in its words.
    #[error("{0}")]
    Login(String),
    /// The broker said no: its code and its words.
    #[error("{text}")]
    Refused {
        /// `530` the user may not enter the vhost, there is none, or there are too many connections; `404` there is no such queue, `403` the user
        /// may not, or somebody consumes alone, `405` it is exclusive to another connection.
        code: u16,
        /// In its words, with its name of the code: `ACCESS_REFUSED - …`.
        text: String,
    },
    /// Its messages cannot be moved.
    #[error("a stream keeps its messages: none can be sent back or removed")]
    Stream,
    #[error("the broker does not answer")]
    Silent,
    /// It takes no messages now.
    #[error(
        "the broker takes no messages now, as it has an alarm: what was not moved stays in its place"
    )]
    Blocked,
}

/// Why the broker cancels a consumer of a queue that is there.
pub(super) const DISMISSED: &str = "the broker has cancelled the consumer, and put back what it held: messages were held for longer than its consumer timeout, or the node of the queue is away";
/// What to do about a timeout of the broker's.
const TIMED_OUT: &str = "begin again, as what has not gone is still there; if that ends in the same way, raise the broker's consumer_timeout (30 minutes by default)";
/// `ACCESS_REFUSED`: of a connection it is about the login alone.
const ACCESS_REFUSED: &str = "403";
/// `NOT_ALLOWED`: of a connection it is about the vhost, or about what counts connections.
const NOT_ALLOWED: &str = "530";

// === impl Summary ===

impl Summary {
    /// It came to the end of what there was for it, but others took messages before or meanwhile: what they hold it did not see. A stream keeps all.
    pub fn is_shared(&self) -> bool {
        let others = self.consumers.is_some_and(|others| others > 0);
        self.some_did_not_come()
            || self.stopped == Stopped::End && self.queue_type != QueueType::Stream && others
    }

    /// It was not given all that were there when it began.
    pub fn some_did_not_come(&self) -> bool {
        self.stopped == Stopped::End
            && self.queue_type != QueueType::Stream
            && self.ready.is_some_and(|ready| self.seen < ready)
    }
}

// === impl Failure ===

impl Failure {
    /// Why a connection ended, as a link says it: the broker's code stands before its words.
    pub(crate) fn of_connection(cause: String) -> Failure {
        match cause.split_once(' ') {
            Some((ACCESS_REFUSED, text)) => Failure::Login(text.to_owned()),
            Some((NOT_ALLOWED, text)) => Failure::Refused {
                code: 530,
                text: text.to_owned(),
            },
            _ => Failure::Connection(cause),
        }
    }

    /// What whoever wanted messages moved does next.
    pub fn next(&self) -> &'static str {
        match self {
            Failure::Connection(text) if text == DISMISSED => TIMED_OUT,
            Failure::Refused { code: 406, text } if text.contains("timed out") => TIMED_OUT,
            Failure::Connection(_) | Failure::Silent => {
                "begin again when the broker answers, as what has not gone is still there"
            }
            Failure::Login(_) => "log in with a name and a password that the broker knows",
            Failure::Refused {
                code: 403 | 530, ..
            } => "give this user the right, or let a user who has it begin again",
            Failure::Refused { code: 404, .. } => "look whether the queue is still there",
            Failure::Refused { .. } => "mend what the broker says, and begin again",
            Failure::Stream => "copy them with an export and an import",
            Failure::Blocked => "end the alarm, and begin again",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words are those of 3.10.8, 4.0.5 and 4.3.6.
    #[test]
    fn a_refused_login_is_not_a_refused_vhost_and_neither_is_a_lost_connection() {
        let of = |cause: &str| Failure::of_connection(cause.to_owned());
        let login = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile.";
        assert_eq!(
            of(&format!("403 {login}")),
            Failure::Login(login.to_owned())
        );
        for text in [
            "NOT_ALLOWED - vhost nope not found",
            "NOT_ALLOWED - access to vhost '/' refused for user 'u'",
            "NOT_ALLOWED - connection refused for user 'u': user connection limit (0) is reached",
        ] {
            let refused = Failure::Refused {
                code: 530,
                text: text.to_owned(),
            };
            assert_eq!(of(&format!("530 {text}")), refused);
        }
        for lost in [
            "the broker cannot be reached",
            "320 CONNECTION_FORCED - bye",
        ] {
            assert_eq!(of(lost), Failure::Connection(lost.to_owned()));
        }
    }
}
