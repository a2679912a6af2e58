//! A crash at each step, and what the next one makes of it: the queue is there with its bindings, as it was or anew, and nothing else is left.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::*;
use crate::amqp::content::{PREFIX, body_size};
use crate::amqp::frame::Kind;
use crate::amqp::method::{Publish, QueueBind, QueueDeclare, QueueName, QueueUnbind};
use crate::amqp::reply_code::{NOT_FOUND, PRECONDITION_FAILED, RESOURCE_LOCKED};
use crate::link::peer::{Sent, close};
use crate::machine::Machine;

const LEADER: usize = 0;
const FOLLOWER: usize = 1;
const FINISHER: usize = 2;

#[derive(Clone, Debug, Default, PartialEq)]
struct Queue {
    arguments: Vec<u8>,
    bindings: BTreeSet<(Vec<u8>, Vec<u8>)>,
    /// The only connection that may use it.
    owner: Option<usize>,
}

#[derive(Debug, Default)]
struct Publishing {
    exchange: Vec<u8>,
    key: Vec<u8>,
    mandatory: bool,
    properties: Vec<u8>,
}

/// What a broker keeps, and answers.
#[derive(Debug, Default)]
struct Broker {
    queues: BTreeMap<Vec<u8>, Queue>,
    deleted_exchange: bool,
    /// Channels that it has closed, and is not asked about again.
    closed: BTreeSet<(usize, u16)>,
    publishing: Option<Publishing>,
    /// For which connection.
    mail: Vec<(usize, Content)>,
}

impl Queue {
    fn binds(&self, exchange: &[u8]) -> bool {
        self.bindings.iter().any(|(source, _)| source == exchange)
    }
}

impl Broker {
    fn new() -> Broker {
        let mut broker = Broker::default();
        let queue = Queue {
            arguments: table(&order(false).old).expect("a table"),
            bindings: [(b"x".to_vec(), b"key".to_vec())].into(),
            owner: None,
        };
        broker.queues.insert(b"q".to_vec(), queue);
        broker
    }

    fn has(&self, start: &str) -> bool {
        let mut names = self.queues.keys();
        names.any(|name| name.starts_with(start.as_bytes()))
    }

    fn ends(&mut self, connection: usize) {
        self.queues
            .retain(|_, queue| queue.owner != Some(connection));
    }

    fn answer(&mut self, connection: usize, sent: &Sent) -> Vec<u8> {
        let channel = sent.channel;
        let Some(id) = sent.method() else {
            return self.content(sent);
        };
        if id == MethodId::CHANNEL_CLOSE_OK {
            self.closed.remove(&(connection, channel));
        }
        if self.closed.contains(&(connection, channel)) {
            return Vec::new();
        }
        match self.done(connection, id, &sent.payload) {
            Ok(done) => done.map_or(Vec::new(), |(id, more)| {
                method(channel, id, |a| {
                    for part in &more {
                        match part {
                            Ok(number) => a.long(*number),
                            Err(text) => a.shortstr(text),
                        };
                    }
                    a.end();
                })
            }),
            Err(code) => {
                self.closed.insert((connection, channel));
                close(channel, code, "no", MethodId(0, 0))
            }
        }
    }

    /// The answer with its numbers and texts, if it has one.
    fn done(&mut self, connection: usize, id: MethodId, payload: &[u8]) -> Result<Done, u16> {
        Ok(Some(match id {
            MethodId::CHANNEL_OPEN => (MethodId::CHANNEL_OPEN_OK, vec![Ok(0)]),
            MethodId::QUEUE_DECLARE => {
                self.declare(
                    connection,
                    &QueueDeclare::parse(payload).expect("a declare"),
                )?;
                (
                    MethodId::QUEUE_DECLARE_OK,
                    vec![Err(b"q".to_vec()), Ok(0), Ok(0)],
                )
            }
            MethodId::QUEUE_DELETE => {
                let name = QueueName::parse(payload).expect("a name").queue;
                self.queues.remove(name);
                (MethodId::QUEUE_DELETE_OK, vec![Ok(0)])
            }
            MethodId::QUEUE_BIND | MethodId::QUEUE_UNBIND => {
                let (queue, exchange, key) = match QueueBind::parse(payload) {
                    Ok(bind) => (bind.queue, bind.exchange, bind.routing_key),
                    Err(_) => {
                        let unbind = QueueUnbind::parse(payload).expect("a binding");
                        (unbind.queue, unbind.exchange, unbind.routing_key)
                    }
                };
                let is_there = !(self.deleted_exchange && exchange == b"x");
                let queue = self.queues.get_mut(queue).filter(|_| is_there);
                let bindings = &mut queue.ok_or(NOT_FOUND)?.bindings;
                let binding = (exchange.to_vec(), key.to_vec());
                match id {
                    MethodId::QUEUE_BIND => drop(bindings.insert(binding)),
                    _ => drop(bindings.remove(&binding)),
                }
                match id {
                    MethodId::QUEUE_BIND => (MethodId::QUEUE_BIND_OK, Vec::new()),
                    _ => (MethodId::QUEUE_UNBIND_OK, Vec::new()),
                }
            }
            MethodId::BASIC_CONSUME => (MethodId::BASIC_CONSUME_OK, vec![Err(b"tag".to_vec())]),
            MethodId::BASIC_CANCEL => (MethodId::BASIC_CANCEL_OK, vec![Err(b"tag".to_vec())]),
            MethodId::BASIC_PUBLISH => {
                let publish = Publish::parse(payload).expect("a publish");
                self.publishing = Some(Publishing {
                    exchange: publish.exchange.to_vec(),
                    key: publish.routing_key.to_vec(),
                    mandatory: publish.bits & 1 != 0,
                    properties: Vec::new(),
                });
                return Ok(None);
            }
            MethodId::CONNECTION_CLOSE => {
                self.ends(connection);
                (MethodId::CONNECTION_CLOSE_OK, Vec::new())
            }
            _ => return Ok(None),
        }))
    }

