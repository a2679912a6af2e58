//! A broker with a few queues: what an alteration asks of one, and no more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use crate::amqp::content::{Content, PREFIX, body_size};
use crate::amqp::cursor::Cursor;
use crate::amqp::frame::Kind;
use crate::amqp::method::{MethodId, Publish, QueueBind, QueueDeclare, QueueName, QueueUnbind};
use crate::amqp::reply_code::{NOT_FOUND, PRECONDITION_FAILED, RESOURCE_LOCKED};
use crate::link::peer::{Sent, close, content as with_content, method};

use super::{order, plain, table};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Queue {
    pub(super) arguments: Vec<u8>,
    pub(super) bindings: BTreeSet<(Vec<u8>, Vec<u8>)>,
    /// The only connection that may use it.
    owner: Option<usize>,
    pub(super) messages: VecDeque<Content>,
    /// Connections and channels that consume from it.
    consumers: BTreeSet<(usize, u16)>,
}

/// Of a connection, as a broker knows it.
#[derive(Debug, Default)]
struct Channel {
    /// Publishes that were confirmed; `None`: nobody asked for that.
    confirmed: Option<u64>,
    /// From which queue, by their tags.
    unsettled: BTreeMap<u64, (Vec<u8>, Content)>,
    tag: u64,
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
pub(super) struct Broker {
    pub(super) queues: BTreeMap<Vec<u8>, Queue>,
    pub(super) deleted_exchange: bool,
    /// Channels that it has closed, and is not asked about again.
    closed: BTreeSet<(usize, u16)>,
    publishing: Option<Publishing>,
    channels: BTreeMap<(usize, u16), Channel>,
    /// For which connection.
    pub(super) mail: Vec<(usize, Content)>,
}

impl Queue {
    pub(super) fn binds(&self, exchange: &[u8]) -> bool {
        self.bindings.iter().any(|(source, _)| source == exchange)
    }
}

impl Broker {
    pub(super) fn new(backlog: u64) -> Broker {
        let mut broker = Broker::default();
        let queue = Queue {
            arguments: table(&order(false).old).expect("a table"),
            bindings: [(b"x".to_vec(), b"key".to_vec())].into(),
            messages: (0..backlog).map(|of| plain(of.to_string())).collect(),
            ..Queue::default()
        };
        broker.queues.insert(b"q".to_vec(), queue);
        broker
    }

    pub(super) fn has(&self, start: &str) -> bool {
        let mut names = self.queues.keys();
        names.any(|name| name.starts_with(start.as_bytes()))
    }

    pub(super) fn ends(&mut self, connection: usize) {
        self.queues
            .retain(|_, queue| queue.owner != Some(connection));
        for channel in 0..100 {
            self.cancels(connection, channel);
            self.requeue(connection, channel, u64::MAX);
        }
    }

    fn cancels(&mut self, connection: usize, channel: u16) {
        for queue in self.queues.values_mut() {
            queue.consumers.remove(&(connection, channel));
        }
    }

    /// What is unsettled up to that tag.
    fn requeue(&mut self, connection: usize, channel: u16, last: u64) {
        let channel = self.channels.entry((connection, channel)).or_default();
        while let Some(newest) = channel.unsettled.last_entry()
            && *newest.key() <= last
        {
            let (queue, content) = newest.remove();
            if let Some(queue) = self.queues.get_mut(&queue) {
                queue.messages.push_front(content);
            }
        }
    }

    /// Deliveries and settlements; the frames that come of them.
    fn consumes(&mut self, connection: usize, id: MethodId, sent: &Sent) -> Vec<u8> {
        let at = (connection, sent.channel);
        let channel = self.channels.entry(at).or_default();
        let mut rest = Cursor::new(&sent.payload);
        rest.take(4).expect("a method");
        match id {
            MethodId::CONFIRM_SELECT => channel.confirmed = Some(0),
            MethodId::BASIC_ACK => {
                let tag = rest.longlong().expect("a tag");
                let multiple = rest.octet().expect("bits") & 1 != 0;
                channel
                    .unsettled
                    .retain(|of, _| *of > tag || *of < tag && !multiple);
            }
            MethodId::BASIC_NACK => {
                let tag = rest.longlong().expect("a tag");
                self.requeue(connection, sent.channel, tag);
            }
            MethodId::BASIC_CANCEL => self.cancels(connection, sent.channel),
            MethodId::CHANNEL_CLOSE => {
                self.cancels(connection, sent.channel);
                self.requeue(connection, sent.channel, u64::MAX);
            }
            MethodId::BASIC_CONSUME => {
                rest.short().expect("a ticket");
                let name = rest.shortstr().expect("a queue").to_vec();
                let queue = self.queues.get_mut(&name);
                let Some(queue) = queue.filter(|queue| queue.owner.is_none()) else {
                    return Vec::new();
                };
                queue.consumers.insert(at);
                let mut out = Vec::new();
                for message in queue.messages.drain(..) {
                    channel.tag += 1;
                    let deliver = method(sent.channel, MethodId::BASIC_DELIVER, |a| {
                        a.shortstr(b"dlx-proxy").longlong(channel.tag).octet(0);
                        a.shortstr(b"x").shortstr(b"key").end();
                    });
                    out.extend(with_content(deliver, sent.channel, &message));
                    channel
                        .unsettled
                        .insert(channel.tag, (name.clone(), message));
                }
                return out;
            }
            _ => {}
        }
        Vec::new()
    }

