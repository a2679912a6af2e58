//! A client for the target: says what a client may say, and holds the session to what it may hear.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dlx_proxy::amqp::frame::{self, Front, Kind};
use dlx_proxy::amqp::ids::{ChannelId, DeliveryTag};
use dlx_proxy::amqp::method::{Cancel, ConsumerTag, Deliver, GetOk, MethodId};
use dlx_proxy::amqp::reply;
use dlx_proxy::amqp::table::TableBuilder;

use super::super::input::Input;
use super::super::link::method;
use super::broker::{Ledger, Word};

const QUEUES: &[&[u8]] = &[b"q", b"work", b"other", b""];
const EXCHANGES: &[&[u8]] = &[b"x", b"", b"y", b"dlx-proxy/x"];
const NO_WAIT: u8 = 16;

#[derive(Default)]
pub(super) struct Client {
    read: usize,
    pub(super) channels: BTreeMap<u16, Channel>,
    lives: BTreeMap<u16, u32>,
    consumers: usize,
    pub(super) over: bool,
    pub(super) delivered: usize,
}

#[derive(Default)]
pub(super) struct Channel {
    life: u32,
    /// What it may settle.
    pub(super) view: BTreeSet<u64>,
    /// Replies that are due, by the method that they are.
    pub(super) due: VecDeque<MethodId>,
    tags: Vec<Vec<u8>>,
    /// The broker closed it: a close-ok is owed.
    pub(super) closed: bool,
    closing: bool,
}

/// The arguments of a declare.
fn arguments(which: u8) -> Vec<u8> {
    let mut table = TableBuilder::default();
    let dlx = b"x-dead-letter-exchange";
    match which % 8 {
        0..=2 => table.longstr(dlx, b"dlx"),
        3 => table
            .longstr(dlx, b"")
            .longstr(b"x-dead-letter-routing-key", b"k"),
        4 => return Vec::new(),
        5 => table
            .longstr(dlx, b"dlx")
            .longstr(b"x-queue-type", b"quorum"),
        6 => table
            .longstr(dlx, b"dlx")
            .longstr(b"x-queue-type", b"stream"),
        _ => return b"\x01a?".to_vec(),
    };
    table.finish()
}

// === impl Client ===

impl Client {
    /// Reads what came since.
    pub(super) fn hear(&mut self, came: &[u8], ledger: &Ledger) {
        while let Front::Whole(head, payload, length) = frame::front(&came[self.read..]) {
            self.read += length;
            if head.kind == Kind::Method && !self.over {
                let id = MethodId::peek(payload).expect("a method");
                self.method(head.channel.0, id, payload, ledger);
            }
        }
        let rest = &came[self.read..];
        assert!(
            !matches!(frame::front(rest), Front::Unterminated(_)),
            "a broken frame: {}",
            rest.escape_ascii()
        );
    }

    fn method(&mut self, number: u16, id: MethodId, payload: &[u8], ledger: &Ledger) {
        if number == 0 {
            self.over |= matches!(
                id,
                MethodId::CONNECTION_CLOSE | MethodId::CONNECTION_CLOSE_OK
            );
            return;
        }
        let Some(channel) = self.channels.get_mut(&number) else {
            panic!("{id:?} on channel {number}, which the client did not open");
        };
        match id {
            MethodId::BASIC_DELIVER => {
                self.delivered += 1;
                let tag = Deliver::parse(payload).expect("a delivery").delivery_tag.0;
                channel.sees(number, tag, ledger);
            }
            MethodId::BASIC_CANCEL => {
                let tag = Cancel::parse(payload).expect("a cancel").consumer_tag;
                channel.tags.retain(|known| known != tag);
            }
            MethodId::CHANNEL_CLOSE => {
                channel.closed = true;
                channel.due.clear();
                channel.view.clear();
            }
            MethodId::CHANNEL_CLOSE_OK => {
                assert!(channel.closing, "a close-ok that answers nothing");
                self.channels.remove(&number);
            }
            MethodId::BASIC_ACK
            | MethodId::BASIC_NACK
            | MethodId::BASIC_RETURN
            | MethodId::CHANNEL_FLOW => {}
            _ => {
                let due = channel.due.pop_front();
                let got = due == Some(MethodId::BASIC_GET_OK);
                let fits = due == Some(id) || (got && id == MethodId::BASIC_GET_EMPTY);
                assert!(fits, "{id:?} where {due:?} was due on {number}");
                if id == MethodId::BASIC_GET_OK {
                    let tag = GetOk::parse(payload).expect("a get-ok").delivery_tag.0;
                    channel.sees(number, tag, ledger);
                }
                if id == MethodId::BASIC_CONSUME_OK {
                    let tag = ConsumerTag::parse(payload)
                        .expect("a consumer tag")
                        .consumer_tag;
                    channel.tags.push(tag.to_vec());
                }
                if id == MethodId::BASIC_RECOVER_OK {
                    channel.view.clear();
                }
            }
        }
    }

