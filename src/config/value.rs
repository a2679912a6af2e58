//! What a single value may be: each function takes the text and answers with the typed value, or with what to write instead.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytesize::ByteSize;
use clap::ValueEnum;

use super::url::{ManagementUrl, Upstream};

/// AMQP's short strings (names, keys) have at most this many bytes.
pub(super) const SHORTSTR: usize = 255;
/// Leaves most of a name's 255 bytes to the exchange and the key that an intake exchange is named after.
const LONGEST_PREFIX: usize = 64;
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "write an IP address and a port, like \"127.0.0.1:5673\" or \"[::]:5673\"".to_owned()
    })
}

pub(super) fn upstream(text: &str) -> Result<Upstream, String> {
    Upstream::parse(text)
        .map_err(|problem| format!("{problem}; write it like \"amqp://user:password@host:5672\""))
}

pub(super) fn management_url(text: &str) -> Result<Option<ManagementUrl>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let url = ManagementUrl::parse(text).map_err(|problem| {
        format!("{problem}; write it like \"http://user:password@host:15672\"")
    })?;
    Ok(Some(url))
}

pub(super) fn prefix(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_graphic() && !b"/%+".contains(&byte);
    if text.is_empty() || text.len() > LONGEST_PREFIX || !text.bytes().all(fits) {
        // `/`, `%` and `+` have a meaning in the names of intake exchanges.
        return Err(format!(
            "write 1 to {LONGEST_PREFIX} printable ASCII characters other than space, `/`, `%` and `+`"
        ));
    }
    if text.starts_with("amq.") {
        return Err("RabbitMQ keeps names with `amq.` for itself; take another".to_owned());
    }
    Ok(text.to_owned())
}

pub(super) fn shortstr(length: RangeInclusive<usize>) -> impl Fn(&str) -> Result<String, String> {
    move |text| match length.contains(&text.len()) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "write {} to {} bytes of text",
            length.start(),
            length.end()
        )),
    }
}

pub(super) fn pattern(text: &str) -> Result<String, String> {
    match crate::registry::policy::pattern(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => {
            // The last line says what is wrong; those before it show where, and the value is shown anyway.
            let said = error.to_string();
            let reason = said
                .lines()
                .last()
                .unwrap_or_default()
                .trim_start_matches("error: ");
            Err(format!("not a regular expression: {reason}"))
        }
    }
}

pub(super) fn word<T: ValueEnum>(text: &str) -> Result<T, String> {
    let names = || {
        T::value_variants()
            .iter()
            .filter_map(ValueEnum::to_possible_value)
            .map(|value| format!("{:?}", value.get_name()))
    };
    T::from_str(text, false)
        .map_err(|_| format!("write one of {}", names().collect::<Vec<_>>().join(", ")))
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

pub(super) fn threads(text: &str) -> Result<usize, String> {
    if text == "auto" {
        return Ok(std::thread::available_parallelism().map_or(1, |cores| cores.get().min(4)));
    }
    number(1..=1024)(text).map_err(|problem| format!("{problem}, or \"auto\""))
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

pub(super) fn size(text: &str) -> Result<usize, String> {
    match text.parse::<ByteSize>() {
        Ok(ByteSize(bytes)) if bytes < 1 << 60 => {
            usize::try_from(bytes).map_err(|_| "is too large for this machine".to_owned())
        }
        _ => Err("write a size with its unit, like \"64MiB\" or \"0B\"".to_owned()),
    }
}