    pub(super) fn answer(&mut self, connection: usize, sent: &Sent) -> Vec<u8> {
        let channel = sent.channel;
        let Some(id) = sent.method() else {
            return self.published(connection, sent);
        };
        if id == MethodId::CHANNEL_CLOSE_OK {
            self.closed.remove(&(connection, channel));
        }
        if self.closed.contains(&(connection, channel)) {
            return Vec::new();
        }
        match self.done(connection, id, &sent.payload) {
            Ok(done) => {
                let mut answer = done.map_or(Vec::new(), |(id, more)| {
                    method(channel, id, |a| {
                        for part in &more {
                            match part {
                                Ok(number) => a.long(*number),
                                Err(text) => a.shortstr(text),
                            };
                        }
                        a.end();
                    })
                });
                answer.extend(self.consumes(connection, id, sent));
                answer
            }
            Err(code) => {
                self.closed.insert((connection, channel));
                let words = match code {
                    NOT_FOUND => "NOT_FOUND - no queue 'q' in vhost '/'",
                    _ => "no",
                };
                close(channel, code, words, MethodId(0, 0))
            }
        }
    }

    /// The answer with its numbers and texts, if it has one.
    fn done(&mut self, connection: usize, id: MethodId, payload: &[u8]) -> Result<Done, u16> {
        Ok(Some(match id {
            MethodId::CHANNEL_OPEN => (MethodId::CHANNEL_OPEN_OK, vec![Ok(0)]),
            MethodId::QUEUE_DECLARE => {
                let declare = QueueDeclare::parse(payload).expect("a declare");
                let (messages, consumers) = self.declare(connection, &declare)?;
                let ok = vec![Err(b"q".to_vec()), Ok(messages), Ok(consumers)];
                (MethodId::QUEUE_DECLARE_OK, ok)
            }
            MethodId::QUEUE_DELETE => {
                let name = QueueName::parse(payload).expect("a name").queue;
                let deleted = self.queues.remove(name).unwrap_or_default();
                assert_eq!(deleted.messages.len(), 0, "it is empty");
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
            MethodId::BASIC_GET => {
                let mut rest = Cursor::new(payload);
                rest.take(6).expect("a method and a ticket");
                let name = rest.shortstr().expect("a name");
                let queue = self.queues.get(name).ok_or(NOT_FOUND)?;
                assert_eq!(queue.messages.len(), 0, "it counts as it is");
                (MethodId::BASIC_GET_EMPTY, vec![Err(Vec::new())])
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
            MethodId::CONFIRM_SELECT => (MethodId::CONFIRM_SELECT_OK, Vec::new()),
            MethodId::CHANNEL_CLOSE => (MethodId::CHANNEL_CLOSE_OK, Vec::new()),
            MethodId::CONNECTION_CLOSE => {
                self.ends(connection);
                (MethodId::CONNECTION_CLOSE_OK, Vec::new())
            }
            _ => return Ok(None),
        }))
    }

    /// How many messages and consumers it has.
    fn declare(
        &mut self,
        connection: usize,
        declare: &QueueDeclare<'_>,
    ) -> Result<(u32, u32), u16> {
        let made = || Queue {
            arguments: declare.arguments.to_vec(),
            bindings: BTreeSet::new(),
            messages: VecDeque::new(),
            consumers: BTreeSet::new(),
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
            false => Ok((queue.messages.len() as u32, queue.consumers.len() as u32)),
        }
    }

    /// Of a publish.
    fn published(&mut self, connection: usize, sent: &Sent) -> Vec<u8> {
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
        let is_bound = |queue: &&mut Queue| queue.bindings.contains(&binding);
        let to = match publishing.exchange.is_empty() {
            true => self.queues.get_mut(&publishing.key),
            false => self.queues.values_mut().find(is_bound),
        };
        let is_lost = to.is_none() && publishing.mandatory;
        match to {
            Some(Queue {
                owner: Some(owner), ..
            }) => self.mail.push((*owner, content.clone())),
            // An order is never read.
            Some(to) if publishing.exchange.is_empty() => to.messages.push_back(content.clone()),
            _ => {}
        }
        let channel = self.channels.entry((connection, sent.channel)).or_default();
        if let Some(confirmed) = &mut channel.confirmed {
            *confirmed += 1;
            return method(sent.channel, MethodId::BASIC_ACK, |a| {
                a.longlong(*confirmed).octet(0).end();
            });
        }
        match is_lost {
            true => with_content(
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
