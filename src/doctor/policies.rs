//! Which policies of the broker act on the proxy's own queues, and how that would harm.

use std::collections::BTreeMap;

use regex::bytes::Regex;
use serde_json::Value;

use crate::amqp::ids::Vhost;
use crate::intake::QueueType;
use crate::management::ListedPolicy;
use crate::registry::intake_name::Names;

/// Keys that would lose messages or queues, or lead them elsewhere, with what they would do.
const HARMFUL: &[(&str, &str)] = &[
    ("message-ttl", "messages would expire"),
    ("expires", "the queue would be deleted when nobody uses it"),
    ("max-length", "messages would be dropped or refused"),
    ("max-length-bytes", "messages would be dropped or refused"),
    ("delivery-limit", "messages would die there"),
    ("dead-letter-exchange", "messages would go elsewhere"),
    ("dead-letter-routing-key", "messages would go elsewhere"),
];
/// What a policy can apply to. Of the harmful keys streams know `max-length-bytes` alone.
const STREAMS: &str = "streams";
/// A limit that no queue meets: the policy that docs/operations.md recommends has it.
const NO_LIMIT: f64 = 1e9;

/// A policy that acts on queues of ours.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Acts {
    pub(super) policy: String,
    pub(super) queues: Vec<String>,
    /// Its harmful keys, each with what it would do.
    pub(super) keys: Vec<String>,
}

/// The harmful ones; and the names of policies whose patterns cannot be read here. Of policies the one
/// with the highest priority acts alone.
pub(super) fn acting<'a>(
    listed: &'a [ListedPolicy],
    vhost: &Vhost,
    names: &Names,
    intake: QueueType,
) -> (Vec<Acts>, Vec<&'a str>) {
    let mut here: Vec<_> = listed
        .iter()
        .filter(|policy| policy.vhost.as_bytes() == vhost.as_bytes())
        .collect();
    here.sort_by(|a, b| b.priority.total_cmp(&a.priority));
    let patterns: Vec<_> = here
        .iter()
        .map(|policy| (*policy, Regex::new(&policy.pattern).ok()))
        .collect();
    let unreadable = patterns
        .iter()
        .filter(|(_, pattern)| pattern.is_none())
        .map(|(policy, _)| policy.name.as_str())
        .collect();
    let of_type = match intake {
        QueueType::Quorum => "quorum_queues",
        QueueType::Classic => "classic_queues",
    };
    let mut acting: Vec<Acts> = Vec::new();
    for (queue, of_type) in [
        (names.intake_queue().clone(), of_type),
        (names.parking().clone(), of_type),
        (names.delay_queue(1_000), "quorum_queues"),
        (names.redeclared().clone(), STREAMS),
    ] {
        let fits = |(policy, pattern): &&(&ListedPolicy, Option<Regex>)| {
            let to_it = ["all", "queues", of_type].contains(&policy.apply_to.as_str());
            to_it
                && pattern
                    .as_ref()
                    .is_some_and(|pattern| pattern.is_match(&queue))
        };
        let Some((policy, _)) = patterns.iter().find(fits) else {
            continue;
        };
        let keys = harmful(&policy.definition, of_type);
        if keys.is_empty() {
            continue;
        }
        match acting.iter_mut().find(|acts| acts.policy == policy.name) {
            Some(acts) => acts.queues.push(queue.to_string()),
            None => acting.push(Acts {
                policy: policy.name.clone(),
                queues: vec![queue.to_string()],
                keys,
            }),
        }
    }
    (acting, unreadable)
}

fn harmful(definition: &BTreeMap<String, Value>, of_type: &str) -> Vec<String> {
    let acts = |(key, _): &&(&str, &str)| match definition.get(*key) {
        None => false,
        Some(_) if of_type == STREAMS && *key != "max-length-bytes" => false,
        Some(value) if key.starts_with("max-length") || *key == "delivery-limit" => value
            .as_f64()
            .is_none_or(|limit| (0.0..NO_LIMIT).contains(&limit)),
        Some(_) => true,
    };
    let found = HARMFUL.iter().filter(acts);
    found.map(|(key, harm)| format!("{key}: {harm}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policy(
        name: &str,
        pattern: &str,
        apply_to: &str,
        priority: f64,
        definition: Value,
    ) -> ListedPolicy {
        serde_json::from_value(json!({
            "vhost": "/", "name": name, "pattern": pattern, "apply-to": apply_to, "priority": priority, "definition": definition,
        }))
        .expect("a policy")
    }

    fn acts(listed: &[ListedPolicy]) -> Vec<(String, Vec<String>)> {
        let names = Names::new("dlx-proxy").expect("a prefix");
        let vhost = Vhost::copy(b"/").expect("short");
        let (acting, unreadable) = acting(listed, &vhost, &names, QueueType::Quorum);
        assert_eq!(unreadable, Vec::<&str>::new());
        let acting = acting.into_iter();
        acting.map(|acts| (acts.policy, acts.queues)).collect()
    }

    #[test]
    fn a_policy_for_all_queues_acts_on_ours_too() {
        let ours = [
            "dlx-proxy.intake",
            "dlx-proxy.parked",
            "dlx-proxy.delay.1000",
            "dlx-proxy.redeclared",
        ];
        for (definition, queues) in [
            (json!({"message-ttl": 1000}), &ours[..3]),
            (json!({"max-length-bytes": 1000}), &ours[..]),
        ] {
            let found = acts(&[policy("all", "", "queues", 0.0, definition)]);
            let queues = queues.iter().map(|queue| (*queue).to_owned()).collect();
            assert_eq!(found, [("all".to_owned(), queues)]);
        }
    }

    #[test]
    fn the_highest_priority_acts_alone() {
        let listed = [
            policy("ttl", "", "all", 0.0, json!({"message-ttl": 1000})),
            policy(
                "ours",
                "^dlx-proxy",
                "queues",
                999.0,
                json!({"max-length": 2_000_000_000}),
            ),
        ];
        assert_eq!(acts(&listed), []);
    }

    #[test]
    fn what_is_for_others_or_does_no_harm_is_not_told() {
        let listed = [
            policy(
                "exchanges",
                "",
                "exchanges",
                5.0,
                json!({"alternate-exchange": "a"}),
            ),
            policy(
                "classic",
                "",
                "classic_queues",
                4.0,
                json!({"max-length": 1}),
            ),
            policy("orders", "^orders", "queues", 3.0, json!({"max-length": 1})),
            policy(
                "harmless",
                "",
                "queues",
                2.0,
                json!({"queue-leader-locator": "balanced"}),
            ),
        ];
        assert_eq!(acts(&listed), []);
    }

    #[test]
    fn each_harmful_key_is_told_with_what_it_does() {
        let definition =
            json!({"expires": 1, "max-length": 10, "delivery-limit": -1, "overflow": "drop-head"});
        let definition = serde_json::from_value(definition).expect("a map");
        assert_eq!(
            harmful(&definition, "quorum_queues"),
            [
                "expires: the queue would be deleted when nobody uses it",
                "max-length: messages would be dropped or refused",
            ]
        );
    }

    #[test]
    fn a_pattern_that_cannot_be_read_is_named() {
        let listed = [policy(
            "look-behind",
            "(?<!x)a",
            "queues",
            0.0,
            json!({"expires": 1}),
        )];
        let names = Names::new("dlx-proxy").expect("a prefix");
        let vhost = Vhost::copy(b"/").expect("short");
        let (acting, unreadable) = acting(&listed, &vhost, &names, QueueType::Quorum);
        assert_eq!((acting, unreadable), (vec![], vec!["look-behind"]));
    }
}
