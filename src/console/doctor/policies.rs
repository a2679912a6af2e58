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
/// Recommended by docs/reference/running.md; more if other policies have as much.
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
