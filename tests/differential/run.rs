//! Carries out a script, once, one way, and hands back what was observed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::{Client, DEADLINE, Wait};
use super::frame::Frame;
use super::lab::Broker;
use super::methods::{Arg, Args};
use super::names::Names;
use super::proxy::Proxy;
use super::reader::{Channel, Received};
use super::script::{Action, Call, Counts, Operation, Script, Step, Until};
use super::value::{Bytes, Fallible};

/// For so long nothing changes any more when a run is over. A queue takes back what was unacked some time after the close is confirmed.
const QUIET: Duration = Duration::from_millis(60);

/// How long what is left may take to become what it was in the other run.
const SETTLING: Duration = Duration::from_secs(5);

/// What groups of pseudo frames are called that say what is left in a queue.
const LEFT_IN: &str = "left in ";

/// Where a script runs.
pub(crate) struct Way<'a> {
    pub broker: &'a Broker,
    pub vhost: &'a str,
    /// Nothing: the direct run.
    pub proxy: Option<&'a Proxy>,
}

/// What was observed: frames by connection and channel (`a.1`), what was left by queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub groups: BTreeMap<String, Vec<Received>>,
    /// Messages in each queue at the end.
    pub counts: BTreeMap<Bytes, Option<u64>>,
    /// Steps whose condition was not met.
    pub unmet: Vec<String>,
}

/// A run that is under way.
struct Run<'a> {
    script: &'a Script,
    way: &'a Way<'a>,
    names: Arc<Names>,
    /// In order of their first use; those that were dropped or opened again keep what they recorded.
    clients: Vec<(String, Client)>,
    /// A connection of our own to the broker, whatever the way.
    control: Client,
    record: Record,
    step: usize,
}

/// Carries out the script. `other`: the record that this one is to be compared with.
pub(crate) fn run(
    script: &Script,
    way: &Way<'_>,
    names: Names,
    other: Option<&Record>,
) -> Fallible<Record> {
    let names = Arc::new(names);
    let control = connect("control", way.broker.address, &names)?;
    control.log_in("guest", way.vhost, &Args::new());
    let record = Record::default();
    let mut run = Run {
        script,
        way,
        names,
        clients: Vec::new(),
        control,
        record,
        step: 0,
    };
    let done = run.steps().and_then(|()| run.end(other));
    run.clean_up();
    done.map(|()| run.record)
}

fn connect(name: &str, address: SocketAddr, names: &Arc<Names>) -> Fallible<Client> {
    Client::connect(name, address, names, true)
        .map_err(|error| format!("connecting to {address}: {error}"))
}

fn text(bytes: &[u8]) -> Arg {
    Arg::Text(bytes.to_vec())
}

