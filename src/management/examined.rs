//! What `dlx-proxy doctor` reads: policies as they are written, feature flags, and the time.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::SystemTime;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::http::{Api, NoAnswer};
use crate::amqp::ids::Vhost;
use crate::http::escaped;
use crate::registry::adoption::ListedPolicy;

#[derive(Clone, Debug, Deserialize)]
pub struct ListedPermission {
    pub user: String,
    pub vhost: String,
    pub configure: String,
    pub write: String,
    pub read: String,
}

#[derive(Deserialize)]
struct Overview {
    listeners: Vec<Listener>,
}

#[derive(Deserialize)]
struct Listener {
    protocol: String,
}

#[derive(Deserialize)]
struct FeatureFlag {
    name: String,
    state: String,
    stability: String,
}

// === impl Api ===

impl Api {
    /// Of all vhosts that the user may see.
    ///
    /// # Errors
    /// No such answer.
    pub async fn listed_policies(&self) -> Result<Vec<ListedPolicy>, NoAnswer> {
        self.list("policies").await
    }

    /// The same for operator policies.
    ///
    /// # Errors
    /// No such answer.
    pub async fn listed_operator_policies(&self) -> Result<Vec<ListedPolicy>, NoAnswer> {
        self.list("operator-policies").await
    }

    /// Only stable flags. Requires an administrator.
    ///
    /// # Errors
    /// No such answer.
    pub async fn disabled_feature_flags(&self) -> Result<Vec<String>, NoAnswer> {
        let flags: Vec<FeatureFlag> = self.list("feature-flags").await?;
        let disabled = flags
            .into_iter()
            .filter(|flag| flag.state == "disabled" && flag.stability != "experimental");
        Ok(disabled.map(|flag| flag.name).collect())
    }

    /// Exchanges, and dead-letter exchanges in the arguments of queues. Queues are read last, so
    /// that a queue declared meanwhile is included if its exchange is.
    ///
    /// # Errors
    /// No such answer.
    pub async fn exchanges_and_targets(
        &self,
        vhost: &Vhost,
    ) -> Result<(Vec<String>, BTreeSet<String>), NoAnswer> {
        let vhost = escaped(vhost);
        let exchanges: Vec<Value> = self
            .list(&format!("exchanges/{vhost}?columns=name"))
            .await?;
        let queues = format!("queues/{vhost}?disable_stats=true&columns=arguments");
        let queues: Vec<Value> = self.list(&queues).await?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let target = |queue: &Value| text(&queue["arguments"]["x-dead-letter-exchange"]);
        let exchanges = exchanges.iter().filter_map(|of| text(&of["name"]));
        Ok((
            exchanges.collect(),
            queues.iter().filter_map(target).collect(),
        ))
    }

    /// Requires an administrator.
    ///
    /// # Errors
    /// No such answer.
    pub async fn listed_permissions(&self) -> Result<Vec<ListedPermission>, NoAnswer> {
        self.list("permissions").await
    }

    /// Requires an administrator.
    ///
    /// # Errors
    /// No such answer, or no such user (404).
    pub async fn permissions_of(&self, user: &str) -> Result<Vec<ListedPermission>, NoAnswer> {
        let user = escaped(user.as_bytes());
        self.list(&format!("users/{user}/permissions")).await
    }

    /// Whether a node accepts clients of the stream protocol.
    ///
    /// # Errors
    /// No such answer.
    pub async fn speaks_streams(&self) -> Result<bool, NoAnswer> {
        let overview: Overview = self.list("overview").await?;
        let mut listeners = overview.listeners.iter();
        Ok(listeners.any(|listener| listener.protocol.starts_with("stream")))
    }

    /// The broker's clock in whole seconds, and the time of the request by the local clock.
    ///
    /// # Errors
    /// No such answer.
    pub async fn date(&self) -> Result<(SystemTime, RangeInclusive<SystemTime>), NoAnswer> {
        self.ask(async |mut api| {
            let begun = SystemTime::now();
            let date = api.date("whoami").await?;
            Ok((date, begun..=SystemTime::now()))
        })
        .await
    }

    pub(super) async fn list<T: DeserializeOwned + Send + 'static>(
        &self,
        path: &str,
    ) -> Result<T, NoAnswer> {
        self.ask(async |mut api| api.get(path.to_owned()).await)
            .await
    }
}
