//! What is done to the broker from outside its protocol: time, faults, an operator's hand.

use crate::codec::methods::Args;
use crate::codec::value::{Bytes, Table, Value};

use super::broker::{Broker, Conn, Millis, User};
use super::channel::At;
use super::connection::{Connection, State};
use super::exchange::{Binding, Destination, Exchange, Type};
use super::facts::{Fact, Why};
use super::jobs::Job;
use super::refusal::Refusal;

impl Broker {
    // === time

    /// When `tick` has something to do.
    pub(crate) fn deadline(&self) -> Option<Millis> {
        let heads = self
            .queues
            .values()
            .filter_map(|queue| queue.head()?.expires);
        let unused = self.queues.values().filter_map(|queue| {
            let idle = queue.consumers.is_empty();
            queue
                .expires
                .filter(|_| idle)
                .map(|after| queue.used + after)
        });
        heads.chain(unused).chain(self.heartbeat_deadline()).min()
    }

    /// Messages and unused queues expire, heartbeats are due.
    pub(crate) fn tick(&mut self, now: Millis) {
        self.now = now;
        let names: Vec<Bytes> = self.queues.keys().cloned().collect();
        for name in names {
            self.expire(&name);
            let over = self.queues.get(&name).is_some_and(|queue| {
                let idle = queue.consumers.is_empty();
                queue
                    .expires
                    .is_some_and(|after| idle && queue.used + after <= now)
            });
            if over {
                self.remove_queue(&name, Why::QueueDeleted);
            }
        }
        self.beat();
    }

    // === faults

    /// Of a confirm: it is never sent, unless its connection is spared.
    pub(crate) fn lose(&mut self, index: usize, spared: impl Fn(Conn) -> bool) -> bool {
        let job = self.jobs.peek(index);
        let is_one = matches!(job, Some(Job::Confirm(confirm)) if !spared(confirm.at.conn));
        is_one && self.jobs.take(index).is_some()
    }

    /// Of a confirm: the queue has lost the message, and says so. Not if somebody else has it already.
    pub(crate) fn nack(&mut self, index: usize, now: Millis) -> bool {
        self.now = now;
        let Some(Job::Confirm(confirm)) = self.jobs.peek(index) else {
            return false;
        };
        let (name, id) = (confirm.queue.clone(), confirm.id);
        if self.is_stream(&name) {
            return false;
        }
        if let (Some(id), Some(queue)) = (id, self.queues.get_mut(&name)) {
            let Some(at) = queue.ready.iter().position(|entry| entry.id == id) else {
                return false;
            };
            if let Some(entry) = queue.ready.remove(at) {
                self.facts.push(Fact::Dropped {
                    queue: name,
                    copy: id,
                    body: entry.message.body,
                    why: Why::Lost,
                });
            }
        }
        if let Some(Job::Confirm(mut confirm)) = self.jobs.take(index) {
            confirm.good = false;
            self.work(Job::Confirm(confirm));
        }
        true
    }

    /// The broker closes a channel for a reason of its own. `text` is without the name of the code.
    pub(crate) fn close_channel(
        &mut self,
        conn: Conn,
        channel: u16,
        code: u16,
        text: &str,
    ) -> bool {
        let open = self.connections[conn.0 as usize].channels.get(&channel);
        if !open.is_some_and(|channel| channel.open) {
            return false;
        }
        let refusal = Refusal {
            code,
            text: text.as_bytes().to_vec(),
        };
        self.refuse(At { conn, channel }, &refusal, None);
        true
    }

    /// As `rabbitmqctl close_connection` does with 320.
    pub(crate) fn close_connection_as(&mut self, conn: Conn, code: u16, text: &str) -> bool {
        if self.connection(conn).state != State::Running {
            return false;
        }
        let refusal = Refusal {
            code,
            text: text.as_bytes().to_vec(),
        };
        self.close_connection(conn, &refusal, None);
        true
    }

    /// Memory runs short, or is enough again.
    pub(crate) fn alarm(&mut self, on: bool) {
        self.alarm = on;
        if on {
            return;
        }
        for at in 0..self.connections.len() {
            let conn = Conn(at as u32);
            let connection = self.connection(conn);
            if std::mem::take(&mut connection.blocked) && connection.knows("connection.blocked") {
                self.send(conn, 0, "connection.unblocked", Args::new());
            }
        }
    }

