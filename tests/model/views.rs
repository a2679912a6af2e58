//! How the broker stands, for those who check it.

use crate::codec::methods::{Arg, Args};
use crate::codec::value::{Bytes, Table};

use super::broker::{Broker, Conn};
use super::connection::State;
use super::exchange::{Destination, Type};
use super::queue::{Entry, Queue};

/// A message in a queue.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MessageView {
    /// As in the facts.
    pub copy: u64,
    pub body: Bytes,
    pub exchange: Bytes,
    pub routing_key: Bytes,
    /// As a consumer would see them.
    pub properties: Args,
    pub redelivered: bool,
    /// In a quorum queue: it came back, and so goes before what did not.
    pub returned: bool,
    /// Nothing: it is ready.
    pub holder: Option<Holder>,
}

/// Who has a message that is not acked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub conn: Conn,
    pub channel: u16,
    /// Nothing: it is on its way there.
    pub tag: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConsumerView {
    pub conn: Conn,
    pub channel: u16,
    pub tag: Bytes,
    pub queue: Bytes,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExchangeView {
    pub name: Bytes,
    pub kind: Type,
    pub internal: bool,
    pub auto_delete: bool,
    pub arguments: Table,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BindingView {
    pub source: Bytes,
    pub destination: Bytes,
    pub to_queue: bool,
    pub key: Bytes,
}

impl MessageView {
    pub(crate) fn property(&self, name: &str) -> Option<&[u8]> {
        super::call::find(&self.properties, name).map(Arg::text)
    }

    pub(crate) fn headers(&self) -> Option<&Table> {
        match super::call::find(&self.properties, "headers") {
            Some(Arg::Table(table)) => Some(table),
            _ => None,
        }
    }
}

impl Broker {
    /// It refuses what is published to it.
    pub(crate) fn is_full(&self, queue: &[u8]) -> bool {
        let queue = self.queues.get(queue);
        queue.is_some_and(|queue| queue.refuses(0))
    }

    /// Nothing: there is no such queue. In the order of the queue: the ready ones as they will be delivered, then those that somebody has.
    pub(crate) fn queue(&self, name: &str) -> Option<Vec<MessageView>> {
        let queue = self.queues.get(name.as_bytes())?;
        let ready = queue.returned.iter().chain(&queue.ready);
        let mut all: Vec<MessageView> = ready.map(|entry| view(queue, entry, None)).collect();
        for (id, taken) in &queue.unacked {
            let channel = self.connections[taken.at.conn.0 as usize]
                .channels
                .get(&taken.at.channel);
            let tag = channel.and_then(|channel| {
                let mut unacked = channel.unacked.iter();
                let is = unacked.find(|(_, of)| of.id == *id && of.life == queue.life);
                is.map(|(tag, _)| *tag)
            });
            let holder = Holder {
                conn: taken.at.conn,
                channel: taken.at.channel,
                tag,
            };
            all.push(view(queue, &taken.entry, Some(holder)));
        }
        Some(all)
    }

    pub(crate) fn queue_names(&self) -> Vec<Bytes> {
        self.queues.keys().cloned().collect()
    }

    pub(crate) fn consumers(&self) -> Vec<ConsumerView> {
        let of = |queue: &Queue| -> Vec<ConsumerView> {
            let consumers = queue.consumers.iter();
            consumers
                .map(|consumer| ConsumerView {
                    conn: consumer.at.conn,
                    channel: consumer.at.channel,
                    tag: consumer.tag.clone(),
                    queue: queue.name.clone(),
                })
                .collect()
        };
        self.queues.values().flat_map(of).collect()
    }

    pub(crate) fn exchanges(&self) -> Vec<ExchangeView> {
        let of = |(name, exchange): (&Bytes, &super::exchange::Exchange)| ExchangeView {
            name: name.clone(),
            kind: exchange.kind,
            internal: exchange.internal,
            auto_delete: exchange.auto_delete,
            arguments: exchange.arguments.clone(),
        };
        self.exchanges.iter().map(of).collect()
    }

    pub(crate) fn bindings(&self) -> Vec<BindingView> {
        let of = |binding: &super::exchange::Binding| {
            let (destination, to_queue) = match &binding.destination {
                Destination::Queue(name) => (name.clone(), true),
                Destination::Exchange(name) => (name.clone(), false),
            };
            BindingView {
                source: binding.source.clone(),
                destination,
                to_queue,
                key: binding.key.clone(),
            }
        };
        self.bindings.iter().map(of).collect()
    }

    /// Connections, as their clients call them.
    pub(crate) fn names(&self) -> impl Iterator<Item = (Conn, &Bytes)> {
        let all = (0..).map(Conn).zip(&self.connections);
        let running = all.filter(|(_, of)| of.state == State::Running && !of.ended);
        running.map(|(conn, of)| (conn, &of.name))
    }

    /// Are publishers blocked?
    pub(crate) fn has_alarm(&self) -> bool {
        self.alarm
    }

    /// Does the broker read from it? Not while it is blocked.
    pub(crate) fn is_blocked(&self, conn: Conn) -> bool {
        self.connections[conn.0 as usize].blocked
    }

    /// Is that channel open, for the broker?
    pub(crate) fn has_channel(&self, conn: Conn, channel: u16) -> bool {
        let channel = self.connections[conn.0 as usize].channels.get(&channel);
        channel.is_some_and(|channel| channel.open && !channel.closing)
    }

    /// Tags that are outstanding on a channel.
    pub(crate) fn unacked(&self, conn: Conn, channel: u16) -> Vec<u64> {
        let channel = self.connections[conn.0 as usize].channels.get(&channel);
        channel.map_or(Vec::new(), |channel| {
            channel.unacked.keys().copied().collect()
        })
    }
}

fn view(queue: &Queue, entry: &Entry, holder: Option<Holder>) -> MessageView {
    let counts = match queue.is_quorum() {
        true => [entry.acquired.or(entry.failed), entry.failed],
        false => [None; 2],
    };
    MessageView {
        copy: entry.id,
        body: entry.message.body.clone(),
        exchange: entry.message.exchange.clone(),
        routing_key: entry.message.key(),
        properties: entry.message.content(counts),
        redelivered: entry.delivered,
        returned: queue.returned.iter().any(|of| of.id == entry.id),
        holder,
    }
}
