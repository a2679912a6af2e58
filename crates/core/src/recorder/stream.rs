//! The channel of the recorder: declares the stream, consumes it, and puts its messages together.

use crate::amqp::STREAM_OFFSET;
use crate::amqp::content::body_size;
use crate::amqp::frame::Kind;
use crate::amqp::incoming::Incoming;
use crate::amqp::method::{Deliver, MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::amqp::table::TableBuilder;
use crate::link::Frame;
use crate::machine::Now;

use super::message::Message;
use super::{
    AGAIN, BESIDE, CHANNEL, Effects, FINAL, KEEPS, LARGEST, PREFETCH, Recorder, SEGMENT, SELDOM,
    State, TAG,
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

    pub(super) fn delivered(&mut self, tag: u64, properties: &[u8]) {
        self.delivered = Some(tag);
        match Message::read(properties, &self.settings.login.user) {
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
        let unreadable = "the broker sent what cannot be read";
        match frame.method() {
            Some(MethodId::QUEUE_DECLARE_OK) if self.state == State::Declaring => {
                self.consume(now, fx);
            }
            Some(MethodId::BASIC_DELIVER) => {
                let deliver = Deliver::parse(frame.payload).map_err(|_| unreadable)?;
                self.incoming = Some(Incoming::new(deliver.delivery_tag.0));
            }
            Some(MethodId::BASIC_CANCEL | MethodId::BASIC_RETURN) => {
                return Err("the stream is gone");
            }
            Some(MethodId::CHANNEL_CLOSE) => self.closed_channel(frame, now, fx),
            _ => {}
        }
        if frame.kind == Kind::Header {
            let body = body_size(frame.payload).map_err(|_| unreadable)?;
            let whole = body.saturating_add(BESIDE + frame.payload.len() as u64);
            self.end = self.end.saturating_add(whole);
        }
        let whole = Incoming::frame(&mut self.incoming, frame.kind, frame.payload, LARGEST);
        if let Some((tag, content)) = whole.map_err(|_| unreadable)? {
            let properties = content.map(|content| content.properties);
            self.delivered(tag, &properties.unwrap_or_default());
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
