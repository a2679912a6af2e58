//! A dead letter as it stands in a queue, for people: what it says of itself, which ones are meant, and what they have in common.
//!
//! Nothing here changes a message. What moves one takes its bytes as they are.

use bytes::Bytes;

use crate::amqp::ids::ShortStr;
use crate::amqp::properties::Properties;
use crate::amqp::table::{Table, Value};
use crate::dead_letter::delivery_time::shown_name;

mod change;
mod deaths;
mod error;
mod filter;
mod groups;
mod headers;
mod history;
mod id;
mod line;
#[cfg(test)]
mod tests;
mod text;
mod time;
mod view;
mod waiting;

pub use change::{Change, NoChange};
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// 1 is the oldest message of its queue.
    pub position: u64,
    pub exchange: ShortStr,
    pub routing_key: ShortStr,
    pub redelivered: bool,
    /// From the property flags on, unchanged.
    pub properties: Bytes,
    /// The body or its beginning: at least as much as a [`Filter`] searches.
    pub body: Bytes,
    pub body_hash: BodyHash,
    pub size: u64,
}

// === impl Letter ===

impl Letter {
    fn parsed(&self) -> Option<Properties<'_>> {
        Properties::parse(&self.properties).ok()
    }

    fn headers(&self) -> Table<'_> {
        let headers = self.parsed().and_then(|properties| properties.headers());
        Table(headers.unwrap_or_default())
    }

    /// The first header of that name. Finds nothing behind a malformed one.
    fn header(&self, name: &[u8]) -> Option<Value<'_>> {
        let mut fields = self.headers().fields().map_while(Result::ok);
        Some(fields.find(|field| shown_name(field.name) == name)?.value)
    }
}
