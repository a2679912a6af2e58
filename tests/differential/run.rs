//! Carries out a script, once, one way, and hands back what was observed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::{Client, DEADLINE, Wait};
use super::compare;
use super::frame::Frame;
use super::lab::Broker;
use super::methods::{Arg, Args};
use super::names::Names;
use super::proxy::Proxy;
use super::reader::{Channel, Received};
use super::rest::Standing;
use super::script::{Action, Call, Counts, Operation, Script, Step, Until};
use super::stand_in::StandIn;
use super::value::{Bytes, Fallible};

/// What groups of pseudo frames are called that say what is left in a queue.
pub(crate) const LEFT_IN: &str = "left in ";

/// What management knows of a connection and does not depend on the way.
const DESCRIPTION: [&str; 9] = [
    "user_provided_name",
    "user",
    "vhost",
    "protocol",
    "auth_mechanism",
    "channel_max",
    "frame_max",
    "timeout",
    "client_properties",
];

/// What a script runs on.
#[derive(Clone, Copy)]
pub(crate) enum Node<'a> {
    Real(&'a Broker),
    Model(&'a StandIn),
}

/// Where a script runs.
pub(crate) struct Way<'a> {
    pub node: Node<'a>,
    pub vhost: &'a str,
    /// Nothing: the direct run.
    pub proxy: Option<&'a Proxy>,
    /// Whether each rest is a long one, so that nothing is still on its way after it.
    pub patient: bool,
}

/// What was observed: frames by connection and channel (`a.1`), what was left by queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub groups: BTreeMap<String, Vec<Received>>,
    /// How many messages were in all queues at the end, and after each that was emptied.
    pub lefts: Vec<Left>,
    /// Steps whose condition was not met.
    pub unmet: Vec<String>,
    /// How it stood at each `rest`.
    pub rests: Vec<Standing>,
    /// In seconds since 1970.
    pub began: u64,
}

/// Messages in each queue; nothing: there is no such queue.
pub(crate) type Left = BTreeMap<Bytes, Option<u64>>;

/// Draws the next step when it has seen what came; nothing: it is over.
pub(crate) type Draw<'a> = &'a mut dyn FnMut(&[(String, Client)]) -> Option<Step>;

/// A run that is under way.
pub(crate) struct Run<'a> {
    pub script: &'a Script,
    pub way: &'a Way<'a>,
    /// The record that this one is to be compared with.
    pub other: Option<&'a Record>,
    pub names: Arc<Names>,
    /// In order of their first use; those that were dropped or opened again keep what they recorded.
    pub clients: Vec<(String, Client)>,
    /// A connection of our own to the broker, whatever the way.
    pub control: Client,
    pub record: Record,
    pub step: usize,
}

/// Carries out the script. `other`: the record that this one is to be compared with.
pub(crate) fn run(
    script: &Script,
    way: &Way<'_>,
    names: Names,
    other: Option<&Record>,
) -> Fallible<Record> {
    carry_out(script, way, names, other, &mut |_| None).map(|(record, _)| record)
}

/// The same, and goes on with steps that are drawn as it goes. Returns these too.
pub(crate) fn explore(
    script: &Script,
    way: &Way<'_>,
    names: Names,
    draw: Draw<'_>,
) -> Fallible<(Record, Vec<Step>)> {
    carry_out(script, way, names, None, draw)
}

fn carry_out(
    script: &Script,
    way: &Way<'_>,
    names: Names,
    other: Option<&Record>,
    draw: Draw<'_>,
) -> Fallible<(Record, Vec<Step>)> {
    let names = Arc::new(names);
    let control = connect("control", way.node.address(), &names)?;
    control.log_in("guest", way.vhost, &Args::new());
    let record = Record {
        began: compare::now(),
        ..Record::default()
    };
    let mut run = Run {
        script,
        way,
        other,
        names,
        clients: Vec::new(),
        control,
        record,
        step: 0,
    };
    let mut drawn = Vec::new();
    let done = run.steps(draw, &mut drawn).and_then(|()| run.end());
    run.clean_up();
    done.map(|()| (run.record, drawn))
}

pub(crate) fn connect(name: &str, address: SocketAddr, names: &Arc<Names>) -> Fallible<Client> {
    Client::connect(name, address, names, true)
        .map_err(|error| format!("connecting to {address}: {error}"))
}

pub(crate) fn text(bytes: &[u8]) -> Arg {
    Arg::Text(bytes.to_vec())
}

