//! The publisher and any broker: each dead letter has one outcome, which is what the broker said of it, and none waits for ever.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use dlx_proxy::amqp::content::Content;
use dlx_proxy::amqp::frame::{self, Kind};
use dlx_proxy::amqp::ids::{ChannelId, ShortStr};
use dlx_proxy::amqp::method::{MethodId, Publish};
use dlx_proxy::link::Login;
use dlx_proxy::machine::{
    Flow, LiveLimits, Machine, Outcome, Owner, Publication, Purpose, Reason, Ticket,
};
use dlx_proxy::objects::Names;
use dlx_proxy::publisher::{Input as Said, OnUnroutable, Publisher, Settings};

use super::driver::limits;
use super::input::Input;
use super::link::{Link, close, method};

#[path = "publisher/broker.rs"]
mod broker;

const EXCHANGES: &[&[u8]] = &[b"", b"x", b"y", b"internal"];
const BRIDGE: &[u8] = b"dlx-proxy.bridge/";
const INTAKE: Owner = Owner(1);
const PARKING: &[u8] = b"dlx-proxy.parked";
const REFUSALS: &[(u16, &[u8])] = &[
    (404, b"NOT_FOUND - no exchange 'x' in vhost '/'"),
    (
        403,
        b"ACCESS_REFUSED - write access to exchange 'x' in vhost '/' refused for user 'proxy'",
    ),
    (
        403,
        b"ACCESS_REFUSED - cannot publish to internal exchange 'internal' in vhost '/'",
    ),
    (
        406,
        b"PRECONDITION_FAILED - user_id property set to 'bob' but authenticated user was 'proxy'",
    ),
    (541, b"INTERNAL_ERROR"),
    (501, b"FRAME_ERROR"),
];

fn name(text: &[u8]) -> ShortStr {
    ShortStr::copy(text).expect("short")
}

fn settings(on_unroutable: OnUnroutable) -> Settings {
    Settings {
        login: Login {
            vhost: name(b"/"),
            user: name(b"proxy"),
            password: Bytes::from_static(b"secret"),
            seed: 1,
        },
        names: Names::default(),
        on_unroutable,
        limits: LiveLimits::new(limits()),
        intake: Some(INTAKE),
        existing_delays: Default::default(),
        prefetch: 8,
    }
}

/// A channel as the broker has it.
#[derive(Default)]
struct Channel {
    /// Requests that wait for their answer.
    due: Vec<MethodId>,
    published: u64,
    /// To which exchanges.
    to: BTreeSet<Vec<u8>>,
    unconfirmed: BTreeMap<u64, Flying>,
    /// The publish whose content is coming.
    coming: Option<u64>,
    deaf: bool,
}

/// A publish without a confirm, as it came.
#[derive(Default)]
struct Flying {
    exchange: Vec<u8>,
    routing_key: Vec<u8>,
    header: Vec<u8>,
    body: Vec<u8>,
}

struct Scene {
    link: Link<Publisher>,
    drop: bool,
    channels: BTreeMap<u16, Channel>,
    /// Tickets that were given, those that were answered, and what the broker did to them.
    given: BTreeMap<u64, (bool, &'static [u8])>,
    answered: BTreeSet<u64>,
    acked: BTreeSet<u64>,
    parked: BTreeSet<u64>,
    unroutable: BTreeSet<u64>,
    /// Exchanges that the broker did not find: what waits for them is unroutable too.
    missing: BTreeSet<Vec<u8>>,
    /// The broker said what no broker says: its words count for nothing.
    hostile: bool,
    draining: bool,
    /// The intake was told that nothing of its is wanted: it returns that to its queue.
    handed_over: bool,
}

fn properties(which: u8) -> Bytes {
    match which % 8 {
        6 => Bytes::from_static(b"\x00\x10\x03bob"),
        5 => Bytes::from_static(b"\x20\x00\0\0\0\x07\x01aS\0\0\0\0"),
        4 => {
            // More than a frame of a narrow link can hold.
            let mut headers = vec![0x20, 0, 0, 0, 0x20, 0];
            headers.extend_from_slice(b"\x01aS\0\0\x1f\xf9");
            headers.resize(6 + 0x2000, b'.');
            headers.into()
        }
        _ => Bytes::from_static(&[0, 0]),
    }
}

// === impl Flying ===

impl Flying {
    fn ticket(&self) -> Option<u64> {
        self.body
            .first_chunk()
            .map(|number| u64::from_be_bytes(*number))
    }

