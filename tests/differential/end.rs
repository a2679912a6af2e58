//! The end of a run: everything comes to rest, what is left in the queues is recorded, and what was made is deleted.

use std::time::Duration;

use super::client::Client;
use super::frame::Frame;
use super::methods::{Arg, Args};
use super::reader::{Channel, Received};
use super::rest::{QUIET, settled};
use super::run::{LEFT_IN, Left, Node, Run, connect, text};
use super::script::Step;
use super::value::{Bytes, Fallible};

impl Run<'_> {
    /// The record is complete then.
    pub(crate) fn end(&mut self) -> Fallible<()> {
        self.clients.iter().for_each(|(_, client)| client.rest());
        self.wait_for_the_rest();
        self.clients
            .iter()
            .for_each(|(_, client)| client.cancel_all());
        // One channel after the other, so that what they return has an order; a script without rests has at most one that matters.
        if !self.record.rests.is_empty() {
            for (at, channel) in self.open_channels() {
                self.clients[at].1.close_channel(channel);
                self.rest();
            }
        }
        for (name, client) in std::mem::take(&mut self.clients) {
            client.close();
            self.record.keep(&name, &client);
        }
        let mut left = self.left();
        for queue in self.queues() {
            // What was fetched from the one before may have brought a message to its head that expired there, and died into another one.
            if self.fetch(&queue, left.get(&queue).copied().flatten())? {
                left = self.left();
            }
        }
        Ok(())
    }

    /// How many are left in all queues when they have come to rest.
    fn left(&mut self) -> Left {
        let count = |queue: Bytes| {
            let counts = self.counts(&queue);
            (queue, counts.and_then(|counts| counts.ready))
        };
        let all = || -> Left { self.queues().into_iter().map(count).collect() };
        let lefts = &self.record.lefts;
        let wanted = self.other.and_then(|other| other.lefts.get(lefts.len()));
        let left = settled(all, wanted, QUIET);
        self.record.lefts.push(left.clone());
        left
    }

    /// What has come in the other run may be on its way here: a script does not wait for every frame that it brings.
    fn wait_for_the_rest(&self) {
        let Some(other) = self.other else { return };
        let now = || {
            let mut now = self.record.clone();
            for (name, client) in &self.clients {
                now.keep(name, client);
            }
            now.sizes()
        };
        settled(now, Some(&other.sizes()), Duration::ZERO);
    }

    /// By the places of their clients.
    fn open_channels(&self) -> Vec<(usize, u16)> {
        let of = |(at, (_, client)): (usize, &(String, Client))| {
            client
                .open_channels()
                .into_iter()
                .map(move |channel| (at, channel))
        };
        self.clients.iter().enumerate().flat_map(of).collect()
    }

    /// Fetches all that is in a queue, in the way of the run, and records it. `count`: how many that seem to be; nothing: there is no such queue.
    /// Returns whether anything was fetched.
    fn fetch(&mut self, queue: &Bytes, count: Option<u64>) -> Fallible<bool> {
        let address = self
            .way
            .proxy
            .map_or(self.way.node.address(), |proxy| proxy.address);
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
            return Ok(false);
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
        Ok(true)
    }

    /// Deletes what the script made. What cannot be deleted goes with the vhost.
    pub(crate) fn clean_up(&mut self) {
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
        let policies = match self.way.proxy {
            Some(_) => Vec::new(),
            None => self.script.policies_of_the_broker(),
        };
        for made in operations.chain(policies) {
            // A model goes with its scenario.
            let Node::Real(broker) = self.way.node else {
                return;
            };
            let undone = broker.management.undo(&made, self.way.vhost, &self.names);
            if let Err(problem) = undone {
                eprintln!("{}: {problem}", self.script.name);
            }
        }
    }
}
