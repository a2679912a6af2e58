//! Settings and values that there were before, and what to do instead. Without the value all of the setting is gone.

const GONE: [(&str, Option<&str>, &str); 4] = [
    (
        "bcc",
        None,
        "BCC keys always count at a later death: remove it",
    ),
    (
        "upstream-order",
        Some("random"),
        "write \"round-robin\": each proxy begins with any node",
    ),
    (
        "upstream-proxy-protocol",
        Some("v1"),
        "write \"v2\": RabbitMQ reads both",
    ),
    (
        "max-delay-queues",
        None,
        "the delay queues have a fixed grid: remove it",
    ),
];

/// Settings whose values are fixed now.
const FIXED: [&str; 5] = [
    "max-queues-per-connection",
    "max-redeclared-queues",
    "max-replies-per-connection",
    "max-redrives",
    "max-hook-letters",
];

/// What to do instead of this setting, or of this value of it.
pub(super) fn instead(setting: &str, value: Option<&str>) -> Option<&'static str> {
    if value.is_none() && FIXED.contains(&setting) {
        return Some("its value is fixed, see docs/sizing.md: remove it");
    }
    let mut gone = GONE.iter();
    gone.find(|(name, of, _)| (*name, *of) == (setting, value))
        .map(|(.., words)| *words)
}
