//! What a single value may be: each function takes the text and answers with the typed value, or with what to write instead.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytesize::ByteSize;
use serde::de::DeserializeOwned;
use serde::de::value::StrDeserializer;

use crate::amqp::ids::ShortStr;
use crate::dead_letter::grid::Jitter;
use crate::dead_letter::retries::RetryType;
use crate::dead_letter::schedule::Schedule;
use crate::descriptors::Clients;
use crate::net::ports::At;
use crate::objects::Names;
use crate::registry::lenient::Item;
use crate::registry::policy::Pattern;
use crate::registry::said_retries::{self, ACK_TIMEOUT_MUST, no_delay, no_retry_type};
use crate::url::hidden;

use super::url::{HttpUrl, Upstream};

pub(super) const SHORTSTR: usize = 255;
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

fn unless_empty<T>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    (!text.is_empty()).then(|| parse(text)).transpose()
}

pub(super) fn address_or_none(text: &str) -> Result<Option<SocketAddr>, String> {
    unless_empty(text, |text| {
        text.parse().map_err(|_| {
            "write an IP address and a port, like \"127.0.0.1:5673\" or \"[::]:5673\", or \"\" for none"
                .to_owned()
        })
    })
}

pub(super) fn place_or_none(text: &str) -> Result<Option<At>, String> {
    unless_empty(text, |text| {
        At::parse(text).map_err(|problem| format!("{problem}, or \"\" for none"))
    })
}

pub(super) fn text_or_none(text: &str) -> Result<Option<String>, String> {
    unless_empty(text, |text| Ok(text.to_owned()))
}

pub(super) fn upstream(text: &str) -> Result<Upstream, String> {
    Upstream::parse(text)
        .map_err(|problem| format!("{problem}; write it like \"amqp://user:password@host:5672\""))
}

pub(super) fn management_url(text: &str) -> Result<Option<HttpUrl>, String> {
    unless_empty(text, |text| {
        HttpUrl::of_api(text).map_err(|problem| {
            format!("{problem}; write it like \"http://user:password@host:15672\"")
        })
    })
}

pub(super) fn hook_url(text: &str) -> Result<Option<HttpUrl>, String> {
    unless_empty(text, |text| {
        HttpUrl::of_hook(text).map_err(|problem| {
            format!("{problem}; write it like \"http://user:password@host/path\"")
        })
    })
}

pub(super) fn prefix(text: &str) -> Result<Names, String> {
    Names::new(text).map_err(|bad| bad.to_string())
}

pub(super) fn shortstr(length: RangeInclusive<usize>) -> impl Fn(&str) -> Result<ShortStr, String> {
    move |text| {
        let fits = length.contains(&text.len());
        let text = ShortStr::copy(text.as_bytes()).filter(|_| fits);
        text.ok_or_else(|| format!("write {} to {} bytes of text", length.start(), length.end()))
    }
}

pub(super) fn header(text: &str) -> Result<String, String> {
    shortstr(1..=SHORTSTR)(text).map(|_| text.to_owned())
}

pub(super) fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::new(text).map_err(|bad| bad.to_string())
}

/// A word of an enum, as its serde derives spell it.
pub(super) fn word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    T::deserialize(StrDeserializer::<WriteOneOf>::new(text)).map_err(|problem| problem.to_string())
}

pub(super) fn yes_or_no(text: &str) -> Result<bool, String> {
    text.parse()
        .map_err(|_| "write true or false, without quotes".to_owned())
}

pub(super) fn number<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    move |text| match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!(
            "write a number from {} to {}",
            range.start(),
            range.end()
        )),
    }
}

/// Milliseconds, refused in RabbitMQ's words. `which`: the name of the bound.
pub(super) fn delay(which: &'static str) -> impl Fn(&str) -> Result<u32, String> {
    move |text| match text.parse() {
        Ok(millis) if millis > 0 => Ok(millis),
        _ => Err(no_delay(&hidden(text), which)),
    }
}

pub(super) fn delays(text: &str) -> Result<Schedule, String> {
    Schedule::parse(text).ok_or_else(|| Schedule::MUST.to_owned())
}

pub(super) fn ack_timeout(text: &str) -> Result<u32, String> {
    said_retries::ack_timeout(text).ok_or_else(|| ACK_TIMEOUT_MUST.to_owned())
}

pub(super) fn jitter(text: &str) -> Result<Option<Jitter>, String> {
    Jitter::parse(text).ok_or_else(|| "write a number from 0 to 1, like 0.2".to_owned())
}

/// Refused in RabbitMQ's words.
pub(super) fn retry_type(text: &str) -> Result<RetryType, String> {
    RetryType::parse(text.as_bytes()).ok_or_else(|| no_retry_type(&hidden(text)))
}

pub(super) fn threads(text: &str) -> Result<usize, String> {
    if text == "auto" {
        return Ok(std::thread::available_parallelism().map_or(1, |cores| cores.get().min(4)));
    }
    number(1..=1024)(text).map_err(|problem| format!("{problem}, or \"auto\""))
}

pub(super) fn connections(text: &str) -> Result<Clients, String> {
    if text == "auto" {
        return Ok(Clients::Auto);
    }
    let number = number(1..=1_000_000)(text);
    let number = number.map_err(|problem| format!("{problem}, or \"auto\""));
    number.map(Clients::Number)
}

pub(super) fn wait(text: &str) -> Result<Duration, String> {
    let range = SHORTEST_WAIT..=LONGEST_WAIT;
    match humantime_serde::re::humantime::parse_duration(text) {
        Ok(wait) if range.contains(&wait) => Ok(wait),
        _ => Err(
            "write a time with its unit, like \"500ms\", \"5s\" or \"1m 30s\", from 1ms to 24h"
                .to_owned(),
        ),
    }
}

/// A name, or `transient=8h`.
pub(super) fn lenient(text: &str) -> Result<Item, String> {
    match text.strip_prefix("transient=") {
        Some(expires) => wait(expires).map(Item::Transient),
        None => Item::name(text),
    }
}

pub(super) fn wait_or_never(text: &str) -> Result<Duration, String> {
    match text {
        "0" | "0s" => Ok(Duration::ZERO),
        _ => wait(text).map_err(|problem| format!("{problem}, or \"0\"")),
    }
}

pub(super) fn part(of_memory: usize) -> impl Fn(&str) -> Result<usize, String> {
    move |text| match text {
        "auto" => Ok(of_memory),
        _ => size(text),
    }
}

pub(super) fn size(text: &str) -> Result<usize, String> {
    match text.parse::<ByteSize>() {
        Ok(ByteSize(bytes)) if bytes < 1 << 60 => {
            usize::try_from(bytes).map_err(|_| "is too large for this machine".to_owned())
        }
        _ => Err("write a size with its unit, like \"64MiB\" or \"0B\"".to_owned()),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct WriteOneOf(String);

// === impl WriteOneOf ===

impl serde::de::Error for WriteOneOf {
    fn custom<T: fmt::Display>(problem: T) -> Self {
        WriteOneOf(problem.to_string())
    }

    fn unknown_variant(_: &str, words: &'static [&'static str]) -> Self {
        let words: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
        WriteOneOf(format!("write one of {}", words.join(", ")))
    }
}
