//! Whether a queue can be made anew, and what has to wait meanwhile: from what the management API lists.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::amqp::ids::ShortStr;
use crate::link::mark_in;
use crate::objects::{DeclaredTarget, Names, OwnObject};
use crate::registry::adoption::{ListedPolicy, ListedQueue};
use crate::registry::arguments::{ALTERED, DeclareArguments};

use super::Backlog;
use super::order::{Arguments, Binding, Order, table};

pub use self::backlog::ListedBacklog;
pub use self::refusal::Refusal;

mod backlog;
mod refusal;

const DEAD_LETTER: [&str; 2] = ["x-dead-letter-exchange", "x-dead-letter-routing-key"];
const PROTOCOL: &str = "AMQP 0-9-1";
const ALTERNATE: &str = "alternate-exchange";
const TYPE: &str = "x-queue-type";
const QUORUM: &str = "quorum";

/// What is wanted: arguments as a client writes them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wish {
    pub set: Arguments,
    pub unset: BTreeSet<String>,
    /// Whatever goes past the proxies is put up with.
    pub allow_direct: bool,
    /// How long clients may wait for a backlog to be moved.
    pub max_pause: Duration,
}

/// A vhost as the management API lists it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub queues: Vec<ListedQueue>,
    pub bindings: Vec<ListedBinding>,
    pub exchanges: Vec<ListedExchange>,
    pub policies: Vec<ListedPolicy>,
    pub connections: Vec<ListedConnection>,
    /// Of this process, in the names of its connections.
    pub mark: String,
    /// Channels with a prefetch for all of the channel, where another type is wanted.
    pub global_prefetches: usize,
    /// Of the queue.
    pub backlog: ListedBacklog,
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
    pub backlog: Backlog,
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

// === impl Wish ===

impl Wish {
    /// The type that is wanted.
    pub fn queue_type(&self) -> Option<&str> {
        Some(self.set.get(TYPE)?.as_str().unwrap_or_default())
    }
}

/// Where the order for this queue stands.
pub fn place(names: &Names, queue: &str) -> Option<ShortStr> {
    names.name(&OwnObject::Order(queue.as_bytes()))
}

pub(super) fn trial(names: &Names, queue: &str) -> Option<ShortStr> {
    names.name(&OwnObject::Trial(queue.as_bytes()))
}

pub(super) fn aside(names: &Names, queue: &str) -> Option<ShortStr> {
    names.name(&OwnObject::Aside(queue.as_bytes()))
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
    let mut against = refusal::of_queue(listed, wish, seen, names);
    against.extend(seen.backlog.against(wish.max_pause));
    if left_behind(queue, seen, names).is_some() {
        against.push(Refusal::Unfinished);
    }
    let anew = Anew::of(listed, wish, names, intake, &mut against);
    let bindings = bindings(queue, seen, names, &mut against);
    let exchanges = leading_to(&bindings, seen);
    let mut direct = feeding(queue, &exchanges, seen, names);
    direct.extend(other_protocols(&seen.connections));
    if !wish.allow_direct {
        against.append(&mut direct);
    }
    if !against.is_empty() {
        return Err(against);
    }
    let order = Order {
        queue: queue.to_owned(),
        durable: listed.durable,
        quorum: listed.queue_type.as_deref() == Some(QUORUM),
        old: anew.old,
        new: anew.new,
        kept: auto_delete(&bindings, seen),
        bindings,
        exchanges,
        allow_direct: wish.allow_direct,
    };
    let others = other_proxies(seen);
    let direct = direct
        .iter()
        .map(|one| format!("Put up with: {one}."))
        .collect();
    Ok(Plan {
        changes: anew.changes,
        notes: [direct, notes(&order, others, seen)].concat(),
        others,
        backlog: seen.backlog.within(wish.max_pause),
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
    let listed = queues.find(|listed| listed.name.as_bytes() == &*place)?;
    Order::of_arguments(&listed.arguments)
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

/// Those of the queue, without the one at the default exchange, and without the proxy's own for returns: it is made when it is needed.
fn bindings(queue: &str, seen: &Seen, names: &Names, against: &mut Vec<Refusal>) -> Vec<Binding> {
    let is_for_returns = |exchange: &str| {
        let own = names.parse(exchange.as_bytes());
        matches!(own, Some(OwnObject::ReturnExchange(_)))
    };
    let of_queue = |binding: &&ListedBinding| {
        binding.destination_type == "queue"
            && binding.destination == queue
            && !binding.source.is_empty()
            && !is_for_returns(&binding.source)
    };
    let mut bindings = Vec::new();
    for listed in seen.bindings.iter().filter(of_queue) {
        let source = listed.source.clone();
        let exchange = seen.exchanges.iter().find(|it| it.name == source);
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

/// Those of the bindings' exchanges that go with their last binding.
fn auto_delete(bindings: &[Binding], seen: &Seen) -> BTreeSet<String> {
    let bound = |exchange: &&ListedExchange| bindings.iter().any(|it| it.source == exchange.name);
    let exchanges = seen.exchanges.iter().filter(|it| it.auto_delete);
    exchanges.filter(bound).map(|it| it.name.clone()).collect()
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

/// Beside this one: those that have a connection in the vhost.
fn other_proxies(seen: &Seen) -> usize {
    let names = seen.connections.iter().map(|of| &of.user_provided_name);
    let marks: BTreeSet<&str> = names.filter_map(|name| mark_in(name)).collect();
    marks.iter().filter(|mark| **mark != seen.mark).count()
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
        "What is published past the proxies while the queue is away, for a moment, does not come into it.".to_owned(),
        "Declares with the old arguments are accepted from then on, but for where dead letters go: that takes `lenient`.".to_owned(),
        "To go back, alter it again with the old values.".to_owned(),
    ];
    if seen.backlog.messages > 0 {
        notes.push(format!(
            "Messages are ready: {}. What nobody reads within half of `wait` is moved aside and back, in its order: clients wait for about {} s then.",
            seen.backlog.messages,
            seen.backlog.pause().as_secs()
        ));
    }
    if others > 0 {
        notes.push(format!(
            "Other proxies work in this vhost: {others}. Each of them has to take part; that they are found takes up to half a minute, and clients notice nothing of it."
        ));
    }
    let becomes_quorum =
        !order.quorum && order.new.get(TYPE).and_then(Value::as_str) == Some(QUORUM);
    if becomes_quorum && !order.new.contains_key("x-delivery-limit") {
        notes.push("A quorum queue of RabbitMQ 4.0 and later drops or dead-letters a message after 20 returns: `x-delivery-limit` says another number.".to_owned());
    }
    if becomes_quorum {
        notes.push("On RabbitMQ 3, clients that have read it by `basic.get` lose their connection (541) when they do so again.".to_owned());
    }
    if order.allow_direct {
        notes.push("Consumers past the proxies are cancelled. What they have not settled is lost, as is what is published past the proxies meanwhile.".to_owned());
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
