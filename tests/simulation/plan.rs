//! What the clients of a world declare: sources whose messages die, and where their dead letters go.

mod own;

use std::collections::BTreeMap;

use dlx_proxy::registry::delayed_exchanges::DelayHeader;
use fastrand::Rng;

use super::codec::methods::{Arg, Args};
use super::codec::value::{Bytes, Table, Value};
use super::redeclares::{Redeclares, target_of};
use super::retries::{Asked, Words};
use super::rulings::{Ruling, Rulings, Target};
pub(crate) use own::{Own, PATTERN as OWN_QUEUES, name as own_queue};

/// Queues and exchanges of one world, and the requests that declare them.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Queues that clients publish to and consume.
    pub sources: Vec<String>,
    /// Queues that dead letters reach.
    pub targets: Vec<String>,
    /// A target that goes with its last consumer, as soon as it has had one. No client consumes from it.
    pub going: Option<String>,
    /// A target leads back to a source. Behind a fanout of several that would double messages at each lap.
    pub returns: bool,
    /// Clients give dead letters another life.
    pub republishing: bool,
    /// They use `CC` and `BCC`.
    pub carbon_copies: bool,
    /// What only policies of the proxy say of dead letters: queue, exchange, key. The broker knows no target of these.
    pub policies: Vec<(String, String, String)>,
    /// What they say of retries, by queue.
    pub retry_policies: BTreeMap<String, Words>,
    /// What queues ask of retries by their arguments; what is returned to the others is the broker's, if no policy says otherwise.
    pub retries: BTreeMap<Bytes, Asked>,
    /// Some queue was asked for retries.
    pub retrying: bool,
    /// Headers by which proxies delay a publish.
    pub delays: Vec<DelayHeader>,
    /// Each client has a queue for itself.
    pub own: Option<Own>,
    /// Sources are declared otherwise than they are.
    pub redeclares: Option<Redeclares>,
    /// Sources are deleted, and declared again.
    pub changing: bool,
    /// Of queues that are declared without a type.
    pub default_type: &'static str,
    /// Somebody may not know what queues are; clients know `basic.cancel`.
    pub unknown: bool,
    /// In order; each client sends them all.
    pub declares: Vec<(&'static str, Args)>,
}

/// The exchanges that sources may name, with what a message needs to get through: nothing is bound to `nowhere`, which does not exist.
const EXCHANGES: [&str; 5] = ["", "dlx", "fan", "inner", MISSING];
/// The dead-letter exchange that is not there.
pub(crate) const MISSING: &str = "nowhere";

pub(crate) fn text(text: &str) -> Arg {
    Arg::Text(text.as_bytes().to_vec())
}

pub(crate) fn text_of(arg: &Arg) -> String {
    String::from_utf8_lossy(arg.text()).into_owned()
}

// === impl Plan ===

impl Plan {
    pub(crate) fn draw(rng: &mut Rng) -> Plan {
        let mut plan = Plan {
            sources: Vec::new(),
            targets: Vec::new(),
            going: None,
            returns: false,
            republishing: rng.bool(),
            carbon_copies: rng.bool(),
            policies: Vec::new(),
            retry_policies: BTreeMap::new(),
            retries: BTreeMap::new(),
            retrying: false,
            delays: Vec::new(),
            own: None,
            redeclares: None,
            changing: false,
            default_type: "classic",
            unknown: false,
            declares: Vec::new(),
        };
        plan.exchange("dlx", "direct", false);
        plan.exchange("fan", "fanout", false);
        plan.exchange("inner", "direct", true);
        for at in 0..rng.usize(1..4) {
            plan.target(at, rng);
        }
        for at in 0..rng.usize(1..4) {
            plan.source(at, rng);
        }
        plan
    }

    fn exchange(&mut self, name: &str, kind: &str, internal: bool) {
        let args = vec![
            ("exchange", text(name)),
            ("type", text(kind)),
            ("durable", Arg::Bit(true)),
            ("internal", Arg::Bit(internal)),
        ];
        self.declares.push(("exchange.declare", args));
    }

