//! A dead letter that a user changes before it is sent back: another body, other headers.
//!
//! What it says of its deaths and its routes stays, as nobody should be able to invent that. It has no `user-id` any more: that user has not
//! written it. A private header says who changed it and when, and what the body was. It stays when the message dies again or is
//! redriven, until the next edit; clients of the proxy are not shown it.

use bytes::Bytes;
use ring::digest::{SHA256, digest};

use crate::amqp::content::Content;
use crate::amqp::cursor::Malformed;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::table::{Table, TableBuilder};
use crate::machine::Wall;

use super::copy_id::X_COPY_ID;
use super::headers::{BCC, CC, HeaderEdit, OF_THE_QUEUE};
use super::private::{EDITED, PREFIX};
use super::proof::{PARKED_CAUSE, PARKED_EXCHANGE};
use super::rejected_by::X_REJECTED_BY;
use super::{delivery_time, hex, retry};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// `None`: it stays.
    pub body: Option<Bytes>,
    /// Members of a table that replace those of their names, or are new.
    pub headers: Vec<u8>,
    pub removed: Vec<ShortStr>,
}

/// A header of the proxy, the broker or the queue, which no edit changes.
pub fn is_kept(name: &[u8]) -> bool {
    name.starts_with(PREFIX)
        || retry::is_of_deaths(name)
        || OF_THE_QUEUE.contains(&name)
        || [CC, BCC, PARKED_EXCHANGE, PARKED_CAUSE].contains(&name)
        || [X_REJECTED_BY, X_COPY_ID, delivery_time::NAME].contains(&name)
}

// === impl Edited ===

impl Edited {
    pub(super) fn of(&self, before: &Content, by: &[u8], now: Wall) -> Result<Content, Malformed> {
        let properties = Properties::parse(&before.properties)?;
        let mut edit = HeaderEdit::default();
        for field in Table(&self.headers).fields() {
            edit.raw(field?);
        }
        for name in &self.removed {
            edit.remove(name);
        }
        let hash = hex::digits(digest(&SHA256, &before.body).as_ref());
        let mut mark = TableBuilder::default();
        mark.longstr(b"by", by)
            .timestamp(b"time", now.seconds())
            .longstr(b"sha256", hash.as_bytes());
        edit.table(EDITED, &mark);
        let table = Table(properties.headers().unwrap_or_default());
        Ok(Content {
            properties: properties.edit(&Edit {
                headers: Change::Set(edit.apply(table, |_| true)?),
                user_id: Change::Remove,
                ..Edit::default()
            }),
            body: self.body.clone().unwrap_or_else(|| before.body.clone()),
        })
    }
}
