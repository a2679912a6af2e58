//! What a message in a delay queue says of itself.

use crate::amqp::ids::ShortStr;
use crate::amqp::properties::Property;
use crate::dead_letter::retry;
use crate::machine::Wall;

use super::Letter;

/// A message that waits for its retry, or a publish that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The queue that it comes back to; `exchange:NAME` for a delayed publish.
    pub queue: ShortStr,
    pub due: Wall,
    /// How often it has come back then.
    pub attempts: u64,
}

impl Letter {
    /// `None`: no proxy has sent it into a delay queue. Whoever says to have been the proxy is believed: a reader need not be the proxy's user, and the
    /// proxy itself looks closer.
    pub fn waiting(&self) -> Option<Waiting> {
        let properties = self.parsed()?;
        let user = properties.get(Property::UserId)?;
        let (retry, _) = retry::read(&properties, user)?;
        Some(Waiting {
            due: retry.away?.due,
            queue: match retry.delay {
                None => retry.queue,
                Some(_) => to_exchange(retry.exchange),
            },
            attempts: retry.attempts.all,
        })
    }
}

fn to_exchange(exchange: ShortStr) -> ShortStr {
    let name = [b"exchange:", exchange.as_bytes()].concat();
    ShortStr::new(name).unwrap_or(exchange)
}
