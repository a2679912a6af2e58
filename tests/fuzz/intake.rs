//! The intake and any broker: each signal is settled once, an ack only when its dead letter is safe, and who asks for an exchange is answered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use dlx_proxy::amqp::ids::ShortStr;
use dlx_proxy::amqp::method::{MethodId, Settle};
use dlx_proxy::dead_letter::RuleSettings;
use dlx_proxy::intake::{Input as Said, Intake, QueueType, Settings};
use dlx_proxy::link::Login;
use dlx_proxy::machine::{
    Binding, Cause, Change as Changed, Destination, Ensure, Event, Exchange, Flow, LiveLimits,
    Machine, Outcome, Owner, Survey, Ticket,
};
use dlx_proxy::objects::Names;
use dlx_proxy::registry::live::LivePolicies;

use super::driver::limits;
use super::input::Input;
use super::link::{Link, close, method};

#[path = "intake/broker.rs"]
mod broker;

const EXCHANGES: &[&[u8]] = &[
    b"dlx-proxy/dlx",
    b"dlx-proxy+/x/k",
    b"dlx-proxy++/x",
    b"dlx-proxy",
    b"x",
    b"dlx-proxy//k",
];
fn name(text: &[u8]) -> ShortStr {
    ShortStr::copy(text).expect("short")
}

fn settings(queue_type: QueueType, surveyed: bool) -> Settings {
    Settings {
        login: Login {
            vhost: name(b"/"),
            user: name(b"proxy"),
            password: Bytes::from_static(b"secret"),
            seed: 1,
        },
        names: Names::default(),
        policies: LivePolicies::default(),
        queue_type,
        prefetch: 8,
        limits: LiveLimits::new(limits()),
        rules: RuleSettings {
            continue_history: true,
            carry_bcc: true,
        },
        recorded: false,
        surveyed,
    }
}

struct Scene {
    link: Link<Intake>,
    /// Requests of the two channels that wait for their answer.
    due: BTreeMap<u16, VecDeque<MethodId>>,
    open: BTreeSet<u16>,
    consuming: bool,
    prefetch: usize,
    /// Lives of the consumer's channel; the tags of this one without an answer.
    life: u32,
    last_tag: u64,
    outstanding: BTreeSet<u64>,
    /// Dead letters in flight: which delivery of which life; those that are safe, and those that a rule dropped.
    letters: Vec<(Ticket, (u32, u64))>,
    tickets: BTreeSet<Ticket>,
    safe: BTreeSet<(u32, u64)>,
    refused: BTreeSet<(u32, u64)>,
    away: BTreeSet<(u32, u64)>,
    handed_over: bool,
    dropped: usize,
    /// How often each was asked for, and answered.
    asked: BTreeMap<(u64, Vec<u8>), usize>,
    surveys: usize,
    hostile: bool,
    draining: bool,
}

impl Scene {
    fn new(piece: usize, queue_type: QueueType, surveyed: bool) -> Scene {
        Scene {
            link: Link::new(piece, |now| {
                Intake::new(settings(queue_type, surveyed), now)
            }),
            due: BTreeMap::new(),
            open: BTreeSet::new(),
            consuming: false,
            prefetch: 0,
            life: 0,
            last_tag: 0,
            outstanding: BTreeSet::new(),
            letters: Vec::new(),
            tickets: BTreeSet::new(),
            safe: BTreeSet::new(),
            refused: BTreeSet::new(),
            away: BTreeSet::new(),
            handed_over: false,
            dropped: 0,
            asked: BTreeMap::new(),
            surveys: 0,
            hostile: false,
            draining: false,
        }
    }

