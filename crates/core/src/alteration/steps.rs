//! What is asked of the broker in each state.

use bytes::Bytes;

use crate::amqp::content::Content;
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{Consume, MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::amqp::table::TableBuilder;
use crate::machine::Now;

use super::moving::Way;
use super::order::{Arguments, table};
use super::{
    Alteration, COMMIT_WITHIN, Effects, JOINING, PATIENCE, State, Task, Told, VANISH, Word, plan,
};

pub(super) const TAG: &[u8] = b"dlx-proxy";
const PROOF: &[u8] = b"dlx-proxy proof";
/// Of a consumer: all others come before it.
const LOWEST: i64 = -1_000_000;
const IF_EMPTY: u8 = 2;

impl Alteration {
    pub(super) fn open(&mut self, fx: &mut Effects) {
        self.channel.0 += 1;
        reply::channel_open(fx.broker.build(&[]), self.channel);
    }

    fn declare(&self, queue: &[u8], bits: u8, arguments: &[u8], fx: &mut Effects) {
        let out = fx.broker.build(&[]);
        reply::declare_queue(out, self.channel, queue, bits, arguments);
    }

    fn declare_as(&self, queue: &[u8], arguments: &Arguments, fx: &mut Effects) {
        let durable = if self.order().durable {
            QueueDeclare::DURABLE
        } else {
            0
        };
        let arguments = table(arguments).unwrap_or_default(); // a plan has checked it
        self.declare(queue, durable, &arguments, fx);
    }

    fn delete(&self, queue: &[u8], bits: u8, fx: &mut Effects) {
        reply::method(
            fx.broker.build(&[]),
            self.channel,
            MethodId::QUEUE_DELETE,
            |a| {
                a.short(0).shortstr(queue).octet(bits).end();
            },
        );
    }

    /// The name of the queue that has the order.
    fn place(&self) -> ShortStr {
        plan::place(&self.settings.names, &self.order().queue).unwrap_or_default()
    }

    /// Goes on with this, and asks for it.
    pub(super) fn enter(&mut self, state: State, now: Now, fx: &mut Effects) {
        self.state = state;
        if !state.is_within_pause() {
            self.until = Some(now.mono.after(PATIENCE));
        }
        match state {
            State::Holding => {
                self.held = Some(now.mono);
                self.altered.attempts += 1;
                self.until = Some(now.mono.after(COMMIT_WITHIN));
                self.tell(Told::Hold, fx);
            }
            State::Settling => self.tell(Told::Settle, fx),
            State::Cancelling => self.tell(Told::Cancel, fx),
            State::Testing(at) | State::Binding(at) | State::Undoing(at) => {
                self.bind(MethodId::QUEUE_BIND, at, now, fx);
            }
            State::Keeping(at) => self.keep(at, now, fx),
            State::Unbinding(at) => {
                self.under_way = true;
                self.bind(MethodId::QUEUE_UNBIND, at, now, fx);
            }
            State::Deleting => {
                self.under_way = true;
                self.ask(fx);
            }
            State::Moving(way) => self.begin_moving(way, now, fx),
            State::Vanishing => {
                self.ask_at = Some(now.mono.after(VANISH));
                self.say(Word::Told(Told::Moving), fx);
            }
            State::Clearing => {
                self.under_way = false;
                self.over(now, fx);
                self.ask(fx);
            }
            State::Cleaning => {
                self.under_way = false;
                self.over(now, fx);
                self.say(Word::Ended, fx);
                self.ask(fx);
            }
            State::Ended => {
                self.over(now, fx);
                self.once.end(&mut self.link, now, fx);
            }
            _ => self.ask(fx),
        }
    }

    /// Asks the broker for what the state is about.
    pub(super) fn ask(&self, fx: &mut Effects) {
        let order = self.order();
        let queue = order.queue.as_bytes();
        match self.state {
            State::Recording => {
                let place = self.place();
                self.declare(&place, QueueDeclare::DURABLE, &order.arguments(), fx);
                // With it: an order that nobody can find would stay.
                let binding = (&**self.settings.names.delay(), &*place, &*place);
                let out = fx.broker.build(&[]);
                reply::bind(out, self.channel, MethodId::QUEUE_BIND, binding, 0);
            }
            State::Claiming => self.declare(&self.claim(), QueueDeclare::EXCLUSIVE, &[], fx),
            State::Listening => consume(self.channel, &self.claim(), TAG, Consume::NO_ACK, &[], fx),
            State::Finding => {
                let place = self.place();
                let out = fx.broker.build(&[]);
                reply::publish(out, self.channel, self.settings.names.delay(), &place, true);
                let nothing = Content {
                    properties: Bytes::from_static(&[0, 0]),
                    body: Bytes::new(),
                };
                nothing.put(out, self.channel, self.link.frame_max());
                self.declare(&place, QueueDeclare::PASSIVE, &[], fx);
            }
            State::Recognizing => {
                self.declare(&self.place(), QueueDeclare::DURABLE, &order.arguments(), fx);
            }
            State::Comparing | State::Declaring { old: true } => {
                self.declare_as(queue, &order.old, fx);
            }
            State::Trying => self.declare_as(&self.trial(), &order.new, fx),
            State::Withdrawing => self.delete(&self.trial(), 0, fx),
            State::Waiting | State::Draining | State::Counting | State::Recounting { .. } => {
                self.declare(queue, QueueDeclare::PASSIVE, &[], fx);
            }
            State::Storing => self.declare_aside(fx),
            State::Moving(Way::Out) => self.declare(queue, QueueDeclare::PASSIVE, &[], fx),
            State::Moving(Way::Back) | State::Looking => {
                self.declare(&self.aside(), QueueDeclare::PASSIVE, &[], fx);
            }
            State::Clearing => self.delete(&self.aside(), 0, fx),
            State::Proving { .. } => {
                let mut arguments = TableBuilder::default();
                arguments.long(b"x-priority", LOWEST);
                reply::qos(fx.broker.build(&[]), self.channel, 1);
                consume(self.channel, queue, PROOF, 0, &arguments.finish(), fx);
            }
            State::Getting => reply::get(fx.broker.build(&[]), self.channel, queue),
            State::Ending { .. } => reply::cancel(fx.broker.build(&[]), self.channel, PROOF),
            State::Deleting if order.quorum => self.delete(queue, 0, fx),
            State::Deleting => self.delete(queue, IF_EMPTY, fx),
            State::Declaring { old: false } => self.declare_as(queue, &order.new, fx),
            State::Cleaning => self.delete(&self.place(), 0, fx),
            _ => {}
        }
    }

    fn claim(&self) -> ShortStr {
        plan::claim(&self.settings.names, &self.order().queue).unwrap_or_default()
    }

    /// Of the same type: what is replicated stays so. It may come back from many attempts: a queue that is full refuses what is moved back.
    fn declare_aside(&self, fx: &mut Effects) {
        let mut arguments = TableBuilder::default();
        if self.order().quorum {
            arguments.longstr(b"x-queue-type", b"quorum");
            self.link.dialect().lift_delivery_limit(&mut arguments);
        }
        let arguments = arguments.finish();
        self.declare(&self.aside(), QueueDeclare::DURABLE, &arguments, fx);
    }

    /// The name of the queue where a backlog waits.
    pub(super) fn aside(&self) -> ShortStr {
        plan::aside(&self.settings.names, &self.order().queue).unwrap_or_default()
    }

    fn trial(&self) -> ShortStr {
        plan::trial(&self.settings.names, &self.order().queue).unwrap_or_default()
    }

    /// The exchange gets another binding, or all have one.
    fn keep(&mut self, at: usize, now: Now, fx: &mut Effects) {
        let Some(exchange) = self.order().kept.iter().nth(at) else {
            let next = match self.order().quorum || self.moves {
                true => State::Unbinding(0),
                false => State::Deleting,
            };
            return self.enter(next, now, fx);
        };
        let place = self.place();
        let binding = (exchange.as_bytes(), &*place, &*place);
        let out = fx.broker.build(&[]);
        reply::bind(out, self.channel, MethodId::QUEUE_BIND, binding, 0);
    }

    /// Binds or unbinds, or goes on behind the last one.
    fn bind(&mut self, id: MethodId, at: usize, now: Now, fx: &mut Effects) {
        let Some(binding) = self.order().bindings.get(at) else {
            return self.bound(now, fx);
        };
        let arguments = table(&binding.arguments).unwrap_or_default();
        let out = fx.broker.build(&[]);
        reply::method(out, self.channel, id, |a| {
            let a = a.short(0).shortstr(self.order().queue.as_bytes());
            let a = a.shortstr(binding.source.as_bytes());
            let a = a.shortstr(binding.routing_key.as_bytes());
            let a = match id {
                MethodId::QUEUE_BIND => a.octet(0),
                _ => a,
            };
            a.longstr(&arguments).end();
        });
    }

    fn bound(&mut self, now: Now, fx: &mut Effects) {
        match self.state {
            State::Testing(_) => {
                self.ends = now.mono.after(JOINING);
                self.enter(State::Waiting, now, fx);
            }
            State::Unbinding(_) if self.moves => self.enter(State::Moving(Way::Out), now, fx),
            State::Unbinding(_) => self.enter(State::Getting, now, fx),
            _ if self.moves || self.settings.task == Task::Finish => {
                self.enter(State::Looking, now, fx);
            }
            State::Undoing(_) => self.rest(now, fx),
            _ => self.clean(now, fx),
        }
    }
}

pub(super) fn consume(
    channel: ChannelId,
    queue: &[u8],
    tag: &[u8],
    bits: u8,
    arguments: &[u8],
    fx: &mut Effects,
) {
    let out = fx.broker.build(&[]);
    reply::method(out, channel, MethodId::BASIC_CONSUME, |a| {
        let a = a.short(0).shortstr(queue).shortstr(tag);
        a.octet(bits).longstr(arguments).end();
    });
}
