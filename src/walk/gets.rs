//! A queue that is deleted with its last consumer (`auto-delete`) must not have its last one in a walk. `basic.get` is no consumer, so there the
//! messages are got, as many at once as the window has room for (S12.8).
//!
//! ```text
//! a classic queue without consumers ─▶ declare it as what would not be deleted ─ it is so ───────────▶ consume
//!                                                                              ├─ 406: it would be ──▶ get
//!                                                                              └─ the user may not ──▶ get
//! ```
//! The declare makes no queue: it has an argument that only a stream may have, which the broker compares with no other queue, and refuses where
//! there is none (S7.3).

use crate::amqp::ids::ChannelId;
use crate::amqp::method::{Close, Deliver, GetOk, MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::amqp::reply_code::PRECONDITION_FAILED;
use crate::amqp::table::TableBuilder;
use crate::machine::Now;

use super::channels::UNREADABLE;
use super::{Effects, QueueType, State, Stopped, Walk};

const ONLY_STREAMS: &[u8] = b"x-max-age";
const INEQUIVALENT: &[u8] = b"PRECONDITION_FAILED - inequivalent arg '";
const DURABLE: &[u8] = b"durable'";
const AUTO_DELETE: &[u8] = b"auto_delete'";

impl Walk {
    /// Takes messages of a queue that is no stream, in the way that leaves it there.
    pub(super) fn begin(&mut self, now: Now, fx: &mut Effects) {
        match self.gets {
            false => self.consume(false, fx),
            true => {
                self.first_window(false);
                self.begun(now);
                self.get_awaited(fx);
            }
        }
    }

    /// As many as the window has room for.
    pub(super) fn get_awaited(&mut self, fx: &mut Effects) {
        self.put_gets(self.window.awaited(), fx);
    }

    /// Its consumer would be the only one.
    pub(super) fn would_be_alone(&self) -> bool {
        let alone = self.summary.consumers.is_none_or(|others| others == 0);
        alone && self.summary.queue_type == QueueType::Classic
    }

    /// Asks whether the queue is deleted with its last consumer. The broker compares `durable` first.
    pub(super) fn ask_fate(&mut self, durable: bool, fx: &mut Effects) {
        self.state = State::Comparing { durable };
        self.open_channel(fx);
        let mut arguments = TableBuilder::default();
        arguments.longstr(ONLY_STREAMS, b"never");
        let bits = u8::from(durable) * QueueDeclare::DURABLE;
        let (out, channel) = (fx.broker.build(&[]), ChannelId(self.channel));
        reply::declare_queue(
            out,
            channel,
            &self.settings.queue,
            bits,
            &arguments.finish(),
        );
    }

    /// The broker refuses that declare, and has closed the channel.
    pub(super) fn learn_fate(
        &mut self,
        durable: bool,
        close: &Close<'_>,
        now: Now,
        fx: &mut Effects,
    ) {
        let differs = (close.code == PRECONDITION_FAILED)
            .then(|| close.text.strip_prefix(INEQUIVALENT))
            .flatten();
        self.gets = match differs {
            Some(what) if what.starts_with(DURABLE) && durable => return self.ask_fate(false, fx),
            // What the broker compares behind these is the same.
            Some(what) => what.starts_with(AUTO_DELETE) || what.starts_with(DURABLE),
            None => true,
        };
        self.open_channel(fx);
        self.begin(now, fx);
    }

    /// So many that were got are gone: as many are got in their place, if there are any, as a consumer would have them.
    pub(super) fn get_on(&mut self, room: u64, fx: &mut Effects) {
        let ready = self.summary.ready.unwrap_or(u64::MAX);
        let on_their_way = self.window.awaited().saturating_sub(room);
        let taken = self.delivered + on_their_way;
        let more = match self.state {
            State::Walking => room.min(ready.saturating_sub(taken)),
            _ => 0,
        };
        self.put_gets(more, fx);
        self.window.shrink(room - more);
    }

    fn put_gets(&mut self, messages: u64, fx: &mut Effects) {
        for _ in 0..messages {
            let (out, channel) = (fx.broker.build(&[]), ChannelId(self.channel));
            reply::method(out, channel, MethodId::BASIC_GET, |a| {
                a.short(0).shortstr(&self.settings.queue).octet(0).end();
            });
        }
    }

    /// A message that was got, as one that a consumer would have had.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn got(payload: &[u8]) -> Result<Deliver<'_>, &'static str> {
        let got = GetOk::parse(payload).map_err(|_| UNREADABLE)?;
        Ok(Deliver {
            consumer_tag: b"",
            delivery_tag: got.delivery_tag,
            redelivered: got.redelivered,
            exchange: got.exchange,
            routing_key: got.routing_key,
        })
    }

    /// There is no message any more.
    pub(super) fn got_none(&mut self, now: Now, fx: &mut Effects) {
        self.window.shrink(1);
        if self.state == State::Walking && !self.has_stash() {
            self.stop(Stopped::End, now, fx);
        }
    }
}
