//! Consumers and gets: who gets a message next.

use crate::codec::methods::{Arg, Args};
use crate::codec::value::Bytes;

use super::broker::Broker;
use super::call::{Call, integer};
use super::channel::{At, Unacked};
use super::declaring::Access;
use super::facts::{Fact, Reason, Why};
use super::jobs::Job;
use super::queue::{Consumer, Entry, Place, Taken};
use super::refusal::{Answer, refuse, show};
use super::stream::tell_offset;

impl Broker {
    pub(super) fn basic_qos(&mut self, at: At, call: &Call) -> Answer<()> {
        let size = call.number("prefetch-size");
        if size != 0 {
            return refuse(540, format!("prefetch_size!=0 ({size})"));
        }
        // `global` is taken as per consumer.
        self.channel(at).prefetch = call.number("prefetch-count");
        self.reply(at, "basic.qos-ok", Args::new());
        Ok(())
    }

    pub(super) fn basic_consume(&mut self, at: At, call: &Call) -> Answer<()> {
        let mut tag = call.text("consumer-tag");
        let name = self.meant_queue(at, call)?;
        if self.channel(at).consumers.contains_key(&tag) {
            let text = format!("attempt to reuse consumer tag '{}'", show(&tag));
            return refuse(530, text);
        }
        self.may(at.conn, Access::Read, "queue", &name)?;
        if !self.queues.contains_key(&name) {
            return self.no_queue(&name);
        }
        self.check_exclusive(at.conn, &name)?;
        let offset = match self.is_stream(&name) {
            true => self.begins_at(at, call, &name)?,
            false => self.check_no_stream(call, &name).map(|()| 0)?,
        };
        let number = self.next_number();
        if tag.is_empty() {
            tag = format!("amq.ctag-{number:022}").into_bytes();
        }
        let exclusive = call.bit("exclusive");
        let (prefetch, now) = (self.channel(at).prefetch, self.now);
        let priority = integer(&call.arguments(), "x-priority").unwrap_or(0);
        let queue = self.queues.get_mut(&name).expect("it is there");
        let alone = queue.consumers.iter().any(|of| of.exclusive);
        if alone || exclusive && !queue.consumers.is_empty() {
            return refuse(403, format!("{} in exclusive use", self.rs("queue", &name)));
        }
        queue.used = now;
        queue.consumers.push_back(Consumer {
            at,
            tag: tag.clone(),
            number,
            no_ack: call.bit("no-ack"),
            exclusive,
            priority,
            prefetch,
            unacked: 0,
            offset,
        });
        self.channel(at).consumers.insert(tag.clone(), name.clone());
        self.facts.push(Fact::Consumed {
            conn: at.conn,
            queue: name.clone(),
        });
        if !call.bit("no-wait") {
            self.say_later(at, &name, "basic.consume-ok", tag);
        }
        self.serve(&name);
        Ok(())
    }

    /// An offset is for streams, and is refused with the type of the queue (S12.4).
    fn check_no_stream(&self, call: &Call, name: &[u8]) -> Answer<()> {
        if call.arguments().get("x-stream-offset").is_none() {
            return Ok(());
        }
        let kind = match self.queues.get(name).is_some_and(|of| of.is_quorum()) {
            true => "rabbit_quorum_queue",
            false => "rabbit_classic_queue",
        };
        let what = self.rs("queue", name);
        refuse(
            406,
            format!("invalid arg 'x-stream-offset' for {what} of queue type {kind}"),
        )
    }

    fn say_later(&mut self, at: At, queue: &[u8], name: &'static str, tag: Bytes) {
        self.jobs.push(Job::Say {
            at,
            queue: queue.to_vec(),
            name,
            tag,
        });
    }

    pub(super) fn basic_cancel(&mut self, at: At, call: &Call) -> Answer<()> {
        let tag = call.text("consumer-tag");
        let answered = !call.bit("no-wait");
        let Some(name) = self.channel(at).consumers.remove(&tag) else {
            if answered {
                let args = vec![("consumer-tag", Arg::Text(tag))];
                self.reply(at, "basic.cancel-ok", args);
            }
            return Ok(());
        };
        if answered {
            self.say_later(at, &name, "basic.cancel-ok", tag.clone());
        }
        let now = self.now;
        if let Some(queue) = self.queues.get_mut(&name) {
            queue.used = now;
            queue.consumers.retain(|of| of.at != at || of.tag != tag);
            if queue.consumers.is_empty() && queue.auto_delete {
                self.remove_queue(&name, Why::QueueDeleted);
            }
            self.serve(&name);
        }
        Ok(())
    }

