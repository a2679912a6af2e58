//! A consumer of a quorum queue holds a message for too long (S9.5).

use crate::codec::methods::Arg;
use crate::codec::value::Bytes;

use super::broker::{Broker, Conn};
use super::channel::At;

/// `consumer_timeout_response`, a setting since 4.3.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeoutResponse {
    /// What there is before 4.3.7, too.
    NotifyConsumer,
    CloseChannel,
}

/// The words of 4.3.6, which does not know the value of a quorum queue.
const TIMED_OUT: &str = "delivery acknowledgement on channel 1 timed out. Timeout value used: -1 ms. This timeout value can be configured, see consumers doc guide to learn more";

impl Broker {
    /// The messages of the consumer return. A client that knows `basic.cancel` is sent one, and the channel keeps the name of the consumer, so that
    /// it cannot be used again; the channel of another client is closed. False: there is no such consumer.
    pub(crate) fn consumer_times_out(
        &mut self,
        conn: Conn,
        channel: u16,
        tag: &str,
        response: TimeoutResponse,
    ) -> bool {
        let (at, tag) = (At { conn, channel }, tag.as_bytes().to_vec());
        let Some(name) = self.channel(at).consumers.get(&tag).cloned() else {
            return false;
        };
        let knows = self.connection(conn).knows("consumer_cancel_notify");
        if !knows || response == TimeoutResponse::CloseChannel {
            return self.close_channel(conn, channel, 406, TIMED_OUT);
        }
        // What is on its way comes first.
        for job in self.jobs.of_consumers(at, &name) {
            self.work(job);
        }
        self.give_up(at, &name, &tag);
        let args = vec![
            ("consumer-tag", Arg::Text(tag)),
            ("no-wait", Arg::Bit(true)),
        ];
        self.reply(at, "basic.cancel", args);
        true
    }

    /// Up to 4.2, and of what was fetched: the channel is closed, if it holds anything.
    pub(crate) fn channel_times_out(&mut self, conn: Conn, channel: u16, millis: u64) -> bool {
        let held = self.connection(conn).channels.get(&channel);
        let holds = held.is_some_and(|channel| !channel.unacked.is_empty());
        let text = format!(
            "PRECONDITION_FAILED - delivery acknowledgement on channel {channel} timed out. Timeout value used: {millis} ms. This timeout value can be configured, see consumers doc guide to learn more"
        );
        holds && self.close_channel(conn, channel, 406, &text)
    }

    /// What the consumer settles later, the queue no longer knows.
    fn give_up(&mut self, at: At, name: &Bytes, tag: &Bytes) {
        let held = self.channel(at).unacked.values();
        let held = held.filter(|of| of.queue == *name && of.consumer.as_ref() == Some(tag));
        let held: Vec<u64> = held.map(|of| of.id).collect();
        for id in held {
            let queue = self.queues.get_mut(name);
            if let Some(taken) = queue.and_then(|queue| queue.unacked.remove(&id)) {
                self.take_back(name, taken, false);
            }
        }
        if let Some(queue) = self.queues.get_mut(name) {
            queue.consumers.retain(|of| of.at != at || of.tag != *tag);
        }
        self.taken_back(name);
    }
}
