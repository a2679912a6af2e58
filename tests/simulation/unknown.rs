//! What nobody tells the proxies: clients that never declare, queues that an operator made, broker policies that come and go, a default type of
//! queues, questions that the broker refuses. A management API tells some of it, and late ([`management`](super::management)). Not in all worlds; what
//! is drawn for it has a generator of its own, so that the others stay what they are.

use fastrand::Rng;

use super::codec::frame::Frame;
use super::codec::methods::Arg;
use super::codec::value::{Bytes, Table, Value};
use super::faults::Fault;
use super::model::{ExchangeType, Policy, Rights, User};
use super::plan::{Plan, text_of};
use super::rulings::{Ruling, Rulings};
use super::world::World;

/// Makes another seed of a seed.
const UNKNOWN: u64 = 0x756e_6b6e_6f77_6e00;
/// Who may declare nothing.
pub(crate) const WORKER: &str = "worker";
/// What the broker answers to a declare of a queue that is there: its user may not; its node is down; its process does not answer. (A 405 says that
/// another one is there, which somebody else has for himself.)
const REFUSALS: [(u16, &str); 3] = [
    (
        403,
        "configure access to queue 'source' in vhost '/' refused for user 'guest'",
    ),
    (
        404,
        "home node 'rabbit@b' of durable queue 'source' in vhost '/' is down or inaccessible",
    ),
    (
        404,
        "failed to perform operation on queue 'source' in vhost '/' due to timeout",
    ),
];

/// Which clients declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Declaring {
    All,
    /// Half of them.
    Some,
    None,
}

/// What is drawn for a world.
#[derive(Debug)]
pub(crate) struct Unknown {
    pub(super) rng: Rng,
    /// Something of it is drawn.
    pub is_on: bool,
    pub declaring: Declaring,
    /// All is there before anybody comes.
    pub by_operator: bool,
    /// Clients that declare nothing may not do so either.
    pub forbidden: bool,
    /// Proxies have a management API.
    pub managed: bool,
    /// Of the vhost.
    pub default_type: &'static str,
    /// One change of a policy in so many steps; 0: none.
    rarity: u32,
    /// What the broker's policies say now.
    pub policies: Rulings,
    pub(super) api: super::management::Api,
}

// === impl Unknown ===

impl Unknown {
    /// Of every second world. Queues and policies of the plan change with it.
    pub(crate) fn draw(seed: u64, plan: &mut Plan) -> Unknown {
        let mut rng = Rng::with_seed(seed ^ UNKNOWN);
        let mut unknown = Unknown {
            is_on: false,
            declaring: Declaring::All,
            by_operator: false,
            forbidden: false,
            managed: false,
            default_type: "classic",
            rarity: 0,
            policies: Rulings::new(),
            api: super::management::Api::default(),
            rng: rng.fork(),
        };
        if rng.bool() {
            return unknown;
        }
        unknown.is_on = true;
        unknown.declaring = match rng.u8(..5) {
            0 => Declaring::All,
            1 => Declaring::None,
            _ => Declaring::Some,
        };
        unknown.by_operator = unknown.declaring == Declaring::None || rng.u8(..3) == 0;
        unknown.forbidden = rng.u8(..3) == 0;
        unknown.managed = rng.u8(..3) > 0;
        if rng.bool() {
            unknown.rarity = [150, 500, 2_000][rng.usize(..3)];
        }
        if rng.u8(..3) == 0 {
            unknown.default_type = "quorum";
        }
        plan.default_type = unknown.default_type;
        plan.unknown = true;
        plan.untype(unknown.default_type, &mut rng);
        plan.ask_little_of_quorum_queues(unknown.has_strangers() || unknown.by_operator);
        // What only our policies said the broker's say.
        if rng.bool() {
            for (queue, exchange, key) in plan.policies.drain(..) {
                let ruling = Ruling {
                    exchange: Some(exchange),
                    key: Some(key),
                    ..Ruling::default()
                };
                unknown.policies.insert(queue, ruling);
            }
        }
        unknown
    }

    /// Somebody may not know what a queue is.
    pub(crate) fn has_strangers(&self) -> bool {
        self.declaring != Declaring::All
    }