    /// Owes the broker a close-ok; here it is.
    pub(super) fn close_ok(&mut self) -> Vec<u8> {
        let closed = self.channels.iter().find(|(_, channel)| channel.closed);
        let Some(number) = closed.map(|(number, _)| *number) else {
            return Vec::new();
        };
        self.channels.remove(&number);
        method(number, MethodId::CHANNEL_CLOSE_OK, |_| {})
    }

    /// The next thing that it says, as the input will have it. `sure`: what it says is heard at once, so that `all` means what it sees.
    pub(super) fn says(
        &mut self,
        input: &mut Input<'_>,
        sure: bool,
        ledger: &mut Ledger,
    ) -> Vec<u8> {
        let (number, what) = (1 + input.below(3) as u16, input.below(24));
        let Some(channel) = self.channels.get_mut(&number) else {
            let life = self.lives.entry(number).or_default();
            *life += 1;
            let channel = Channel {
                life: *life,
                due: [MethodId::CHANNEL_OPEN_OK].into(),
                ..Channel::default()
            };
            self.channels.insert(number, channel);
            return method(number, MethodId::CHANNEL_OPEN, |a| a.shortstr(b"").end());
        };
        if channel.closing {
            return Vec::new();
        }
        if channel.closed {
            return self.close_ok();
        }
        let (queue, exchange, bits) = (input.pick(QUEUES), input.pick(EXCHANGES), input.byte());
        match what {
            0..=7 => channel.settles(number, input, sure, ledger),
            8..=10 => {
                let wait = u8::from(bits & 1 == 0);
                self.consumers += 1;
                let tag = match bits & 6 {
                    6 if wait == 1 => Vec::new(),
                    _ => format!("t{}", self.consumers).into_bytes(),
                };
                if wait == 1 {
                    channel.due.push_back(MethodId::BASIC_CONSUME_OK);
                } else {
                    channel.tags.push(tag.clone());
                }
                let no_ack = u8::from(bits & 56 == 56) << 1;
                method(number, MethodId::BASIC_CONSUME, |a| {
                    a.short(0)
                        .shortstr(queue)
                        .shortstr(&tag)
                        .octet(no_ack | (1 - wait) << 3)
                        .longstr(b"")
                        .end()
                })
            }
            11 | 12 => channel.asks(MethodId::BASIC_GET, number, |a| {
                a.short(0)
                    .shortstr(queue)
                    .octet(u8::from(bits & 7 == 7))
                    .end()
            }),
            13 | 14 => {
                let arguments = arguments(input.byte());
                // A name that the broker makes must be told.
                let bits = bits & if queue.is_empty() { 14 } else { 31 };
                if bits & NO_WAIT == 0 {
                    channel.due.push_back(MethodId::QUEUE_DECLARE_OK);
                }
                method(number, MethodId::QUEUE_DECLARE, |a| {
                    a.short(0)
                        .shortstr(queue)
                        .octet(bits)
                        .longstr(&arguments)
                        .end()
                })
            }
            15 | 16 => {
                let publish = method(number, MethodId::BASIC_PUBLISH, |a| {
                    a.short(0)
                        .shortstr(exchange)
                        .shortstr(b"k")
                        .octet(bits & 3)
                        .end()
                });
                let body = vec![b'p'; usize::from(bits)];
                let mut out = publish;
                let properties = match bits % 3 {
                    0 => b"\x20\0\0\0\0\x13\x11x-dlx-proxy-secretV".to_vec(),
                    _ => vec![0, 0],
                };
                let content = dlx_proxy::amqp::content::Content {
                    properties: properties.into(),
                    body: body.into(),
                };
                content.put(&mut out, ChannelId(number), 90);
                out
            }
            17 => match channel.tags.pop() {
                None => Vec::new(),
                Some(tag) if bits & 1 == 0 => channel.asks(MethodId::BASIC_CANCEL, number, |a| {
                    a.shortstr(&tag).octet(0).end()
                }),
                Some(tag) => method(number, MethodId::BASIC_CANCEL, |a| {
                    a.shortstr(&tag).octet(1).end()
                }),
            },
            18 => match bits % 8 {
                0 => channel.asks(MethodId::TX_SELECT, number, |_| {}),
                1 => {
                    // Nobody can tell which deliveries it means.
                    ledger.loose.insert((number, channel.life));
                    channel.view.clear();
                    method(number, MethodId::BASIC_RECOVER_ASYNC, |a| a.octet(1).end())
                }
                2..=4 => {
                    channel.view.clear();
                    channel.asks(MethodId::BASIC_RECOVER, number, |a| a.octet(1).end())
                }
                _ => channel.asks(MethodId::CONFIRM_SELECT, number, |a| a.octet(0).end()),
            },
            19 => channel.asks(MethodId::QUEUE_DELETE, number, |a| {
                a.short(0).shortstr(queue).octet(0).end()
            }),
            20 => match bits % 6 {
                0 => channel.asks(MethodId::EXCHANGE_DECLARE, number, |a| {
                    a.short(0)
                        .shortstr(exchange)
                        .shortstr(b"fanout")
                        .octet(0)
                        .longstr(b"")
                        .end()
                }),
                1 => channel.asks(MethodId::EXCHANGE_DELETE, number, |a| {
                    a.short(0).shortstr(exchange).octet(0).end()
                }),
                2 => channel.asks(MethodId::QUEUE_BIND, number, |a| {
                    a.short(0)
                        .shortstr(queue)
                        .shortstr(exchange)
                        .shortstr(b"k")
                        .octet(0)
                        .longstr(b"")
                        .end()
                }),
                3 => channel.asks(MethodId::QUEUE_UNBIND, number, |a| {
                    a.short(0)
                        .shortstr(queue)
                        .shortstr(exchange)
                        .shortstr(b"k")
                        .longstr(b"")
                        .end()
                }),
                4 => channel.asks(MethodId::QUEUE_PURGE, number, |a| {
                    a.short(0).shortstr(queue).octet(0).end()
                }),
                _ => channel.asks(MethodId::BASIC_QOS, number, |a| {
                    a.long(0).short(10).octet(0).end()
                }),
            },
            21 => {
                channel.closing = true;
                channel.view.clear();
                let mut out = Vec::new();
                reply::close(&mut out, ChannelId(number), 200, b"", MethodId(0, 0));
                out
            }
            22 if bits & 31 == 31 => {
                self.over = true;
                let mut out = Vec::new();
                reply::close(&mut out, ChannelId(0), 200, b"", MethodId(0, 0));
                out
            }
            _ => frame::HEARTBEAT.to_vec(),
        }
    }
}