impl Run<'_> {
    fn steps(&mut self, draw: Draw<'_>, drawn: &mut Vec<Step>) -> Fallible<()> {
        if self.way.proxy.is_none() {
            for policy in self.script.policies_of_the_broker() {
                self.operate(&policy)?;
            }
        }
        for step in &self.script.steps {
            self.next(step)?;
        }
        while let Some(step) = draw(&self.clients) {
            self.next(&step)?;
            drawn.push(step);
        }
        Ok(())
    }

    fn next(&mut self, step: &Step) -> Fallible<()> {
        self.step += 1;
        let at = self.step;
        self.clients
            .iter()
            .for_each(|(_, client)| client.at_step(at));
        self.carry_out(step)
            .map_err(|problem| format!("step {at}, {step}: {problem}"))
    }

    fn carry_out(&mut self, step: &Step) -> Fallible<()> {
        match step {
            Step::Operator(operation) => self.operate(operation),
            Step::Wait(time) => {
                std::thread::sleep(*time);
                Ok(())
            }
            Step::Until(until) => {
                self.until(until, step);
                Ok(())
            }
            Step::Rest => {
                self.rest();
                Ok(())
            }
            Step::Proxy(verb) => match (self.way.proxy, &**verb) {
                (None, _) => Ok(()),
                (Some(proxy), "stop") => proxy.stop(),
                (Some(proxy), "start") => proxy.resume(),
                (Some(proxy), _) => proxy.stop().and_then(|()| proxy.resume()),
            },
            Step::Client(connection, action) => self.act(connection, action, step),
        }
    }

    fn operate(&mut self, operation: &Operation) -> Fallible<()> {
        if operation.verb == "describe" {
            return self.describe(&operation.name);
        }
        match self.way.node {
            Node::Real(broker) => {
                let vhost = self.way.vhost;
                broker.management.carry_out(operation, vhost, &self.names)
            }
            Node::Model(model) => model.carry_out(operation, &self.names),
        }
    }

    fn describe(&mut self, connection: &str) -> Fallible<()> {
        let name = format!("{connection}{}", self.names.suffix);
        let Node::Real(broker) = self.way.node else {
            return Err("the model describes nothing".to_owned());
        };
        let is = broker.management.connection(&name)?;
        let said = |field: &str| match &is[field] {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let of = |field: &&'static str| (*field, text(said(field).as_bytes()));
        let mut frame = Frame::new("connection", DESCRIPTION.iter().map(of).collect());
        self.names.remove_from(&mut frame);
        let group = format!("{connection} (management)");
        self.record.groups.entry(group).or_default().push(Received {
            channel: 0,
            step: self.step,
            frame,
        });
        Ok(())
    }

    fn act(&mut self, connection: &str, action: &Action, step: &Step) -> Fallible<()> {
        match action {
            Action::Open(fields) => {
                let known = self.clients.iter().position(|(name, _)| name == connection);
                if let Some(at) = known {
                    let (name, client) = self.clients.remove(at);
                    self.record.keep(&name, &client);
                }
                return self.open(connection, fields.as_ref()).map(drop);
            }
            Action::Method(call) => return self.call(connection, call, step),
            _ => {}
        }
        let names = self.names.clone();
        let client = self.client(connection)?;
        match action {
            Action::Expect(channel, what, count) => {
                if client.wait(*channel, &[what], *count, DEADLINE) == Wait::Late {
                    self.unmet(&format!("{connection}.{channel}"), step);
                }
            }
            Action::Raw(bytes) => client.send(bytes),
            Action::Frame(channel, kind, payload) => {
                let mut payload = payload.clone();
                names.insert(&mut payload);
                client.send_frame(*channel, *kind, &payload);
            }
            Action::Read(on) => client.read(*on),
            Action::Hold(on) => client.hold(*on),
            Action::Drop => client.drop_socket(),
            Action::Open(_) | Action::Method(_) => {}
        }
        Ok(())
    }

    fn call(&mut self, connection: &str, call: &Call, step: &Step) -> Fallible<()> {
        let client = self.client(connection)?;
        if client.is_automatic() && call.channel != 0 && call.method.name != "channel.open" {
            match client.channel(call.channel) {
                Some(Channel::Open) => {}
                Some(Channel::Closed) => return Ok(()),
                None => {
                    client.ask(call.channel, "channel.open", Args::new());
                }
            }
        }
        client.call(call);
        let replies = call.method.replies();
        let no_wait = call.args.contains(&("no-wait", Arg::Bit(true)));
        if replies.is_empty() || call.pipelined || no_wait {
            return Ok(());
        }
        if client.wait(call.channel, &replies, 1, DEADLINE) == Wait::Late {
            self.unmet(&format!("{connection}.{}", call.channel), step);
        }
        Ok(())
    }

    /// That connection, opened at its first use.
    fn client(&mut self, connection: &str) -> Fallible<&Client> {
        match self.clients.iter().position(|(name, _)| name == connection) {
            Some(at) => Ok(&self.clients[at].1),
            None => self.open(connection, Some(&Args::new())),
        }
    }

    fn open(&mut self, connection: &str, fields: Option<&Args>) -> Fallible<&Client> {
        let address = match self.way.proxy {
            Some(proxy) if !connection.starts_with("direct") => proxy.address,
            _ => self.way.node.address(),
        };
        let client = Client::connect(connection, address, &self.names, fields.is_some());
        let client = client.map_err(|error| format!("connecting to {address}: {error}"))?;
        client.at_step(self.step);
        if let Some(fields) = fields {
            let mut logins = self.script.logins.iter();
            let user = logins
                .find(|(of, _)| of == connection)
                .map_or("guest", |(_, user)| user);
            client.log_in(&self.names.inserted(user), self.way.vhost, fields);
        }
        self.clients.push((connection.to_owned(), client));
        Ok(&self.clients[self.clients.len() - 1].1)
    }

    fn unmet(&mut self, place: &str, step: &Step) {
        let frame = Frame::new(
            "not-in-time",
            vec![("step", text(step.to_string().as_bytes()))],
        );
        let group = self
            .record
            .groups
            .entry(format!("{place} (conditions)"))
            .or_default();
        group.push(Received {
            channel: 0,
            step: self.step,
            frame,
        });
        self.record
            .unmet
            .push(format!("step {}: {step}", self.step));
    }

    // === what the broker itself says

    fn until(&mut self, until: &Until, step: &Step) {
        let end = Instant::now() + DEADLINE;
        let queue = until.queue.as_bytes();
        let mut pause = Duration::from_millis(1);
        loop {
            let is = self.counts(queue);
            let met = match (until.counts, is) {
                (None, is) => is.is_none(),
                (Some(_), None) => false,
                (Some(wanted), Some(is)) => {
                    let fits =
                        |wanted: Option<u64>, is: Option<u64>| wanted.is_none() || wanted == is;
                    fits(wanted.ready, is.ready) && fits(wanted.consumers, is.consumers)
                }
            };
            if met {
                return;
            }
            if Instant::now() > end {
                return self.unmet(&format!("until {}", until.queue), step);
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(50));
        }
    }

    /// Nothing: there is no such queue. Of another connection's (405) they cannot be told.
    pub(crate) fn counts(&self, queue: &[u8]) -> Option<Counts> {
        if self.control.channel(1) != Some(Channel::Open) {
            self.control.ask(1, "channel.open", Args::new());
        }
        let args = vec![("queue", text(queue)), ("passive", Arg::Bit(true))];
        let Some(is) = self.control.ask(1, "queue.declare", args) else {
            let refused = self.control.latest("channel.close")?;
            return (refused.number("reply-code") == 405).then(Counts::default);
        };
        Some(Counts {
            ready: Some(is.number("message-count")),
            consumers: Some(is.number("consumer-count")),
        })
    }
}