    /// What may go wrong besides.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let faults = [
            Fault::ConsumerTimedOut,
            Fault::DeclaresRefused,
            Fault::SourcesFull,
            Fault::ManagementAway,
        ];
        faults.into_iter().filter(|_| self.is_on).collect()
    }

    /// A client that connects declares nothing.
    fn draws_stranger(&mut self) -> bool {
        match self.declaring {
            Declaring::All => false,
            Declaring::Some => self.rng.bool(),
            Declaring::None => true,
        }
    }

    /// The user of a client that declares nothing.
    pub(super) fn strangers_user(&self) -> &'static str {
        if self.forbidden { WORKER } else { "guest" }
    }

    /// Its user may only use what is there.
    pub(crate) fn worker() -> User {
        User {
            configure: Rights::None,
            ..User::administrator(WORKER)
        }
    }

    pub(super) fn refusal(&mut self) -> (u16, &'static str) {
        REFUSALS[self.rng.usize(..REFUSALS.len())]
    }

    /// The policy of one queue is another one from now on.
    fn change(&mut self, plan: &Plan) -> Option<String> {
        if self.rarity == 0 || self.rng.u32(..self.rarity) > 0 {
            return None;
        }
        let queue = self.rng.choice(&plan.sources)?.clone();
        let argued = plan.argued_target(&queue);
        match Ruling::draw(&mut self.rng, plan, argued.as_ref()) {
            Some(ruling) => {
                let of_the_broker = Ruling {
                    exchange: ruling.exchange,
                    key: ruling.key,
                    ..Ruling::default()
                };
                self.policies.insert(queue.clone(), of_the_broker);
            }
            None => drop(self.policies.remove(&queue)),
        }
        Some(queue)
    }
}

// === impl World ===

impl World {
    /// An operator makes what there should be, before anybody else comes.
    pub(super) fn make_all(&mut self) {
        for (queue, _) in self.unknown.policies.clone() {
            self.set_policy(&queue);
        }
        if self.unknown.by_operator {
            self.make_queues();
        }
    }

    /// What there should be, and is not.
    pub(super) fn make_queues(&mut self) {
        for (name, args) in &self.plan.declares.clone() {
            self.note(|| format!("=== operator makes {}", Frame::new(name, args.clone())));
            match (*name, &args[..]) {
                ("exchange.declare", [(_, exchange), ..]) => {
                    let (kind, internal) = match &*text_of(exchange) {
                        "fan" => (ExchangeType::Fanout, false),
                        name => (ExchangeType::Direct, name == "inner"),
                    };
                    let exchange = text_of(exchange);
                    self.broker.declare_exchange(&exchange, kind, internal);
                }
                ("queue.bind", [(_, queue), (_, exchange), (_, key)]) => {
                    let [queue, exchange, key] = [queue, exchange, key].map(text_of);
                    self.broker.bind_queue(&exchange, &queue, &key);
                }
                _ => {
                    let queue = text_of(&args[0].1);
                    let table = args.iter().find_map(|(_, arg)| match arg {
                        Arg::Table(table) => Some(table),
                        _ => None,
                    });
                    let table = self
                        .plan
                        .seen_by_the_broker(table.unwrap_or(&Table::default()));
                    let goes = self.plan.going.as_ref() == Some(&queue);
                    self.broker.declare_queue(&queue, goes, &table);
                    self.accounts
                        .is_made_with(&queue, self.plan.argued_target(&queue));
                }
            }
        }
    }

    /// He makes an exchange anew, with its bindings.
    pub(super) fn exchange_again(&mut self, name: &'static str) {
        let kind = if name == "fan" {
            ExchangeType::Fanout
        } else {
            ExchangeType::Direct
        };
        self.broker.declare_exchange(name, kind, false);
        for (queue, exchange, key) in self.plan.bindings() {
            if exchange == name {
                self.broker.bind_queue(&exchange, &queue, &key);
            }
        }
    }

    /// A client that connects declares nothing: not if it finds nothing.
    pub(super) fn is_stranger(&mut self) -> bool {
        let queues = self.plan.sources.iter().chain(&self.plan.targets);
        let mut queues = queues.map(|queue| self.broker.listed(queue.as_bytes()));
        self.unknown.draws_stranger() && queues.all(|queue| queue.is_some())
    }

