//! A channel: contents are put together, methods dispatched, and what it had is given back when it ends.

use std::collections::{BTreeMap, BTreeSet};

use crate::codec::methods::{Arg, Args, Method};
use crate::codec::value::Bytes;
use crate::codec::wire::{BODY_FRAME, HEADER, METHOD};

use super::broker::{Broker, Conn};
use super::call::{Call, Content};
use super::facts::Fact;
use super::reader::{Broken, decode, internal_error, is_broken};
use super::refusal::{Answer, Refusal, refuse};

/// The address of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    pub conn: Conn,
    pub channel: u16,
}

#[derive(Default)]
pub(super) struct Channel {
    /// `channel.open` came.
    pub open: bool,
    /// The broker has closed it: nothing counts until the client's close-ok.
    pub closing: bool,
    /// A method whose content is not complete; the header's size, when it is here.
    pub partial: Option<(Call, Option<u64>)>,
    /// Whose name an empty one means.
    pub last_queue: Bytes,
    pub next_tag: u64,
    pub unacked: BTreeMap<u64, Unacked>,
    /// Consumer tag → queue.
    pub consumers: BTreeMap<Bytes, Bytes>,
    pub prefetch: u64,
    pub confirms: bool,
    /// What is published is judged, and kept from its queues.
    pub transactional: bool,
    pub publishes: u64,
    /// Publishes, and the queues of each that have not said what became of it.
    pub unconfirmed: BTreeMap<u64, BTreeSet<Bytes>>,
}

/// A delivery.
#[derive(Clone, Debug)]
pub(super) struct Unacked {
    pub queue: Bytes,
    /// Which life of the queue, and which message.
    pub life: u64,
    pub id: u64,
    /// Nothing: of a get.
    pub consumer: Option<Bytes>,
}

impl Broker {
    pub(super) fn channel(&mut self, at: At) -> &mut Channel {
        self.connection(at.conn)
            .channels
            .entry(at.channel)
            .or_default()
    }

    pub(super) fn reply(&mut self, at: At, name: &str, args: Args) {
        self.send(at.conn, at.channel, name, args);
    }

    pub(super) fn on_channel(&mut self, conn: Conn, number: u16, kind: u8, payload: &[u8]) {
        let at = At {
            conn,
            channel: number,
        };
        let connection = self.connection(conn);
        if !connection.channels.contains_key(&number) {
            let (count, most) = (connection.channels.len(), connection.channel_max);
            if most != 0 && count >= usize::from(most) {
                let text = format!(
                    "number of channels opened ({count}) has reached the negotiated channel_max ({most})"
                );
                let refusal = Refusal {
                    code: 530,
                    text: text.into_bytes(),
                };
                return self.close_connection(conn, &refusal, None);
            }
            connection.channels.insert(number, Channel::default());
        }
        match self.assemble(at, kind, payload) {
            // It is not said which method it was whose fields are wrong.
            Err(Broken::Wrong(refusal, _)) if refusal.code == 501 && kind == METHOD => {
                self.close_connection(conn, &refusal, None);
            }
            Err(broken) => self.broken_method(conn, broken),
            Ok(None) => {}
            Ok(Some(call)) => self.on_method(at, call),
        }
        if kind != METHOD && self.alarm {
            self.block(conn);
        }
    }

    /// The next complete method, or what is wrong: that closes the connection.
    fn assemble(&mut self, at: At, kind: u8, payload: &[u8]) -> Assembled {
        let channel = self.channel(at);
        let unexpected = |text: &str, call: Option<Call>| {
            let refusal = Refusal {
                code: 505,
                text: text.as_bytes().to_vec(),
            };
            Err(Broken::Wrong(refusal, call))
        };
        match (channel.partial.take(), kind) {
            (None, METHOD) => {
                let call = decode(payload)?;
                if call.method.content {
                    channel.partial = Some((call, None));
                    return Ok(None);
                }
                Ok(Some(call))
            }
            (None, _) => unexpected("expected method frame, got non method frame instead", None),
            (Some((mut call, None)), HEADER) => {
                let class = payload
                    .get(..2)
                    .map_or(0, |class| u16::from_be_bytes([class[0], class[1]]));
                if class != call.method.class {
                    let text = format!(
                        "expected content header for class {}, got one for class {class} instead",
                        call.method.class
                    );
                    return unexpected(&text, Some(call));
                }
                let Some((size, properties)) = properties(payload) else {
                    return Err(Broken::Wrong(internal_error(), None));
                };
                call.content = Some(Content {
                    properties,
                    body: Bytes::new(),
                });
                if size == 0 {
                    return Ok(Some(call));
                }
                channel.partial = Some((call, Some(size)));
                Ok(None)
            }
            (Some((call, None)), _) => {
                let text = format!(
                    "expected content header for class {}, got non content header frame instead",
                    call.method.class
                );
                unexpected(&text, Some(call))
            }
            (Some((mut call, Some(size))), BODY_FRAME) => {
                let body = call.content.get_or_insert_default();
                body.body.extend_from_slice(payload);
                if body.body.len() as u64 == size {
                    return Ok(Some(call));
                }
                if body.body.len() as u64 > size {
                    let refusal = Refusal {
                        code: 501,
                        text: b"content body frame exceeds remaining content size".to_vec(),
                    };
                    return Err(Broken::Wrong(refusal, Some(call)));
                }
                channel.partial = Some((call, Some(size)));
                Ok(None)
            }
            (Some((call, Some(_))), _) => unexpected(
                "expected content body, got non content body frame instead",
                Some(call),
            ),
        }
    }

