//! What a dead letter looks like in the parking queue: as it was, with two headers that say where it should have gone and why it did not.

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::table::{Table, TableBuilder};
use crate::machine::Cause;

/// The exchange that it was meant for.
const EXCHANGE: &[u8] = b"x-parked-exchange";
/// Why it is here.
const CAUSE: &[u8] = b"x-parked-cause";

/// The content with the two headers; as it is when they cannot be added or the header would be larger than `frame_max`.
pub(super) fn content(
    content: &Content,
    exchange: &ShortStr,
    cause: Cause,
    frame_max: usize,
) -> Content {
    with_headers(content, exchange, cause)
        .filter(|parked| parked.header_frame() <= frame_max)
        .unwrap_or_else(|| content.clone())
}

fn with_headers(content: &Content, exchange: &ShortStr, cause: Cause) -> Option<Content> {
    let properties = Properties::parse(&content.properties).ok()?;
    let before = properties.headers().unwrap_or_default();
    let mut headers = TableBuilder::with_capacity(before.len() + 64 + exchange.len());
    for field in Table(before).fields() {
        let field = field.ok()?;
        // From an earlier parking: it was replayed and died again.
        if field.name != EXCHANGE && field.name != CAUSE {
            headers.raw(&field);
        }
    }
    headers
        .longstr(EXCHANGE, exchange)
        .longstr(CAUSE, cause.as_str().as_bytes());
    let edit = Edit {
        headers: Change::Set(headers.finish()),
        ..Edit::default()
    };
    Some(Content {
        properties: properties.edit(&edit),
        body: content.body.clone(),
    })
}
