//! The delay queues of a vhost, and its other queues of the proxy's own, as the management API tells them.

use std::collections::BTreeSet;

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde::Deserialize;
use serde_json::Value;

use crate::alteration::Order;
use crate::amqp::ids::{ShortStr, Vhost};
use crate::machine::Trouble;
use crate::objects::{Names, OwnObject};
use crate::registry::adoption::ListedQueue;

use super::condition::{self, Condition};
use super::http::{Api, NoAnswer};
use super::leads::Binding;

const COLUMNS: &str =
    "name,messages,messages_dlx,arguments,effective_policy_definition,delivery_limit";
const DELIVERY_LIMIT: [&str; 2] = ["x-delivery-limit", "delivery-limit"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayQueue {
    pub millis: u64,
    pub messages: Option<u64>,
    /// Dead-lettered and unconfirmed; AMQP counts exclude them. `None`: unknown yet.
    pub leaving: Option<u64>,
    /// A message delivered too often dies early.
    pub has_delivery_limit: bool,
}

pub(super) struct OwnQueues {
    /// The shortest delay first.
    pub(super) delays: Vec<DelayQueue>,
    pub(super) conditions: Vec<(ShortStr, Option<Trouble>)>,
    /// Queues that are being made anew, or were left in the middle of that.
    pub(super) orders: Vec<Order>,
}

#[derive(Deserialize)]
struct Listed {
    name: String,
    #[serde(default)]
    messages: Option<u64>,
    #[serde(default)]
    messages_dlx: Option<u64>,
    #[serde(default)]
    arguments: Value,
    #[serde(default)]
    effective_policy_definition: Value,
    #[serde(default)]
    delivery_limit: Value,
    #[serde(flatten)]
    condition: Condition,
}

impl Api {
    /// The shortest delay first.
    ///
    /// # Errors
    /// No answer, or not RabbitMQ's.
    pub async fn delay_queues(
        &self,
        vhost: &Vhost,
        names: &Names,
    ) -> Result<Vec<DelayQueue>, NoAnswer> {
        Ok(self.own_queues(vhost, names).await?.delays)
    }

    /// Delay queues and orders bound to the delay exchange, and the existing queues of other kinds. Avoids
    /// searching all queues: half a second of CPU per page, where there are 8,000.
    pub(super) async fn own_queues(
        &self,
        vhost: &Vhost,
        names: &Names,
    ) -> Result<OwnQueues, NoAnswer> {
        let vhost = percent_encode(vhost, NON_ALPHANUMERIC);
        let exchange = percent_encode(names.delay(), NON_ALPHANUMERIC);
        let (listed, ordered): (Vec<Listed>, Vec<ListedQueue>) = self
            .ask(async |mut api| {
                let path = format!("exchanges/{vhost}/{exchange}/bindings/source");
                let bound: Vec<Binding> = api.find(path).await?.unwrap_or_default();
                let bound = || bound.iter().filter_map(Binding::queue);
                let delays = bound().filter_map(|queue| delay_of(queue, names));
                let (mut listed, mut ordered) = (Vec::new(), Vec::new());
                let delays = delays.collect::<BTreeSet<u64>>().into_iter();
                let delays = delays.map(|millis| names.delay_queue(millis));
                let others = [names.intake_queue(), names.parking(), names.redeclared()];
                for queue in others.into_iter().cloned().chain(delays) {
                    let queue = percent_encode(&queue, NON_ALPHANUMERIC);
                    let columns = condition::COLUMNS;
                    let path = format!("queues/{vhost}/{queue}?columns={COLUMNS},{columns}");
                    listed.extend(api.find(path).await?);
                }
                let is_order =
                    |queue: &&ShortStr| matches!(names.parse(queue), Some(OwnObject::Order(_)));
                for queue in bound().filter(is_order) {
                    let queue = percent_encode(queue, NON_ALPHANUMERIC);
                    let path = format!("queues/{vhost}/{queue}?columns=name,arguments");
                    ordered.extend(api.find(path).await?);
                }
                Ok((listed, ordered))
            })
            .await?;
        let conditions = listed.iter().filter_map(|listed| {
            let trouble = listed
                .condition
                .trouble(&listed.effective_policy_definition);
            Some((ShortStr::copy(listed.name.as_bytes())?, trouble))
        });
        Ok(OwnQueues {
            delays: read_all(&listed, names),
            conditions: conditions.collect(),
            orders: ordered
                .iter()
                .filter_map(|listed| Order::of_arguments(&listed.arguments))
                .collect(),
        })
    }
}

fn delay_of(queue: &[u8], names: &Names) -> Option<u64> {
    match names.parse(queue) {
        Some(OwnObject::DelayQueue(millis)) => Some(millis),
        Some(_) | None => None,
    }
}

fn read_all(listed: &[Listed], names: &Names) -> Vec<DelayQueue> {
    let found = listed.iter().filter_map(|listed| listed.read(names));
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(|queue| queue.millis);
    found
}

// === impl Listed ===

impl Listed {
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
            millis: delay_of(self.name.as_bytes(), names)?,
            messages: self.messages,
            leaving: self.messages_dlx,
            has_delivery_limit: match in_force {
                Some(limit) => limit >= 0,
                None => said.into_iter().flatten().any(|limit| limit >= 0),
            },
        })
    }
}

/// RabbitMQ writes `unlimited` for none.
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

    /// Answers of 3.10.8, 4.0.5 and 4.3.6, with edited arguments.
    #[test]
    fn delay_queues_of_real_nodes_are_understood() {
        for (json, leaving, has_delivery_limit) in [
            (
                r#"{"arguments":{"x-message-ttl":1000},"effective_policy_definition":{},"messages":3,"messages_dlx":1,"name":"dlx-proxy.delay.1000"}"#,
                Some(1),
                false,
            ),
            (
                r#"{"arguments":{},"effective_policy_definition":{"delivery-limit":5},"messages":2,"messages_dlx":0,"name":"dlx-proxy.delay.1000"}"#,
                Some(0),
                true,
            ),
            (
                r#"{"arguments":{"x-delivery-limit":-1},"delivery_limit":"unlimited","effective_policy_definition":{},"messages":2,"messages_dlx":0,"name":"dlx-proxy.delay.1000"}"#,
                Some(0),
                false,
            ),
            (
                r#"{"arguments":{},"delivery_limit":20,"effective_policy_definition":{},"messages":2,"messages_dlx":0,"name":"dlx-proxy.delay.1000"}"#,
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
                messages: leaving.map(|leaving| leaving + 2),
                leaving,
                has_delivery_limit,
            };
            assert_eq!(read(json), Some(expected), "{json}");
        }
        assert_eq!(read(r#"{"name":"dlx-proxy.delay.new"}"#), None);
    }
}
