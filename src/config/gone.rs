//! Settings and values that there were before, and what to do instead. Without the value all of the setting is gone.

use super::FIXED_TOML;

const PARTS: &str = "it is a part of `memory` now: set that";
const FIXED: &str = "its value is fixed, see docs/reference/limits.md: remove it";
const TRIES: &str = "set `give-up-after`, for all attempts: remove it";

#[rustfmt::skip]
const GONE: [(&str, Option<&str>, &str); 19] = [
    ("mode", Some("takeover"), "write \"full\": so it is called now"),
    ("mode", Some("keep"), "write \"rejects-only\": so it is called now"),
    ("mode", Some("native"), "write \"off\": so it is called now"),
    ("declares", None, "write `lenient = [\"x-dead-letter-exchange\", \"x-dead-letter-routing-key\"]` for \"lenient\", and nothing for \"strict\""),
    ("bcc", None, "BCC keys always count at a later death: remove it"),
    ("upstream-order", Some("random"), "write \"round-robin\": each proxy begins with any node"),
    ("upstream-proxy-protocol", Some("v1"), "write \"v2\": RabbitMQ reads both"),
    ("max-delay-queues", None, "the delay queues have a fixed grid: remove it"),
    ("retained-bytes", None, PARTS),
    ("retained-bytes-per-connection", None, PARTS),
    ("publisher-bytes", None, PARTS),
    ("intake-bytes", None, PARTS),
    ("look-bytes", None, PARTS),
    ("look-limit", None, FIXED),
    ("look-timeout", None, FIXED),
    ("max-looks", None, FIXED),
    ("nack-retries", None, TRIES),
    ("confirm-timeout", None, TRIES),
    ("retry-for", None, "it is called `give-up-after` now"),
];

pub(super) fn instead(setting: &str, value: Option<&str>) -> Option<&'static str> {
    let mut gone = GONE.iter();
    let words = gone.find(|(name, of, _)| (*name, *of) == (setting, value));
    let is_fixed = || {
        let mut fixed = FIXED_TOML.lines().filter_map(|line| line.split_once(" = "));
        value.is_none() && fixed.any(|(name, _)| name == setting)
    };
    match words {
        Some((.., words)) => Some(words),
        None => is_fixed().then_some(FIXED),
    }
}
