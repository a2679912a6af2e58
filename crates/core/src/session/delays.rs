//! Publishes that the proxy delays: they are taken out of the client's stream, and the proxy's own user publishes them into a delay queue.
//!
//! ```text
//!   basic.publish ──▶ Undecided ── its header says at once ──────────────────▶ passes, as if nobody had looked
//!   (an exchange that       │ it has to wait
//!    may delay)             ▼
//!                     may this user publish there? ── no ──▶ the broker's own refusal closes the channel
//!                           │ yes
//!                           ▼
//!                        Taken: its content is read ──▶ a ticket ──▶ outcome: the client's ack or nack
//! ```
//! The proxy's own user publishes, because its user-id is the proof that a message in a delay queue is one that a client was allowed to publish
//! (`dead_letter::proof`): a client that may write into a delay queue cannot send anything to an exchange that is closed to it.
//!
//! The method waits for its header, since only that tells. It may come behind frames of other channels.

use std::collections::BTreeMap;
use std::time::Duration;

use ring::digest::{Context, SHA256};

use crate::amqp::content::{PREFIX, body_size};
use crate::amqp::frame;
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::incoming::Incoming;
use crate::amqp::method::{MethodId, Publish};
use crate::amqp::properties::{Properties, Property};
use crate::amqp::reply;
use crate::amqp::reply_code::{NOT_IMPLEMENTED, PRECONDITION_FAILED};
use crate::amqp::table::Table;
use crate::dead_letter::delayed::{Asked, Delayed};
use crate::machine::{Event, Leg, Limit, Outcome, Publication, Ticket};
use crate::registry::delayed_exchanges::Routing;

use super::channel::{Channels, Transfer};
use super::confirms::Confirm;
use super::frames::{Handled, Method};
use super::ledger::Ledger;
use super::pause::Hold;
use super::transit::Transit;
use super::{Session, Turn};

/// A publish whose content is not complete.
#[derive(Debug)]
pub(super) enum Open {
    /// The payload of its method, which the broker does not have yet.
    Undecided(Vec<u8>),
    Taken(Box<Incoming<Taken>>),
}

#[derive(Debug)]
pub(super) struct Taken {
    exchange: ShortStr,
    routing_key: ShortStr,
    delay: Duration,
    waits: Waits,
}

/// What is owed to the client for a publish of the proxy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waits {
    pub(super) channel: ChannelId,
    /// None: the channel is not in confirm mode, or has ended.
    pub(super) number: Option<u64>,
    /// Of the budget for what sessions retain.
    pub(super) bytes: usize,
}

/// Publishes of the proxy's for the client.
#[derive(Debug, Default)]
pub(super) struct Publishes {
    open: BTreeMap<Ticket, Waits>,
    /// Outcomes that the client has not been told yet.
    told: Vec<(ChannelId, u64, bool)>,
}

/// A publish to an exchange by a user: what the broker checks before it routes a message.
pub(super) type Right = [u8; 32];

// === impl Publishes ===

impl Publishes {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// The channel has ended: nobody waits for its confirms.
    pub(super) fn forget(&mut self, channel: ChannelId) {
        let of_channel = |waits: &&mut Waits| waits.channel == channel;
        for waits in self.open.values_mut().filter(of_channel) {
            waits.number = None;
        }
        self.told.retain(|(of, ..)| *of != channel);
    }

    /// Returns the bytes that are free again. `None`: another ticket.
    pub(super) fn settled(&mut self, ticket: Ticket, outcome: &Outcome) -> Option<usize> {
        let waits = self.open.remove(&ticket)?;
        if let Some(number) = waits.number {
            let acked = !matches!(outcome, Outcome::Refused(_));
            self.told.push((waits.channel, number, acked));
        }
        Some(waits.bytes)
    }

    /// Nobody waits for the outcomes any longer. Returns the bytes that are free again.
    pub(super) fn give_up(&mut self) -> usize {
        let open = std::mem::take(&mut self.open);
        open.values().map(|waits| waits.bytes).sum()
    }