    /// A policy of the broker changes, or none does.
    pub(super) fn change_broker_policies(&mut self) {
        let Some(queue) = self.unknown.change(&self.plan) else {
            return;
        };
        self.set_policy(&queue);
        self.accounts.count.policies += 1;
        let said = format!("=== broker policies: {:?}", self.unknown.policies);
        self.note(|| said);
    }

    fn set_policy(&mut self, queue: &str) {
        let ruling = self.unknown.policies.get(queue);
        let bytes = |text: &String| text.clone().into_bytes();
        let policy = ruling.map(|ruling| Policy {
            exchange: ruling.exchange.as_ref().map(bytes),
            key: ruling.key.as_ref().map(bytes),
        });
        self.broker.set_policy(queue, policy);
    }

    /// Somebody's consumer, or his channel, holds a message for too long.
    pub(super) fn time_out_a_client(&mut self) {
        let held = |peer: &super::world::Peer| peer.client.is_some() && peer.is_open();
        let conns: Vec<_> = self.peers.values().filter(|peer| held(peer)).collect();
        let conns: Vec<_> = conns.into_iter().map(|peer| peer.conn).collect();
        let channels = conns
            .into_iter()
            .flat_map(|conn| (1..=5).map(move |of| (conn, of)));
        let held = |(conn, channel): &(_, u16)| !self.broker.unacked(*conn, *channel).is_empty();
        let channels: Vec<_> = channels.filter(held).collect();
        let Some((conn, channel)) = self.unknown.rng.choice(&channels).copied() else {
            return;
        };
        let consumers = self.broker.consumers().into_iter();
        let consumers: Vec<_> = consumers
            .filter(|of| of.conn == conn && of.channel == channel && self.is_quorum(&of.queue))
            .collect();
        let responses = [
            super::model::TimeoutResponse::NotifyConsumer,
            super::model::TimeoutResponse::CloseChannel,
        ];
        let response = responses[usize::from(self.unknown.rng.u8(..4) == 0)];
        match self.unknown.rng.choice(&consumers) {
            Some(of) => {
                let tag = String::from_utf8_lossy(&of.tag).into_owned();
                self.broker
                    .consumer_times_out(conn, channel, &tag, response);
            }
            None => {
                self.broker.channel_times_out(conn, channel, 10_000);
            }
        }
    }

    fn is_quorum(&self, queue: &[u8]) -> bool {
        let listed = self.broker.listed(queue);
        listed.is_some_and(|queue| queue.kind == "quorum")
    }
}

impl Plan {
    /// Some queues of the default type are declared without one.
    fn untype(&mut self, default: &str, rng: &mut Rng) {
        let default = Value::Text(default.as_bytes().to_vec());
        for name in [self.sources.clone(), self.targets.clone()].concat() {
            let arguments = self.arguments_mut(&name);
            let is_default = arguments.get("x-queue-type") == Some(&default);
            if is_default && rng.bool() {
                arguments.fields.retain(|(name, _)| name != b"x-queue-type");
            }
        }
    }

    /// Some arguments of retries no broker compares, so a proxy that asks what a quorum queue is does not hear of them.
    fn ask_little_of_quorum_queues(&mut self, wanted: bool) {
        let all: Vec<Bytes> = self.retries.keys().cloned().collect();
        for name in all.into_iter().filter(|_| wanted) {
            let Some(asked) = self.retries.get_mut(&name).filter(|asked| asked.quorum) else {
                continue;
            };
            asked.words = asked.words.only_a_limit();
            let arguments = self.arguments_mut(&String::from_utf8_lossy(&name));
            arguments.fields.retain(|(name, _)| {
                !name.starts_with(b"x-delayed-retry-")
                    && ![&b"x-delivery-limit-counts"[..], b"x-ack-timeout"].contains(&&name[..])
            });
        }
    }

    /// As the proxy leaves the arguments of a queue: retries of classic ones are none of the broker's.
    fn seen_by_the_broker(&self, table: &Table) -> Table {
        let mut table = table.clone();
        if self.kind_of(&table) == "classic" {
            let asks = |name: &[u8]| {
                name.starts_with(b"x-delayed-retry-")
                    || name.starts_with(b"x-delivery-limit")
                    || name == b"x-ack-timeout"
            };
            table.fields.retain(|(name, _)| !asks(name));
        }
        table
    }
}
