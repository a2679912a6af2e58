//! What the keys of a policy do to the proxy's own queues: the one rule for `doctor`, `/readyz` and the metric.

use serde_json::Value;

#[derive(Debug, PartialEq, Eq)]
pub struct Harm {
    pub key: &'static str,
    /// Messages, or the queue with all that is in it, are lost by it alone; else they come to be elsewhere if they die there.
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
/// A limit that no queue meets: the policy that docs/operations.md recommends has it.
const NO_LIMIT: f64 = 1e9;

// === impl Harm ===

impl Harm {
    /// Whether it acts with this value. Of these keys streams know `max-length-bytes` alone.
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