    /// Confirms what is due, where a method may go to the client now.
    pub(super) fn confirm(
        &mut self,
        channels: &mut Channels,
        transit: &Transit,
        turn: &mut Turn<'_>,
    ) {
        if self.told.is_empty() || transit.broker.is_inside() || turn.mute {
            return;
        }
        self.told.retain(|(channel, number, acked)| {
            let state = channels.get_mut(channel).filter(|state| !state.closing);
            let Some(state) = state else { return false };
            if !state.delivering.is_idle() {
                return true;
            }
            if let Some(confirms) = &mut state.confirms {
                let confirm = confirms.settle(*number, *acked);
                put(turn.build(Leg::Client), *channel, confirm);
            }
            false
        });
    }
}

fn put(out: &mut Vec<u8>, channel: ChannelId, confirm: Confirm) {
    let Confirm {
        number,
        multiple,
        acked,
    } = confirm;
    let tag = crate::amqp::ids::DeliveryTag(number);
    match acked {
        true => reply::ack(out, channel, tag, multiple),
        false => reply::nack(out, channel, tag, multiple, false),
    }
}

// === impl Ledger ===

impl Ledger {
    pub(super) fn publishes_for(
        &mut self,
        waits: Waits,
        publication: Publication,
        turn: &mut Turn<'_>,
    ) {
        let ticket = self.next_ticket();
        self.publishes.open.insert(ticket, waits);
        turn.fx.out.dead.push((ticket, publication));
    }
}

impl Session {
    /// The client's `basic.publish`, if its exchange may delay it: it waits for its header.
    pub(super) fn undecided(&mut self, method: Method<'_>) -> bool {
        let delays = &self.settings.delays;
        if !delays.is_on() || method.id != MethodId::BASIC_PUBLISH {
            return false;
        }
        let publish = Publish::parse(method.payload);
        let concerns = |publish: Publish<'_>| delays.concerns(&self.peer.vhost, publish.exchange);
        let Some(state) = self.channels.get_mut(&method.channel) else {
            return false;
        };
        if self.peer.dialect.is_none() || !publish.is_ok_and(concerns) {
            return false;
        }
        state.publishing = Transfer::Header(false);
        let waits = Open::Undecided(method.payload.to_vec());
        self.open_publishes.insert(method.channel, waits);
        true
    }

    pub(super) fn is_undecided(&self, channel: ChannelId) -> bool {
        !self.open_publishes.is_empty()
            && matches!(self.open_publishes.get(&channel), Some(Open::Undecided(_)))
    }

    /// The header of a client's publish. `Wait`: it is looked at again later.
    pub(super) fn publish_header(
        &mut self,
        channel: ChannelId,
        header: &[u8],
        turn: &mut Turn<'_>,
    ) -> Handled {
        let Some(Open::Undecided(method)) = self.open_publishes.get(&channel) else {
            return Handled::Done;
        };
        let method = method.clone();
        let (Ok(publish), Some(state)) = (Publish::parse(&method), self.channels.get(&channel))
        else {
            return Handled::Done;
        };
        if state.closing || state.reword.is_some() {
            self.drop_publish(channel);
            return Handled::Done;
        }
        let delays = &self.settings.delays;
        let routing = delays.exchanges.get(&self.peer.vhost, publish.exchange);
        let properties = header.get(PREFIX..).unwrap_or_default();
        let x_delay = delays.x_delay && routing.is_some();
        let delay = match Asked::read(properties, x_delay, delays.delivery_time, turn.now.wall) {
            Asked::AtOnce => {
                self.pass_publish(channel, &method, turn);
                return Handled::Done;
            }
            Asked::TooFar => {
                let text =
                    b"PRECONDITION_FAILED - x-opt-delivery-time is more than 100 years ahead";
                return self.refuse_publish(channel, PRECONDITION_FAILED, text, turn);
            }
            Asked::Delay(_) if state.tx.is_some() => {
                let text = b"NOT_IMPLEMENTED - a delayed publish on a channel in tx mode";
                return self.refuse_publish(channel, NOT_IMPLEMENTED, text, turn);
            }
            Asked::Delay(delay) => delay,
        };
        let right = right(&publish, properties, routing);
        let (declares, mut line) = self.line(turn);
        match declares.may_publish(channel, &publish, (properties, right), &mut line) {
            Some(true) => self.take_publish(channel, &publish, delay, header, turn),
            Some(false) => Handled::Wait,
            None => {
                let text = b"PRECONDITION_FAILED - cannot delay a publish: no channel is free to check the permission";
                self.refuse_publish(channel, PRECONDITION_FAILED, text, turn)
            }
        }
    }