    fn target(&mut self, at: usize, rng: &mut Rng) {
        let name = format!("target.{at}");
        let mut arguments = kind(rng);
        match rng.u8(..6) {
            // What does not fit is nacked.
            0 => {
                arguments.push(number("x-max-length", rng.u8(1..10)));
                arguments.push(string("x-overflow", "reject-publish"));
            }
            // Dead letters of dead letters: a retry queue.
            1 => {
                self.returns = true;
                arguments.push(number("x-message-ttl", rng.u8(1..200)));
                arguments.push(string("x-dead-letter-exchange", ""));
                arguments.push(string("x-dead-letter-routing-key", "source.0"));
            }
            2 => {
                arguments.push(string("x-dead-letter-exchange", "dlx"));
                arguments.push(string("x-dead-letter-routing-key", "again"));
            }
            _ => {}
        }
        self.queue(&name, arguments);
        self.bind(&name, "fan", "");
        for exchange in ["dlx", "inner"] {
            self.bind(&name, exchange, &name);
        }
        if at == 0 {
            self.bind(&name, "dlx", "again");
        }
        self.targets.push(name);
    }

    fn source(&mut self, at: usize, rng: &mut Rng) {
        let name = format!("source.{at}");
        let mut arguments = kind(rng);
        let quorum = arguments[0].1 == Value::Text(b"quorum".to_vec());
        let exchange = match EXCHANGES[rng.usize(..EXCHANGES.len())] {
            "fan" if self.returns => "dlx",
            exchange => exchange,
        };
        let target = &self.targets[rng.usize(..self.targets.len())];
        let by_policy = rng.u8(..6) == 0;
        if by_policy {
            let policy = (name.clone(), exchange.to_owned(), target.clone());
            self.policies.push(policy);
        } else {
            arguments.push(string("x-dead-letter-exchange", exchange));
        }
        let keyless = match exchange {
            "fan" => rng.bool(),
            // By the keys of a `CC`, each of which would double it at each lap, too.
            "dlx" | "inner" => self.carbon_copies && !self.returns && rng.bool(),
            _ => false,
        };
        if !keyless && !by_policy {
            arguments.push(string("x-dead-letter-routing-key", target));
        }
        if rng.u8(..3) == 0 {
            arguments.push(number("x-message-ttl", rng.u8(1..250)));
        }
        if quorum && !by_policy && rng.u8(..4) == 0 {
            arguments.push(string("x-dead-letter-strategy", "at-least-once"));
            arguments.push(string("x-overflow", "reject-publish"));
        } else if rng.u8(..4) == 0 {
            arguments.push(number("x-max-length", rng.u8(1..20)));
            if rng.bool() {
                arguments.push(string("x-overflow", "reject-publish"));
            }
        }
        self.queue(&name, arguments);
        self.sources.push(name);
    }

    /// Sources with retries, in some worlds. Drawn apart, so that the others stay what they are without.
    pub(crate) fn draw_retries(&mut self, rng: &mut Rng) {
        if rng.u8(..5) < 3 {
            return;
        }
        self.retrying = true;
        for name in self.sources.clone() {
            let by_policy = self.policies.iter().any(|(queue, ..)| *queue == name);
            let arguments = self.arguments_mut(&name);
            let quorum = arguments.get("x-queue-type") == Some(&Value::Text(b"quorum".to_vec()));
            if rng.u8(..8) == 0 {
                continue;
            }
            let (argued, ruled) = [(true, false), (false, true), (true, true)][rng.usize(..3)];
            let mut said = [Words::default(); 2];
            if argued {
                said[0] = Words::draw(rng, !quorum);
                arguments.fields.extend(said[0].arguments());
            }
            if ruled {
                said[1] = Words::draw(rng, true).of_policy(rng);
            }
            // What has nowhere to go is parked at the limit.
            if !by_policy && rng.u8(..4) == 0 {
                let is_target = |name: &[u8]| name.starts_with(b"x-dead-letter-");
                arguments.fields.retain(|(name, _)| !is_target(name));
            }
            if ruled {
                self.retry_policies.insert(name.clone(), said[1]);
            }
            let words = said[0];
            self.retries.insert(name.into(), Asked { words, quorum });
        }
    }

