//! Which policies of the broker act on the proxy's own queues, and how that would harm.

use std::collections::BTreeMap;

use regex::bytes::Regex;
use serde_json::Value;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::intake::QueueType;
use crate::management::{HARMFUL, Harm, ListedPolicy};
use crate::objects::Names;

use super::quoted;

const STREAMS: &str = "streams";
const UNMET: u64 = 2_000_000_000;
/// Recommended by docs/operations.md; more if other policies have as much.
const PRIORITY: i64 = 999;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Acts {
    pub(super) policy: String,
    pub(super) queues: Vec<String>,
    pub(super) keys: Vec<String>,
}

/// A policy that overrides all others on the proxy's queues: the matching one with the highest
/// priority applies alone.
#[derive(Debug, PartialEq)]
pub(super) struct Shield {
    pub(super) name: String,
    pub(super) priority: i64,
    pub(super) pattern: String,
    pub(super) definition: BTreeMap<String, Value>,
}

pub(super) struct Policies<'a> {
    /// Highest priority first; without a pattern where it cannot be read.
    here: Vec<(&'a ListedPolicy, Option<Regex>)>,
    queues: [(ShortStr, &'static str); 4],
    prefix: String,
}

// === impl Policies ===

impl<'a> Policies<'a> {
    pub(super) fn of(
        listed: &'a [ListedPolicy],
        vhost: &Vhost,
        names: &Names,
        intake: QueueType,
    ) -> Policies<'a> {
        let here = listed
            .iter()
            .filter(|policy| policy.vhost.as_bytes() == vhost.as_bytes());
        let mut here: Vec<_> = here
            .map(|policy| (policy, Regex::new(&policy.pattern).ok()))
            .collect();
        here.sort_by(|(a, _), (b, _)| b.priority.total_cmp(&a.priority));
        let of_type = match intake {
            QueueType::Quorum => "quorum_queues",
            QueueType::Classic => "classic_queues",
        };
        let queues = [
            (names.intake_queue().clone(), of_type),
            (names.parking().clone(), of_type),
            (names.delay_queue(1_000), "quorum_queues"),
            (names.redeclared().clone(), STREAMS),
        ];
        Policies {
            here,
            queues,
            prefix: names.prefix().to_string(),
        }
    }

    pub(super) fn unreadable(&self) -> Vec<&'a str> {
        let unreadable = self.here.iter().filter(|(policy, pattern)| {
            pattern.is_none()
                && self
                    .queues
                    .iter()
                    .any(|(_, of_type)| !harmful(&policy.definition, of_type).is_empty())
        });
        unreadable.map(|(policy, _)| policy.name.as_str()).collect()
    }

    pub(super) fn acting(&self) -> Vec<Acts> {
        let mut acting: Vec<Acts> = Vec::new();
        for (queue, of_type) in &self.queues {
            let Some(policy) = self.of_queue(queue, of_type) else {
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
        acting
    }

    /// The policy to set. Changes an existing one for the proxy's queues; overwrites no other.
    pub(super) fn shield(&self) -> Shield {
        let pattern = format!("^{}", super::pattern(&self.prefix));
        let own = self
            .here
            .iter()
            .find(|(policy, _)| policy.pattern == pattern);
        let own = own.map(|(policy, _)| *policy);
        let others = self.here.iter().filter(|(policy, pattern)| {
            let is_own = own.is_some_and(|own| own.name == policy.name);
            !is_own
                && self.queues.iter().any(|(queue, of_type)| {
                    is_for(policy, of_type)
                        && pattern
                            .as_ref()
                            .is_none_or(|pattern| pattern.is_match(queue))
                })
        });
        // RabbitMQ takes whole numbers; of two that are equal any may win.
        let above = others.map(|(policy, _)| (policy.priority.floor() as i64).saturating_add(1));
        let at_least = own.map_or(PRIORITY, |own| PRIORITY.max(own.priority.ceil() as i64));
        let mut definition = BTreeMap::new();
        let acting = self
            .queues
            .iter()
            .filter_map(|(queue, of_type)| self.of_queue(queue, of_type));
        for policy in own.into_iter().chain(acting) {
            for (key, value) in &policy.definition {
                let harms = |of_type: &str| {
                    let mut harms = HARMFUL.iter().filter(|harm| harm.key == key);
                    harms.any(|harm| harm.acts(value, of_type == STREAMS))
                };
                if !self.queues.iter().any(|(_, of_type)| harms(of_type)) {
                    definition
                        .entry(key.clone())
                        .or_insert_with(|| value.clone());
                }
            }
        }
        definition
            .entry("max-length".to_owned())
            .or_insert(Value::from(UNMET));
        Shield {
            name: own.map_or_else(|| self.free_name(), |own| own.name.clone()),
            priority: above.fold(at_least, i64::max),
            pattern,
            definition,
        }
    }

    fn of_queue(&self, queue: &ShortStr, of_type: &str) -> Option<&'a ListedPolicy> {
        let fits = |(policy, pattern): &&(&ListedPolicy, Option<Regex>)| {
            is_for(policy, of_type)
                && pattern
                    .as_ref()
                    .is_some_and(|pattern| pattern.is_match(queue))
        };
        self.here.iter().find(fits).map(|(policy, _)| *policy)
    }

    fn free_name(&self) -> String {
        let own = format!("{}-own", self.prefix);
        let numbered = (2..).map(|number: u32| format!("{own}-{number}"));
        let is_free = |name: &String| self.here.iter().all(|(policy, _)| policy.name != *name);
        let mut names = [self.prefix.clone(), own.clone()]
            .into_iter()
            .chain(numbered);
        names.find(is_free).unwrap_or(own)
    }
}

// === impl Shield ===

impl Shield {
    pub(super) fn command(&self, vhost: &Vhost) -> String {
        let definition = serde_json::json!(self.definition).to_string();
        format!(
            "rabbitmqctl set_policy -p {} --priority {} --apply-to queues {} {} {}",
            quoted(&vhost.to_string()),
            self.priority,
            quoted(&self.name),
            quoted(&self.pattern),
            quoted(&definition)
        )
    }
}

fn is_for(policy: &ListedPolicy, of_type: &str) -> bool {
    ["all", "queues", of_type].contains(&policy.apply_to.as_str())
}

fn harmful(definition: &BTreeMap<String, Value>, of_type: &str) -> Vec<String> {
    let acts = |harm: &&Harm| {
        let value = definition.get(harm.key);
        value.is_some_and(|value| harm.acts(value, of_type == STREAMS))
    };
    let found = HARMFUL.iter().filter(acts);
    found
        .map(|harm| format!("{}: {}", harm.key, harm.does))
        .collect()
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
        let policies = Policies::of(listed, &vhost, &names, QueueType::Quorum);
        assert_eq!(policies.unreadable(), Vec::<&str>::new());
        let acting = policies.acting().into_iter();
        acting.map(|acts| (acts.policy, acts.queues)).collect()
    }

    fn command(listed: &[ListedPolicy]) -> String {
        let names = Names::new("dlx-proxy").expect("a prefix");
        let vhost = Vhost::copy(b"/").expect("short");
        let policies = Policies::of(listed, &vhost, &names, QueueType::Quorum);
        policies.shield().command(&vhost)
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
    fn a_pattern_that_cannot_be_read_is_named_if_it_matters() {
        let listed = [
            policy(
                "look-behind",
                "(?<!x)a",
                "queues",
                0.0,
                json!({"expires": 1}),
            ),
            policy(
                "harmless",
                "(?<!x)a",
                "queues",
                0.0,
                json!({"queue-leader-locator": "balanced"}),
            ),
        ];
        let names = Names::new("dlx-proxy").expect("a prefix");
        let vhost = Vhost::copy(b"/").expect("short");
        let policies = Policies::of(&listed, &vhost, &names, QueueType::Quorum);
        assert_eq!(
            (policies.acting(), policies.unreadable()),
            (vec![], vec!["look-behind"])
        );
    }

    #[test]
    fn the_advice_is_that_of_the_documents_where_there_is_nothing_else() {
        let said = "rabbitmqctl set_policy -p / --priority 999 --apply-to queues dlx-proxy '^dlx-proxy' '{\"max-length\":2000000000}'";
        assert_eq!(
            command(&[policy("all", "", "all", 5.0, json!({"expires": 1}))]),
            said
        );
        assert!(include_str!("../../../docs/operations.md").contains(said));
    }

    #[test]
    fn the_advice_beats_whoever_has_as_much_priority() {
        let others = |priority| {
            [
                policy("all", "", "all", priority, json!({"expires": 1})),
                policy("orders", "^orders", "all", 5000.0, json!({"expires": 1})),
            ]
        };
        for (priority, advised) in [(998.0, 999), (999.0, 1000), (1200.0, 1201)] {
            let command = command(&others(priority));
            assert!(
                command.contains(&format!("--priority {advised} ")),
                "{command}"
            );
        }
        // What cannot be read may fit.
        let unreadable = [policy(
            "look-behind",
            "(?<!x)",
            "queues",
            1500.0,
            json!({"expires": 1}),
        )];
        assert!(command(&unreadable).contains("--priority 1501 "));
    }

    #[test]
    fn the_advice_keeps_what_the_proxy_s_own_policy_says() {
        let listed = [
            policy(
                "all",
                "",
                "all",
                999.0,
                json!({"message-ttl": 1, "queue-leader-locator": "balanced"}),
            ),
            policy(
                "dlx-proxy",
                "^dlx-proxy",
                "queues",
                999.0,
                json!({"max-length": 2_000_000_000_u64, "consumer-disconnected-timeout": 5000}),
            ),
        ];
        let said = "--priority 1000 --apply-to queues dlx-proxy '^dlx-proxy' \
            '{\"consumer-disconnected-timeout\":5000,\"max-length\":2000000000,\"queue-leader-locator\":\"balanced\"}'";
        assert!(command(&listed).ends_with(said), "{}", command(&listed));
        // The harm is in it.
        let own = [policy(
            "ours",
            "^dlx-proxy",
            "queues",
            1001.0,
            json!({"expires": 1, "max-length": 10, "consumer-disconnected-timeout": 5000}),
        )];
        let said = "--priority 1001 --apply-to queues ours '^dlx-proxy' '{\"consumer-disconnected-timeout\":5000,\"max-length\":2000000000}'";
        assert!(command(&own).ends_with(said), "{}", command(&own));
    }

    #[test]
    fn the_advice_overwrites_no_other_policy() {
        let named = |name| policy(name, "^orders", "queues", 1.0, json!({"expires": 1}));
        assert!(command(&[named("dlx-proxy")]).contains(" dlx-proxy-own '^dlx-proxy' "));
        assert!(
            command(&[named("dlx-proxy"), named("dlx-proxy-own")]).contains(" dlx-proxy-own-2 ")
        );
    }
}
