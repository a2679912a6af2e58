//! A broker for the target: answers what it was asked, in order, when it is told to. It holds the session to the ledger: what is settled was
//! outstanding, is settled once, by the client's word, and not before its dead letter is safe.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dlx_proxy::amqp::frame::{self, Front, Kind};
use dlx_proxy::amqp::ids::ChannelId;
use dlx_proxy::amqp::method::{
    Cancel, Consume, ConsumerTag, Get, MethodId, QueueDeclare, QueueName, Settle,
};
use dlx_proxy::amqp::properties::{Change, Edit, Properties};
use dlx_proxy::amqp::reply;
use dlx_proxy::amqp::table::{Table, TableBuilder, Value};

use super::super::link::method;

/// A delivery: channel, which channel of that number, tag.
pub(super) type Delivery = (u16, u32, u64);

/// What a client said of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Ack,
    Requeue,
    Dies,
}

/// What became of a delivery whose dead letter the session has handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Letter {
    InFlight,
    Safe,
    Refused,
}

/// What both sides say, and what follows.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) words: BTreeMap<Delivery, Word>,
    pub(super) letters: BTreeMap<Delivery, Letter>,
    /// Channels on which the client settled what it had not, or it is not certain what it meant.
    pub(super) loose: BTreeSet<(u16, u32)>,
    /// Deliveries that want to be settled.
    pub(super) wanted: BTreeSet<Delivery>,
}

#[derive(Default)]
pub(super) struct Broker {
    read: usize,
    pub(super) channels: BTreeMap<u16, Channel>,
    lives: BTreeMap<u16, u32>,
    queues: BTreeSet<Vec<u8>>,
    /// The connection is being closed, by whom ever.
    pub(super) over: bool,
    pub(super) delivered: usize,
}

#[derive(Default)]
pub(super) struct Channel {
    life: u32,
    last_tag: u64,
    pub(super) outstanding: BTreeSet<u64>,
    due: VecDeque<Due>,
    consumers: BTreeMap<Vec<u8>, bool>,
    /// Its close is sent, or will be when what is due before it is answered: nothing counts any more.
    deaf: bool,
    closing: bool,
}

enum Due {
    Reply(MethodId, Vec<u8>),
    /// No outstanding tag has that number.
    Unknown(u64),
}

fn declared_ok(queue: &[u8]) -> impl FnOnce(&mut reply::Arguments<'_>) {
    let queue = if queue.is_empty() {
        b"amq.gen-1".to_vec()
    } else {
        queue.to_vec()
    };
    move |a| a.shortstr(&queue).long(0).long(0).end()
}

// === impl Broker ===

impl Broker {
    /// Reads what the session has sent since.
    pub(super) fn hear(&mut self, sent: &[u8], ledger: &mut Ledger) {
        while let Front::Whole(head, payload, length) = frame::front(&sent[self.read..]) {
            self.read += length;
            if head.kind == Kind::Method {
                let id = MethodId::peek(payload).expect("a method");
                self.method(head.channel.0, id, payload, ledger);
            }
        }
        let rest = &sent[self.read..];
        assert!(
            !matches!(frame::front(rest), Front::Unterminated(_)),
            "a broken frame: {}",
            rest.escape_ascii()
        );
    }

