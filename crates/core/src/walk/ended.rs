//! How a walk ended.

use thiserror::Error;

use super::Moved;

/// A summary, or why there is none.
pub type Ended = Result<Summary, Failure>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The broker has accepted the login and all questions.
    pub under_way: bool,
    /// The broker has an alarm, and does not read our question until it ends.
    pub blocked: bool,
    pub summary: Summary,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Ready messages at its beginning, if the user may query that (from 4.3 on this requires
    /// configure permission).
    pub ready: Option<u64>,
    /// Other consumers at its beginning, if known.
    pub consumers: Option<u64>,
    pub seen: u64,
    pub queue_type: QueueType,
    /// Messages taken, including repeated ones.
    pub taken: u64,
    /// The queue has messages, but none arrive.
    pub starves: bool,
    /// Each requeued message counts one more failed delivery; a delivery limit may kill it.
    pub counted: bool,
    /// Requeued messages may be behind others that were requeued before (S12.9).
    pub reordered: bool,
    /// Moved messages that may still be in the queue: during an alarm, the broker had not read
    /// their acks when the connection was cut.
    pub unread: u64,
    pub stopped: Stopped,
    pub moved: Moved,
}

/// Note for [`Summary::reordered`].
pub const REORDERED: &str = "The order of this quorum queue may have changed: messages that were read can now be behind others.";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueType {
    /// `classic`, or a type that the broker does not name.
    #[default]
    Classic,
    Quorum,
    Stream,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stopped {
    #[default]
    End,
    Enough,
    Messages,
    Bytes,
    Time,
    Paused,
}

/// Why nothing is known of the queue. Messages are requeued, at the latest when the broker notices
/// the lost connection.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Failure {
    /// Not opened, or lost: in the broker's words, or ours.
    #[error("{0}")]
    Connection(String),
    /// Refused credentials: in the broker's words.
    #[error("{0}")]
    Login(String),
    #[error("{text}")]
    Refused {
        /// `530`: vhost forbidden or missing, or too many connections; `404`: no such queue; `403`:
        /// no permission, or an exclusive consumer; `405`: exclusive to another connection.
        code: u16,
        /// The broker's text with its name of the code: `ACCESS_REFUSED - …`.
        text: String,
    },
    /// Its messages cannot be moved.
    #[error("a stream keeps its messages: none can be sent back or removed")]
    Stream,
    #[error("the broker does not answer")]
    Silent,
    /// The broker accepts no messages now.
    #[error(
        "the broker takes no messages now, as it has an alarm: what was not moved stays in its place"
    )]
    Blocked,
}

/// Why the broker cancels a consumer of an existing queue.
pub(super) const DISMISSED: &str = "the broker has cancelled the consumer, and put back what it held: messages were held for longer than its consumer timeout, or the node of the queue is away";
/// Advice after a timeout of the broker.
const TIMED_OUT: &str = "begin again, as what has not gone is still there; if that ends in the same way, raise the broker's consumer_timeout (30 minutes by default)";
/// `ACCESS_REFUSED`: for connections, about the login alone.
const ACCESS_REFUSED: &str = "403";
/// `NOT_ALLOWED`: for connections, about the vhost or a connection limit.
const NOT_ALLOWED: &str = "530";

// === impl Summary ===

impl Summary {
    /// Saw all of its messages, but others held some before or meanwhile. Streams keep all.
    pub fn is_shared(&self) -> bool {
        let others = self.consumers.is_some_and(|others| others > 0);
        self.some_did_not_come()
            || self.stopped == Stopped::End && self.queue_type != QueueType::Stream && others
    }

    /// It received fewer messages than there were at its beginning.
    pub fn some_did_not_come(&self) -> bool {
        self.stopped == Stopped::End
            && self.queue_type != QueueType::Stream
            && self.ready.is_some_and(|ready| self.seen < ready)
    }
}

// === impl Failure ===

impl Failure {
    /// From a link's reason: the broker's code, then its text.
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

    #[test]
    fn each_failure_has_its_advice() {
        let refused = |code, text: &str| {
            let text = text.to_owned();
            Failure::Refused { code, text }
        };
        let lost = |cause: &str| Failure::Connection(cause.to_owned());
        let timed_out = "PRECONDITION_FAILED - delivery acknowledgement on channel 3 timed out";
        for (failure, next) in [
            (lost(DISMISSED), "consumer_timeout"),
            (refused(406, timed_out), "consumer_timeout"),
            (
                refused(406, "PRECONDITION_FAILED"),
                "mend what the broker says",
            ),
            (
                lost("the broker cannot be reached"),
                "when the broker answers",
            ),
            (Failure::Silent, "when the broker answers"),
            (Failure::Login("ACCESS_REFUSED".to_owned()), "log in"),
            (refused(403, "ACCESS_REFUSED"), "give this user the right"),
            (refused(530, "NOT_ALLOWED"), "give this user the right"),
            (refused(404, "NOT_FOUND"), "still there"),
            (refused(405, "RESOURCE_LOCKED"), "mend what the broker says"),
            (Failure::Stream, "an export and an import"),
            (Failure::Blocked, "end the alarm"),
        ] {
            assert!(
                failure.next().contains(next),
                "{failure}: {}",
                failure.next()
            );
        }
    }

    /// Words of 3.10.8, 4.0.5 and 4.3.6.
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
