//! The mark of the user whose proxies work in a vhost: a queue that nothing is ever put into, whose routing key for dead letters is the user's name.
//! AMQP shows no arguments, but RabbitMQ refuses a declare with others, and says what they are: so a proxy with another user, which would park
//! what the first one delays, notices that at its start, without a management API. Each proxy declares the queue again and again, which keeps it;
//! it expires some time after the last one with that user.

use std::time::Duration;

use memchr::memmem;

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::QueueDeclare;
use crate::amqp::reply;
use crate::amqp::table::TableBuilder;
use crate::machine::{Event, Mono};
use crate::objects::Names;

/// Holds the user's name: an argument that classic queues compare on every version, and that has no
/// effect here.
pub const ARGUMENT: &str = "x-dead-letter-routing-key";
const RENEWED: Duration = Duration::from_secs(30);
/// The queue's `x-expires` in milliseconds: proxies may miss one or two declares while their link
/// is down.
pub const EXPIRES: i32 = 90_000;

#[derive(Debug)]
pub(super) struct Mark {
    pub(super) due: Mono,
    said: Option<Option<ShortStr>>,
}

// === impl Mark ===

impl Mark {
    pub(super) fn is_due(&mut self, now: Mono) -> bool {
        let is_due = self.due <= now;
        if is_due {
            self.due = now.after(RENEWED);
        }
        is_due
    }

    pub(super) fn lost(&mut self) {
        self.due = Mono(0);
    }

    /// The declare was accepted, or refused with these words. A refusal for another reason changes
    /// nothing.
    pub(super) fn answered(&mut self, refusal: Option<&[u8]>) -> Option<Event> {
        let before = self.said.clone().flatten();
        let now = refusal.and_then(|text| other(text).or(before));
        let is_news = self.said.replace(now.clone()) != Some(now.clone());
        is_news.then_some(Event::OtherUser(now))
    }
}

impl Default for Mark {
    fn default() -> Mark {
        Mark {
            due: Mono(0),
            said: None,
        }
    }
}

/// Its arguments also name an exchange, which the key requires: that of parking, to which each
/// proxy may write.
pub(super) fn declare(out: &mut Vec<u8>, channel: ChannelId, names: &Names, user: &[u8]) {
    let mut arguments = TableBuilder::default();
    arguments
        .longstr(b"x-queue-type", b"classic")
        .long(b"x-expires", EXPIRES.into())
        .longstr(b"x-dead-letter-exchange", names.parking())
        .longstr(ARGUMENT.as_bytes(), user);
    let (queue, bits) = (names.user_mark(), QueueDeclare::DURABLE);
    reply::declare_queue(out, channel, queue, bits, &arguments.finish());
}

/// The user that a refusal names, possibly cut. `None`: refused for another reason.
pub fn other(text: &[u8]) -> Option<ShortStr> {
    let differs = format!("inequivalent arg '{ARGUMENT}'");
    memmem::find(text, differs.as_bytes())?;
    const CURRENT: &[u8] = b" but current is '";
    let at = memmem::rfind(text, CURRENT)? + CURRENT.len();
    let name = text.get(at..)?;
    ShortStr::copy(name.strip_suffix(b"'").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of 3.10.8, 4.0.5 and 4.3.6.
    #[test]
    fn a_refusal_names_the_other_user() {
        let begins = "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-routing-key' for queue 'dlx-proxy.user' in vhost '/': received 'b' but current is 'a";
        for (text, user) in [
            (format!("{begins}'"), Some("a")),
            (begins.to_owned(), Some("a")),
            (begins.replace("dead-letter-routing-key", "expires"), None),
            ("ACCESS_REFUSED - no".to_owned(), None),
        ] {
            let user = user.map(|user| ShortStr::copy(user.as_bytes()).expect("short"));
            assert_eq!(other(text.as_bytes()), user, "{text}");
        }
    }
}