    fn listen(&mut self) {
        for event in std::mem::take(&mut self.link.fx.events) {
            let cycle = Outcome::Dropped(Cause::Cycle);
            self.dropped +=
                usize::from(matches!(&event, Event::DeadLetter(dead) if dead.outcome == cycle));
        }
        for (ticket, publication) in std::mem::take(&mut self.link.fx.out.dead) {
            let body = &publication.content.body;
            let number = |range: std::ops::Range<usize>| {
                body[range]
                    .iter()
                    .fold(0u64, |n, octet| n << 8 | u64::from(*octet))
            };
            let delivery = (number(0..4) as u32, number(4..12));
            // Once more is only what the broker refused because of its user-id.
            let first = self.tickets.insert(ticket);
            assert!(
                first || self.refused.remove(&delivery) || self.hostile,
                "{ticket:?} twice"
            );
            self.letters.push((ticket, delivery));
        }
        for sent in self.link.sent() {
            let Some(id) = sent.method() else {
                continue;
            };
            match id {
                MethodId::CHANNEL_OPEN => {
                    assert!(
                        self.open.insert(sent.channel) || self.hostile,
                        "{} is open",
                        sent.channel
                    );
                    self.due.entry(sent.channel).or_default().push_back(id);
                    if sent.channel == 2 {
                        (self.life, self.last_tag) = (self.life + 1, 0);
                        self.outstanding.clear();
                    }
                }
                MethodId::CHANNEL_CLOSE_OK => {
                    self.open.remove(&sent.channel);
                }
                MethodId::BASIC_ACK | MethodId::BASIC_REJECT | MethodId::BASIC_NACK => {
                    let settle = Settle::parse(&sent.payload).expect("a settlement");
                    self.settle(id == MethodId::BASIC_ACK, settle);
                }
                _ => {
                    assert!(
                        self.open.contains(&sent.channel) || self.hostile,
                        "{id:?} on {}",
                        sent.channel
                    );
                    if id == MethodId::BASIC_QOS {
                        self.prefetch =
                            usize::from(u16::from_be_bytes([sent.payload[8], sent.payload[9]]));
                    }
                    self.due.entry(sent.channel).or_default().push_back(id);
                }
            }
        }
        for (owner, ensured) in std::mem::take(&mut self.link.fx.out.ensured) {
            let asked = self.asked.get_mut(&(owner.0, ensured.exchange.to_vec()));
            let open = asked
                .filter(|open| **open > 0)
                .expect("an answer that nobody waits for");
            *open -= 1;
        }
        self.surveys += usize::from(std::mem::take(&mut self.link.fx.out.survey));
        if !self.link.connected {
            self.gone();
        }
    }

    /// The connection is gone, and the broker has again what was not settled.
    fn gone(&mut self) {
        self.due.clear();
        self.open.clear();
        self.outstanding.clear();
        self.consuming = false;
    }

    fn settle(&mut self, acked: bool, settle: Settle) {
        let tag = settle.delivery_tag.0;
        if self.hostile {
            return;
        }
        assert!(
            self.outstanding.contains(&tag),
            "{settle:?} is not outstanding"
        );
        let named: Vec<u64> = self
            .outstanding
            .iter()
            .copied()
            .filter(|t| *t == tag || (settle.multiple && *t < tag))
            .collect();
        for tag in named {
            self.outstanding.remove(&tag);
            let delivery = (self.life, tag);
            if settle.requeue {
                let away = self.handed_over || self.draining || self.away.contains(&delivery);
                assert!(away, "{delivery:?} is returned for nothing");
                assert!(!self.safe.contains(&delivery), "{delivery:?} comes twice");
                self.letters.retain(|(_, of)| *of != delivery);
                continue;
            }
            let flies = self.letters.iter().any(|(_, of)| *of == delivery);
            assert!(!flies, "{delivery:?} before its dead letter has an outcome");
            if acked && !self.safe.contains(&delivery) {
                assert!(self.dropped > 0, "{delivery:?} is lost");
                self.dropped -= 1;
            }
            assert!(
                acked || !self.safe.contains(&delivery),
                "{delivery:?} is parked though it is safe"
            );
        }
    }

    fn outcome(&mut self, at: usize, outcome: Outcome) {
        let (ticket, delivery) = self.letters.remove(at);
        match outcome {
            Outcome::Refused(Cause::PublisherAway) => self.away.insert(delivery),
            Outcome::Refused(_) => self.refused.insert(delivery),
            _ => self.safe.insert(delivery),
        };
        self.link.input(Said::Settled(vec![(ticket, outcome)]));
        self.listen();
    }

    fn ensure(&mut self, input: &mut Input<'_>) {
        let (owner, exchange) = (u64::from(input.byte() % 3), input.pick(EXCHANGES));
        *self.asked.entry((owner, exchange.to_vec())).or_default() += 1;
        self.link.input(Said::Ensure(
            Owner(owner),
            Ensure {
                exchange: name(exchange),
                user: Some(name(&[b'a' + owner as u8])),
            },
        ));
    }

