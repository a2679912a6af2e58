//! What a caller does with the broker: connections, bytes, jobs, time.

use std::collections::{BTreeMap, VecDeque};

use regex::bytes::Regex;

use crate::codec::methods::Args;
use crate::codec::value::{Bytes, Table, Value};

use super::connection::Connection;
use super::exchange::{Binding, Exchange};
use super::facts::Fact;
use super::jobs::Jobs;
use super::policies::{Policy, Refused};
use super::queue::Queue;

/// Of the wall clock: `x-death` has seconds of it.
pub(crate) type Millis = u64;

/// A connection, also after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Conn(pub u32);

/// What a broker is configured with.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub users: Vec<User>,
    pub vhost: String,
    pub channel_max: u16,
    pub frame_max: u32,
    /// Seconds, as offered.
    pub heartbeat: u16,
    pub version: String,
    /// The type of queues that are declared without one.
    pub default_type: &'static str,
    /// What `connection.start` says, if not the usual: nodes of one version differ in it.
    pub start: Option<Args>,
}

/// Who may log in, and what he may do in the vhost.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub name: String,
    pub password: String,
    pub configure: Rights,
    pub write: Rights,
    pub read: Rights,
    /// May publish in other users' names.
    pub impersonator: bool,
}

/// Which names.
#[derive(Clone, Debug)]
pub(crate) enum Rights {
    All,
    None,
    Prefixes(Vec<String>),
    Pattern(Regex),
    AllBut(Regex),
}

/// The whole of it.
pub(crate) struct Broker {
    pub(super) options: Options,
    pub(super) connections: Vec<Connection>,
    pub(super) exchanges: BTreeMap<Bytes, Exchange>,
    pub(super) bindings: Vec<Binding>,
    pub(super) queues: BTreeMap<Bytes, Queue>,
    pub(super) jobs: Jobs,
    pub(super) facts: Vec<Fact>,
    /// Numbers for messages, and for names that the server makes up.
    pub(super) numbers: u64,
    pub(super) alarm: bool,
    /// Queues whose names begin so refuse what is published, as an operator has bounded them.
    pub(super) refusing: Option<Bytes>,
    /// By queue.
    pub(super) policies: BTreeMap<Bytes, Policy>,
    pub(super) refused: Option<Refused>,
    pub(super) now: Millis,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            users: vec![User::administrator("guest")],
            vhost: "/".to_owned(),
            channel_max: 2047,
            frame_max: 131_072,
            heartbeat: 60,
            version: "4.3.6".to_owned(),
            default_type: "classic",
            start: None,
        }
    }
}

impl Options {
    pub(super) fn server_properties(&self) -> Table {
        let yes = |name: &str| (name.as_bytes().to_vec(), Value::Bool(true));
        let capabilities = [
            "publisher_confirms",
            "exchange_exchange_bindings",
            "basic.nack",
            "consumer_cancel_notify",
            "connection.blocked",
            "consumer_priorities",
            "authentication_failure_close",
            "per_consumer_qos",
            "direct_reply_to",
        ];
        let capabilities = Table {
            fields: capabilities.map(yes).to_vec(),
            rest: Bytes::new(),
        };
        let text = |text: &str| Value::Text(text.as_bytes().to_vec());
        let fields = vec![
            (b"capabilities".to_vec(), Value::Table(capabilities)),
            (b"cluster_name".to_vec(), text("model")),
            (b"product".to_vec(), text("RabbitMQ")),
            (b"version".to_vec(), text(&self.version)),
        ];
        Table {
            fields,
            rest: Bytes::new(),
        }
    }
}

impl User {
    /// May do everything, with his name as password.
    pub(crate) fn administrator(name: &str) -> User {
        User {
            name: name.to_owned(),
            password: name.to_owned(),
            configure: Rights::All,
            write: Rights::All,
            read: Rights::All,
            impersonator: false,
        }
    }
}

impl Rights {
    pub(super) fn include(&self, name: &[u8]) -> bool {
        match self {
            Rights::All => true,
            Rights::None => false,
            Rights::Prefixes(prefixes) => prefixes
                .iter()
                .any(|prefix| name.starts_with(prefix.as_bytes())),
            Rights::Pattern(pattern) => pattern.is_match(name),
            Rights::AllBut(pattern) => !pattern.is_match(name),
        }
    }
}

impl Broker {
    pub(crate) fn new(options: Options) -> Broker {
        Broker {
            options,
            connections: Vec::new(),
            exchanges: Exchange::predeclared(),
            bindings: Vec::new(),
            queues: BTreeMap::new(),
            jobs: Jobs::default(),
            facts: Vec::new(),
            numbers: 0,
            alarm: false,
            refusing: None,
            policies: BTreeMap::new(),
            refused: None,
            now: 0,
        }
    }

    /// A socket is accepted.
    pub(crate) fn connect(&mut self) -> Conn {
        self.connections.push(Connection::new(self.now));
        Conn(self.connections.len() as u32 - 1)
    }

    /// Bytes from the peer, cut anywhere. Returns how many were taken: less while the connection is blocked.
    pub(crate) fn read(&mut self, conn: Conn, bytes: &[u8], now: Millis) -> usize {
        self.now = now;
        self.take_bytes(conn, bytes)
    }

    /// Bytes for the peer; the caller takes as many as he likes.
    pub(crate) fn output(&mut self, conn: Conn) -> &mut VecDeque<u8> {
        &mut self.connection(conn).output
    }

    /// The socket is gone: what was unacked returns, what was exclusive is deleted.
    pub(crate) fn hang_up(&mut self, conn: Conn, now: Millis) {
        self.now = now;
        self.end_connection(conn);
        let connection = self.connection(conn);
        connection.ended = true;
        connection.output.clear();
    }

    /// The broker has closed its end; what is in `output` may still be delivered.
    pub(crate) fn is_closed(&self, conn: Conn) -> bool {
        self.connections[conn.0 as usize].ended
    }

    /// How many things could be done next: one for each that has an order of its own.
    pub(crate) fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Does one of them.
    pub(crate) fn run(&mut self, index: usize, now: Millis) {
        self.now = now;
        if let Some(job) = self.jobs.take(index) {
            self.work(job);
        }
    }

    /// Does all, also what comes of them.
    pub(crate) fn run_all(&mut self, now: Millis) {
        while self.jobs() > 0 {
            self.run(0, now);
        }
    }

    /// What happened since this was asked last.
    pub(crate) fn facts(&mut self) -> Vec<Fact> {
        std::mem::take(&mut self.facts)
    }

    pub(super) fn connection(&mut self, conn: Conn) -> &mut Connection {
        &mut self.connections[conn.0 as usize]
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}