    /// As it comes back.
    fn returned(&self, channel: u16) -> Vec<u8> {
        let mut out = method(channel, MethodId::BASIC_RETURN, |a| {
            a.short(312)
                .shortstr(b"NO_ROUTE")
                .shortstr(&self.exchange)
                .shortstr(&self.routing_key)
                .end()
        });
        for (kind, payload) in [(2, &self.header), (3, &self.body)] {
            frame::put(&mut out, kind, ChannelId(channel), |out| {
                out.extend(payload)
            });
        }
        out
    }
}

// === impl Scene ===

impl Scene {
    fn new(piece: usize, drop: bool) -> Scene {
        let on_unroutable = if drop {
            OnUnroutable::Drop
        } else {
            OnUnroutable::Park
        };
        Scene {
            link: Link::new(piece, |now| Publisher::new(settings(on_unroutable), now)),
            drop,
            channels: BTreeMap::new(),
            given: BTreeMap::new(),
            answered: BTreeSet::new(),
            acked: BTreeSet::new(),
            parked: BTreeSet::new(),
            unroutable: BTreeSet::new(),
            missing: BTreeSet::new(),
            hostile: false,
            draining: false,
            handed_over: false,
        }
    }

    fn listen(&mut self) {
        for sent in self.link.sent() {
            let Some(id) = sent.method() else {
                if let Some(channel) = self.channels.get_mut(&sent.channel)
                    && let Some(tag) = channel.coming
                    && let Some(flying) = channel.unconfirmed.get_mut(&tag)
                {
                    match sent.kind {
                        Kind::Header => flying.header = sent.payload,
                        _ => flying.body.extend(sent.payload),
                    }
                }
                continue;
            };
            if id == MethodId::CHANNEL_OPEN {
                let channel = Channel {
                    due: vec![id],
                    ..Channel::default()
                };
                assert!(
                    self.channels.insert(sent.channel, channel).is_none() || self.hostile,
                    "{} is open",
                    sent.channel
                );
                continue;
            }
            let Some(channel) = self.channels.get_mut(&sent.channel) else {
                assert!(
                    self.hostile,
                    "{id:?} on {}, which is not open",
                    sent.channel
                );
                continue;
            };
            match id {
                MethodId::CHANNEL_CLOSE_OK => drop(self.channels.remove(&sent.channel)),
                MethodId::BASIC_PUBLISH => {
                    let publish = Publish::parse(&sent.payload).expect("a publish");
                    assert_eq!(publish.bits, 1, "mandatory");
                    channel.published += 1;
                    channel.to.insert(publish.exchange.to_vec());
                    channel.coming = Some(channel.published);
                    let flying = Flying {
                        exchange: publish.exchange.to_vec(),
                        routing_key: publish.routing_key.to_vec(),
                        ..Flying::default()
                    };
                    channel.unconfirmed.insert(channel.published, flying);
                }
                MethodId::CHANNEL_CLOSE | MethodId::CONFIRM_SELECT => channel.due.push(id),
                _ => {}
            }
        }
        if !self.link.connected {
            self.channels.clear();
        }
        for (owner, ticket, outcome) in std::mem::take(&mut self.link.fx.out.settled) {
            self.settled(owner, ticket.0, outcome);
        }
        let told = std::mem::take(&mut self.link.fx.out.takes);
        let is_away = told.iter().any(|(_, up)| !up) || self.handed_over;
        for (owner, up) in told {
            assert_eq!(owner, INTAKE);
            assert_eq!(self.handed_over, up, "told twice");
            self.handed_over = !up;
        }
        if is_away {
            let its = |ticket: &&u64| Owner(**ticket % 2) == INTAKE;
            self.answered.extend(self.given.keys().filter(its));
        }
        self.link.fx.events.clear();
    }

    fn settled(&mut self, owner: Owner, ticket: u64, outcome: Outcome) {
        let (at_least_once, exchange) = *self.given.get(&ticket).expect("nobody gave this ticket");
        assert_eq!(owner, Owner(ticket % 2), "{ticket} is another's");
        assert!(self.answered.insert(ticket), "{ticket} has two outcomes");
        if self.hostile {
            return;
        }
        match outcome {
            Outcome::Confirmed => {
                assert!(self.acked.contains(&ticket), "{ticket} is not confirmed")
            }
            Outcome::Parked(_) => assert!(self.parked.contains(&ticket), "{ticket} is not parked"),
            Outcome::Dropped(_) => assert!(
                self.drop
                    && !at_least_once
                    && (self.unroutable.contains(&ticket) || self.missing.contains(exchange)),
                "{ticket} is lost"
            ),
            Outcome::Refused(_) => {}
        }
    }