    fn survey(&mut self, input: &mut Input<'_>) {
        if self.surveys == 0 {
            return;
        }
        self.surveys -= 1;
        let exchange = |name_: &[u8]| Exchange {
            name: name(name_),
            kind: name(b"fanout"),
            arguments: Vec::new(),
            policy: false,
        };
        let found = (0..input.below(5)).map(|_| binding(input)).collect();
        let survey = Survey {
            begun: self.link.now.mono,
            exchanges: vec![exchange(b"dlx"), exchange(b"x")],
            bindings: found,
        };
        self.link
            .input(Said::Surveyed(Some(survey).filter(|_| input.flag())));
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(32) {
            0..=5 => {
                let number = 1 + input.below(2) as u16;
                self.answer(number, None);
            }
            6 => {
                let (number, code) = (
                    1 + input.below(2) as u16,
                    input.pick(&[403, 404, 406, 405, 541]),
                );
                self.answer(number, Some(code));
            }
            7 => {
                self.link.up(
                    input.pick(&[b"4.3.6".as_slice(), b"3.10.8", b"3.13.1"]),
                    input.pick(&[131_072, 8192, 0]),
                    2047,
                );
                self.listen();
                for _ in 0..input.byte() {
                    if !(self.answer(1, None) || self.answer(2, None)) {
                        break;
                    }
                }
            }
            8..=14 => self.deliver(input),
            15..=18 => {
                let (which, how) = (input.byte(), input.byte());
                if !self.letters.is_empty() {
                    let outcome = match how % 6 {
                        0 | 1 => Outcome::Confirmed,
                        2 => Outcome::Parked(Cause::Nacked),
                        3 => Outcome::Refused(Cause::PublisherAway),
                        4 => Outcome::Refused(Cause::UserId),
                        _ => Outcome::Dropped(Cause::Unroutable),
                    };
                    self.outcome(usize::from(which) % self.letters.len(), outcome);
                }
            }
            19..=21 => self.ensure(input),
            22 | 23 => self
                .link
                .pass(input.pick(&[10, 1100, 4500, 11_000, 61_000])),
            24 => self.link.cut(),
            25 => {
                let number = 1 + input.below(2) as u16;
                self.close_channel(number, 541, MethodId(0, 0));
            }
            26 if self.consuming => {
                self.consuming = false;
                self.link.broker(&method(2, MethodId::BASIC_CANCEL, |a| {
                    a.shortstr(b"dlx-proxy").octet(1).end()
                }));
            }
            27 => self.survey(input),
            28 => {
                let changed = binding(input);
                let change = if input.flag() {
                    Changed::Bound(changed)
                } else {
                    Changed::Unbound(changed)
                };
                self.link.input(Said::Changed(vec![change]));
            }
            29 => self
                .link
                .broker(&close(0, 320, b"CONNECTION_FORCED", MethodId(0, 0))),
            30 if input.below(8) == 0 => {
                self.draining = true;
                self.link.drain();
            }
            30 => {
                let up = input.flag();
                self.handed_over = !up;
                self.link.input(Said::Publisher(up));
            }
            31 if input.below(4) == 0 => {
                self.hostile = true;
                self.link.broker_says_anything(
                    input,
                    &[
                        MethodId::BASIC_DELIVER,
                        MethodId::QUEUE_DECLARE_OK,
                        MethodId::CHANNEL_CLOSE,
                        MethodId::BASIC_CANCEL,
                        MethodId::CONNECTION_START,
                        MethodId::CONNECTION_OPEN_OK,
                    ],
                );
            }
            _ => {}
        }
        self.listen();
    }

    fn settle_down(&mut self) {
        for _ in 0..100 {
            if matches!(self.link.machine.flow(), Flow::Finish) {
                break;
            }
            if self.hostile {
                self.link.cut();
                self.listen();
                self.hostile = false;
            }
            self.link.up(b"4.3.6", 131_072, 2047);
            self.listen();
            while self.answer(1, None) || self.answer(2, None) {}
            while !self.letters.is_empty() {
                self.outcome(0, Outcome::Confirmed);
            }
            self.link.pass(700);
            self.listen();
        }
        if matches!(self.link.machine.flow(), Flow::Finish) {
            // The process has ended: the broker has again what is left, and no session waits.
            return;
        }
        assert!(
            self.outstanding.is_empty(),
            "never settled: {:?}",
            self.outstanding
        );
        let open: Vec<_> = self.asked.iter().filter(|(_, open)| **open > 0).collect();
        assert!(open.is_empty(), "never answered: {open:?}");
    }
}

fn binding(input: &mut Input<'_>) -> Binding {
    Binding {
        source: name(input.pick(&[b"dlx", b"x", b""])),
        destination: Destination::Queue(name(input.pick(broker::QUEUES))),
        routing_key: name(b"k"),
        arguments: Vec::new(),
    }
}

fn play(program: &[u8], piece: usize, look: u8) -> Vec<u8> {
    let queue_type = if look & 1 == 0 {
        QueueType::Quorum
    } else {
        QueueType::Classic
    };
    let mut scene = Scene::new(piece, queue_type, look & 2 != 0);
    let mut input = Input::new(program);
    while !input.is_empty() && !matches!(scene.link.machine.flow(), Flow::Finish) {
        scene.step(&mut input);
    }
    scene.settle_down();
    scene.link.out
}

pub(crate) fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let (piece, look) = (usize::from(input.byte()), input.byte());
    let program = input.rest();
    assert!(
        play(program, 0, look) == play(program, piece, look),
        "in pieces of {piece} (0: the same once more)"
    );
}
