//! A stream: all who read it get the same in one order, each from a place of its own, and nothing is taken away. `rabbit_stream_queue`
//!
//! Nothing is too old or too much for it here: the real one drops whole segments, and none is full in a test.

use crate::codec::methods::{Arg, Args};
use crate::codec::value::{Table, Value};

use super::broker::Broker;
use super::call::Call;
use super::channel::{At, Unacked};
use super::facts::{Fact, How};
use super::jobs::Job;
use super::message::Message;
use super::queue::{Consumer, Entry, Queue};
use super::refusal::{Answer, refuse};

/// The argument of a consumer, and the header of a delivery.
const OFFSET: &str = "x-stream-offset";

impl Queue {
    /// Behind the others. Its messages neither expire nor die.
    pub(super) fn append(&mut self, id: u64, message: Message) {
        let offset = Some(self.ready.len() as u64);
        self.ready.push_back(Entry {
            id,
            expires: None,
            delivered: false,
            acquired: None,
            failed: None,
            offset,
            message,
        });
    }
}

impl Broker {
    pub(super) fn is_stream(&self, name: &[u8]) -> bool {
        self.queues.get(name).is_some_and(Queue::is_stream)
    }

    /// Where a consumer of the stream begins.
    pub(super) fn begins_at(&mut self, at: At, call: &Call, name: &[u8]) -> Answer<u64> {
        let what = self.rs("queue", name);
        if self.channel(at).prefetch == 0 {
            let text = format!("consumer prefetch count is not set for stream {what}");
            return refuse(406, text);
        }
        if call.bit("no-ack") {
            let text = format!("automatic acknowledgement not supported by stream {what}");
            return refuse(540, text);
        }
        let end = self.queues.get(name).map_or(0, Queue::depth);
        match call.arguments().get(OFFSET) {
            None => Ok(end),
            Some(Value::Text(text)) if text == b"next" => Ok(end),
            Some(Value::Text(text)) if text == b"first" => Ok(0),
            Some(Value::Integer(tag, offset)) if *tag != b'T' => {
                Ok(u64::try_from(*offset).unwrap_or(0))
            }
            Some(_) => refuse(540, "the model knows no such place in a stream"),
        }
    }

    /// To each of its consumers, as many as it has credit for.
    pub(super) fn serve_stream(&mut self, name: &[u8]) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let mut jobs = Vec::new();
        for consumer in &mut queue.consumers {
            while consumer.unacked < consumer.prefetch {
                let Some(entry) = queue.ready.get(consumer.offset as usize) else {
                    break;
                };
                consumer.offset += 1;
                consumer.unacked += 1;
                jobs.push(Job::Deliver {
                    at: consumer.at,
                    queue: name.to_vec(),
                    life: queue.life,
                    tag: consumer.tag.clone(),
                    entry: entry.clone(),
                    no_ack: false,
                });
            }
        }
        jobs.into_iter().for_each(|job| self.jobs.push(job));
    }

    /// Whatever is said of a delivery is credit for its consumer.
    pub(super) fn settle_in_stream(&mut self, at: At, tag: u64, unacked: &Unacked, how: How) {
        let Some(queue) = self.queues.get_mut(&unacked.queue) else {
            return;
        };
        let mut consumers = queue.consumers.iter_mut();
        let is = |of: &&mut Consumer| of.at == at && Some(&of.tag) == unacked.consumer.as_ref();
        if let Some(consumer) = consumers.find(is) {
            consumer.unacked = consumer.unacked.saturating_sub(1);
        }
        let mut entries = queue.ready.iter();
        let entry = entries.find(|entry| entry.id == unacked.id);
        let body = entry.map(|entry| entry.message.body.clone());
        self.facts.push(Fact::Settled {
            conn: at.conn,
            channel: at.channel,
            tag,
            queue: unacked.queue.clone(),
            copy: unacked.id,
            body: body.unwrap_or_default(),
            how,
        });
    }
}

/// The place of a delivery is among its headers.
pub(super) fn tell_offset(properties: &mut Args, offset: u64) {
    let field = (
        OFFSET.as_bytes().to_vec(),
        Value::Integer(b'l', offset.into()),
    );
    let headers = properties
        .iter_mut()
        .find_map(|(name, value)| match (*name, value) {
            ("headers", Arg::Table(headers)) => Some(headers),
            _ => None,
        });
    match headers {
        Some(headers) => headers.fields.insert(0, field),
        None => {
            let headers = Table {
                fields: vec![field],
                rest: Vec::new(),
            };
            properties.push(("headers", Arg::Table(headers)));
        }
    }
}
