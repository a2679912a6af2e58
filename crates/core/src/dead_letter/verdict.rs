//! A verdict: what a client wants of a delivery that it is about to reject or return. Here it is read from the arguments of a `queue.unbind`, and
//! its headers are put into the message.
//!
//! The broker has never checked these arguments, and closes the connection of whoever publishes what it cannot read (S7.9). So a header is only
//! taken after a look at all of it. A part that cannot be used is left out; the rest counts.

use std::time::Duration;

use humantime_serde::re::humantime;

use crate::amqp::content::Content;
use crate::amqp::properties::Properties;
use crate::amqp::table::{Table, TableBuilder, Value};
use crate::machine::Unused;

use super::edited;
use super::headers::HeaderEdit;
use super::retries::LONGEST_DELAY;

/// The headers for `reason` and `error`, which groups read. The names are Spring's.
const TEXTS: [(&[u8], &[u8]); 2] = [
    (b"reason", b"x-exception-message"),
    (b"error", b"x-exception-stacktrace"),
];
const OURS: &[u8] = b"x-dlx-proxy";
/// Of a text, in bytes.
pub const LONGEST_TEXT: usize = 4096;
/// Of the table `headers`.
pub const MOST_HEADERS: usize = 64;
/// Tables and arrays within each other.
const DEEPEST: usize = 16;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Instead of the delay of the queue.
    pub delay: Option<Duration>,
    /// A return is a death, too.
    pub dies: bool,
    /// Of the ack timeout, from now on.
    pub extension: Option<Duration>,
    /// Members of a header table.
    headers: Vec<u8>,
}

// === impl Verdict ===

impl Verdict {
    /// Reads the arguments. With the verdict: why a part of them has no effect.
    pub fn read(arguments: &[u8]) -> (Verdict, Option<Unused>) {
        let table = Table(arguments);
        let (mut verdict, mut unused) = (Verdict::default(), None);
        if table.check().is_err() {
            return (verdict, Some(Unused::Malformed));
        }
        let value = |name: &[u8]| table.get(name).ok().flatten().filter(|of| of.tag != b'V');
        let mut headers = TableBuilder::default();
        for (argument, header) in TEXTS {
            match value(argument).map(Value::as_text) {
                Some(Some(text)) => {
                    headers.longstr(header, cut(text));
                }
                Some(None) => unused = Some(Unused::Malformed),
                None => {}
            }
        }
        for (argument, time) in [
            (&b"delay-ms"[..], &mut verdict.delay),
            (b"extend-ms", &mut verdict.extension),
        ] {
            match value(argument).map(milliseconds) {
                Some(None) => unused = Some(Unused::Malformed),
                said => *time = said.flatten(),
            }
        }
        match value(b"dead").map(|dead| (dead.tag, dead.data)) {
            Some((b't', [dead])) => verdict.dies = *dead != 0,
            Some(_) => unused = Some(Unused::Malformed),
            None => {}
        }
        match value(b"headers").map(Value::as_table) {
            Some(Some(table)) => unused = add(&mut headers, table).or(unused),
            Some(None) => unused = Some(Unused::Malformed),
            None => {}
        }
        verdict.headers = headers.finish();
        (verdict, unused)
    }

    /// The proxy's own: for a delivery that its client held for too long.
    pub fn of_ack_timeout(timeout: Duration) -> Verdict {
        let mut headers = TableBuilder::default();
        let timeout = humantime::format_duration(timeout);
        let [(_, reason), _] = TEXTS;
        headers.longstr(reason, format!("ack timeout of {timeout}").as_bytes());
        Verdict {
            headers: headers.finish(),
            ..Verdict::default()
        }
    }

    /// Whether it changes what becomes of a return, and not only its headers.
    pub fn decides(&self) -> bool {
        self.dies || self.delay.is_some()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of::<Verdict>() + self.headers.len()
    }

    /// Takes its headers away. False: it has none.
    pub fn drop_headers(&mut self) -> bool {
        !std::mem::take(&mut self.headers).is_empty()
    }

    /// The content with its headers. A new reason or error takes both of an earlier verdict away.
    /// `None`: no change, or the content cannot be read.
    pub fn on(&self, content: &Content) -> Option<Content> {
        if self.headers.is_empty() {
            return None;
        }
        let properties = Properties::parse(&content.properties).ok()?;
        let mut edit = HeaderEdit::default();
        let added = Table(&self.headers);
        for field in added.fields() {
            edit.raw(field.ok()?);
        }
        let has = |name: &[u8]| added.get(name).is_ok_and(|value| value.is_some());
        if TEXTS.iter().any(|(_, header)| has(header)) {
            for (_, header) in TEXTS {
                if !has(header) {
                    edit.remove(header);
                }
            }
        }
        let headers = Table(properties.headers().unwrap_or_default());
        let headers = edit.apply(headers, |_| true).ok()?;
        Some(content.with_properties(properties.with_headers(headers)))
    }
}

/// 1 to seven days; more counts as seven days, as in a policy.
fn milliseconds(value: Value<'_>) -> Option<Duration> {
    let millis = u64::try_from(value.as_integer()?).ok()?;
    let delay = Duration::from_millis(millis);
    (millis > 0).then_some(delay.min(LONGEST_DELAY))
}

/// At most so many bytes, without a part of a character.
fn cut(text: &[u8]) -> &[u8] {
    let within = |at: &usize| text.get(*at).is_some_and(|byte| byte & 0xC0 == 0x80);
    match text.len() <= LONGEST_TEXT {
        true => text,
        false => {
            let mut ends = (0..=LONGEST_TEXT).rev();
            let end = ends.find(|at| !within(at)).unwrap_or_default();
            text.get(..end).unwrap_or_default()
        }
    }
}

/// Adds the headers that a client may set. What it has said already, as a reason or as the first of
/// several headers with one name, stays.
fn add(headers: &mut TableBuilder, table: Table<'_>) -> Option<Unused> {
    let mut unused = None;
    for (at, field) in table.fields().enumerate() {
        let Ok(field) = field else {
            return Some(Unused::Malformed);
        };
        let is_refused = field.name.starts_with(OURS) || edited::is_kept(field.name);
        if is_refused || at >= MOST_HEADERS {
            unused = Some(Unused::HeaderRefused);
        } else if !is_sound(field.value, DEEPEST) {
            unused = Some(Unused::Malformed);
        } else if headers.as_table().get(field.name) == Ok(None) {
            headers.raw(&field);
        }
        if at > MOST_HEADERS {
            break;
        }
    }
    unused
}

/// Whether RabbitMQ can read it: nested members, and numbers that are numbers.
fn is_sound(value: Value<'_>, depth: usize) -> bool {
    let inner = |value| depth > 0 && is_sound(value, depth - 1);
    match (
        value.tag,
        value.data.first_chunk(),
        value.data.first_chunk(),
    ) {
        (b'f', Some(bytes), _) => f32::from_be_bytes(*bytes).is_finite(),
        (b'd', _, Some(bytes)) => f64::from_be_bytes(*bytes).is_finite(),
        (b'F', ..) => {
            let mut fields = Table(value.data).fields();
            fields.all(|field| field.is_ok_and(|field| inner(field.value)))
        }
        (b'A', ..) => value.as_array().is_some_and(|array| {
            let mut values = array.values();
            values.all(|value| value.is_ok_and(inner))
        }),
        _ => true,
    }
}

#[cfg(test)]
mod tests;
