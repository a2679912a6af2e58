//! What a message carries while it is away for a retry, and when it is back in its queue.
//!
//! ```text
//! its queue ─ returned by a client ─▶ away(): a delay queue, then intake ─▶ back(): its queue ─▶ before(): as if it had never been away
//! ```
//! Away, nothing of it may act: a TTL or a priority of its own would spoil the order of the delay queue, `CC` would lead elsewhere, and the
//! broker writes a death of its own into `x-death`. So all that stands in one private table ([`RETRY`]), and is put back where it was.
//! Back in its queue the table stays: it has the exchange and the key that the message was first published with, and how often it has come
//! back. It counts only with the [`proof`], only in the queue that it names, and only until the message dies: what comes round to that queue as a
//! dead letter comes as a new message.

use std::time::Duration;

use crate::amqp::content::Content;
use crate::amqp::cursor::Malformed;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Change, Edit, Properties, Property, has_headers};
use crate::amqp::table::{Table, TableBuilder, Value};
use crate::machine::Wall;

use super::headers::{self, HeaderEdit, OF_THE_QUEUE, X_DEATH, X_FIRST_DEATH, X_LAST_DEATH};
use super::private::{self, HISTORY, RETRY, USER_ID};
use super::proof::{self, Original};
use super::retries::Attempts;
use super::{Dialect, Lookup, Rules, history, remembered};

mod table;

#[derive(Clone, Debug)]
pub struct Retry<'a> {
    pub queue: ShortStr,
    pub exchange: ShortStr,
    pub routing_key: ShortStr,
    /// Including this time.
    pub attempts: Attempts,
    /// Its `CC` counts for its next death, instead of being only shown (S2.5).
    pub cc_counts: bool,
    /// A copy dies whenever the full queue refuses it: overflow `reject-publish-dlx`.
    pub dies_when_full: bool,
    /// The whole delay of a publish, which has no queue; see `delayed`.
    pub delay: Option<Duration>,
    pub expiration: Option<&'a [u8]>,
    /// End of its TTL, which began at the first returned delivery.
    pub deadline: Option<Wall>,
    pub away: Option<Away<'a>>,
}

#[derive(Clone, Debug)]
pub struct Away<'a> {
    pub due: Wall,
    pub priority: Option<u8>,
    pub deaths: Table<'a>,
    /// Returns over an exchange for its queue alone, with its own key; else over the default
    /// exchange.
    pub by_exchange: bool,
    /// A client's deaths do not count (`history = "broker"`), so they must not count after
    /// republishing either.
    pub forgotten: bool,
    /// Its dead-letter target if the deadline comes first. [`Lookup::Unknown`]: no deadline, or
    /// only the broker knows.
    pub target: Lookup,
}

/// Reads the table, if the proxy published it. `None`: not delayed and not returned, as far as can
/// be proven.
pub fn read<'a>(properties: &Properties<'a>, own_user: &[u8]) -> Option<(Retry<'a>, Original<'a>)> {
    let (retry, original, _) = read_all(properties, own_user)?;
    Some((retry, original))
}

/// With the number of its deaths at its return. The table may stand in a string: a broker parses and writes a table at every hop, and a
/// string it only carries. 0.5 is to write it so, when the proxies of 0.4 can read it.
fn read_all<'a>(
    properties: &Properties<'a>,
    own_user: &[u8],
) -> Option<(Retry<'a>, Original<'a>, Option<i64>)> {
    let original = proof::proven(properties, own_user)?;
    let value = Table(properties.headers()?).get(RETRY).ok()??;
    let table = value.as_table().or(value.as_longstr().map(Table))?;
    let (retry, died) = table::read(table)?;
    Some((retry, original, died))
}

/// For a message that came back to that queue, and has not died since.
pub fn back_in<'a>(
    queue: &[u8],
    properties: &Properties<'a>,
    own_user: &[u8],
) -> Option<(Retry<'a>, Original<'a>)> {
    let headers = Table(properties.headers()?);
    let came_back = came_back(queue, properties, own_user, 0)?;
    // From 4.0 on the broker begins anew, and may have counted as far as that.
    let is_another = remembered::has_changed(headers).ok()?;
    (!is_another).then_some(came_back)
}

/// For a message that came back to that queue, and died there and nowhere else since.
pub fn died_in<'a>(
    queue: &[u8],
    properties: &Properties<'a>,
    own_user: &[u8],
) -> Option<(Retry<'a>, Original<'a>)> {
    came_back(queue, properties, own_user, 1)
}

