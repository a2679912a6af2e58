//! Lines of tables that say policies of the broker, and what they come to.

use crate::objects::Names;
use crate::registry::broker_policy::{BrokerPolicies, BrokerPolicy, Limits};
use crate::registry::policy::Queue;

use super::words::{Line, quoted};

/// Words of a line that stand for keys of a policy.
const KEYS: [(&str, &str); 6] = [
    ("exchange", "dead-letter-exchange"),
    ("key", "dead-letter-routing-key"),
    ("strategy", "dead-letter-strategy"),
    ("ttl", "message-ttl"),
    ("limit", "delivery-limit"),
    ("overflow", "overflow"),
];

/// `broker-policy`, with `operator` for an operator policy.
pub(super) fn read(lines: &[Line]) -> BrokerPolicies {
    let told = lines.iter().map(|line| {
        let text = |name| line.get(name).map(|value| str::from_utf8(value).unwrap());
        let number = |name| line.text(name).map(|number| number.parse().unwrap());
        let mut keys = text("keys").map_or(Vec::new(), |keys| keys.split(',').collect());
        let said = KEYS.iter().filter(|(word, _)| line.get(word).is_some());
        keys.extend(said.map(|(_, key)| *key));
        BrokerPolicy {
            vhost: text("vhost").unwrap_or("/"),
            name: text("name").unwrap_or(""),
            pattern: text("pattern").unwrap_or(".*"),
            apply_to: text("apply-to").unwrap_or("queues"),
            priority: text("priority").map_or(0.0, |number| number.parse().unwrap()),
            keys,
            exchange: text("exchange"),
            routing_key: text("key"),
            strategy: text("strategy"),
            limits: Limits {
                message_ttl: number("ttl"),
                delivery_limit: number("limit"),
                dies_when_full: text("overflow").map(|said| said == "reject-publish-dlx"),
            },
            by_operator: line.flag("operator"),
        }
    });
    BrokerPolicies::new(told, &Names::default()).0
}

/// What they say of that queue.
pub(super) fn effective(brokers: &BrokerPolicies, queue: Queue<'_>) -> String {
    let Some(added) = brokers.added(queue) else {
        return "unknown".to_owned();
    };
    let limits = brokers.limits(queue);
    let overflow = limits.dies_when_full.map(|dies| match dies {
        true => "reject-publish-dlx".to_owned(),
        false => "drop-head".to_owned(),
    });
    let said = [
        ("exchange", added.exchange.map(|name| quoted(&name))),
        ("key", added.routing_key.map(|key| quoted(&key))),
        ("ttl", limits.message_ttl.map(|ttl| ttl.to_string())),
        (
            "limit",
            limits.delivery_limit.map(|limit| limit.to_string()),
        ),
        ("overflow", overflow),
    ];
    let words = said.into_iter();
    let words = words.filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    match words.collect::<Vec<_>>() {
        words if words.is_empty() => "nothing".to_owned(),
        words => words.join(" "),
    }
}
