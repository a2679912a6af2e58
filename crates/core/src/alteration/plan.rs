//! Whether a queue can be made anew, and what has to wait meanwhile: from what the management API lists.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use crate::amqp::ids::ShortStr;
use crate::objects::{DeclaredTarget, Names, OwnObject};
use crate::registry::adoption::{ListedPolicy, ListedQueue};
use crate::registry::arguments::{ALTERED, DeclareArguments};

use super::order::{Arguments, Binding, Order, table};

const DEAD_LETTER: [&str; 2] = ["x-dead-letter-exchange", "x-dead-letter-routing-key"];
const PUBLISHER: &str = "dlx-proxy publisher ";
const PROTOCOL: &str = "AMQP 0-9-1";
const ALTERNATE: &str = "alternate-exchange";

/// What is wanted: arguments as a client writes them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wish {
    pub set: Arguments,
    pub unset: BTreeSet<String>,
}

/// A vhost as the management API lists it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub queues: Vec<ListedQueue>,
    pub bindings: Vec<ListedBinding>,
    pub exchanges: Vec<ListedExchange>,
    pub policies: Vec<ListedPolicy>,
    pub connections: Vec<ListedConnection>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ListedBinding {
    /// Empty: the default exchange.
    pub source: String,
    pub destination: String,
    /// `queue` or `exchange`.
    pub destination_type: String,
    pub routing_key: String,
    #[serde(default)]
    pub arguments: Value,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ListedExchange {
    pub name: String,
    #[serde(default, rename = "type")]
    pub exchange_type: String,
    #[serde(default)]
    pub auto_delete: bool,
    #[serde(default)]
    pub arguments: Value,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ListedConnection {
    #[serde(default)]
    pub protocol: String,
    /// From the properties of the client.
    #[serde(default)]
    pub user_provided_name: String,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub order: Order,
    /// As many other proxies have to take part.
    pub others: usize,
    /// The intake exchange that the new arguments name.
    pub intake: Option<ShortStr>,
    pub changes: Vec<Change>,
    pub notes: Vec<String>,
}

/// One argument, as clients see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub argument: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

/// Why it cannot be made anew.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("there is no such queue")]
    Missing,
    #[error("nothing would change")]
    Unchanged,
    #[error("a stream keeps its messages")]
    Stream,
    #[error("an exclusive queue ends with its connection: change what declares it")]
    Exclusive,
    #[error("an auto-delete queue goes with its last consumer: change what declares it")]
    AutoDelete,
    #[error("the broker generated its name: change what declares it")]
    ServerNamed,
    #[error("it is an object of the proxy's own")]
    Ours,
    #[error("an earlier alteration of it is not finished: try again")]
    Unfinished,
    #[error("the type of a queue cannot be changed yet")]
    Type,
    #[error("`{0}` is no text, number or boolean")]
    Value(String),
    #[error("its name is too long: {0} bytes more than the proxy needs for names of its own")]
    NameTooLong(usize),
    #[error(
        "its binding to the exchange {0} has an argument that is no text or boolean, whose exact type the management API does not show"
    )]
    BindingArguments(String),
    #[error("the exchange {0} goes with its last binding (auto-delete), and would be gone")]
    AutoDeleteExchange(String),
    #[error("the exchange {0} gives each new binding its last messages (x-recent-history)")]
    RecentHistory(String),
    #[error(
        "the broker itself dead-letters messages of the queue {0} into it: hand that one over to the proxy first (`queues adopt`)"
    )]
    FedBy(String),
    #[error("clients with another protocol go past the proxy: {0}")]
    OtherProtocol(String),
    #[error("it delays returned messages itself, and these cannot be counted")]
    DelaysItself,
}

/// Where the order for this queue stands.
pub fn place(names: &Names, queue: &str) -> Option<ShortStr> {
    names.name(&OwnObject::Order(queue.as_bytes()))
}

pub(super) fn trial(names: &Names, queue: &str) -> Option<ShortStr> {
    names.name(&OwnObject::Trial(queue.as_bytes()))
}

pub(super) fn claim(names: &Names, queue: &str) -> Option<ShortStr> {
    names.name(&OwnObject::Claim(queue.as_bytes()))
}