    pub(super) fn basic_get(&mut self, at: At, call: &Call) -> Answer<()> {
        let name = self.meant_queue(at, call)?;
        self.may(at.conn, Access::Read, "queue", &name)?;
        if !self.queues.contains_key(&name) {
            return self.no_queue(&name);
        }
        self.check_exclusive(at.conn, &name)?;
        if self.is_stream(&name) {
            let what = self.rs("queue", &name);
            let text = format!("basic.get not supported by stream queues {what}");
            return refuse(540, text);
        }
        self.expire(&name);
        let (now, no_ack, tag) = (self.now, call.bit("no-ack"), self.channel(at).next_tag);
        let queue = self.queues.get_mut(&name).expect("it is there");
        queue.used = now;
        if queue.single_active && queue.is_quorum() {
            let what = self.rs("queue", &name);
            let text =
                format!("queue.get not supported by queues with a single active consumer {what}");
            return refuse(405, text);
        }
        let Some(entry) = queue.take_head() else {
            self.reply(at, "basic.get-empty", Args::new());
            return Ok(());
        };
        let life = queue.life;
        if !no_ack {
            let taken = Taken {
                entry: entry.clone(),
                at,
                consumer: None,
                place: Place::Get(tag.to_string()),
            };
            queue.unacked.insert(entry.id, taken);
        }
        // What is at its head now is looked at: by a quorum queue when something is settled.
        if !queue.is_quorum() || no_ack {
            self.expire(&name);
        }
        self.unfill(&name);
        let left = self.queues.get(&name).map_or(0, |queue| queue.depth());
        let channel = self.channel(at);
        channel.next_tag += 1;
        if !no_ack {
            let unacked = Unacked {
                queue: name.clone(),
                life,
                id: entry.id,
                consumer: None,
            };
            channel.unacked.insert(tag, unacked);
        }
        let args = vec![
            ("delivery-tag", Arg::Number(tag)),
            ("message-count", Arg::Number(left)),
        ];
        self.send_delivery(at, "basic.get-ok", args, tag, name, &entry);
        Ok(())
    }

    /// To the client, as it is said in `basic.deliver` and `basic.get-ok`.
    pub(super) fn send_delivery(
        &mut self,
        at: At,
        method: &str,
        mut args: Args,
        tag: u64,
        queue: Bytes,
        entry: &Entry,
    ) {
        let message = &entry.message;
        let counts = match (entry.acquired, entry.failed) {
            // Of a classic queue, or never delivered before.
            (None, None) => [None; 2],
            (acquired, failed) if self.counts(&queue) => [acquired.or(failed), failed],
            _ => [None; 2],
        };
        let redelivered = entry.delivered || counts[0].is_some_and(|count| count > 0);
        args.push(("redelivered", Arg::Bit(redelivered)));
        args.push(("exchange", Arg::Text(message.exchange.clone())));
        args.push(("routing-key", Arg::Text(message.key())));
        let mut properties = message.content(counts);
        if let Some(offset) = entry.offset {
            tell_offset(&mut properties, offset);
        }
        self.send_content(at, method, args, properties, &message.body);
        self.facts.push(Fact::Delivered {
            conn: at.conn,
            channel: at.channel,
            tag,
            queue,
            copy: entry.id,
            body: message.body.clone(),
            redelivered,
            counts,
        });
    }

    fn counts(&self, queue: &[u8]) -> bool {
        self.queues.get(queue).is_some_and(|of| of.is_quorum())
    }

    /// As long as there is a message and somebody who may have it.
    pub(super) fn serve(&mut self, name: &[u8]) {
        if self.is_stream(name) {
            return self.serve_stream(name);
        }
        loop {
            // Each one as it comes to the head.
            self.expire(name);
            let turn = self.next_number();
            let Some(queue) = self.queues.get_mut(name) else {
                return;
            };
            if queue.head().is_none() {
                break;
            }
            let Some(consumer) = queue.next_consumer() else {
                break;
            };
            let entry = queue.take_head().expect("there is one");
            let life = queue.life;
            if !consumer.no_ack {
                let taken = Taken {
                    entry: entry.clone(),
                    at: consumer.at,
                    consumer: Some(consumer.tag.clone()),
                    place: Place::Consumer {
                        number: consumer.number,
                        turn,
                    },
                };
                queue.unacked.insert(entry.id, taken);
            }
            self.jobs.push(Job::Deliver {
                at: consumer.at,
                queue: name.to_vec(),
                life,
                tag: consumer.tag,
                entry,
                no_ack: consumer.no_ack,
            });
        }
        self.unfill(name);
    }

    /// A full quorum queue takes publishes again when it is well below its length.
    fn unfill(&mut self, name: &[u8]) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let low = |is: u64, most: Option<u64>| most.is_none_or(|most| is <= most * 8 / 10);
        if low(queue.depth(), queue.max_length) && low(queue.bytes(), queue.max_bytes) {
            queue.full = false;
        }
    }

    /// What is too old at the head dies.
    pub(super) fn expire(&mut self, name: &[u8]) {
        let now = self.now;
        while let Some(queue) = self.queues.get_mut(name) {
            let over = |entry: &Entry| entry.expires.is_some_and(|expires| expires <= now);
            if !queue.head().is_some_and(over) {
                return;
            }
            // A quorum queue then looks at both of its heads.
            let quorum = queue.is_quorum();
            let heads = [&mut queue.returned, &mut queue.ready];
            let mut expired = Vec::new();
            for entries in heads {
                while entries.front().is_some_and(over) && (quorum || expired.is_empty()) {
                    expired.extend(entries.pop_front());
                }
            }
            for entry in expired {
                self.die(name, entry, Reason::Expired);
            }
        }
    }
}