    fn method(&mut self, number: u16, id: MethodId, payload: &[u8], ledger: &mut Ledger) {
        if number == 0 {
            self.over |= matches!(
                id,
                MethodId::CONNECTION_CLOSE | MethodId::CONNECTION_CLOSE_OK
            );
            let channel = self.channels.entry(0).or_default();
            channel.due.push_back(Due::Reply(id, Vec::new()));
            return;
        }
        if id == MethodId::CHANNEL_OPEN {
            let life = self.lives.entry(number).or_default();
            *life += 1;
            let channel = Channel {
                life: *life,
                due: [Due::Reply(id, Vec::new())].into(),
                ..Channel::default()
            };
            assert!(
                self.channels.insert(number, channel).is_none(),
                "channel {number} is open"
            );
            return;
        }
        let Some(channel) = self.channels.get_mut(&number) else {
            panic!("{id:?} on channel {number}, which is not open");
        };
        if id == MethodId::CHANNEL_CLOSE_OK && channel.closing {
            self.channels.remove(&number);
            return;
        }
        if channel.deaf {
            return;
        }
        match id {
            MethodId::BASIC_ACK | MethodId::BASIC_NACK | MethodId::BASIC_REJECT => {
                let settle = Settle::parse(payload).expect("a settlement");
                channel.settle(number, id, settle, ledger);
            }
            MethodId::BASIC_PUBLISH | MethodId::CHANNEL_FLOW_OK => {}
            MethodId::BASIC_RECOVER_ASYNC => channel.outstanding.clear(),
            MethodId::CHANNEL_CLOSE_OK => panic!("a close-ok that answers nothing"),
            _ => {
                if id == MethodId::CHANNEL_CLOSE {
                    channel.deaf = true;
                    channel.outstanding.clear();
                }
                channel.due.push_back(Due::Reply(id, payload.to_vec()));
            }
        }
    }

    /// Answers the oldest request of a channel, or refuses it.
    pub(super) fn answer(
        &mut self,
        number: u16,
        how: Option<(u16, &[u8])>,
        empty: bool,
        ledger: &mut Ledger,
    ) -> Vec<u8> {
        let Some(channel) = self.channels.get_mut(&number) else {
            return Vec::new();
        };
        let Some(due) = channel.due.pop_front() else {
            return Vec::new();
        };
        let (id, payload) = match due {
            Due::Unknown(tag) => {
                let text = format!("PRECONDITION_FAILED - unknown delivery tag {tag}");
                return self.close_channel(number, 406, text.as_bytes(), MethodId::BASIC_ACK);
            }
            Due::Reply(id, payload) => (id, payload),
        };
        let ok = |id: MethodId| MethodId(id.0, id.1 + 1);
        match id {
            MethodId::CONNECTION_CLOSE => return method(0, MethodId::CONNECTION_CLOSE_OK, |_| {}),
            MethodId::CHANNEL_CLOSE => {
                self.channels.remove(&number);
                return method(number, MethodId::CHANNEL_CLOSE_OK, |_| {});
            }
            _ if number == 0 => return Vec::new(),
            _ => {}
        }
        if let Some((code, text)) = how.filter(|_| id != MethodId::CHANNEL_OPEN && !channel.deaf) {
            return self.close_channel(number, code, text, id);
        }
        match id {
            MethodId::CHANNEL_OPEN => method(number, ok(id), |a| a.longstr(b"").end()),
            MethodId::CHANNEL_FLOW => method(number, ok(id), |a| a.octet(1).end()),
            MethodId::QUEUE_DECLARE => {
                let declare = QueueDeclare::parse(&payload).expect("a declare");
                let expires = Table(declare.arguments).get(b"x-expires").ok().flatten();
                if expires.and_then(Value::as_integer) == Some(-1) {
                    let text = b"PRECONDITION_FAILED - invalid arg 'x-expires' for queue 'q' in vhost '/': {value_negative,-1}";
                    return self.close_channel(number, 406, text, id);
                }
                let there = self.queues.contains(declare.queue);
                if !there
                    && Table(declare.arguments)
                        .get(b"x-max-age")
                        .is_ok_and(|age| age.is_some())
                {
                    let text = b"PRECONDITION_FAILED - invalid arg 'x-max-age' for queue 'q' in vhost '/' of queue type rabbit_classic_queue";
                    return self.close_channel(number, 406, text, id);
                }
                self.queues.insert(declare.queue.to_vec());
                method(number, ok(id), declared_ok(declare.queue))
            }
            MethodId::QUEUE_DELETE | MethodId::QUEUE_PURGE => {
                QueueName::parse(&payload).expect("a queue");
                method(number, ok(id), |a| a.long(0).end())
            }
            MethodId::EXCHANGE_UNBIND => method(number, MethodId(40, 51), |_| {}),
            MethodId::BASIC_RECOVER => {
                channel.outstanding.clear();
                method(number, ok(id), |_| {})
            }
            MethodId::BASIC_CONSUME => {
                let consume = Consume::parse(&payload).expect("a consume");
                let tag = match consume.consumer_tag {
                    b"" => format!("amq.ctag-{}", channel.consumers.len()).into_bytes(),
                    tag => tag.to_vec(),
                };
                channel.consumers.insert(tag.clone(), consume.bits & 2 != 0);
                method(number, ok(id), |a| a.shortstr(&tag).end())
            }
            MethodId::BASIC_CANCEL => {
                let cancel = Cancel::parse(&payload).expect("a cancel");
                channel.consumers.remove(cancel.consumer_tag);
                method(number, ok(id), |a| a.shortstr(cancel.consumer_tag).end())
            }
            MethodId::BASIC_GET if empty => {
                method(number, MethodId::BASIC_GET_EMPTY, |a| a.shortstr(b"").end())
            }
            MethodId::BASIC_GET => {
                let no_ack = Get::parse(&payload).expect("a get").bits & 1 != 0;
                let delivery = channel.next(number, no_ack, ledger);
                let got = method(number, ok(id), |a| {
                    a.longlong(delivery.2)
                        .octet(0)
                        .shortstr(b"x")
                        .shortstr(b"k")
                        .long(0)
                        .end()
                });
                [got, content(delivery, 0, b"", 4096)].concat()
            }
            _ => method(number, ok(id), |_| {}),
        }
    }