/// `intake`: the intake exchange for arguments as a client writes them, if the proxy takes such a queue over.
///
/// # Errors
/// All reasons against it.
pub fn plan(
    queue: &str,
    seen: &Seen,
    wish: &Wish,
    names: &Names,
    intake: impl FnOnce(&DeclareArguments<'_>) -> Option<ShortStr>,
) -> Result<Plan, Vec<Refusal>> {
    let listed = seen.queues.iter().find(|listed| listed.name == queue);
    let Some(listed) = listed else {
        return Err(vec![Refusal::Missing]);
    };
    let mut against = kind(listed, wish, names);
    if left_behind(queue, seen, names).is_some() {
        against.push(Refusal::Unfinished);
    }
    let anew = Anew::of(listed, wish, names, intake, &mut against);
    let bindings = bindings(queue, seen, &mut against);
    let exchanges = leading_to(&bindings, seen);
    against.extend(feeding(queue, &exchanges, seen, names));
    against.extend(other_protocols(&seen.connections));
    if !against.is_empty() {
        return Err(against);
    }
    let order = Order {
        queue: queue.to_owned(),
        durable: listed.durable,
        quorum: listed.queue_type.as_deref() == Some("quorum"),
        old: anew.old,
        new: anew.new,
        bindings,
        exchanges,
    };
    let others = other_proxies(&seen.connections);
    Ok(Plan {
        changes: anew.changes,
        notes: notes(&order, others, seen),
        others,
        order,
        intake: anew.intake,
    })
}

/// The arguments of a queue.
struct Anew {
    old: Arguments,
    new: Arguments,
    changes: Vec<Change>,
    intake: Option<ShortStr>,
}

// === impl Anew ===

impl Anew {
    fn of(
        listed: &ListedQueue,
        wish: &Wish,
        names: &Names,
        intake: impl FnOnce(&DeclareArguments<'_>) -> Option<ShortStr>,
        against: &mut Vec<Refusal>,
    ) -> Anew {
        let old = arguments(&listed.arguments);
        let before = as_clients_see(&old, names);
        let mut after = before.clone();
        after.retain(|name, _| !wish.unset.contains(name));
        after.extend(wish.set.clone());
        let odd = after.iter().filter(|(_, value)| !is_plain(value));
        against.extend(odd.map(|(name, _)| Refusal::Value(name.clone())));
        let table = table(&after).unwrap_or_default();
        let intake = intake(&DeclareArguments::read(&table));
        let changes = changes(&before, &after);
        let mut new = after;
        if let Some(intake) = &intake {
            let [exchange, key] = DEAD_LETTER;
            new.remove(key);
            let intake = String::from_utf8_lossy(intake).into_owned();
            new.insert(exchange.to_owned(), intake.into());
        }
        remember(&old, &changes, &mut new);
        if new == old {
            against.push(Refusal::Unchanged);
        }
        Anew {
            old,
            new,
            changes,
            intake,
        }
    }
}

fn is_plain(value: &Value) -> bool {
    value.is_string() || value.is_boolean() || value.as_i64().is_some()
}

/// The order for this queue that somebody works on, or left behind.
pub fn left_behind(queue: &str, seen: &Seen, names: &Names) -> Option<Order> {
    let place = place(names, queue)?;
    let mut queues = seen.queues.iter();
    Order::of_queue(queues.find(|listed| listed.name.as_bytes() == &*place)?)
}

fn kind(listed: &ListedQueue, wish: &Wish, names: &Names) -> Vec<Refusal> {
    let queue = listed.name.as_bytes();
    let is_set = |name: &str| wish.set.contains_key(name) || wish.unset.contains(name);
    let delays = |arguments: &Value| {
        let mut named = arguments.as_object().into_iter().flatten();
        named.any(|(name, _)| name.starts_with("x-delayed-retry-"))
    };
    let room = names.prefix().len() + ".altering/".len();
    let reasons = [
        (names.is_ours(queue), Refusal::Ours),
        (
            listed.queue_type.as_deref() == Some("stream"),
            Refusal::Stream,
        ),
        (listed.exclusive, Refusal::Exclusive),
        (listed.auto_delete, Refusal::AutoDelete),
        (queue.starts_with(b"amq."), Refusal::ServerNamed),
        (is_set("x-queue-type"), Refusal::Type),
        (
            listed.queue_type.as_deref() == Some("quorum") && delays(&listed.arguments),
            Refusal::DelaysItself,
        ),
        (
            queue.len() + room > 255,
            Refusal::NameTooLong((queue.len() + room).saturating_sub(255)),
        ),
    ];
    let holds = reasons.into_iter().filter(|(holds, _)| *holds);
    holds.map(|(_, refusal)| refusal).collect()
}

fn arguments(listed: &Value) -> Arguments {
    let listed = listed.as_object().into_iter().flatten();
    listed
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Names what changes in an argument of the queue, so that declares may go on to say it as it was. Where dead letters go is not among it: what
/// the last declare says of that counts, where it may.
fn remember(old: &Arguments, changes: &[Change], new: &mut Arguments) {
    let name = String::from_utf8_lossy(ALTERED).into_owned();
    let before = old.get(&name).and_then(Value::as_str).unwrap_or_default();
    let before = before.split(',').filter(|name| !name.is_empty());
    let changed = changes.iter().map(|change| change.argument.as_str());
    let changed = changed.filter(|name| !DEAD_LETTER.contains(name));
    let all: BTreeSet<&str> = before.chain(changed).collect();
    if !all.is_empty() {
        let all = all.into_iter().collect::<Vec<_>>().join(",");
        new.insert(name, all.into());
    }
}

/// With the target in the place of an intake exchange.
fn as_clients_see(arguments: &Arguments, names: &Names) -> Arguments {
    let mut seen = arguments.clone();
    seen.retain(|name, _| name.as_bytes() != ALTERED);
    let [exchange, key] = DEAD_LETTER;
    let named = arguments.get(exchange).and_then(Value::as_str);
    let own = named.and_then(|name| names.parse(name.as_bytes()));
    if let Some(OwnObject::IntakeExchange(said, _)) = own {
        seen.remove(exchange);
        if let DeclaredTarget::Target(target) = said {
            let text = |name: &ShortStr| Value::from(String::from_utf8_lossy(name).into_owned());
            seen.insert(exchange.to_owned(), text(&target.exchange));
            if let Some(routing_key) = &target.routing_key {
                seen.insert(key.to_owned(), text(routing_key));
            }
        }
    }
    seen
}

fn changes(before: &Arguments, after: &Arguments) -> Vec<Change> {
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let changed = names.into_iter().map(|name| Change {
        argument: name.clone(),
        before: before.get(name).cloned(),
        after: after.get(name).cloned(),
    });
    changed
        .filter(|change| change.before != change.after)
        .collect()
}

/// Those of the queue, without the one at the default exchange.
fn bindings(queue: &str, seen: &Seen, against: &mut Vec<Refusal>) -> Vec<Binding> {
    let of_queue = |binding: &&ListedBinding| {
        binding.destination_type == "queue"
            && binding.destination == queue
            && !binding.source.is_empty()
    };
    let mut bindings = Vec::new();
    for listed in seen.bindings.iter().filter(of_queue) {
        let source = listed.source.clone();
        let exchange = seen.exchanges.iter().find(|it| it.name == source);
        if exchange.is_some_and(|exchange| exchange.auto_delete) {
            against.push(Refusal::AutoDeleteExchange(source.clone()));
        }
        if exchange.is_some_and(|exchange| exchange.exchange_type == "x-recent-history") {
            against.push(Refusal::RecentHistory(source.clone()));
        }
        let arguments = arguments(&listed.arguments);
        let is_exact = |value: &Value| value.is_string() || value.is_boolean();
        if !arguments.values().all(is_exact) {
            against.push(Refusal::BindingArguments(source.clone()));
        }
        bindings.push(Binding {
            source,
            routing_key: listed.routing_key.clone(),
            arguments,
        });
    }
    bindings
}

/// Exchanges from which something leads to the queue, over bindings and alternate exchanges.
fn leading_to(bindings: &[Binding], seen: &Seen) -> BTreeSet<String> {
    let mut names: BTreeSet<&str> = bindings.iter().map(|it| it.source.as_str()).collect();
    // Which exchanges a policy is for is the broker's to say: here it is for all.
    let by_policy = |names: &BTreeSet<&str>| {
        let mut named = seen.policies.iter().filter_map(|policy| {
            let named = policy.definition.get(ALTERNATE)?;
            named.as_str()
        });
        named.any(|name| names.contains(name))
    };
    loop {
        let before = names.len();
        let leads = seen.bindings.iter().filter(|binding| {
            binding.destination_type == "exchange" && names.contains(binding.destination.as_str())
        });
        let mut more: Vec<&str> = leads.map(|binding| binding.source.as_str()).collect();
        for exchange in &seen.exchanges {
            let alternate = exchange.arguments.get(ALTERNATE).and_then(Value::as_str);
            if alternate.is_some_and(|name| names.contains(name)) {
                more.push(&exchange.name);
            }
        }
        names.extend(more);
        if by_policy(&names) {
            names.extend(seen.exchanges.iter().map(|it| it.name.as_str()));
        }
        if names.len() == before {
            break;
        }
    }
    let names = names.into_iter().filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Queues whose dead letters the broker itself puts into the queue.
fn feeding(queue: &str, exchanges: &BTreeSet<String>, seen: &Seen, names: &Names) -> Vec<Refusal> {
    let key = |of: &ListedQueue, argument: &str, key: &str| {
        let own = of.arguments.get(argument).and_then(Value::as_str);
        own.map(str::to_owned).or_else(|| {
            let name = of.policy.as_deref()?;
            let policy = seen.policies.iter().find(|policy| policy.name == name)?;
            Some(policy.definition.get(key)?.as_str()?.to_owned())
        })
    };
    let feeds = seen.queues.iter().filter(|of| {
        let Some(exchange) = key(of, DEAD_LETTER[0], "dead-letter-exchange") else {
            return false;
        };
        let routing_key = key(of, DEAD_LETTER[1], "dead-letter-routing-key");
        match exchange.as_str() {
            "" => routing_key.is_none_or(|key| key == queue),
            name if names.is_intake_exchange(name.as_bytes()) => false,
            name => exchanges.contains(name),
        }
    });
    feeds.map(|of| Refusal::FedBy(of.name.clone())).collect()
}

/// Beside this one. Each has one publisher in a vhost.
fn other_proxies(connections: &[ListedConnection]) -> usize {
    let of_proxy = |of: &&ListedConnection| of.user_provided_name.starts_with(PUBLISHER);
    connections
        .iter()
        .filter(of_proxy)
        .count()
        .saturating_sub(1)
}

/// Their clients go past all proxies.
fn other_protocols(connections: &[ListedConnection]) -> Vec<Refusal> {
    let protocols = connections.iter().map(|of| &*of.protocol);
    let others: BTreeSet<&str> = protocols
        .filter(|of| *of != PROTOCOL && !of.is_empty())
        .collect();
    let others = others.into_iter();
    others
        .map(|of| Refusal::OtherProtocol(of.to_owned()))
        .collect()
}

fn notes(order: &Order, others: usize, seen: &Seen) -> Vec<String> {
    let mut notes = vec![
        "Clients notice a pause of less than a second. Consumers stay; their settlements always pass.".to_owned(),
        "What is published past the proxies while the queue is away, for some milliseconds, does not come into it.".to_owned(),
        "Declares with the old arguments are accepted from then on, but for where dead letters go: that takes `lenient`.".to_owned(),
        "To go back, alter it again with the old values.".to_owned(),
    ];
    if others > 0 {
        notes.push(format!(
            "Other proxies work in this vhost: {others}. Each of them has to take part; that they are found takes up to half a minute, and clients notice nothing of it."
        ));
    }
    let hashes = order.bindings.iter().filter(|binding| {
        let exchange = seen.exchanges.iter().find(|it| it.name == binding.source);
        exchange
            .is_some_and(|it| ["x-consistent-hash", "x-modulus-hash"].contains(&&*it.exchange_type))
    });
    let mut hashed: Vec<_> = hashes.map(|binding| binding.source.clone()).collect();
    hashed.dedup();
    for exchange in hashed {
        notes.push(format!(
            "The exchange {exchange} spreads by hashes: which routing keys come into the queue may change."
        ));
    }
    notes
}

/// `KEY=VALUE` of a command: a number or a boolean where it reads as one.
///
/// # Errors
/// What is wrong with it.
pub fn setting(text: &str) -> Result<(String, Value), &'static str> {
    let (name, value) = text.split_once('=').ok_or("write ARGUMENT=VALUE")?;
    if !name.starts_with("x-") {
        return Err("the name of an argument begins with `x-`");
    }
    let number = value.parse::<i64>().map(Value::from).ok();
    let boolean = || value.parse::<bool>().map(Value::from).ok();
    let value = number.or_else(boolean).unwrap_or_else(|| value.into());
    Ok((name.to_owned(), value))
}
