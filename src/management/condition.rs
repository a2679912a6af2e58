//! How a queue of the proxy's own is, as the management API tells: its state, its members, and what policies do to it.

use serde::Deserialize;
use serde_json::Value;

use crate::machine::Trouble;

use super::harm::HARMFUL;

const BAD: [&str; 5] = ["crashed", "down", "minority", "stopped", "terminated"];

pub(super) const COLUMNS: &str = "type,state,leader,members,online,policy,operator_policy";

#[derive(Deserialize)]
pub(super) struct Condition {
    #[serde(default, rename = "type")]
    queue_type: Option<String>,
    #[serde(default)]
    state: Option<String>,
    /// Null: no leader. Absent: unknown.
    #[serde(default)]
    leader: Value,
    #[serde(default)]
    members: Vec<Value>,
    #[serde(default)]
    online: Option<Vec<Value>>,
    #[serde(default)]
    policy: Option<String>,
    #[serde(default)]
    operator_policy: Option<String>,
}

// === impl Condition ===

impl Condition {
    pub(super) fn trouble(&self, policies: &Value) -> Option<Trouble> {
        self.bounded(policies).or_else(|| self.state())
    }

    fn bounded(&self, policies: &Value) -> Option<Trouble> {
        let is_stream = self.queue_type.as_deref() == Some("stream");
        let acts = HARMFUL.iter().find(|harm| {
            let value = policies.get(harm.key);
            harm.loses && value.is_some_and(|value| harm.acts(value, is_stream))
        })?;
        let named = [
            ("policy", &self.policy),
            ("operator policy", &self.operator_policy),
        ];
        let named = named.iter().filter_map(|(kind, name)| {
            let name = name.as_deref().filter(|name| !name.is_empty())?;
            Some(format!("{kind} {}", name.replace(char::is_control, "?")))
        });
        let named = named.collect::<Vec<_>>().join(" or ");
        Some(Trouble::Bounded(format!(
            "{named} ({}: {})",
            acts.key, acts.does
        )))
    }

    fn state(&self) -> Option<Trouble> {
        let state = self.state.as_deref();
        let bad = BAD.iter().find(|bad| state == Some(bad));
        let (all, online) = (self.members.len(), self.online.as_ref().map(Vec::len));
        let words = match (bad, online) {
            (Some(bad), _) => format!("is {bad}"),
            (None, Some(online)) if all > 0 && online * 2 <= all => {
                format!("has no majority: {online} of {all} members are online")
            }
            (None, Some(_)) if all > 0 && self.leader.is_null() => "has no leader".to_owned(),
            _ => return None,
        };
        Some(Trouble::State(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(json: &str) -> Option<String> {
        let listed: Value = serde_json::from_str(json).expect("JSON");
        let condition: Condition = serde_json::from_value(listed.clone()).expect("a queue");
        let trouble = condition.trouble(&listed["effective_policy_definition"]);
        trouble.map(|trouble| trouble.to_string())
    }

    /// Answers of 3.10.8 and 4.3.6.
    #[test]
    fn what_is_wrong_with_a_queue_is_said() {
        for (json, says) in [
            (
                r#"{"type":"quorum","state":"running","leader":"a","members":["a"],"online":["a"],"policy":null,"effective_policy_definition":{}}"#,
                None,
            ),
            (r#"{"name":"just made"}"#, None),
            (
                r#"{"type":"quorum","leader":null,"members":["a"],"online":[]}"#,
                Some("has no majority: 0 of 1 members are online"),
            ),
            (
                r#"{"type":"quorum","state":"running","leader":"a","members":["a","b","c"],"online":["a"]}"#,
                Some("has no majority: 1 of 3 members are online"),
            ),
            (
                r#"{"type":"quorum","leader":null,"members":["a","b","c"],"online":["a","b"]}"#,
                Some("has no leader"),
            ),
            (r#"{"type":"classic","state":"down"}"#, Some("is down")),
            (
                r#"{"type":"quorum","policy":"all\u001b","effective_policy_definition":{"message-ttl":5}}"#,
                Some("loses messages by policy all? (message-ttl: messages would expire)"),
            ),
            (
                r#"{"type":"quorum","policy":"a","operator_policy":"b","effective_policy_definition":{"max-length":5}}"#,
                Some(
                    "loses messages by policy a or operator policy b (max-length: messages would be dropped or refused)",
                ),
            ),
            // The one that docs/reference/running.md recommends, and what a queue's own arguments outdo.
            (
                r#"{"type":"quorum","policy":"a","effective_policy_definition":{"max-length":2000000000,"dead-letter-exchange":"x"}}"#,
                None,
            ),
            (
                r#"{"type":"stream","policy":"a","effective_policy_definition":{"message-ttl":5}}"#,
                None,
            ),
        ] {
            assert_eq!(trouble(json).as_deref(), says, "{json}");
        }
    }
}
