//! Where the proxy believes that exchanges lead, beside where messages really go: exchanges, bindings and messages drawn at random. What it
//! believes may be "unknown", but never wrong. `DLX_TEST_SEED=n` draws a run again.

use std::collections::{BTreeMap, BTreeSet};

use dlx_proxy::amqp::content::Content;
use dlx_proxy::amqp::ids::{ChannelId, ShortStr};
use dlx_proxy::amqp::method::MethodId;
use dlx_proxy::amqp::table::{Table, TableBuilder};
use dlx_proxy::dead_letter::TargetQueues;
use dlx_proxy::machine::{Binding, Change, Destination, Exchange};
use dlx_proxy::routing::Routing;
use fastrand::Rng;

use super::calls;
use super::lab::each_broker;
use super::node::Broker;
use super::raw::Raw;

/// Vhosts full of exchanges, per broker.
const ROUNDS: usize = 30;
const CHANGES: usize = 25;
const MESSAGES: u64 = 12;
/// Exchanges of a round; queues of the whole test.
const EXCHANGES: u64 = 5;
const QUEUES: u64 = 4;

const EXCHANGE_DELETE_OK: MethodId = MethodId(40, 21);
const EXCHANGE_BIND_OK: MethodId = MethodId(40, 31);
const EXCHANGE_UNBIND_OK: MethodId = MethodId(40, 51);
const QUEUE_UNBIND_OK: MethodId = MethodId(50, 51);

const KINDS: [&str; 4] = ["direct", "fanout", "topic", "headers"];
const KEYS: [&str; 8] = ["", "a", "b", "a.b", "b.", ".", "a.b.a", "*.b"];
const PATTERNS: [&str; 12] = [
    "", "a", "b", "a.b", "*", "#", "*.b", "a.#", "#.b", "#.b.#", "*.*", "a*.#",
];
/// Values as they are on the wire: text, integers, booleans, void, floats and times.
const VALUES: [&[u8]; 12] = [
    b"S\0\0\0\x011",
    b"S\0\0\0\x011",
    b"x\0\0\0\x011",
    b"l\0\0\0\0\0\0\0\x01",
    b"I\0\0\0\x01",
    b"b\x01",
    b"t\x01",
    b"t\0",
    b"V",
    b"d\x3f\xf0\0\0\0\0\0\0",
    b"T\0\0\0\0\0\0\0\x01",
    b"D\0\0\0\0\x01",
];
const NAMES: [&str; 4] = ["h", "i", "x-h", "x-i"];
const X_MATCH: [&str; 5] = ["", "all", "any", "all-with-x", "any-with-x"];

/// One broker, and what the proxy would know of it.
struct Place {
    raw: Raw,
    rng: Rng,
    routing: Routing,
    bindings: Vec<Binding>,
    published: u64,
    /// By queue: the bodies that lie in it.
    answers: BTreeMap<bool, usize>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leads_where_it_is_believed_to() {
    let seed = match std::env::var("DLX_TEST_SEED") {
        Ok(seed) => seed.parse().expect("DLX_TEST_SEED is a number"),
        Err(_) => fastrand::u64(..),
    };
    println!("DLX_TEST_SEED={seed}");
    each_broker(async |broker, vhost| {
        let mut place = Place::open(broker, vhost, seed).await;
        for round in 0..ROUNDS {
            place.round(round).await;
        }
        println!("{}: {:?} messages known", broker.version, place.answers);
        let known = place.answers.get(&true).copied().unwrap_or_default();
        let all = ROUNDS * MESSAGES as usize;
        assert!(known > all / 2, "hardly anything was compared: {known}");
        place.raw.close().await;
    })
    .await;
}

fn name(text: &str) -> ShortStr {
    ShortStr::copy(text.as_bytes()).expect("a short name")
}

fn queue(number: u64) -> String {
    format!("q{number}")
}

// === impl Place ===

impl Place {
    async fn open(broker: &Broker, vhost: &str, seed: u64) -> Place {
        let mut raw = Raw::direct(broker, vhost).await;
        raw.open_channel(1).await;
        raw.ask(1, calls::confirms()).await;
        for number in 0..QUEUES {
            raw.declare(1, &queue(number), &[]).await;
        }
        Place {
            raw,
            rng: Rng::with_seed(seed),
            routing: Routing::default(),
            bindings: Vec::new(),
            published: 0,
            answers: BTreeMap::new(),
        }
    }