    /// The next thing due on any channel, if there is one.
    pub(super) fn who_waits(&self) -> Option<u16> {
        let waits =
            |(number, channel): (&u16, &Channel)| (!channel.due.is_empty()).then_some(*number);
        self.channels.iter().find_map(waits)
    }

    pub(super) fn close_channel(
        &mut self,
        number: u16,
        code: u16,
        text: &[u8],
        failed: MethodId,
    ) -> Vec<u8> {
        let Some(channel) = self
            .channels
            .get_mut(&number)
            .filter(|channel| !channel.closing && number != 0)
        else {
            return Vec::new();
        };
        if channel
            .due
            .iter()
            .any(|due| matches!(due, Due::Reply(MethodId::CHANNEL_CLOSE, _)))
        {
            return Vec::new();
        }
        (channel.closing, channel.deaf) = (true, true);
        channel.due.clear();
        channel.outstanding.clear();
        channel.consumers.clear();
        let mut out = Vec::new();
        reply::close(&mut out, ChannelId(number), code, text, failed);
        out
    }

    /// Delivers to a consumer of a channel, if there is one.
    pub(super) fn deliver(
        &mut self,
        number: u16,
        which: usize,
        octets: usize,
        headers: &[u8],
        piece: usize,
        ledger: &mut Ledger,
    ) -> Vec<u8> {
        let Some(channel) = self
            .channels
            .get_mut(&number)
            .filter(|channel| !channel.deaf)
        else {
            return Vec::new();
        };
        let consumers: Vec<_> = channel
            .consumers
            .iter()
            .map(|(tag, no_ack)| (tag.clone(), *no_ack))
            .collect();
        let Some((consumer, no_ack)) = consumers.get(which % consumers.len().max(1)) else {
            return Vec::new();
        };
        let delivery = channel.next(number, *no_ack, ledger);
        self.delivered += 1;
        let deliver = method(number, MethodId::BASIC_DELIVER, |a| {
            a.shortstr(consumer)
                .longlong(delivery.2)
                .octet(0)
                .shortstr(b"x")
                .shortstr(b"k")
                .end()
        });
        [deliver, content(delivery, octets, headers, piece)].concat()
    }

    pub(super) fn cancel(&mut self, number: u16) -> Vec<u8> {
        let channel = self
            .channels
            .get_mut(&number)
            .filter(|channel| !channel.deaf);
        let Some((tag, _)) = channel.and_then(|channel| channel.consumers.pop_first()) else {
            return Vec::new();
        };
        assert!(ConsumerTag::parse(&[0; 4]).is_err());
        method(number, MethodId::BASIC_CANCEL, |a| {
            a.shortstr(&tag).octet(1).end()
        })
    }
}