    /// From now on all queues whose names begin so refuse what is published; or none.
    pub(crate) fn refuse_publishes(&mut self, prefix: Option<&str>) {
        self.refusing = prefix.map(|prefix| prefix.as_bytes().to_vec());
    }

    /// Killed and started again: connections, what was under way, and what is not durable are gone.
    pub(crate) fn restart(&mut self, now: Millis) {
        self.now = now;
        for at in 0..self.connections.len() {
            let conn = Conn(at as u32);
            if self.connection(conn).ended {
                continue;
            }
            self.end_connection(conn);
            let connection = self.connection(conn);
            connection.ended = true;
            connection.output.clear();
        }
        let (kept, lost): (Vec<Job>, Vec<Job>) = self.jobs.clear().into_iter().partition(
            |job| matches!(job, Job::DeadLetter { queue, .. } if self.is_at_least_once(queue)),
        );
        self.lose_in_flight(lost);
        self.alarm = false;
        let transient = self.queues.values().filter(|queue| !queue.durable);
        let names: Vec<Bytes> = transient.map(|queue| queue.name.clone()).collect();
        for name in names {
            self.remove_queue(&name, Why::Restarted);
        }
        self.jobs.clear();
        kept.into_iter().for_each(|job| self.jobs.push(job));
        for queue in self.queues.values_mut() {
            queue.used = now;
            if queue.is_quorum() || queue.is_stream() {
                continue;
            }
            let kept = |entry: &super::queue::Entry| entry.message.persistent;
            for entry in queue.ready.iter().filter(|entry| !kept(entry)) {
                self.facts.push(Fact::Dropped {
                    queue: queue.name.clone(),
                    copy: entry.id,
                    body: entry.message.body.clone(),
                    why: Why::Restarted,
                });
            }
            queue.ready.retain(kept);
        }
        let gone = self
            .exchanges
            .iter()
            .filter(|(_, exchange)| !exchange.durable);
        let names: Vec<Bytes> = gone.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.remove_exchange(&name);
        }
    }

    /// Dead letters stay in such a queue until they are where they should be.
    fn is_at_least_once(&self, queue: &[u8]) -> bool {
        self.queues.get(queue).is_some_and(|queue| {
            let strategy = queue.arguments.get("x-dead-letter-strategy");
            queue.is_quorum() && strategy == Some(&Value::Text(b"at-least-once".to_vec()))
        })
    }

    // === an operator

    /// Made, or his rights changed.
    pub(crate) fn set_user(&mut self, user: User) {
        self.remove_user(&user.name.clone());
        self.options.users.push(user);
    }

    pub(crate) fn remove_user(&mut self, name: &str) {
        self.options.users.retain(|user| user.name != name);
    }

    /// The connection to which its client gave that name.
    pub(crate) fn named(&self, name: &str) -> Option<Conn> {
        let is = |of: &Connection| of.name == name.as_bytes() && of.state == State::Running;
        let at = self.connections.iter().position(is)?;
        Some(Conn(at as u32))
    }

    pub(crate) fn declare_exchange(&mut self, name: &str, kind: Type, internal: bool) {
        let exchange = Exchange {
            kind,
            durable: true,
            auto_delete: false,
            internal,
            arguments: Table::default(),
        };
        let made = self.exchanges.entry(name.as_bytes().to_vec());
        made.or_insert(exchange);
    }

    pub(crate) fn bind_queue(&mut self, exchange: &str, queue: &str, key: &str) {
        self.bind_quietly(Binding {
            source: exchange.as_bytes().to_vec(),
            destination: Destination::Queue(queue.as_bytes().to_vec()),
            key: key.as_bytes().to_vec(),
            arguments: Table::default(),
        });
    }

    pub(crate) fn delete_exchange(&mut self, name: &str) {
        self.remove_exchange(name.as_bytes());
    }

    pub(crate) fn delete_queue(&mut self, name: &str) {
        self.remove_queue(name.as_bytes(), Why::QueueDeleted);
    }

    pub(crate) fn purge(&mut self, name: &str) -> u64 {
        match self.queues.contains_key(name.as_bytes()) {
            true => self.purge_queue(name.as_bytes()),
            false => 0,
        }
    }
}
