//! Which queues the exchanges lead to that dead letters go to. The management API is asked for each of them, and for those behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde::Deserialize;
use serde_json::Value;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::known::{Leads, Target};

use super::http::{Connection, NoAnswer};
use super::{Management, topic};

const PATIENCE: Duration = Duration::from_secs(20);
/// Those behind others included; where further ones lead is unknown.
const MOST_EXCHANGES: usize = 200;
/// Of all exchanges together.
const MOST_BINDINGS: usize = 100_000;
/// Per target; with more of them the result is unknown.
const MOST_MATCHES: usize = 4096;

/// By name; `None`: there is no such exchange.
pub(super) type Asked = BTreeMap<ShortStr, Option<Exchange>>;

#[derive(Debug, Deserialize)]
pub(super) struct Exchange {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    arguments: Value,
    #[serde(default)]
    policy: Option<String>,
    #[serde(skip)]
    pub(super) alternate: Option<ShortStr>,
    #[serde(skip)]
    pub(super) bindings: Vec<Binding>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Binding {
    destination: ShortName,
    destination_type: DestinationType,
    routing_key: ShortName,
}

#[derive(Debug, Deserialize)]
struct Policy {
    #[serde(default)]
    definition: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DestinationType {
    Queue,
    Exchange,
}

/// Fails instead of omitting one, which would falsify the others.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct ShortName(ShortStr);

impl Management {
    pub(super) async fn survey(
        &self,
        vhost: &Vhost,
        targets: &[Target],
    ) -> Result<Asked, NoAnswer> {
        let _turn = self.turn.acquire().await;
        let names = targets.iter().map(|target| target.exchange.clone());
        let names = names.collect();
        let asked = self.api.ask_within(PATIENCE, async |mut api| {
            ask_for(&mut api, vhost, names).await
        });
        let asked = asked.await;
        self.metrics.management(asked.is_ok());
        asked
    }
}

async fn ask_for(
    api: &mut Connection,
    vhost: &Vhost,
    mut due: Vec<ShortStr>,
) -> Result<Asked, NoAnswer> {
    let (mut asked, mut left) = (Asked::new(), MOST_BINDINGS);
    let vhost = percent_encode(vhost, NON_ALPHANUMERIC).to_string();
    while let Some(name) = due.pop() {
        if name.is_empty() || asked.contains_key(&name) || asked.len() >= MOST_EXCHANGES {
            continue;
        }
        let mut exchange = ask_for_one(api, &vhost, &name).await?;
        if let Some(exchange) = &mut exchange {
            match left.checked_sub(exchange.bindings.len()) {
                Some(less) => left = less,
                None => exchange.kind.clear(),
            }
            due.extend(exchange.behind().cloned());
        }
        asked.insert(name, exchange);
    }
    Ok(asked)
}

async fn ask_for_one(
    api: &mut Connection,
    vhost: &str,
    name: &ShortStr,
) -> Result<Option<Exchange>, NoAnswer> {
    let path = format!(
        "exchanges/{vhost}/{}",
        percent_encode(name, NON_ALPHANUMERIC)
    );
    let Some(mut exchange) = api.find::<Exchange>(path.clone()).await? else {
        return Ok(None);
    };
    let mut alternate = exchange.arguments.get(ALTERNATE).cloned();
    if let (None, Some(policy)) = (&alternate, exchange.policy.as_deref())
        && !policy.is_empty()
    {
        let policy = percent_encode(policy.as_bytes(), NON_ALPHANUMERIC);
        let policy = api.find(format!("policies/{vhost}/{policy}")).await?;
        alternate = policy.and_then(|Policy { definition }| definition.get(ALTERNATE).cloned());
    }
    let alternate = alternate.as_ref().and_then(Value::as_str);
    exchange.alternate = alternate.and_then(|name| ShortStr::copy(name.as_bytes()));
    let bindings = api.find(format!("{path}/bindings/source")).await?;
    exchange.bindings = bindings.unwrap_or_default();
    Ok(Some(exchange))
}

const ALTERNATE: &str = "alternate-exchange";

pub(super) fn resolve(asked: &Asked, targets: Vec<Target>) -> Vec<(Target, Leads)> {
    let resolved = targets.into_iter().map(|target| {
        let leads_to = match asked.get(&target.exchange) {
            Some(None) => Leads::Nowhere,
            _ => leads_to(asked, &target).map_or(Leads::Unknown, Leads::To),
        };
        (target, leads_to)
    });
    resolved.collect()
}

/// Possible queues for this exchange and key (`None`: any key), whatever the headers. `None`:
/// unknown.
fn leads_to(asked: &Asked, target: &Target) -> Option<BTreeSet<ShortStr>> {
    let key = target.routing_key.as_ref().map(|key| key.as_bytes());
    let (mut queues, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let (mut due, mut left) = (vec![&target.exchange], MOST_MATCHES);
    while let Some(next) = due.pop() {
        if !seen.insert(next) {
            continue;
        }
        let exchange = asked.get(next)?.as_ref()?;
        let mut found = false;
        for Binding {
            destination,
            destination_type,
            ..
        } in exchange.matching(key)?
        {
            left = left.checked_sub(1)?;
            found = true;
            match destination_type {
                DestinationType::Queue => drop(queues.insert(destination.0.clone())),
                DestinationType::Exchange => due.push(&destination.0),
            }
        }
        if !(found && exchange.routes_all_alike(key)) {
            due.extend(&exchange.alternate);
        }
    }
    Some(queues)
}

// === impl Exchange ===

impl Exchange {
    fn behind(&self) -> impl Iterator<Item = &ShortStr> {
        let bound = self.bindings.iter();
        let bound = bound.filter(|to| to.destination_type == DestinationType::Exchange);
        self.alternate
            .iter()
            .chain(bound.map(|to| &to.destination.0))
    }

    /// `None`: of a plugin, or with too many bindings.
    fn matching(&self, key: Option<&[u8]>) -> Option<impl Iterator<Item = &Binding>> {
        let takes: fn(&[u8], &[u8]) -> bool = match self.kind.as_str() {
            "fanout" | "headers" => |_, _| true,
            "direct" => |pattern, key| pattern == key,
            "topic" => topic::matches,
            _ => return None,
        };
        let bindings = self.bindings.iter();
        Some(bindings.filter(move |to| key.is_none_or(|key| takes(&to.routing_key.0, key))))
    }

    /// Else a message may find no destination here although there are some.
    fn routes_all_alike(&self, key: Option<&[u8]>) -> bool {
        self.kind == "fanout" || (self.kind != "headers" && key.is_some())
    }
}

// === impl Binding ===

impl Binding {
    pub(super) fn queue(&self) -> Option<&ShortStr> {
        (self.destination_type == DestinationType::Queue).then_some(&self.destination.0)
    }
}

impl TryFrom<String> for ShortName {
    type Error = &'static str;

    fn try_from(name: String) -> Result<ShortName, &'static str> {
        let name = ShortStr::copy(name.as_bytes());
        name.map(ShortName).ok_or("a name of over 255 bytes")
    }
}