/// For a message that came back to that queue with at most `deaths` deaths since.
fn came_back<'a>(
    queue: &[u8],
    properties: &Properties<'a>,
    own_user: &[u8],
    since: i64,
) -> Option<(Retry<'a>, Original<'a>)> {
    let (retry, original, died) = read_all(properties, own_user)?;
    let is_here = retry.queue.as_bytes() == queue && retry.away.is_none();
    let now = deaths_of(Table(properties.headers()?)).ok()?;
    // A proxy of an earlier version did not write down how often the message had died.
    let as_then = died.is_none_or(|died| now <= died.saturating_add(since));
    (is_here && as_then).then_some((retry, original))
}

fn deaths_of(headers: Table<'_>) -> Result<i64, Malformed> {
    Ok(history::deaths(&history::read(headers.get(X_DEATH)?)))
}

/// A fast check, because few messages have a table.
pub fn may_have(properties: &[u8]) -> bool {
    has_headers(properties) && headers::contains(properties, RETRY)
}

// === impl Retry ===

impl Retry<'_> {
    /// The message for the delay queue. `content`: its current form.
    ///
    /// # Errors
    /// When properties or headers are malformed.
    pub fn content(&self, content: &Content, own_user: &[u8]) -> Result<Content, Malformed> {
        let properties = Properties::parse(&content.properties)?;
        let table = Table(properties.headers().unwrap_or_default());
        let mut edit = HeaderEdit::default();
        if let Some(shown) = table.get(headers::CC)? {
            edit.value(private::CC, &shown);
        }
        edit.value(USER_ID, &proof::original(&properties, own_user).value());
        edit.table(RETRY, &self.write(self.away.as_ref()));
        let goes = |name: &[u8]| {
            is_the_brokers(name)
                || proof::claims(name)
                || [headers::CC, headers::BCC, HISTORY, RETRY].contains(&name)
        };
        let headers = edit.apply(table, |name| !goes(name))?;
        Ok(content.with_properties(properties.edit(&Edit {
            headers: Change::Set(headers),
            priority: Change::Remove,
            expiration: Change::Remove,
            user_id: Change::Set(own_user.to_vec()),
        })))
    }

    /// Back in its queue.
    pub(super) fn written_into(&self, properties: &[u8]) -> Result<bytes::Bytes, Malformed> {
        let parsed = Properties::parse(properties)?;
        let headers = Table(parsed.headers().unwrap_or_default());
        let table = self.write_back(headers)?;
        let mut edit = HeaderEdit::default();
        edit.table(RETRY, &table);
        let headers = edit.apply(headers, |_| true)?;
        Ok(parsed.with_headers(headers))
    }

    /// `headers`: those that it has then.
    fn write_back(&self, headers: Table<'_>) -> Result<TableBuilder, Malformed> {
        let mut table = self.write(None);
        table.long(table::DIED, deaths_of(headers)?);
        Ok(table)
    }

    /// The message before its first delay, except its number of deliveries.
    ///
    /// # Errors
    /// When properties or headers are malformed.
    pub fn before(&self, content: &Content, original: Original<'_>) -> Result<Content, Malformed> {
        let properties = Properties::parse(&content.properties)?;
        let table = Table(properties.headers().unwrap_or_default());
        let headers = self.headers_before(self.edit_before(table)?, table)?;
        Ok(content.with_properties(self.put_back(&properties, headers, original)))
    }

    /// The consumer's view, with the number of returns. `acquired`: as the two numbers of RabbitMQ
    /// 4.3. Private headers are still included.
    ///
    /// # Errors
    /// When headers are malformed.
    pub fn shown(
        &self,
        properties: &Properties<'_>,
        original: Original<'_>,
        acquired: bool,
    ) -> Result<bytes::Bytes, Malformed> {
        let table = Table(properties.headers().unwrap_or_default());
        let of_the_queue = native_attempts(table, acquired)?;
        let Attempts { all, failed } = self.attempts.plus(of_the_queue);
        let counts = match acquired {
            true => [failed, all],
            false => [all, 0],
        };
        let mut edit = self.edit_before(table)?;
        for (name, count) in OF_THE_QUEUE.into_iter().zip(counts) {
            if count > 0 {
                edit.long(name, long(count));
            }
        }
        let headers = self.headers_before(edit, table)?;
        Ok(self.put_back(properties, headers, original))
    }

    fn edit_before<'t>(&self, table: Table<'t>) -> Result<HeaderEdit<'t>, Malformed> {
        let mut edit = HeaderEdit::default();
        edit.remove(RETRY);
        edit.remove(USER_ID);
        let shown = table.get(private::CC)?.filter(|_| self.cc_counts);
        if let Some(shown) = &shown {
            edit.remove(private::CC);
            edit.value(headers::CC, shown);
        }
        Ok(edit)
    }

    fn headers_before(&self, edit: HeaderEdit<'_>, table: Table<'_>) -> Result<Vec<u8>, Malformed> {
        let Some(away) = &self.away else {
            return edit.apply(table, |_| true);
        };
        let mut headers = edit.apply(table, |name| !is_the_brokers(name))?;
        headers.extend_from_slice(away.deaths.0);
        Ok(headers)
    }

    fn put_back(
        &self,
        properties: &Properties<'_>,
        headers: Vec<u8>,
        original: Original<'_>,
    ) -> bytes::Bytes {
        let set = |value: Option<Vec<u8>>| value.map_or(Change::Remove, Change::Set);
        properties.edit(&Edit {
            headers: match headers.is_empty() {
                true => Change::Remove,
                false => Change::Set(headers),
            },
            priority: self.priority_before(),
            expiration: set(self.expiration.map(<[u8]>::to_vec)),
            user_id: original.put_back(),
        })
    }

    fn priority_before(&self) -> Change {
        match self.away.as_ref().map(|away| away.priority) {
            Some(Some(priority)) => Change::Set(vec![priority]),
            Some(None) => Change::Remove,
            None => Change::Keep,
        }
    }

    /// The message for its own queue: with the proof, its table, and deaths that the broker
    /// forgets. `content`: its delayed form.
    ///
    /// # Errors
    /// When properties or headers are malformed.
    pub fn back(
        &self,
        content: &Content,
        original: Original<'_>,
        rules: &Rules,
        own_user: &[u8],
        now: Wall,
    ) -> Result<Content, Malformed> {
        let parsed = Properties::parse(&content.properties)?;
        let table = Table(parsed.headers().unwrap_or_default());
        let mut headers = self.headers_before(self.edit_before(table)?, table)?;
        let is = |of: fn(&Away<'_>) -> bool| self.away.as_ref().is_some_and(of);
        if !is(|away| away.by_exchange)
            && let Some(shown) = Table(&headers).get(headers::CC)?
        {
            let mut edit = HeaderEdit::default();
            edit.remove(headers::CC);
            edit.value(private::CC, &shown);
            headers = edit.apply(Table(&headers), |_| true)?;
        }
        if rules.dialect != Dialect::V3 {
            headers = remembered::remember(headers, is(|away| away.forgotten), rules.history_form)?;
        }
        let retry = self.write_back(Table(&headers))?;
        let mut headers = TableBuilder::onto(headers);
        headers
            .value(USER_ID, &original.value())
            .table(RETRY, &retry);
        let rest = |deadline: Wall| now.until(deadline).as_millis().to_string().into_bytes();
        Ok(content.with_properties(
            parsed.edit(&Edit {
                headers: Change::Set(headers.finish()),
                priority: self.priority_before(),
                expiration: self
                    .deadline
                    .map_or(Change::Remove, |deadline| Change::Set(rest(deadline))),
                user_id: Change::Set(own_user.to_vec()),
            }),
        ))
    }
}

