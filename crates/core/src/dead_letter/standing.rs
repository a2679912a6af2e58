//! A message as it stands in a queue, and what it is without what the proxy and the parking queue made of it on its way.

use crate::amqp::content::Content;
use crate::amqp::cursor::Malformed;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::table::Table;

use super::headers;
use super::proof::{self, PARKED_EXCHANGE};
use super::redrive::{Here, Origin, Stays};
use super::retry::{self, Retry};
use super::signalled;

#[derive(Clone, Copy, Debug)]
pub struct Standing<'a> {
    pub exchange: &'a [u8],
    pub routing_key: &'a [u8],
    /// As the broker sent it: with private headers.
    pub content: &'a Content,
}

/// With its own user-id, without headers of retries.
pub(super) struct Itself {
    pub(super) content: Content,
    /// Set if it was returning to its queue.
    pub(super) way_back: Option<WayBack>,
}

pub(super) struct WayBack {
    pub(super) queue: ShortStr,
    pub(super) exchange: ShortStr,
    pub(super) routing_key: ShortStr,
    pub(super) cc_counts: bool,
}

// === impl Standing ===

impl Standing<'_> {
    /// Removes headers of retries.
    ///
    /// # Errors
    /// When properties or headers are malformed.
    pub(super) fn itself(&self, here: &Here<'_>) -> Result<Itself, Malformed> {
        let content = here.bridges.content(self.content);
        let parsed = Properties::parse(&content.properties)?;
        let table = Table(parsed.headers().unwrap_or_default());
        let with = |edit: &Edit, of: &Properties<'_>| content.with_properties(of.edit(edit));
        let is_parked = table.get(PARKED_EXCHANGE)?.is_some();
        let table_of_retry = retry::read(&parsed, here.own_user);
        if let Some((retry, original)) = &table_of_retry
            && (is_parked || retry.away.is_some())
        {
            let before = retry.before(&content, *original)?;
            let without_ttl = Edit {
                expiration: Change::Remove,
                ..Edit::default()
            };
            return Ok(Itself {
                content: with(&without_ttl, &Properties::parse(&before.properties)?),
                way_back: Some(WayBack {
                    queue: retry.queue.clone(),
                    exchange: retry.exchange.clone(),
                    routing_key: retry.routing_key.clone(),
                    cc_counts: retry.cc_counts,
                }),
            });
        }
        let stands_here = |(retry, _): &(Retry<'_>, _)| self.is_in(&retry.queue);
        if !table_of_retry.as_ref().is_some_and(stands_here)
            && let Some((content, _)) = signalled(&content, self.routing_key, here.own_user)
        {
            return Ok(Itself {
                content,
                way_back: None,
            });
        }
        let user_id = proof::proven(&parsed, here.own_user);
        let own = Edit {
            user_id: user_id.map_or(Change::Keep, proof::Original::put_back),
            ..Edit::default()
        };
        Ok(Itself {
            content: with(&own, &parsed),
            way_back: None,
        })
    }

    fn is_in(&self, queue: &[u8]) -> bool {
        self.exchange.is_empty() && self.routing_key == queue
    }

    /// Its routing key; after a retry, the original one.
    pub(super) fn own_key(&self, here: &Here<'_>) -> Result<ShortStr, Stays> {
        let parsed = Properties::parse(&self.content.properties)?;
        match retry::read(&parsed, here.own_user) {
            Some((retry, _)) => Ok(retry.routing_key),
            None => ShortStr::copy(self.routing_key).ok_or(Stays::TooLong),
        }
    }
}

// === impl WayBack ===

impl WayBack {
    pub(super) fn origin<'a>(&self, table: Table<'a>) -> Result<Origin<'a>, Malformed> {
        Ok(Origin {
            queue: self.queue.clone(),
            exchange: self.exchange.clone(),
            routing_key: self.routing_key.clone(),
            cc: match self.cc_counts {
                true => headers::routes(table, headers::CC)?,
                false => Vec::new(),
            },
        })
    }
}