/// A content whose body says which delivery it is.
fn content((number, life, tag): Delivery, octets: usize, headers: &[u8], piece: usize) -> Vec<u8> {
    let mut body = [
        &number.to_be_bytes()[..],
        &life.to_be_bytes(),
        &tag.to_be_bytes(),
    ]
    .concat();
    body.resize(body.len() + octets, b'.');
    let empty = Properties::parse(&[0, 0]).expect("no properties");
    let headers = if headers.is_empty() {
        Change::Keep
    } else {
        Change::Set(headers.to_vec())
    };
    let properties = empty.edit(&Edit {
        headers,
        ..Edit::default()
    });
    let content = dlx_proxy::amqp::content::Content {
        properties,
        body: body.into(),
    };
    let mut out = Vec::new();
    content.put(&mut out, ChannelId(number), piece);
    out
}

/// Which delivery a dead letter was.
pub(super) fn delivery_of(body: &[u8]) -> Delivery {
    let number = |range: std::ops::Range<usize>| {
        body[range]
            .iter()
            .fold(0u64, |n, octet| n << 8 | u64::from(*octet))
    };
    (number(0..2) as u16, number(2..6) as u32, number(6..14))
}

/// Header tables of deliveries.
pub(super) fn headers(which: u8) -> Vec<u8> {
    let mut table = TableBuilder::default();
    match which % 6 {
        0 | 1 => return Vec::new(),
        2 => table.longstr(b"own", b"x"),
        3 => table
            .longstr(b"x-dlx-proxy-lap", b"x")
            .longstr(b"own", b"x"),
        4 => table.longstr(b"x-death", b"x"),
        _ => return b"\x01a?".to_vec(),
    };
    table.finish()
}

// === impl Channel ===

impl Channel {
    fn next(&mut self, number: u16, no_ack: bool, ledger: &mut Ledger) -> Delivery {
        self.last_tag += 1;
        let delivery = (number, self.life, self.last_tag);
        if !no_ack {
            self.outstanding.insert(self.last_tag);
            ledger.wanted.insert(delivery);
        }
        delivery
    }

    fn settle(&mut self, number: u16, id: MethodId, settle: Settle, ledger: &mut Ledger) {
        let tag = settle.delivery_tag.0;
        let all = settle.multiple && tag == 0;
        if !all && !self.outstanding.contains(&tag) {
            let loose = ledger.loose.contains(&(number, self.life));
            assert!(
                loose || tag == u64::MAX,
                "{settle:?} on {number}: not outstanding"
            );
            self.deaf = true;
            self.due.push_back(Due::Unknown(tag));
            return;
        }
        let named: Vec<u64> = match settle.multiple {
            true => self
                .outstanding
                .iter()
                .copied()
                .filter(|open| all || *open <= tag)
                .collect(),
            false => vec![tag],
        };
        for tag in named {
            self.outstanding.remove(&tag);
            let delivery = (number, self.life, tag);
            let said = match (id, settle.requeue) {
                (MethodId::BASIC_ACK, _) => Word::Ack,
                (_, true) => Word::Requeue,
                (_, false) => Word::Dies,
            };
            let meant = ledger.words.get(&delivery).copied();
            match ledger.letters.get(&delivery) {
                Some(Letter::InFlight) => assert_eq!(
                    said,
                    Word::Dies,
                    "{delivery:?} before its dead letter is safe"
                ),
                Some(Letter::Safe) => {
                    assert_eq!(said, Word::Ack, "{delivery:?} is dead-lettered twice")
                }
                Some(Letter::Refused) => assert_eq!(said, Word::Dies, "{delivery:?} is lost"),
                None if ledger.loose.contains(&(number, self.life)) => {}
                None => assert_eq!(Some(said), meant, "{delivery:?} not by the client's word"),
            }
        }
    }
}
