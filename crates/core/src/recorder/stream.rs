//! The channel of the recorder: declares the stream, consumes it, and puts its messages together.

use crate::amqp::STREAM_OFFSET;
use crate::amqp::method::{MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::amqp::table::TableBuilder;
use crate::link::Frame;
use crate::machine::Now;
use crate::mover::{Delivery, Keep};

use super::message::Message;
use super::{
    AGAIN, BESIDE, CHANNEL, Effects, FINAL, KEEPS, PREFETCH, Recorder, SEGMENT, SELDOM, State, TAG,
};

impl Recorder {
    pub(super) fn open(&mut self, fx: &mut Effects) {
        self.state = State::Declaring;
        let out = fx.broker.build(&[]);
        reply::channel_open(out, CHANNEL);
        let mut arguments = TableBuilder::default();
        arguments
            .longstr(b"x-queue-type", b"stream")
            .long(b"x-max-length-bytes", KEEPS)
            .long(b"x-stream-max-segment-size-bytes", SEGMENT);
        let passive = if self.passive {
            QueueDeclare::PASSIVE
        } else {
            0
        };
        let (stream, bits) = (&self.settings.stream, QueueDeclare::DURABLE | passive);
        reply::declare_queue(out, CHANNEL, stream, bits, &arguments.finish());
    }

    pub(super) fn consume(&mut self, now: Now, fx: &mut Effects) {
        self.state = State::Reading;
        self.laps += 1;
        let mut arguments = TableBuilder::default();
        arguments.longstr(STREAM_OFFSET, b"first");
        let out = fx.broker.build(&[]);
        reply::qos(out, CHANNEL, PREFETCH);
        let (stream, arguments) = (&self.settings.stream, arguments.finish());
        reply::consume(out, CHANNEL, stream, TAG, &arguments);
        self.write_mark(now, fx);
    }

    fn delivered(&mut self, delivery: &Delivery) {
        self.mover.ack(delivery.tag);
        self.end = self.end.saturating_add(delivery.whole() + BESIDE);
        match Message::read(delivery.properties(), &self.settings.login.user) {
            Some(Message::Entry(queue, entry)) => {
                let stands = self.stands.get(&queue);
                if stands.is_none_or(|(stands, _)| *stands <= entry) {
                    self.stands.insert(queue.clone(), (entry.clone(), self.end));
                }
                self.read.push((queue, entry));
            }
            Some(Message::Mark(mark)) if mark == self.mark() => self.marked = true,
            Some(Message::Mark(_)) => {}
            None => self.foreign += 1,
        }
    }

    /// A frame of the broker.
    ///
    /// # Errors
    /// A protocol violation, or the stream is gone: reconnect.
    pub(super) fn frame(
        &mut self,
        frame: Frame<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Result<(), &'static str> {
        match frame.method() {
            Some(MethodId::QUEUE_DECLARE_OK) if self.state == State::Declaring => {
                self.consume(now, fx);
            }
            Some(MethodId::BASIC_CANCEL | MethodId::BASIC_RETURN) => {
                return Err("the stream is gone");
            }
            Some(MethodId::CHANNEL_CLOSE) => self.closed_channel(frame, now, fx),
            _ => {}
        }
        if let Some(delivery) = self.mover.frame(frame, Keep::Begin(0))? {
            self.delivered(&delivery);
        }
        Ok(())
    }

    fn closed_channel(&mut self, frame: Frame<'_>, now: Now, fx: &mut Effects) {
        let (code, cause) = frame.closed(fx);
        let declaring = self.state == State::Declaring;
        self.shut();
        if declaring && code == 406 && !std::mem::replace(&mut self.passive, true) {
            return self.open(fx);
        }
        self.passive = false;
        self.state = State::Refused;
        self.refusal = Some(format!("{code} {cause}"));
        if FINAL.contains(&code) {
            self.do_without(now, fx);
        }
        let wait = if self.told { SELDOM } else { AGAIN };
        self.again = Some(now.mono.after(wait));
    }
}