/// Headers of deaths for a delayed message: the whole x-death, even if the broker knows only a
/// part.
///
/// # Errors
/// When headers are malformed.
pub fn deaths(table: Table<'_>) -> Result<Vec<u8>, Malformed> {
    let mut edit = HeaderEdit::default();
    remembered::restore(&mut edit, table)?;
    edit.apply(table, is_of_deaths)
}

/// The message for another delay, if not due: without headers added by the broker.
///
/// # Errors
/// When properties or headers are malformed.
pub fn again(content: &Content) -> Result<Content, Malformed> {
    let properties = Properties::parse(&content.properties)?;
    let table = Table(properties.headers().unwrap_or_default());
    let headers = HeaderEdit::default().apply(table, |name| !is_the_brokers(name))?;
    Ok(content.with_properties(properties.with_headers(headers)))
}

/// The queue's own count of failed deliveries. `acquired`: as the two numbers of RabbitMQ 4.3.
///
/// # Errors
/// When headers are malformed.
pub fn native_attempts(table: Table<'_>, acquired: bool) -> Result<Attempts, Malformed> {
    let count = |name: &[u8]| -> Result<u64, Malformed> {
        let count = table.get(name)?.and_then(Value::as_integer);
        Ok(count.and_then(|count| count.try_into().ok()).unwrap_or(0))
    };
    let [delivery_count, acquired_count] = OF_THE_QUEUE;
    let failed = count(delivery_count)?;
    Ok(Attempts {
        all: match acquired {
            true => count(acquired_count)?,
            false => failed,
        },
        failed,
    })
}

/// Headers that the broker adds during a delay: the message dies in the delay queue, and may be
/// delivered several times from the intake queue.
pub(super) fn is_the_brokers(name: &[u8]) -> bool {
    is_of_deaths(name) || OF_THE_QUEUE.contains(&name)
}

pub(super) fn is_of_deaths(name: &[u8]) -> bool {
    name == X_DEATH || X_FIRST_DEATH.contains(&name) || X_LAST_DEATH.contains(&name)
}

fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub fn priority(properties: &Properties<'_>) -> Option<u8> {
    properties.get(Property::Priority)?.first().copied()
}