    fn publish(&mut self, input: &mut Input<'_>) {
        let mut batch = Vec::new();
        let owner = input.byte() % 2;
        for _ in 0..=input.below(4) {
            let (exchange, look, octets) = (
                input.pick(EXCHANGES),
                input.byte(),
                usize::from(input.byte()),
            );
            let ticket = 2 * self.given.len() as u64 + u64::from(owner);
            let mut body = ticket.to_be_bytes().to_vec();
            body.resize(8 + octets, b'.');
            let publication = Publication {
                exchange: name(exchange),
                routing_key: name(&[b'k', look & 1]),
                content: Content {
                    properties: properties(look >> 1),
                    body: body.into(),
                },
                queue: name(b"q"),
                reason: Reason::Rejected,
                at_least_once: look & 128 != 0,
                history_cut: false,
                purpose: Purpose::Death,
                by: None,
            };
            self.given
                .insert(ticket, (publication.at_least_once, exchange));
            batch.push((Ticket(ticket), publication));
        }
        if !self.link.machine.accepts() {
            for (ticket, _) in &batch {
                self.given.remove(&ticket.0);
            }
            return;
        }
        self.link.input(Said::Publish(Owner(owner.into()), batch));
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let open: Vec<u16> = self.channels.keys().copied().collect();
        let what = input.below(32);
        let number = open
            .get(input.below(open.len().max(1)))
            .copied()
            .unwrap_or(1);
        match what {
            0..=6 => self.publish(input),
            7..=13 => {
                let due = self
                    .channels
                    .iter()
                    .find(|(_, channel)| !channel.due.is_empty());
                let number = due.map_or(number, |(number, _)| *number);
                self.answer(number);
            }
            14..=20 => {
                let how = input.byte();
                self.confirm(number, how);
            }
            21 | 22 => {
                let refusal = input.pick(REFUSALS);
                let failed = input.pick(&[
                    MethodId::BASIC_PUBLISH,
                    MethodId::EXCHANGE_DECLARE,
                    MethodId::EXCHANGE_BIND,
                    MethodId(0, 0),
                ]);
                self.close_channel(number, refusal, failed);
            }
            23 | 24 => self.link.pass(input.pick(&[10, 300, 2000, 11_000, 70_000])),
            25 => self.link.cut(),
            26 | 27 => {
                let frame_max = input.pick(&[131_072, 8192, 0]);
                self.link.up(b"4.3.6", frame_max, input.pick(&[0, 5, 2047]));
            }
            28 => {
                let id = if input.flag() {
                    MethodId::CONNECTION_BLOCKED
                } else {
                    MethodId::CONNECTION_UNBLOCKED
                };
                self.link
                    .broker(&method(0, id, |a| a.shortstr(b"low on memory").end()));
            }
            29 => {
                let (code, text) = input.pick(REFUSALS);
                self.link
                    .broker(&close(0, code, text, MethodId::BASIC_PUBLISH));
            }
            30 if input.below(8) == 0 => {
                self.draining = true;
                self.link.drain();
            }
            31 if input.below(4) == 0 => {
                self.hostile = true;
                self.link.broker_says_anything(
                    input,
                    &[
                        MethodId::BASIC_ACK,
                        MethodId::BASIC_NACK,
                        MethodId::BASIC_RETURN,
                        MethodId::CHANNEL_CLOSE,
                        MethodId::CONFIRM_SELECT_OK,
                        MethodId::CHANNEL_FLOW,
                        MethodId::CONNECTION_TUNE,
                        MethodId::CONNECTION_START,
                    ],
                );
            }
            _ => {}
        }
        self.listen();
    }

    /// The broker serves: everything comes to an end.
    fn settle_down(&mut self) {
        for _ in 0..400 {
            let left = self.given.len() - self.answered.len();
            if left == 0 && !self.draining {
                break;
            }
            if matches!(self.link.machine.flow(), Flow::Finish) {
                break;
            }
            if self.hostile {
                self.link.cut();
                self.listen();
            }
            self.hostile = false;
            self.link.up(b"4.3.6", 131_072, 2047);
            self.link
                .broker(&method(0, MethodId::CONNECTION_UNBLOCKED, |_| {}));
            self.listen();
            let open: Vec<u16> = self.channels.keys().copied().collect();
            for number in open {
                while self.answer(number) {
                    self.listen();
                }
                while self.confirm(number, 0) {
                    self.listen();
                }
            }
            self.link.pass(300);
            self.listen();
        }
        let left: Vec<_> = self
            .given
            .keys()
            .filter(|ticket| !self.answered.contains(ticket))
            .collect();
        assert!(left.is_empty(), "without an outcome: {left:?}");
        assert_eq!(self.link.machine.held(), 0);
    }
}

/// Plays a program: what was sent, and in which order there were outcomes.
fn play(program: &[u8], piece: usize, drop: bool) -> (Vec<u8>, usize) {
    let mut scene = Scene::new(piece, drop);
    let mut input = Input::new(program);
    while !input.is_empty() {
        scene.step(&mut input);
    }
    // What a hostile broker has confirmed may be anything: it is not asked for.
    let answered = scene.answered.len();
    scene.settle_down();
    (scene.link.out, answered)
}

pub(crate) fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let (piece, drop) = (usize::from(input.byte()), input.flag());
    let program = input.rest();
    assert!(
        play(program, 0, drop) == play(program, piece, drop),
        "in pieces of {piece} (0: the same once more)"
    );
}
