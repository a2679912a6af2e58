//! What the keys of a policy do to the proxy's own queues: the one rule for `doctor`, `/readyz` and the metric.

use serde_json::Value;

#[derive(Debug, PartialEq, Eq)]
pub struct Harm {
    pub key: &'static str,
    /// Loses messages or the queue by itself; else messages that die there end up elsewhere.
    pub loses: bool,
    pub does: &'static str,
}

const fn loses(key: &'static str, does: &'static str) -> Harm {
    let loses = true;
    Harm { key, loses, does }
}

const fn leads(key: &'static str) -> Harm {
    let (loses, does) = (false, "messages would go elsewhere");
    Harm { key, loses, does }
}

pub const HARMFUL: &[Harm] = &[
    loses("message-ttl", "messages would expire"),
    loses("expires", "the queue would be deleted when nobody uses it"),
    loses("max-length", "messages would be dropped or refused"),
    loses("max-length-bytes", "messages would be dropped or refused"),
    loses("delivery-limit", "messages would die there"),
    leads("dead-letter-exchange"),
    leads("dead-letter-routing-key"),
];
/// No queue reaches this limit; docs/reference/running.md recommends such a policy.
const NO_LIMIT: f64 = 1e9;

// === impl Harm ===

impl Harm {
    /// Whether this value has an effect. Of these keys, streams use `max-length-bytes` alone.
    pub fn acts(&self, value: &Value, is_stream: bool) -> bool {
        match self.key {
            key if is_stream && key != "max-length-bytes" => false,
            "max-length" | "max-length-bytes" | "delivery-limit" => value
                .as_f64()
                .is_none_or(|limit| (0.0..NO_LIMIT).contains(&limit)),
            _ => true,
        }
    }
}
