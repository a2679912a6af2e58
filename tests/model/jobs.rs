//! What is still to be done. A job waits in a lane: what is in one lane comes in its order, lanes have none among each other.

use std::collections::VecDeque;

use crate::codec::methods::{Arg, Args};
use crate::codec::value::Bytes;

use super::broker::Broker;
use super::channel::{At, Unacked};
use super::facts::{Fact, Reason, Why};
use super::message::Message;
use super::queue::Entry;

/// Between two processes of the real one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Lane {
    /// Queue → channel.
    Consumer(At, Bytes),
    /// Queue → channel, for its publishes.
    Confirm(At, Bytes),
    /// Queue → exchange.
    Dead(Bytes),
}

#[derive(Clone, Debug)]
pub(super) enum Job {
    /// To a client; it concerns a queue.
    Say {
        at: At,
        queue: Bytes,
        name: &'static str,
        tag: Bytes,
    },
    Deliver {
        at: At,
        queue: Bytes,
        life: u64,
        tag: Bytes,
        entry: Entry,
        no_ack: bool,
    },
    Confirm(Confirm),
    DeadLetter {
        queue: Bytes,
        reason: Reason,
        exchange: Bytes,
        message: Message,
    },
}

/// What a queue says of a publish.
#[derive(Clone, Debug)]
pub(super) struct Confirm {
    pub at: At,
    pub publish: u64,
    /// Empty: none was found for it.
    pub queue: Bytes,
    /// Nothing: it was refused.
    pub id: Option<u64>,
    pub good: bool,
}

/// In the order in which lanes came to have something.
#[derive(Default)]
pub(super) struct Jobs {
    lanes: Vec<(Lane, VecDeque<Job>)>,
}

impl Jobs {
    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn push(&mut self, job: Job) {
        let lane = job.lane();
        match self.lanes.iter_mut().find(|(of, _)| *of == lane) {
            Some((_, jobs)) => jobs.push_back(job),
            None => self.lanes.push((lane, VecDeque::from([job]))),
        }
    }

    pub(super) fn peek(&self, index: usize) -> Option<&Job> {
        self.lanes.get(index)?.1.front()
    }

    pub(super) fn take(&mut self, index: usize) -> Option<Job> {
        let (_, jobs) = self.lanes.get_mut(index)?;
        let job = jobs.pop_front();
        if jobs.is_empty() {
            self.lanes.remove(index);
        }
        job
    }

    /// Nobody is there any more to hear of these.
    pub(super) fn forget(&mut self, at: At) -> Vec<Job> {
        let is =
            |lane: &Lane| matches!(lane, Lane::Consumer(of, _) | Lane::Confirm(of, _) if *of == at);
        let gone = self.lanes.extract_if(.., |(lane, _)| is(lane));
        gone.flat_map(|(_, jobs)| jobs).collect()
    }

    /// What that queue still says to that channel.
    pub(super) fn of_consumers(&mut self, at: At, queue: &Bytes) -> Vec<Job> {
        let is = |lane: &Lane| *lane == Lane::Consumer(at, queue.clone());
        let said = self.lanes.extract_if(.., |(lane, _)| is(lane));
        said.flat_map(|(_, jobs)| jobs).collect()
    }

    pub(super) fn clear(&mut self) -> Vec<Job> {
        self.lanes.drain(..).flat_map(|(_, jobs)| jobs).collect()
    }
}

impl Job {
    fn lane(&self) -> Lane {
        match self {
            Job::Say { at, queue, .. } | Job::Deliver { at, queue, .. } => {
                Lane::Consumer(*at, queue.clone())
            }
            Job::Confirm(Confirm { at, queue, .. }) => Lane::Confirm(*at, queue.clone()),
            Job::DeadLetter { queue, .. } => Lane::Dead(queue.clone()),
        }
    }
}

impl Broker {
    pub(super) fn work(&mut self, job: Job) {
        match job {
            Job::Say { at, name, tag, .. } => self.say(at, name, tag),
            Job::Deliver {
                at,
                queue,
                life,
                tag,
                entry,
                no_ack,
            } => self.deliver(at, queue, life, tag, entry, no_ack),
            Job::Confirm(confirm) => self.confirm(&confirm),
            Job::DeadLetter {
                queue,
                reason,
                exchange,
                message,
            } => self.hand_over(&queue, reason, &exchange, message),
        }
    }

    fn say(&mut self, at: At, name: &'static str, tag: Bytes) {
        if name == "basic.consume-ok" && !self.channel(at).consumers.contains_key(&tag) {
            return;
        }
        let mut args: Args = vec![("consumer-tag", Arg::Text(tag.clone()))];
        if name == "basic.cancel" {
            if self.channel(at).consumers.remove(&tag).is_none()
                || !self.connection(at.conn).knows("consumer_cancel_notify")
            {
                return;
            }
            args.push(("no-wait", Arg::Bit(true)));
        }
        self.reply(at, name, args);
    }

    fn deliver(
        &mut self,
        at: At,
        queue: Bytes,
        life: u64,
        consumer: Bytes,
        entry: Entry,
        no_ack: bool,
    ) {
        let channel = self.channel(at);
        let tag = channel.next_tag;
        channel.next_tag += 1;
        if !no_ack {
            let unacked = Unacked {
                queue: queue.clone(),
                life,
                id: entry.id,
                consumer: Some(consumer.clone()),
            };
            channel.unacked.insert(tag, unacked);
        }
        let args = vec![
            ("consumer-tag", Arg::Text(consumer)),
            ("delivery-tag", Arg::Number(tag)),
        ];
        self.send_delivery(at, "basic.deliver", args, tag, queue, &entry);
    }

    fn confirm(&mut self, confirm: &Confirm) {
        let Confirm { at, publish, .. } = *confirm;
        let channel = self.channel(at);
        let Some(queues) = channel.unconfirmed.get_mut(&publish) else {
            return;
        };
        queues.remove(&confirm.queue);
        if confirm.good && !queues.is_empty() {
            return;
        }
        channel.unconfirmed.remove(&publish);
        let name = if confirm.good {
            "basic.ack"
        } else {
            "basic.nack"
        };
        self.reply(at, name, vec![("delivery-tag", Arg::Number(publish))]);
        self.facts.push(Fact::Confirmed {
            conn: at.conn,
            channel: at.channel,
            tag: publish,
            nacked: !confirm.good,
        });
    }

    /// What was on its way to somebody who is gone: the queue still has it, unless no ack was wanted.
    pub(super) fn lose_in_flight(&mut self, jobs: Vec<Job>) {
        for job in jobs {
            let (queue, message, why) = match job {
                Job::Deliver {
                    queue,
                    entry,
                    no_ack: true,
                    ..
                } => (queue, entry.message, Why::NoAck),
                Job::DeadLetter { queue, message, .. } => (queue, message, Why::Restarted),
                _ => continue,
            };
            self.facts.push(Fact::Dropped {
                queue,
                copy: message.copy,
                body: message.body,
                why,
            });
        }
    }
}