    /// True in this many of a hundred cases.
    fn percent(&mut self, percent: u8) -> bool {
        self.rng.u8(..100) < percent
    }

    /// One of these.
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.usize(..of.len())]
    }

    /// New exchanges, changes, and messages.
    async fn round(&mut self, round: usize) {
        let exchanges: Vec<String> = (0..EXCHANGES).map(|n| format!("r{round}.x{n}")).collect();
        for exchange in &exchanges {
            self.declare(exchange, &exchanges).await;
        }
        for _ in 0..CHANGES {
            self.change(&exchanges).await;
        }
        let mut expected = Vec::new();
        let first = self.published + 1;
        for _ in 0..MESSAGES {
            let exchange = &exchanges[self.rng.u64(..EXCHANGES) as usize];
            expected.push(self.publish(exchange).await);
        }
        self.raw.confirmed(1, first, self.published).await;
        let mut came: Vec<BTreeSet<ShortStr>> = vec![BTreeSet::new(); expected.len()];
        for number in 0..QUEUES {
            for body in self.take_all(&queue(number)).await {
                came[(body - first) as usize].insert(name(&queue(number)));
            }
        }
        for ((described, expected), came) in expected.iter().zip(came) {
            let known = *expected != TargetQueues::Unknown;
            *self.answers.entry(known).or_default() += 1;
            if known {
                let came = TargetQueues::Known(came.into_iter().collect());
                assert_eq!(*expected, came, "round {round}: {described}");
            }
        }
    }

    async fn declare(&mut self, exchange: &str, all: &[String]) {
        let kind = self.pick(&KINDS);
        let mut arguments = TableBuilder::default();
        if self.percent(40) {
            let alternate = &all[self.rng.u64(..EXCHANGES) as usize];
            arguments.longstr(b"alternate-exchange", alternate.as_bytes());
        }
        let arguments = arguments.finish();
        self.raw
            .call(1, MethodId::EXCHANGE_DECLARE, |a| {
                a.short(0)
                    .shortstr(exchange.as_bytes())
                    .shortstr(kind.as_bytes())
                    .octet(0)
                    .longstr(&arguments)
                    .end();
            })
            .await;
        self.raw.reply(1, MethodId::EXCHANGE_DECLARE_OK).await;
        self.changed(Change::Declared(Exchange {
            name: name(exchange),
            kind: name(kind),
            arguments,
            policy: false,
        }));
    }

    /// Mostly a binding more; sometimes one less, or an exchange or a queue that is made anew.
    async fn change(&mut self, exchanges: &[String]) {
        match self.rng.u64(..20) {
            0 => {
                let exchange = self.pick(&[0, 1, 2, 3, 4]);
                let exchange = &exchanges[exchange];
                self.raw
                    .call(1, MethodId::EXCHANGE_DELETE, |a| {
                        a.short(0).shortstr(exchange.as_bytes()).octet(0).end();
                    })
                    .await;
                self.raw.reply(1, EXCHANGE_DELETE_OK).await;
                self.changed(Change::ExchangeDeleted(name(exchange)));
                self.declare(exchange, exchanges).await;
            }
            1 => {
                let queue = queue(self.rng.u64(..QUEUES));
                self.raw
                    .call(1, MethodId::QUEUE_DELETE, |a| {
                        a.short(0).shortstr(queue.as_bytes()).octet(0).end();
                    })
                    .await;
                self.raw.reply(1, MethodId::QUEUE_DELETE_OK).await;
                self.changed(Change::QueueDeleted(name(&queue)));
                self.raw.declare(1, &queue, &[]).await;
            }
            2 | 3 if !self.bindings.is_empty() => {
                let at = self.rng.u64(..self.bindings.len() as u64);
                let binding = self.bindings.swap_remove(at as usize);
                let is_queue = matches!(binding.destination, Destination::Queue(_));
                let (id, ok) = match is_queue {
                    true => (MethodId::QUEUE_UNBIND, QUEUE_UNBIND_OK),
                    false => (MethodId::EXCHANGE_UNBIND, EXCHANGE_UNBIND_OK),
                };
                self.bind(id, ok, &binding, !is_queue).await;
                self.changed(Change::Unbound(binding));
            }
            _ => {
                let source = self.pick(&[0, 1, 2, 3, 4]);
                let binding = self.draw(&exchanges[source], exchanges);
                let (id, ok) = match binding.destination {
                    Destination::Queue(_) => (MethodId::QUEUE_BIND, MethodId::QUEUE_BIND_OK),
                    Destination::Exchange(_) => (MethodId::EXCHANGE_BIND, EXCHANGE_BIND_OK),
                };
                self.bind(id, ok, &binding, true).await;
                self.bindings.push(binding.clone());
                self.changed(Change::Bound(binding));
            }
        }
    }

    fn draw(&mut self, source: &str, exchanges: &[String]) -> Binding {
        let destination = match self.percent(30) {
            true => Destination::Exchange(name(&exchanges[self.rng.u64(..EXCHANGES) as usize])),
            false => Destination::Queue(name(&queue(self.rng.u64(..QUEUES)))),
        };
        let mut arguments = TableBuilder::default();
        let how = self.pick(&X_MATCH);
        if !how.is_empty() {
            arguments.longstr(b"x-match", how.as_bytes());
        }
        let mut arguments = arguments.finish();
        arguments.extend(self.headers());
        Binding {
            source: name(source),
            destination,
            routing_key: name(self.pick(&PATTERNS)),
            arguments,
        }
    }

    /// Up to three headers, each name once.
    fn headers(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        for name in NAMES {
            if self.percent(40) {
                out.push(name.len() as u8);
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(self.pick(&VALUES));
            }
        }
        out
    }

    async fn bind(&mut self, id: MethodId, ok: MethodId, binding: &Binding, no_wait: bool) {
        let (first, second) = match &binding.destination {
            Destination::Queue(queue) => (queue, &binding.source),
            Destination::Exchange(exchange) => (exchange, &binding.source),
        };
        self.raw
            .call(1, id, |a| {
                a.short(0)
                    .shortstr(first)
                    .shortstr(second)
                    .shortstr(&binding.routing_key);
                if no_wait {
                    a.octet(0);
                }
                a.longstr(&binding.arguments).end();
            })
            .await;
        self.raw.reply(1, ok).await;
    }

    fn changed(&mut self, change: Change) {
        match &change {
            Change::ExchangeDeleted(gone) => {
                let to = Destination::Exchange(gone.clone());
                self.bindings
                    .retain(|b| b.source != *gone && b.destination != to);
            }
            Change::QueueDeleted(gone) => {
                let to = Destination::Queue(gone.clone());
                self.bindings.retain(|b| b.destination != to);
            }
            Change::Declared(_) | Change::Bound(_) | Change::Unbound(_) => {}
        }
        assert!(self.routing.apply(change), "it fits");
    }

    /// The message's number is its body. Returns what it is, and where it should go.
    async fn publish(&mut self, exchange: &str) -> (String, TargetQueues) {
        self.published += 1;
        let key = self.pick(&KEYS);
        let mut keys: Vec<&str> = vec![key];
        let mut headers = self.headers();
        if self.percent(30) {
            let more = self.pick(&KEYS);
            keys.push(more);
            let mut cc = dlx_proxy::amqp::table::ArrayBuilder::default();
            cc.longstr(more.as_bytes());
            let mut table = TableBuilder::default();
            table.array(b"CC", &cc);
            headers.extend(table.finish());
        }
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        let targets = self
            .routing
            .targets(exchange.as_bytes(), &keys, Table(&headers));
        let mut out = Vec::new();
        let mut properties = vec![0x20, 0];
        properties.extend_from_slice(&(headers.len() as u32).to_be_bytes());
        properties.extend_from_slice(&headers);
        let content = Content {
            properties: properties.into(),
            body: self.published.to_be_bytes().to_vec().into(),
        };
        calls::publish(&mut out, ChannelId(1), (exchange, key), &content, 4096);
        self.raw.send(&out).await;
        let described = format!(
            "{exchange} {keys:?} {} in {:#?}",
            headers.escape_ascii(),
            self.routing
        );
        (described, targets)
    }

    /// The numbers of all messages in a queue.
    async fn take_all(&mut self, queue: &str) -> Vec<u64> {
        let mut numbers = Vec::new();
        while let Some(body) = self.raw.take(1, queue).await {
            let number = body.as_slice().try_into().expect("eight octets");
            numbers.push(u64::from_be_bytes(number));
        }
        numbers
    }
}