    /// Queues that come and go, in some of the worlds with retries. Drawn apart, too.
    pub(crate) fn draw_lives(&mut self, rng: &mut Rng) {
        if self.retrying {
            self.own = (rng.u8(..3) == 0).then(|| Own::draw(rng, &self.targets));
            self.changing = rng.u8(..3) == 0;
        }
    }

    /// A target that goes with its last consumer, in some worlds. Drawn apart, too.
    pub(crate) fn draw_going(&mut self, rng: &mut Rng) {
        let classic = Some(&Value::Text(b"classic".to_vec()));
        let mut targets = self.targets.iter();
        let target = targets.find(|name| self.arguments(name).get("x-queue-type") == classic);
        self.going = target.filter(|_| rng.u8(..3) == 0).cloned();
        if let Some(name) = self.going.clone() {
            let (_, args) = self.declare_mut(&name);
            args.push(("auto-delete", Arg::Bit(true)));
        }
    }

    /// From now on the source is declared as one of the other kind. What that says of retries is new, too.
    pub(crate) fn change_kind(&mut self, name: &str, rng: &mut Rng) -> Asked {
        let retries = self.retries.contains_key(name.as_bytes());
        let quorum = self.kind_of(self.arguments(name)) != "quorum";
        let table = self.arguments_mut(name);
        let stays = |name: &[u8]| {
            let of_the_kind = [&b"x-queue-type"[..], b"x-dead-letter-strategy"].contains(&name);
            let of_retries = [&b"x-delayed-"[..], b"x-delivery-", b"x-ack-"];
            !of_the_kind && !of_retries.iter().any(|of| name.starts_with(of))
        };
        table.fields.retain(|(name, _)| stays(name));
        let kind = if quorum { "quorum" } else { "classic" };
        table.fields.push(string("x-queue-type", kind));
        let said = match retries {
            true => Words::draw(rng, !quorum),
            false => Words::default(),
        };
        table.fields.extend(said.arguments());
        Asked {
            words: said,
            quorum,
        }
    }

    /// What its policies say at first.
    pub(crate) fn rulings(&self) -> Rulings {
        let mut rulings = Rulings::new();
        for (queue, exchange, key) in &self.policies {
            let ruling = Ruling {
                exchange: Some(exchange.clone()),
                key: Some(key.clone()),
                ..Ruling::default()
            };
            rulings.insert(queue.clone(), ruling);
        }
        for (queue, words) in &self.retry_policies {
            rulings.entry(queue.clone()).or_default().retries = *words;
        }
        rulings
    }

