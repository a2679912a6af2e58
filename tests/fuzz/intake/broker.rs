//! What the broker of that target says: answers, refusals, closes, deliveries.

use std::collections::VecDeque;

use dlx_proxy::amqp::content::Content;
use dlx_proxy::amqp::ids::ChannelId;
use dlx_proxy::amqp::method::MethodId;
use dlx_proxy::amqp::properties::{Change, Edit, Properties};

use super::super::input::Input;
use super::super::reference::{Member, raw};
use super::{EXCHANGES, Scene, close, method};

pub(super) const QUEUES: &[&[u8]] = &[b"q", b"r", b"k", b"q\xff"];
const REASONS: &[&[u8]] = &[
    b"expired",
    b"maxlen",
    b"rejected",
    b"delivery_limit",
    b"boredom",
];

impl Scene {
    pub(super) fn answer(&mut self, number: u16, refuse: Option<u16>) -> bool {
        let Some(id) = self.due.get_mut(&number).and_then(VecDeque::pop_front) else {
            return false;
        };
        let answer = match (id, refuse) {
            (MethodId::CHANNEL_OPEN, _) => {
                method(number, MethodId::CHANNEL_OPEN_OK, |a| a.longstr(b"").end())
            }
            (MethodId::CHANNEL_CLOSE, _) => {
                self.open.remove(&number);
                method(number, MethodId::CHANNEL_CLOSE_OK, |_| {})
            }
            (_, Some(code)) => return self.close_channel(number, code, id),
            (MethodId::QUEUE_DECLARE, _) => method(number, MethodId::QUEUE_DECLARE_OK, |a| {
                a.shortstr(b"dlx-proxy.intake").long(0).long(0).end()
            }),
            (MethodId::BASIC_CONSUME, _) => {
                self.consuming = true;
                method(number, MethodId::BASIC_CONSUME_OK, |a| {
                    a.shortstr(b"dlx-proxy").end()
                })
            }
            (MethodId::BASIC_CANCEL, _) => {
                self.consuming = false;
                method(number, MethodId::BASIC_CANCEL_OK, |a| {
                    a.shortstr(b"dlx-proxy").end()
                })
            }
            _ => method(number, MethodId(id.0, id.1 + 1), |_| {}),
        };
        self.link.broker(&answer);
        self.listen();
        true
    }

    pub(super) fn close_channel(&mut self, number: u16, code: u16, failed: MethodId) -> bool {
        if !self.open.contains(&number) {
            return false;
        }
        self.due.remove(&number);
        if number == 2 {
            self.consuming = false;
            self.outstanding.clear();
        }
        let text = format!("{code} because");
        self.link
            .broker(&close(number, code, text.as_bytes(), failed));
        self.listen();
        true
    }

    pub(super) fn deliver(&mut self, input: &mut Input<'_>) {
        let (exchange, piece) = (input.pick(EXCHANGES), 9 + usize::from(input.byte()));
        if !self.consuming || self.outstanding.len() >= self.prefetch || self.draining {
            return;
        }
        self.last_tag += 1;
        self.outstanding.insert(self.last_tag);
        let content = signal(self.life, self.last_tag, input);
        let mut out = method(2, MethodId::BASIC_DELIVER, |a| {
            a.shortstr(b"dlx-proxy")
                .longlong(self.last_tag)
                .octet(0)
                .shortstr(exchange)
                .shortstr(b"k")
                .end()
        });
        content.put(&mut out, ChannelId(2), piece);
        self.link.broker(&out);
    }
}

/// A message that died, mostly as a broker would say it; the body says which delivery it is.
fn signal(life: u32, tag: u64, input: &mut Input<'_>) -> Content {
    let mut deaths = Vec::new();
    for _ in 0..1 + input.below(3) {
        let look = input.byte();
        let key = Member::nameless(b'S', b"k");
        let mut entry = vec![
            Member::long(b"count", if look & 1 == 0 { 1 } else { i64::MAX }),
            Member::longstr(b"reason", input.pick(REASONS)),
            Member::longstr(b"queue", input.pick(QUEUES)),
            Member::new(b"time", b'T', &[0; 8]),
            Member::longstr(b"exchange", b"x"),
            Member::new(b"routing-keys", b'A', &key.raw),
        ];
        if look & 0x70 == 0x70 {
            entry.remove(usize::from(look >> 1) % 6);
        }
        deaths.push(Member::nameless(b'F', &raw(&entry)));
    }
    let mut headers = raw(&[Member::new(b"x-death", b'A', &raw(&deaths))]);
    match input.byte() {
        255 => headers = input.text().to_vec(),
        254 => headers.truncate(headers.len() / 2),
        _ => {}
    }
    let mut body = [&life.to_be_bytes()[..], &tag.to_be_bytes()].concat();
    body.resize(12 + usize::from(input.byte()), b'.');
    let user_id = if input.below(8) == 7 {
        Change::Set(b"bob".to_vec())
    } else {
        Change::Keep
    };
    let empty = Properties::parse(&[0, 0]).expect("no properties");
    Content {
        properties: empty.edit(&Edit {
            headers: Change::Set(headers),
            user_id,
            ..Edit::default()
        }),
        body: body.into(),
    }
}