    /// As if its method came now.
    fn pass_publish(&mut self, channel: ChannelId, payload: &[u8], turn: &mut Turn<'_>) {
        self.open_publishes.remove(&channel);
        let method = Method {
            from: Leg::Client,
            channel,
            id: MethodId::BASIC_PUBLISH,
            payload,
            at: 0,
            len: 0,
        };
        self.watch_request(method, false);
        frame::put(turn.build(Leg::Broker), 1, channel, |out| {
            out.extend_from_slice(payload)
        });
        self.prove_exchange(method, turn);
    }

    fn refuse_publish(
        &mut self,
        channel: ChannelId,
        code: u16,
        text: &[u8],
        turn: &mut Turn<'_>,
    ) -> Handled {
        self.drop_publish(channel);
        let (_, mut line) = self.line(turn);
        line.refuse(channel, code, text.to_vec(), MethodId::BASIC_PUBLISH);
        Handled::Done
    }

    /// The content goes nowhere: its channel is closed.
    pub(super) fn drop_publish(&mut self, channel: ChannelId) {
        self.open_publishes.remove(&channel);
        if let Some(state) = self.channels.get_mut(&channel) {
            state.publishing = Transfer::Header(true);
        }
    }

    fn take_publish(
        &mut self,
        channel: ChannelId,
        publish: &Publish<'_>,
        delay: Duration,
        header: &[u8],
        turn: &mut Turn<'_>,
    ) -> Handled {
        let body = usize::try_from(body_size(header).unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let bytes = body.saturating_add(header.len());
        let state = self.channels.get(&channel);
        let confirms = state.and_then(|state| state.confirms.as_ref());
        if confirms.is_some_and(|confirms| confirms.is_full()) {
            turn.event(Event::LimitMet(Limit::Replies));
            return self.hold(Hold::Confirms(channel), turn);
        }
        if self.ledger.is_full() {
            turn.event(Event::LimitMet(Limit::Tickets));
            return self.hold(Hold::Tickets, turn);
        }
        let most = self.settings.limits.now().retained_bytes_per_connection;
        let fits = self.ledger.take(bytes, most);
        if !fits && self.ledger.in_flight() > 0 {
            turn.event(Event::LimitMet(Limit::Retained));
            return self.hold(Hold::Tickets, turn);
        }
        let names = (
            ShortStr::copy(publish.exchange),
            ShortStr::copy(publish.routing_key),
        );
        let (true, (Some(exchange), Some(routing_key))) = (fits, names) else {
            let text =
                b"PRECONDITION_FAILED - cannot delay a publish: no room for it in `retained-bytes`";
            return self.refuse_publish(channel, PRECONDITION_FAILED, text, turn);
        };
        let Some(state) = self.channels.get_mut(&channel) else {
            return Handled::Done;
        };
        state.publishing = Transfer::Header(true);
        let number = state.confirms.as_mut().map(|confirms| confirms.take());
        let waits = Waits {
            channel,
            number,
            bytes,
        };
        let mut incoming = Incoming::new(Taken {
            exchange,
            routing_key,
            delay,
            waits,
        });
        // A header that is too short has no content, and is refused with it.
        let _kept = incoming.header(header, bytes);
        self.open_publishes
            .insert(channel, Open::Taken(Box::new(incoming)));
        Handled::Done
    }

    /// A piece of a body.
    pub(super) fn publish_body(&mut self, channel: ChannelId, piece: &[u8]) {
        if let Some(Open::Taken(incoming)) = self.open_publishes.get_mut(&channel) {
            incoming.body(piece);
        }
    }

    /// Publishes what is complete.
    pub(super) fn publish_complete(&mut self, channel: ChannelId, turn: &mut Turn<'_>) {
        let state = self.channels.get(&channel);
        if !state.is_some_and(|state| state.publishing.is_idle()) {
            return;
        }
        let Some(Open::Taken(incoming)) = self.open_publishes.remove(&channel) else {
            return;
        };
        let (taken, content) = incoming.finish();
        let planned = content
            .zip(self.facts().rules())
            .and_then(|(content, rules)| {
                let delayed = Delayed {
                    exchange: &taken.exchange,
                    routing_key: &taken.routing_key,
                    content: &content,
                    delay: taken.delay,
                };
                let own_user = &self.settings.user;
                delayed.publication(&rules, own_user, turn.now.wall).ok()
            });
        match planned {
            Some(publication) => self.ledger.publishes_for(taken.waits, publication, turn),
            // The broker has read it before: this does not happen.
            None => {
                self.ledger.give_back(taken.waits.bytes);
                if let Some(number) = taken.waits.number {
                    self.ledger.publishes.told.push((channel, number, false));
                }
            }
        }
    }

    /// The channel has ended, and with it what it was publishing.
    pub(super) fn forget_publishes(&mut self, channel: ChannelId) {
        match self.open_publishes.remove(&channel) {
            Some(Open::Taken(incoming)) => self.ledger.give_back(incoming.method.waits.bytes),
            // Without its method the rest of it would end the whole connection.
            Some(Open::Undecided(_)) => self.drop_publish(channel),
            None => {}
        }
        self.ledger.publishes.forget(channel);
    }

    /// A confirm of the broker. True: the client has got it with its own number.
    pub(super) fn confirmed(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> bool {
        let state = self.channels.get_mut(&method.channel);
        let confirms = state.and_then(|state| state.confirms.as_mut());
        let settle = crate::amqp::method::Settle::parse(method.payload).ok();
        let (Some(confirms), Some(settle)) = (confirms, settle) else {
            return false;
        };
        let of = Confirm {
            number: settle.delivery_tag.0,
            multiple: settle.multiple,
            acked: method.id == MethodId::BASIC_ACK,
        };
        confirms.translate(of, |confirm| {
            turn.replace(Leg::Broker, |out| put(out, method.channel, confirm));
        })
    }
}

/// All that the broker looks at before it routes a message. A key matters only where words of it may need a permission.
fn right(publish: &Publish<'_>, properties: &[u8], routing: Option<Routing>) -> Right {
    let mut hash = Context::new(&SHA256);
    let mut add = |part: Option<&[u8]>| {
        let part = part.map_or(vec![0], |part| [&[1], part].concat());
        hash.update(&part.len().to_be_bytes());
        hash.update(&part);
    };
    add(Some(publish.exchange));
    let by_key = routing != Some(Routing::Other);
    add(by_key.then_some(publish.routing_key));
    if let Ok(properties) = Properties::parse(properties) {
        for property in [Property::UserId, Property::Expiration] {
            add(properties.get(property));
        }
        let headers = Table(properties.headers().unwrap_or_default());
        for name in [&b"CC"[..], b"BCC"] {
            add(headers.get(name).ok().flatten().map(|value| value.data));
        }
    }
    let hash = hash.finish();
    hash.as_ref().try_into().unwrap_or_default()
}
