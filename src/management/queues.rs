//! The delay queues of a vhost, as the management API tells them.

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde::Deserialize;
use serde_json::Value;

use crate::amqp::ids::Vhost;
use crate::registry::intake_name::Names;

use super::http::{Api, NoAnswer};

/// On one page, at most.
const ON_A_PAGE: usize = 500;
/// What is asked for of each queue.
const COLUMNS: &str = "name,messages_dlx,arguments,effective_policy_definition,delivery_limit";
/// The argument, and the key of a policy.
const DELIVERY_LIMIT: [&str; 2] = ["x-delivery-limit", "delivery-limit"];

/// A delay queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayQueue {
    /// Its delay.
    pub millis: u64,
    /// How many messages have died there and are not confirmed yet: they are in no other number. `None`: that is not known yet.
    pub leaving: Option<u64>,
    /// A message that is delivered there too often dies before its time.
    pub has_delivery_limit: bool,
}

#[derive(Deserialize)]
struct Page {
    page_count: usize,
    items: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    name: String,
    #[serde(default)]
    messages_dlx: Option<u64>,
    #[serde(default)]
    arguments: Value,
    #[serde(default)]
    effective_policy_definition: Value,
    #[serde(default)]
    delivery_limit: Value,
}

impl Api {
    /// All there are, the shortest delay first.
    ///
    /// # Errors
    /// When the API does not answer, or not as RabbitMQ does.
    pub async fn delay_queues(
        &self,
        vhost: &Vhost,
        names: &Names,
    ) -> Result<Vec<DelayQueue>, NoAnswer> {
        let vhost = percent_encode(vhost, NON_ALPHANUMERIC);
        let pattern = format!("^{}", regex::escape(&names.delay_queue(0).to_string()));
        let pattern = pattern.trim_end_matches('0');
        let pattern = percent_encode(pattern.as_bytes(), NON_ALPHANUMERIC);
        let listed = self.ask(async |mut api| {
            let mut listed = Vec::new();
            for page in 1.. {
                let path = format!(
                    "queues/{vhost}?page={page}&page_size={ON_A_PAGE}&name={pattern}&use_regex=true&columns={COLUMNS}"
                );
                let answer: Page = api.get(path, |json| serde_json::from_slice(json)).await?;
                listed.extend(answer.items);
                if page >= answer.page_count {
                    break;
                }
            }
            Ok(listed)
        });
        let listed = listed.await?;
        let mut found: Vec<_> = listed
            .iter()
            .filter_map(|listed| listed.read(names))
            .collect();
        found.sort_by_key(|queue| queue.millis);
        Ok(found)
    }
}

// === impl Listed ===

impl Listed {
    /// `None`: its name only begins like that of a delay queue.
    fn read(&self, names: &Names) -> Option<DelayQueue> {
        let [argument, key] = DELIVERY_LIMIT;
        let of_map =
            |map: &Value, name: &str| map.as_object().and_then(|map| limit(map.get(name)?));
        let in_force = limit(&self.delivery_limit);
        let said = [
            of_map(&self.arguments, argument),
            of_map(&self.effective_policy_definition, key),
        ];
        Some(DelayQueue {
            millis: names.delay_of(self.name.as_bytes())?,
            leaving: self.messages_dlx,
            has_delivery_limit: match in_force {
                Some(limit) => limit >= 0,
                None => said.into_iter().flatten().any(|limit| limit >= 0),
            },
        })
    }
}

/// RabbitMQ says `unlimited` where there is none.
fn limit(said: &Value) -> Option<i64> {
    match said.as_str() {
        Some("unlimited") => Some(-1),
        _ => said.as_i64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Option<DelayQueue> {
        let listed: Listed = serde_json::from_str(json).expect("JSON");
        listed.read(&Names::default())
    }

    /// As 3.10.8, 4.0.5 and 4.3.6 answer, but for arguments that say nothing of a limit.
    #[test]
    fn delay_queues_of_real_nodes_are_understood() {
        for (json, leaving, has_delivery_limit) in [
            (
                r#"{"arguments":{"x-message-ttl":1000},"effective_policy_definition":{},"messages_dlx":1,"name":"dlx-proxy.delay.1000"}"#,
                Some(1),
                false,
            ),
            (
                r#"{"arguments":{},"effective_policy_definition":{"delivery-limit":5},"messages_dlx":0,"name":"dlx-proxy.delay.1000"}"#,
                Some(0),
                true,
            ),
            (
                r#"{"arguments":{"x-delivery-limit":-1},"delivery_limit":"unlimited","effective_policy_definition":{},"messages_dlx":0,"name":"dlx-proxy.delay.1000"}"#,
                Some(0),
                false,
            ),
            (
                r#"{"arguments":{},"delivery_limit":20,"effective_policy_definition":{},"messages_dlx":0,"name":"dlx-proxy.delay.1000"}"#,
                Some(0),
                true,
            ),
            (
                r#"{"arguments":{"x-delivery-limit":-1},"effective_policy_definition":[],"name":"dlx-proxy.delay.1000"}"#,
                None,
                false,
            ),
        ] {
            let expected = DelayQueue {
                millis: 1000,
                leaving,
                has_delivery_limit,
            };
            assert_eq!(read(json), Some(expected), "{json}");
        }
        assert_eq!(read(r#"{"name":"dlx-proxy.delay.new"}"#), None);
    }
}