    fn declare(&mut self, connection: usize, declare: &QueueDeclare<'_>) -> Result<(), u16> {
        let made = || Queue {
            arguments: declare.arguments.to_vec(),
            bindings: BTreeSet::new(),
            owner: declare.has(QueueDeclare::EXCLUSIVE).then_some(connection),
        };
        let is_there = self.queues.contains_key(declare.queue);
        if declare.has(QueueDeclare::PASSIVE) && !is_there {
            return Err(NOT_FOUND);
        }
        let queue = self.queues.entry(declare.queue.to_vec());
        let queue = queue.or_insert_with(made);
        if queue.owner.is_some_and(|owner| owner != connection) {
            return Err(RESOURCE_LOCKED);
        }
        let differs = queue.arguments != declare.arguments && declare.queue == b"q";
        match differs && !declare.has(QueueDeclare::PASSIVE) {
            true => Err(PRECONDITION_FAILED),
            false => Ok(()),
        }
    }

    /// Of a publish.
    fn content(&mut self, sent: &Sent) -> Vec<u8> {
        let Some(publishing) = &mut self.publishing else {
            return Vec::new();
        };
        if sent.kind == Kind::Header {
            publishing.properties = sent.payload.get(PREFIX..).expect("properties").to_vec();
            if body_size(&sent.payload) != Ok(0) {
                return Vec::new();
            }
        }
        let publishing = std::mem::take(publishing);
        self.publishing = None;
        let content = Content {
            properties: publishing.properties.into(),
            body: match sent.kind {
                Kind::Header => Bytes::new(),
                _ => sent.payload.clone().into(),
            },
        };
        let binding = (publishing.exchange.clone(), publishing.key.clone());
        let is_bound = |queue: &&Queue| queue.bindings.contains(&binding);
        let to = match publishing.exchange.is_empty() {
            true => self.queues.get(&publishing.key),
            false => self.queues.values().find(is_bound),
        };
        let is_lost = to.is_none() && publishing.mandatory;
        self.mail.extend(
            to.and_then(|to| to.owner)
                .map(|owner| (owner, content.clone())),
        );
        match is_lost {
            true => super::content(
                method(sent.channel, MethodId::BASIC_RETURN, |a| {
                    a.short(312).shortstr(b"NO_ROUTE");
                    a.shortstr(&publishing.exchange)
                        .shortstr(&publishing.key)
                        .end();
                }),
                sent.channel,
                &content,
            ),
            false => Vec::new(),
        }
    }
}

type Done = Option<(MethodId, Vec<Result<u32, Vec<u8>>>)>;

/// A machine, and the sessions of its proxy, who do at once what they are told.
struct Party<M: Machine> {
    rig: Rig<M>,
    connection: usize,
    tag: u64,
    holds: bool,
    ended: Option<Result<Altered, Failure>>,
}

impl<M: Machine<Input = Input, Output = Output>> Party<M> {
    fn new(machine: M, connection: usize) -> Party<M> {
        let mut rig = Rig::new(machine);
        rig.up("4.3.6");
        Party {
            rig,
            connection,
            tag: 0,
            holds: false,
            ended: None,
        }
    }

    /// Up to so many frames. False: there are more.
    fn turn(&mut self, broker: &mut Broker, budget: &mut usize) -> bool {
        for sent in self.rig.sent() {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            let answer = broker.answer(self.connection, &sent);
            self.rig.broker(&answer);
            self.obey();
        }
        true
    }

