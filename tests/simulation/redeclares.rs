//! Declares that differ from their queue only in where its dead letters go, where the setting `lenient` allows it: several releases of an application run at
//! once, and each says something else. Not in all worlds; what is drawn for it has a generator of its own, so that the others stay what they are.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::codec::methods::{Arg, Args};
use super::codec::value::{Table, Value};
use super::plan::Plan;
use super::rulings::Target;

/// Makes another seed of a seed.
const REDECLARES: u64 = 0x7265_6465_636c_6100;
/// An argument that no source has: with it a declare is refused, whatever it says of dead letters.
const FOREIGN: &str = "x-max-length-bytes";

/// What clients declare sources with.
#[derive(Clone, Debug)]
pub(crate) struct Redeclares {
    /// By queue, release after release: its arguments. Those of the first release are the plan's. Of other queues no declare may differ.
    releases: BTreeMap<String, Vec<Table>>,
    /// Policies say so, and the settings say otherwise; or the other way round.
    pub by_policy: bool,
}

/// What a declare says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Saying {
    /// It is passive.
    Nothing,
    /// Where dead letters go.
    Target(Option<Target>),
    /// Something that differs from the queue and must not.
    Wrong,
}

// === impl Redeclares ===

impl Redeclares {
    /// Of one world in four.
    pub(crate) fn draw(seed: u64, plan: &Plan) -> Option<Redeclares> {
        let mut rng = Rng::with_seed(seed ^ REDECLARES);
        if rng.u8(..4) > 0 {
            return None;
        }
        let by_policy = rng.u8(..3) == 0;
        let mut releases = BTreeMap::new();
        for queue in &plan.sources {
            // Now and then one of them is strict.
            if plan.sources.len() > 1 && rng.u8(..5) == 0 {
                continue;
            }
            let first = plan.arguments(queue).clone();
            let others = rng.usize(1..4);
            let others: Vec<Table> = (0..others)
                .map(|_| another(&first, plan, &mut rng))
                .collect();
            let all = [vec![first], others].concat();
            releases.insert(queue.clone(), all);
        }
        Some(Redeclares {
            releases,
            by_policy,
        })
    }

    /// All that may be said of a queue, if it may differ.
    pub(crate) fn of(&self, queue: &str) -> Option<&Vec<Table>> {
        self.releases.get(queue)
    }

    /// As that release declares the queue.
    pub(crate) fn declare(&self, queue: &str, release: usize, args: &mut Args) {
        let Some(releases) = self.of(queue) else {
            return;
        };
        for table in arguments(args) {
            table.clone_from(&releases[release % releases.len()]);
        }
    }
}

/// Where dead letters go by these arguments, those of a client or of a queue at the broker.
pub(crate) fn target_of(arguments: &Table) -> Option<Target> {
    let bytes = |name| match arguments.get(name)? {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    };
    let key = bytes("x-dead-letter-routing-key");
    let key = key.map(|key| String::from_utf8_lossy(&key).into_owned());
    Target::argued(bytes("x-dead-letter-exchange"), key)
}

/// Of a declare that is not passive.
pub(crate) fn said_in(args: &Args) -> Option<Target> {
    let tables = args.iter().filter_map(|(name, arg)| match arg {
        Arg::Table(table) if *name == "arguments" => Some(table),
        _ => None,
    });
    tables.filter_map(target_of).next()
}

/// The declare differs from its queue in more than where dead letters go.
pub(crate) fn spoil(args: &mut Args) {
    let foreign = (FOREIGN.into(), Value::Integer(b'I', 1_000_000));
    arguments(args).for_each(|table| table.fields.push(foreign.clone()));
}

/// The declare names another target than the queue has.
pub(crate) fn redirect(args: &mut Args) {
    for table in arguments(args) {
        table.fields.retain(|(name, _)| !is_target(name));
        table.fields.extend(named("dlx", Some("elsewhere")));
    }
}

/// Those of a declare.
fn arguments(args: &mut Args) -> impl Iterator<Item = &mut Table> {
    args.iter_mut().filter_map(|(name, arg)| match arg {
        Arg::Table(table) if *name == "arguments" => Some(table),
        _ => None,
    })
}

/// As with the plan's, no queue is its own target, and where dead letters come back nothing doubles them.
fn another(first: &Table, plan: &Plan, rng: &mut Rng) -> Table {
    let mut table = first.clone();
    table.fields.retain(|(name, _)| !is_target(name));
    if rng.u8(..6) == 0 {
        return table;
    }
    let fan = if plan.returns { "dlx" } else { "fan" };
    let exchange = ["", "dlx", fan, "inner"][rng.usize(..4)];
    let keyless = match exchange {
        "fan" => rng.bool(),
        "dlx" | "inner" => plan.carbon_copies && !plan.returns && rng.bool(),
        _ => false,
    };
    let key = plan.targets[rng.usize(..plan.targets.len())].clone();
    let key = (!keyless).then_some(key);
    table.fields.extend(named(exchange, key.as_deref()));
    table
}

fn named(exchange: &str, key: Option<&str>) -> Vec<(Vec<u8>, Value)> {
    let text = |name: &str, value: &str| (name.into(), Value::Text(value.into()));
    let key = key.map(|key| text("x-dead-letter-routing-key", key));
    let exchange = text("x-dead-letter-exchange", exchange);
    [exchange].into_iter().chain(key).collect()
}

fn is_target(name: &[u8]) -> bool {
    [&b"x-dead-letter-exchange"[..], b"x-dead-letter-routing-key"].contains(&name)
}
