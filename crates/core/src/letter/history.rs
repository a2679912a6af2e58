//! The deaths of a letter as English sentences.

use crate::amqp::ids::ShortStr;
use crate::machine::Wall;

use super::Death;
use super::time::rfc_3339;

const KEYS: usize = 5;

/// From the newest first. Sorted by time: RabbitMQ moves an entry to the front when it counts on, but
/// keeps its first time.
pub(super) fn oldest_first(deaths: &mut [Death]) {
    deaths.reverse();
    deaths.sort_by_key(|death| death.time);
}

/// A sentence for each death.
pub(super) fn history(deaths: &[Death]) -> Vec<String> {
    deaths.iter().map(sentence).collect()
}

fn sentence(death: &Death) -> String {
    let when = death.time.map(Wall::of_seconds).map(rfc_3339);
    let when = when.unwrap_or("at an unknown time".to_owned());
    let queue = match &death.queue {
        Some(queue) => format!("queue {}", name(queue)),
        None => "an unknown queue".to_owned(),
    };
    let ttl = death.original_expiration.as_deref();
    let ttl = ttl.filter(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()));
    let what = match (death.reason.as_deref(), ttl) {
        (Some("expired"), Some(ttl)) => format!("expired in {queue} after its TTL of {ttl} ms"),
        (Some("expired"), None) => format!("expired in {queue}"),
        (Some("rejected"), Some(ttl)) => {
            format!("rejected in {queue}, within its TTL of {ttl} ms")
        }
        (Some("rejected"), None) => format!("rejected in {queue}"),
        (Some("maxlen"), _) => format!("pushed out of {queue}, which was full"),
        (Some("delivery_limit"), _) => {
            format!("delivered in {queue} more often than its limit allows")
        }
        (Some(reason), _) => format!("died in {queue} of \"{}\"", reason.escape_debug()),
        (None, _) => format!("died in {queue}, nobody knows why"),
    };
    let times = match death.count {
        None | Some(1) => String::new(),
        Some(times) => format!(", {times} times"),
    };
    format!("{when}: {what}{times}{}", published(death))
}

fn published(death: &Death) -> String {
    let exchange = match &death.exchange {
        None => return String::new(),
        Some(exchange) if exchange.is_empty() => "the default exchange".to_owned(),
        Some(exchange) => format!("exchange {}", name(exchange)),
    };
    let keys: Vec<_> = death.routing_keys.iter().map(name).take(KEYS).collect();
    let more = match death.routing_keys.len() > KEYS {
        true => ", …",
        false => "",
    };
    let with = match keys.as_slice() {
        [] => String::new(),
        [key] => format!(" with key {key}"),
        keys => format!(" with keys {}{more}", keys.join(", ")),
    };
    format!("; it had been published to {exchange}{with}")
}

fn name(name: &ShortStr) -> String {
    match name.is_empty() {
        true => "\"\"".to_owned(),
        false => name.to_string(),
    }
}
