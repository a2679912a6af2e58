//! The exchanges whose publishes the proxy delays, as the broker shows them: they have the argument `x-delayed-type`, and an ordinary type. And
//! whether the broker knows the type `x-delayed-message`: then its plugin delays.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::Management;
use super::http::{Api, Connection, NoAnswer};
use crate::amqp::ids::ShortStr;
use crate::registry::delayed_exchanges::{ARGUMENT, ByName, DelayedPublish, Routing, TYPE};

#[derive(Debug, Deserialize)]
struct Overview {
    #[serde(default)]
    exchange_types: Vec<ExchangeType>,
}

#[derive(Debug, Deserialize)]
struct ExchangeType {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Exchange {
    vhost: String,
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    arguments: Value,
}

impl Management {
    /// For a proxy that delays publishes.
    pub fn with_delays(self, delays: DelayedPublish) -> Management {
        Management { delays, ..self }
    }

    pub(super) async fn read_delayed(&self, api: &mut Connection) -> Result<(), NoAnswer> {
        let Overview { exchange_types } = api.get("overview?columns=exchange_types".into()).await?;
        let path = "exchanges?columns=vhost,name,type,arguments&disable_stats=true";
        let exchanges: Vec<Exchange> = api.get(path.to_owned()).await?;
        let has_plugin = exchange_types.iter().any(|of| of.name.as_bytes() == TYPE);
        let delays = &self.delays.exchanges;
        delays.told(by_name(&exchanges), has_plugin);
        Ok(())
    }
}

impl Api {
    /// Exchanges of the plugin's type: vhost and name.
    ///
    /// # Errors
    /// No such answer.
    pub async fn plugin_exchanges(&self) -> Result<Vec<(String, String)>, NoAnswer> {
        let exchanges: Vec<Exchange> = self.list("exchanges?columns=vhost,name,type").await?;
        let plugins = exchanges
            .into_iter()
            .filter(|of| of.kind.as_bytes() == TYPE);
        Ok(plugins.map(|of| (of.vhost, of.name)).collect())
    }
}

fn by_name(exchanges: &[Exchange]) -> ByName {
    let mut all = ByName::new();
    for Exchange {
        vhost,
        name,
        kind,
        arguments,
    } in exchanges
    {
        let argument = std::str::from_utf8(ARGUMENT).map(|name| &arguments[name]);
        let is_delayed = argument.is_ok_and(Value::is_string) && kind.as_bytes() != TYPE;
        if is_delayed
            && let Some(vhost) = ShortStr::copy(vhost.as_bytes())
            && let Some(name) = ShortStr::copy(name.as_bytes())
        {
            let of_vhost: &mut BTreeMap<_, _> = all.entry(vhost).or_default();
            of_vhost.insert(name, Routing::of(kind.as_bytes()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::ids::name;

    #[test]
    fn exchanges_of_the_proxy_are_told_from_those_of_the_plugin() {
        let listed = r#"[
            {"vhost":"/","name":"","type":"direct","arguments":{}},
            {"vhost":"/","name":"ours","type":"topic","arguments":{"x-delayed-type":"topic"}},
            {"vhost":"/","name":"plugin","type":"x-delayed-message","arguments":{"x-delayed-type":"direct"}},
            {"vhost":"a","name":"plain","type":"fanout","arguments":{"x-delayed-type":1}}
        ]"#;
        let listed: Vec<Exchange> = serde_json::from_str(listed).expect("a list");
        let all = by_name(&listed);
        let of_root = all.values().next().expect("one vhost");
        assert_eq!(all.len(), 1);
        assert_eq!(of_root.len(), 1);
        assert_eq!(of_root.get(&name("ours")), Some(&Routing::Topic));
    }
}
