//! A dead letter as it stands in a queue, for people: what it says of itself, which ones are meant, and what they have in common.
//!
//! Nothing here changes a message. What moves one takes its octets as they are.

use bytes::Bytes;

use crate::amqp::ids::ShortStr;
use crate::amqp::properties::Properties;
use crate::amqp::table::{Table, Value};
use crate::dead_letter::delivery_time::shown_name;

mod deaths;
mod error;
mod filter;
mod groups;
mod headers;
mod id;
mod line;
mod story;
#[cfg(test)]
mod tests;
mod text;
mod time;
mod view;
mod waiting;

pub use deaths::Death;
pub use error::ErrorHeaders;
pub use error::beginning;
pub use filter::Filter;
pub use groups::{Group, Groups};
pub use headers::Header;
pub use id::{BodyHash, Hash, Id, NoId};
pub use line::{Line, NoLine};
pub use text::is_harmless;
pub use time::{rfc_3339, rfc_3339_millis};
pub use view::{Body, Detail, Encoding, Summary};
pub use waiting::Waiting;

/// A message that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Its place when it was looked at: 1 is the oldest message of its queue.
    pub position: u64,
    /// The exchange that it was last published to.
    pub exchange: ShortStr,
    /// The key that it was last published with.
    pub routing_key: ShortStr,
    /// Whether it was delivered before.
    pub redelivered: bool,
    /// From the property flags on, as they came.
    pub properties: Bytes,
    /// The body, or the first octets of it: no fewer than a [`Filter`] searches.
    pub body: Bytes,
    pub body_hash: BodyHash,
    /// Octets of the whole body.
    pub size: u64,
}

// === impl Letter ===

impl Letter {
    /// Its properties, if they can be read.
    fn parsed(&self) -> Option<Properties<'_>> {
        Properties::parse(&self.properties).ok()
    }

    /// Its headers, if it has some and they can be found.
    fn headers(&self) -> Table<'_> {
        let headers = self.parsed().and_then(|properties| properties.headers());
        Table(headers.unwrap_or_default())
    }

    /// The first header of that name. What lies behind a malformed one is not found.
    fn header(&self, name: &[u8]) -> Option<Value<'_>> {
        let mut fields = self.headers().fields().map_while(Result::ok);
        Some(fields.find(|field| shown_name(field.name) == name)?.value)
    }
}