// === impl Channel ===

impl Channel {
    fn sees(&mut self, number: u16, tag: u64, ledger: &Ledger) {
        if ledger.wanted.contains(&(number, self.life, tag)) && !self.closed && !self.closing {
            self.view.insert(tag);
        }
    }

    fn asks(
        &mut self,
        id: MethodId,
        number: u16,
        arguments: impl FnOnce(&mut reply::Arguments<'_>),
    ) -> Vec<u8> {
        self.due.push_back(match id {
            MethodId::EXCHANGE_UNBIND => MethodId(40, 51),
            MethodId(class, method) => MethodId(class, method + 1),
        });
        method(number, id, arguments)
    }

    fn settles(
        &mut self,
        number: u16,
        input: &mut Input<'_>,
        sure: bool,
        ledger: &mut Ledger,
    ) -> Vec<u8> {
        let (verb, which) = (input.byte(), usize::from(input.byte()));
        if self.due.contains(&MethodId::BASIC_RECOVER_OK) {
            return Vec::new();
        }
        let life = (number, self.life);
        let open: Vec<u64> = self.view.iter().copied().collect();
        let multiple = verb & 8 != 0;
        let all = multiple && verb & 0x70 == 0x70;
        let tag = match open.get(which % open.len().max(1)) {
            _ if verb & 0xF0 == 0xF0 => {
                // A tag that it has settled, or that never was.
                ledger.loose.insert(life);
                which as u64
            }
            Some(tag) => *tag,
            None => return Vec::new(),
        };
        // Behind requests that are not answered `all` is more than it sees.
        if all && !(sure && self.due.is_empty()) {
            ledger.loose.insert(life);
        }
        let word = match verb & 7 {
            0 | 1 => Word::Ack,
            2 => Word::Requeue,
            _ => Word::Dies,
        };
        for open in open {
            let meant = if multiple {
                all || open <= tag
            } else {
                open == tag
            };
            if meant {
                self.view.remove(&open);
                ledger.words.insert((number, self.life, open), word);
            }
        }
        let (mut out, tag, channel) = (
            Vec::new(),
            DeliveryTag(if all { 0 } else { tag }),
            ChannelId(number),
        );
        match word {
            Word::Ack => reply::ack(&mut out, channel, tag, multiple),
            _ if verb & 7 > 4 || multiple => {
                reply::nack(&mut out, channel, tag, multiple, word == Word::Requeue)
            }
            _ => reply::reject(&mut out, channel, tag, word == Word::Requeue),
        }
        out
    }
}