    fn obey(&mut self) {
        let out = std::mem::take(&mut self.rig.fx.out);
        self.ended = self.ended.take().or(out.ended);
        for told in out.swap {
            self.holds = !matches!(told, Told::Over { .. });
            self.rig.input(Input::Told(BTreeSet::new()));
            if told == Told::Cancel {
                self.rig.input(Input::Paused);
            }
        }
        if !self.rig.fx.out.swap.is_empty() {
            self.obey();
        }
    }

    fn hear(&mut self, content: &Content) {
        self.tag += 1;
        self.rig.broker(&delivered(self.tag, content));
        self.obey();
    }

    fn pass(&mut self, millis: u64) {
        self.rig.pass(millis);
        self.obey();
    }
}

fn follower() -> Party<Follower> {
    let settings = settings(Task::Follow, false);
    Party::new(Follower::new(settings, Now::default()), FOLLOWER)
}

/// Until it has ended, or has sent so many frames. Returns whether it has ended.
fn run(
    broker: &mut Broker,
    leader: &mut Party<Alteration>,
    (other, follows): (&mut Option<Party<Follower>>, bool),
    mut budget: usize,
) -> bool {
    for _ in 0..2000 {
        let mut plenty = usize::MAX;
        if follows && other.is_none() && broker.has("dlx-proxy.altering/") {
            *other = Some(follower());
        }
        if !leader.turn(broker, &mut budget) {
            return false;
        }
        if let Some(other) = other {
            other.turn(broker, &mut plenty);
        }
        for (connection, content) in std::mem::take(&mut broker.mail) {
            match (connection, &mut *other) {
                (FOLLOWER, Some(other)) => other.hear(&content),
                (FOLLOWER, None) => {}
                _ => leader.hear(&content),
            }
        }
        if leader.ended.is_some() {
            return true;
        }
        leader.pass(10);
        if let Some(other) = other {
            other.pass(10);
        }
    }
    panic!("it does not end");
}

/// The broker does what of it came to it; then whoever finds the order finishes it.
fn crash_after(frames: usize, quorum: bool, follows: bool, deleted_exchange: bool) -> bool {
    let mut broker = Broker::new();
    let others = usize::from(follows);
    let wait = Duration::from_secs(10);
    let altering = alteration(Task::Alter { wait, others }, quorum);
    let mut leader = Party::new(altering, LEADER);
    let mut other = None;
    let ended = run(&mut broker, &mut leader, (&mut other, follows), frames);
    broker.ends(LEADER);
    broker.deleted_exchange = deleted_exchange;
    if let Some(other) = &mut other {
        for _ in 0..500 {
            other.pass(10);
            other.turn(&mut broker, &mut usize::MAX.clone());
        }
        assert!(other.ended.is_some(), "silence ends it");
        let finishes = matches!(other.ended, Some(Err(Failure::Link(_))));
        assert!(!other.holds || finishes, "its shell finishes it");
    }
    if broker.has("dlx-proxy.altering/") {
        let mut queues = broker.queues.values();
        let was_bound = queues.any(|queue| queue.binds(b"dlx-proxy.delay"));
        let mut finisher = Party::new(alteration(Task::Finish, quorum), FINISHER);
        assert!(run(
            &mut broker,
            &mut finisher,
            (&mut None, false),
            usize::MAX
        ));
        match was_bound {
            true => assert!(matches!(finisher.ended, Some(Ok(_))), "after {frames}"),
            // Before anything was changed. It may be found long after.
            false => assert_eq!(finisher.ended, Some(Err(Failure::Finished))),
        }
    }
    broker.ends(FOLLOWER);
    broker.ends(FINISHER);
    let [(name, queue)] = &broker.queues.iter().collect::<Vec<_>>()[..] else {
        panic!("after {frames}: {:?}", broker.queues);
    };
    assert_eq!(name.as_slice(), b"q", "after {frames}");
    let forms = [order(false).old, order(false).new].map(|of| table(&of).expect("a table"));
    assert!(forms.contains(&queue.arguments), "after {frames}");
    if !deleted_exchange {
        let bindings = [(b"x".to_vec(), b"key".to_vec())].into();
        assert_eq!(queue.bindings, bindings, "after {frames}");
    }
    ended
}

#[test]
fn a_crash_at_each_step_leaves_a_whole_queue() {
    for quorum in [false, true] {
        for follows in [false, true] {
            for deleted_exchange in [false, true] {
                let ends = |frames: &usize| crash_after(*frames, quorum, follows, deleted_exchange);
                let steps = (0..200).find(ends).expect("an end");
                assert!(steps > 15, "{steps} steps");
            }
        }
    }
}
