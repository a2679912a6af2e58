//! The end of a run: everything comes to rest, what is left in the queues is recorded, and what was made is deleted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::frame::Frame;
use super::methods::{Arg, Args};
use super::reader::{Channel, Received};
use super::run::{LEFT_IN, Record, Run, connect, text};
use super::script::{Operation, Step};
use super::value::{Bytes, Fallible};

/// For so long nothing changes any more when a run is over. A queue takes back what was unacked some time after the close is confirmed.
const QUIET: Duration = Duration::from_millis(60);

/// How long what is left may take to become what it was in the other run.
const SETTLING: Duration = Duration::from_secs(5);

impl Run<'_> {
    /// The record is complete then.
    pub(crate) fn end(&mut self, other: Option<&Record>) -> Fallible<()> {
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