    fn on_method(&mut self, at: At, call: Call) {
        let channel = self.channel(at);
        let name = &*call.method.name;
        if channel.closing {
            match name {
                "channel.close-ok" => {
                    self.connection(at.conn).channels.remove(&at.channel);
                }
                "channel.close" => self.reply(at, "channel.close-ok", Args::new()),
                _ => {}
            }
            return;
        }
        let done = match (name, channel.open) {
            ("channel.open", false) => {
                channel.open = true;
                channel.next_tag = 1;
                self.reply(at, "channel.open-ok", Args::new());
                Ok(())
            }
            ("channel.open", true) => refuse(504, "second 'channel.open' seen"),
            (_, false) => refuse(504, "expected 'channel.open'"),
            _ => self.method(at, &call),
        };
        if let Err(refusal) = done {
            self.refuse(at, &refusal, Some(&call));
        }
    }

    fn method(&mut self, at: At, call: &Call) -> Answer<()> {
        let ok = |name: &str| name.to_owned() + "-ok";
        match &*call.method.name {
            "channel.close" => {
                self.end_channel(at.conn, at.channel);
                self.reply(at, "channel.close-ok", Args::new());
            }
            "channel.flow" => {
                if !call.bit("active") {
                    return refuse(540, "active=false");
                }
                self.reply(at, "channel.flow-ok", vec![("active", Arg::Bit(true))]);
            }
            "confirm.select" => {
                if self.channel(at).transactional {
                    return refuse(406, "cannot switch from tx to confirm mode");
                }
                self.channel(at).confirms = true;
                if !call.bit("no-wait") {
                    self.reply(at, &ok(&call.method.name), Args::new());
                }
            }
            "exchange.declare" => return self.exchange_declare(at, call),
            "exchange.delete" => return self.exchange_delete(at, call),
            "exchange.bind" | "exchange.unbind" | "queue.bind" | "queue.unbind" => {
                return self.bind_or_unbind(at, call);
            }
            "queue.declare" => return self.queue_declare(at, call),
            "queue.delete" => return self.queue_delete(at, call),
            "queue.purge" => return self.queue_purge(at, call),
            "basic.publish" => return self.basic_publish(at, call),
            "basic.qos" => return self.basic_qos(at, call),
            "basic.consume" => return self.basic_consume(at, call),
            "basic.cancel" => return self.basic_cancel(at, call),
            "basic.get" => return self.basic_get(at, call),
            "basic.ack" | "basic.nack" | "basic.reject" => return self.settle(at, call),
            "basic.recover" | "basic.recover-async" => return self.recover(at, call),
            name if name.starts_with("tx.") => return self.transaction(at, call),
            _ => return refuse(503, "unimplemented method"),
        }
        Ok(())
    }

    /// Closes the channel or the connection because of this request.
    pub(super) fn refuse(&mut self, at: At, refusal: &Refusal, call: Option<&Call>) {
        if refusal.closes_connection() {
            return self.close_connection(at.conn, refusal, call);
        }
        // What has begun to come is read to its end.
        let partial = self.channel(at).partial.take();
        self.end_channel(at.conn, at.channel);
        let closing = Channel {
            closing: true,
            partial,
            ..Channel::default()
        };
        let channels = &mut self.connection(at.conn).channels;
        channels.insert(at.channel, closing);
        let args = vec![
            ("reply-code", Arg::Number(refusal.code.into())),
            ("reply-text", Arg::Text(refusal.reply_text())),
            (
                "class-id",
                Arg::Number(call.map_or(0, |call| call.method.class).into()),
            ),
            (
                "method-id",
                Arg::Number(call.map_or(0, |call| call.method.id).into()),
            ),
        ];
        self.reply(at, "channel.close", args);
        self.facts.push(Fact::ChannelClosed {
            conn: at.conn,
            channel: at.channel,
            code: refusal.code,
            text: refusal.reply_text(),
        });
    }

    /// Its consumers go, what it had returns, and nothing that was on its way to it arrives.
    pub(super) fn end_channel(&mut self, conn: Conn, number: u16) {
        let at = At {
            conn,
            channel: number,
        };
        if self.connection(conn).channels.remove(&number).is_none() {
            return;
        }
        let lost = self.jobs.forget(at);
        self.lose_in_flight(lost);
        let queues: Vec<Bytes> = self.queues.keys().cloned().collect();
        for queue in &queues {
            self.channel_left(queue, at);
        }
    }

    pub(super) fn block(&mut self, conn: Conn) {
        let connection = self.connection(conn);
        if connection.blocked || connection.state != super::connection::State::Running {
            return;
        }
        connection.blocked = true;
        if connection.knows("connection.blocked") {
            let reason = ("reason", Arg::Text(b"low on memory".to_vec()));
            self.send(conn, 0, "connection.blocked", vec![reason]);
        }
    }
}

type Assembled = Result<Option<Call>, Broken>;

/// One flag stands for no property, and nobody minds it.
fn properties(payload: &[u8]) -> Option<(u64, Args)> {
    let mut payload = payload.to_vec();
    *payload.get_mut(13)? &= !2;
    Method::decode_header(&payload)
        .filter(|(_, properties)| !properties.iter().any(|(_, arg)| is_broken(arg)))
}