impl Run<'_> {
    fn steps(&mut self) -> Fallible<()> {
        if self.way.proxy.is_none() {
            for policy in &self.script.policies {
                self.operate(&Operation {
                    verb: "policy".to_owned(),
                    ..policy.clone()
                })?;
            }
        }
        for (at, step) in self.script.steps.iter().enumerate() {
            self.step = at + 1;
            self.clients
                .iter()
                .for_each(|(_, client)| client.at_step(at + 1));
            self.carry_out(step)
                .map_err(|problem| format!("step {}, {step}: {problem}", at + 1))?;
        }
        Ok(())
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
            Step::Proxy(verb) => match (self.way.proxy, &**verb) {
                (None, _) => Ok(()),
                (Some(proxy), "stop") => proxy.stop(),
                (Some(proxy), "start") => proxy.resume(),
                (Some(proxy), _) => proxy.stop().and_then(|()| proxy.resume()),
            },
            Step::Client(connection, action) => self.act(connection, action, step),
        }
    }

    fn operate(&self, operation: &Operation) -> Fallible<()> {
        self.way
            .broker
            .management
            .carry_out(operation, self.way.vhost, &self.names)
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
        let client = self.client(connection)?;
        match action {
            Action::Expect(channel, what, count) => {
                if client.wait(*channel, &[what], *count, DEADLINE) == Wait::Late {
                    self.unmet(&format!("{connection}.{channel}"), step);
                }
            }
            Action::Raw(bytes) => client.send(bytes),
            Action::Frame(channel, kind, payload) => client.send_frame(*channel, *kind, payload),
            Action::Read(on) => client.read(*on),
            Action::Drop => client.drop_socket(),
            Action::Open(_) | Action::Method(_) => {}
        }
        Ok(())
    }

    fn call(&mut self, connection: &str, call: &Call, step: &Step) -> Fallible<()> {
        let client = self.client(connection)?;
        if call.channel != 0 && call.method.name != "channel.open" {
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
            _ => self.way.broker.address,
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
            "not-within-20-s",
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

    /// Nothing: there is no such queue.
    fn counts(&self, queue: &[u8]) -> Option<Counts> {
        if self.control.channel(1) != Some(Channel::Open) {
            self.control.ask(1, "channel.open", Args::new());
        }
        let args = vec![("queue", text(queue)), ("passive", Arg::Bit(true))];
        let is = self.control.ask(1, "queue.declare", args)?;
        Some(Counts {
            ready: Some(is.number("message-count")),
            consumers: Some(is.number("consumer-count")),
        })
    }

    // === the end

    fn end(&mut self, other: Option<&Record>) -> Fallible<()> {
        self.clients.iter().for_each(|(_, client)| client.rest());
        for (name, client) in std::mem::take(&mut self.clients) {
            client.close();
            self.record.keep(&name, &client);
        }
        let mut queues = self.script.declared("queue");
        queues.extend(self.names.generated_queues());
        self.record.counts = self.settled(&queues, other);
        queues.iter().try_for_each(|queue| self.fetch(queue))
    }

    /// How many messages are in each queue, when that does not change any more.
    fn settled(&self, queues: &[Bytes], other: Option<&Record>) -> BTreeMap<Bytes, Option<u64>> {
        let all = || -> BTreeMap<Bytes, Option<u64>> {
            let count = |queue: &Bytes| {
                (
                    queue.clone(),
                    self.counts(queue).and_then(|counts| counts.ready),
                )
            };
            queues.iter().map(count).collect()
        };
        let end = Instant::now() + SETTLING;
        let (mut counts, mut since) = (all(), Instant::now());
        loop {
            let wanted = other.is_none_or(|other| other.counts == counts);
            if (wanted && since.elapsed() > QUIET) || Instant::now() > end {
                return counts;
            }
            std::thread::sleep(Duration::from_millis(10));
            let now = all();
            if now != counts {
                (counts, since) = (now, Instant::now());
            }
        }
    }

    /// Fetches all that is in a queue, in the way of the run, and records it.
    fn fetch(&mut self, queue: &Bytes) -> Fallible<()> {
        let address = self
            .way
            .proxy
            .map_or(self.way.broker.address, |proxy| proxy.address);
        let count = self.record.counts.get(queue).copied().flatten();
        let left = match count {
            Some(count) => Frame::new("messages", vec![("count", Arg::Number(count))]),
            None => Frame::new("no-such-queue", Args::new()),
        };
        let name = format!("{LEFT_IN}{}", String::from_utf8_lossy(queue));
        let group = self.record.groups.entry(name.clone()).or_default();
        group.push(Received {
            channel: 1,
            step: self.step,
            frame: left,
        });
        if count.is_none_or(|count| count == 0) {
            return Ok(());
        }
        let client = connect("left", address, &self.names)?;
        client.log_in("guest", self.way.vhost, &Args::new());
        client.ask(1, "channel.open", Args::new());
        let get = || {
            client.ask(
                1,
                "basic.get",
                vec![("queue", text(queue)), ("no-ack", Arg::Bit(true))],
            )
        };
        while get().is_some_and(|answer| answer.name == "basic.get-ok") {}
        let group = self.record.groups.entry(name).or_default();
        let fetched = client
            .received()
            .into_iter()
            .filter(|came| came.channel == 1 && came.frame.name != "channel.open-ok");
        group.extend(fetched);
        client.close();
        Ok(())
    }

    /// Deletes what the script made. What cannot be deleted goes with the vhost.
    fn clean_up(&mut self) {
        self.clients.clear();
        let mut queues = self.script.declared("queue");
        queues.extend(self.names.generated_queues());
        let exchanges = self.script.declared("exchange");
        let queues = queues.iter().map(|name| ("queue.delete", "queue", name));
        let exchanges = exchanges
            .iter()
            .map(|name| ("exchange.delete", "exchange", name));
        for (method, field, name) in queues.chain(exchanges) {
            if self.control.channel(1) != Some(Channel::Open) {
                self.control.ask(1, "channel.open", Args::new());
            }
            self.control.ask(1, method, vec![(field, text(name))]);
        }
        self.control.close();
        let operations = self.script.steps.iter().filter_map(|step| match step {
            Step::Operator(operation) => Some(operation.clone()),
            _ => None,
        });
        let policies = self
            .script
            .policies
            .iter()
            .filter(|_| self.way.proxy.is_none());
        let policies = policies.map(|policy| Operation {
            verb: "policy".to_owned(),
            ..policy.clone()
        });
        for made in operations.chain(policies) {
            let undone = self
                .way
                .broker
                .management
                .undo(&made, self.way.vhost, &self.names);
            if let Err(problem) = undone {
                eprintln!("{}: {problem}", self.script.name);
            }
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

    fn keep(&mut self, connection: &str, client: &Client) {
        for received in client.received() {
            let group = format!("{connection}.{}", received.channel);
            self.groups.entry(group).or_default().push(received);
        }
    }
}