// === impl Node ===

impl Node<'_> {
    pub(crate) fn address(self) -> SocketAddr {
        match self {
            Node::Real(broker) => broker.address,
            Node::Model(model) => model.address,
        }
    }
}

// === impl Record ===

impl Record {
    /// Without what was left: what the steps brought.
    pub(crate) fn of_steps(&self) -> Record {
        let mut record = self.clone();
        record.groups.retain(|group, _| !group.starts_with(LEFT_IN));
        record
    }

    /// How many frames came on each channel that come in each run, whatever the time.
    pub(crate) fn sizes(&self) -> BTreeMap<String, usize> {
        let counts =
            |came: &&Received| came.frame.confirms().is_none() && came.frame.name != "heartbeat";
        let of = |(group, frames): (&String, &Vec<Received>)| {
            (group.clone(), frames.iter().filter(counts).count())
        };
        // Groups that are not of a channel have a blank in their names.
        let mut sizes: BTreeMap<_, _> = self.groups.iter().map(of).collect();
        sizes.retain(|group, size| !group.contains(' ') && *size > 0);
        sizes
    }

    /// No more of each channel than the other one has: a run may look too early for the last frames that it brings.
    pub(crate) fn cut_as(&self, other: &Record) -> Record {
        let mut cut = self.of_steps();
        cut.groups.retain(|group, frames| {
            frames.truncate(other.groups.get(group).map_or(0, Vec::len));
            !frames.is_empty()
        });
        cut
    }

    /// What the server said of itself, if it said anything.
    pub(crate) fn connection_start(&self) -> Option<Args> {
        let mut all = self.groups.values().flatten();
        let start = all.find(|came| came.frame.name == "connection.start")?;
        Some(start.frame.args.clone())
    }

    pub(crate) fn keep(&mut self, connection: &str, client: &Client) {
        for received in client.received() {
            let group = format!("{connection}.{}", received.channel);
            self.groups.entry(group).or_default().push(received);
        }
    }
}
