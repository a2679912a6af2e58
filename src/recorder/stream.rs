//! The channel of the recorder: declares the stream, consumes it, and puts its messages together.

use crate::amqp::STREAM_OFFSET;
use crate::amqp::content::body_size;
use crate::amqp::frame::Kind;
use crate::amqp::incoming::Incoming;
use crate::amqp::method::{Close, Deliver, MethodId, QueueDeclare};
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
        reply::method(out, CHANNEL, MethodId::BASIC_QOS, |a| {
            a.long(0).short(PREFETCH).octet(0).end();
        });
        reply::method(out, CHANNEL, MethodId::BASIC_CONSUME, |a| {
            a.short(0)
                .shortstr(&self.settings.stream)
                .shortstr(TAG)
                .octet(0)
                .longstr(&arguments.finish())
                .end();
        });
        self.write_mark(now, fx);
    }

    /// A message of the stream, whole.
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
    /// What the broker did wrong, or that the stream is gone: then all begins anew.
    pub(super) fn frame(
        &mut self,
        frame: Frame<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Result<(), &'static str> {
        let unreadable = "the broker sent what cannot be read";
        let payload = frame.payload;
        match (frame.kind, frame.kind == Kind::Method) {
            (Kind::Header, _) => {
                let incoming = self.incoming.as_mut().ok_or(unreadable)?;
                incoming.header(payload, LARGEST).map_err(|_| unreadable)?;
                let body = body_size(payload).map_err(|_| unreadable)?;
                let whole = body.saturating_add(BESIDE + payload.len() as u64);
                self.end = self.end.saturating_add(whole);
            }
            (Kind::Body, _) => {
                let incoming = self.incoming.as_mut();
                let incoming = incoming.filter(|incoming| incoming.has_header());
                incoming.ok_or(unreadable)?.body(payload);
            }
            (_, false) => {}
            (_, true) => {
                let id = MethodId::peek(payload).ok_or(unreadable)?;
                self.method(id, payload, now, fx)?;
            }
        }
        if let Some(whole) = self.incoming.take_if(|incoming| incoming.is_whole()) {
            let (tag, content) = whole.finish();
            let properties = content.map(|content| content.properties);
            self.delivered(tag, &properties.unwrap_or_default());
        }
        Ok(())
    }

    pub(super) fn method(
        &mut self,
        id: MethodId,
        payload: &[u8],
        now: Now,
        fx: &mut Effects,
    ) -> Result<(), &'static str> {
        let unreadable = "the broker sent what cannot be read";
        match id {
            MethodId::QUEUE_DECLARE_OK if self.state == State::Declaring => self.consume(now, fx),
            MethodId::BASIC_DELIVER => {
                let deliver = Deliver::parse(payload).map_err(|_| unreadable)?;
                self.incoming = Some(Incoming::new(deliver.delivery_tag.0));
            }
            MethodId::BASIC_CANCEL | MethodId::BASIC_RETURN => return Err("the stream is gone"),
            MethodId::CHANNEL_CLOSE => self.closed_channel(payload, now, fx),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn closed_channel(&mut self, payload: &[u8], now: Now, fx: &mut Effects) {
        reply::close_ok(fx.broker.build(&[]), CHANNEL);
        let (code, cause) = match Close::parse(payload) {
            Ok(close) => (close.code, String::from_utf8_lossy(close.text).into_owned()),
            Err(_) => (0, String::new()),
        };
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