    /// What each source asks of retries.
    pub(crate) fn asked(&self) -> impl Iterator<Item = (Bytes, Asked)> + '_ {
        self.sources.iter().map(|name| {
            let name: Bytes = name.clone().into();
            let queue = String::from_utf8_lossy(&name);
            let quorum = || self.kind_of(self.arguments(&queue)) == "quorum";
            let nothing = || Asked {
                words: Words::default(),
                quorum: quorum(),
            };
            let asked = self.retries.get(&name).copied();
            let asked = asked.unwrap_or_else(nothing);
            (name, asked)
        })
    }

    /// Where the dead letters of a queue go by its arguments.
    pub(crate) fn argued_target(&self, queue: &str) -> Option<Target> {
        target_of(self.arguments(queue))
    }

    pub(crate) fn arguments(&self, queue: &str) -> &Table {
        let (_, args) = self.declare(queue);
        let arguments = args.iter().find_map(|(of, arg)| match arg {
            Arg::Table(table) if *of == "arguments" => Some(table),
            _ => None,
        });
        arguments.expect("a declare of the plan has arguments")
    }

    /// Sources that are declared otherwise than they are, in some worlds. They stay: what counts of a queue that is deleted is another question.
    pub(crate) fn draw_redeclares(&mut self, seed: u64) {
        self.redeclares = Redeclares::draw(seed, self);
        self.changing &= self.redeclares.is_none();
    }

    /// The type of a queue with these arguments.
    pub(crate) fn kind_of(&self, arguments: &Table) -> &'static str {
        match arguments.get("x-queue-type") {
            Some(Value::Text(kind)) if kind == b"quorum" => "quorum",
            Some(_) => "classic",
            None => self.default_type,
        }
    }

    fn declare_mut(&mut self, queue: &str) -> &mut (&'static str, Args) {
        let is_it =
            |(name, args): &&mut (&str, Args)| *name == "queue.declare" && args[0].1 == text(queue);
        let declare = self.declares.iter_mut().find(is_it);
        declare.expect("a queue of the plan")
    }

    pub(super) fn arguments_mut(&mut self, queue: &str) -> &mut Table {
        let (_, args) = self.declare_mut(queue);
        let arguments = args.iter_mut().find_map(|(of, arg)| match arg {
            Arg::Table(table) if *of == "arguments" => Some(table),
            _ => None,
        });
        arguments.expect("a declare of the plan has arguments")
    }

    fn queue(&mut self, name: &str, fields: Vec<(Vec<u8>, Value)>) {
        let arguments = Table {
            fields,
            rest: Vec::new(),
        };
        let args = vec![
            ("queue", text(name)),
            ("durable", Arg::Bit(true)),
            ("arguments", Arg::Table(arguments)),
        ];
        self.declares.push(("queue.declare", args));
    }

    pub(super) fn bind(&mut self, queue: &str, exchange: &str, key: &str) {
        let args = vec![
            ("queue", text(queue)),
            ("exchange", text(exchange)),
            ("routing-key", text(key)),
        ];
        self.declares.push(("queue.bind", args));
    }

    /// A queue may refuse what is published to it.
    pub(crate) fn refuses(&self) -> bool {
        self.declares
            .iter()
            .flat_map(|(_, args)| args)
            .any(|(_, arg)| matches!(arg, Arg::Table(table) if table.get("x-overflow").is_some()))
    }

    /// In milliseconds, of each queue that has one.
    pub(crate) fn ttls(&self) -> BTreeMap<Bytes, u64> {
        let ttl = |(name, args): &(&str, Args)| {
            let arguments = args.iter().find(|(of, _)| *of == "arguments");
            match arguments.filter(|_| *name == "queue.declare")? {
                (_, Arg::Table(table)) => match table.get("x-message-ttl")? {
                    Value::Integer(_, ttl) => {
                        Some((args[0].1.text().to_vec(), u64::try_from(*ttl).ok()?))
                    }
                    _ => None,
                },
                _ => None,
            }
        };
        self.declares.iter().filter_map(ttl).collect()
    }

    /// Queue, exchange, key.
    pub(crate) fn bindings(&self) -> Vec<(String, String, String)> {
        let binds = self
            .declares
            .iter()
            .filter(|(name, _)| *name == "queue.bind");
        binds
            .map(|(_, args)| {
                (
                    text_of(&args[0].1),
                    text_of(&args[1].1),
                    text_of(&args[2].1),
                )
            })
            .collect()
    }

    /// The declare of a queue of all clients, or of the own one of a client.
    pub(crate) fn declare_of(&self, queue: &str) -> (&'static str, Args) {
        match &self.own {
            Some(own) if queue.starts_with("own.") => own.declare(queue),
            _ => self.declare(queue).clone(),
        }
    }

    fn declare(&self, queue: &str) -> &(&'static str, Args) {
        let is_it =
            |(name, args): &&(&str, Args)| *name == "queue.declare" && args[0].1 == text(queue);
        self.declares
            .iter()
            .find(is_it)
            .expect("a queue of the plan")
    }
}

fn kind(rng: &mut Rng) -> Vec<(Vec<u8>, Value)> {
    let kind = if rng.bool() { "quorum" } else { "classic" };
    vec![string("x-queue-type", kind)]
}

fn string(name: &str, value: &str) -> (Vec<u8>, Value) {
    (
        name.as_bytes().to_vec(),
        Value::Text(value.as_bytes().to_vec()),
    )
}

fn number(name: &str, value: u8) -> (Vec<u8>, Value) {
    (
        name.as_bytes().to_vec(),
        Value::Integer(b'I', i128::from(value)),
    )
}
