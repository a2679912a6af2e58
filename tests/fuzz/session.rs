//! A session between a client and a broker that keep to the protocol, in any order, at any time, in any pieces. The two models hold it to the
//! ledger of deliveries and to what each side may hear; at the end nothing waits for ever.

#[path = "session/broker.rs"]
mod broker;
#[path = "session/client.rs"]
mod client;

use dlx_proxy::amqp::ids::ChannelId;
use dlx_proxy::amqp::method::MethodId;
use dlx_proxy::amqp::reply;
use dlx_proxy::machine::{Cause, Ensured, Flow, Leg, Outcome, Ticket};
use dlx_proxy::registry::policy::Mode;
use dlx_proxy::session::Input as Said;

use super::driver::Driver;
use super::input::Input;
use super::link::method;
use broker::{Broker, Delivery, Ledger, Letter, Word, delivery_of};
use client::Client;

/// Words of a broker that refuses.
const REFUSALS: &[(u16, &[u8])] = &[
    (403, b"ACCESS_REFUSED - write access to exchange 'dlx' in vhost '/' refused for user 'guest'"),
    (404, b"NOT_FOUND - no queue 'q' in vhost '/'"),
    (406, b"PRECONDITION_FAILED - invalid arg 'x-expires' for queue 'q' in vhost '/': {value_negative,-1}"),
    (406, b"PRECONDITION_FAILED - invalid arg 'x-max-age' for queue 'q' in vhost '/' of queue type rabbit_classic_queue"),
    (406, b"PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost '/': received 'dlx-proxy/dlx' but current is 'dlx-proxy/y'"),
    (406, b"PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost '/': received 'dlx-proxy/dlx' but current is 'dlx'"),
    (406, b"PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': received 'false' but current is 'true'"),
    (406, b""),
];

/// The whole scene.
struct Scene {
    driver: Driver,
    client: Client,
    broker: Broker,
    ledger: Ledger,
    letters: Vec<(Ticket, Delivery)>,
    /// The broker, or the process, ended it: nothing has to come to an end by itself.
    cut: bool,
}

// === impl Scene ===

impl Scene {
    /// Everybody reads what was said.
    fn listen(&mut self) {
        for (ticket, publication) in self.driver.dead.drain(..) {
            let delivery = delivery_of(&publication.content.body);
            let word = self.ledger.words.get(&delivery);
            let loose = self.ledger.loose.contains(&(delivery.0, delivery.1));
            assert!(
                word == Some(&Word::Dies) || loose,
                "{delivery:?} did not die"
            );
            let before = self.ledger.letters.insert(delivery, Letter::InFlight);
            assert_eq!(before, None, "{delivery:?} has two dead letters");
            self.letters.push((ticket, delivery));
        }
        if !self.cut && !self.broker.over {
            self.broker
                .hear(&self.driver.out[Leg::Broker as usize], &mut self.ledger);
        }
        if !self.driver.is_gone() {
            self.client
                .hear(&self.driver.out[Leg::Client as usize], &self.ledger);
        }
    }

    fn client_says(&mut self, bytes: &[u8]) {
        self.driver.read(Leg::Client, bytes);
        self.listen();
    }

    fn broker_says(&mut self, bytes: &[u8]) {
        self.driver.read(Leg::Broker, bytes);
        self.listen();
    }

    fn settle(&mut self, at: usize, outcome: Outcome) {
        let (ticket, delivery) = self.letters.remove(at);
        let letter = if matches!(outcome, Outcome::Refused(_)) {
            Letter::Refused
        } else {
            Letter::Safe
        };
        self.ledger.letters.insert(delivery, letter);
        self.driver.input(Said::Settled(vec![(ticket, outcome)]));
        self.listen();
    }

    fn ensured(&mut self, ready: bool) {
        if !self.driver.ensure.is_empty() {
            let exchange = self.driver.ensure.remove(0);
            self.driver
                .input(Said::Ensured(Ensured { exchange, ready }));
            self.listen();
        }
    }

    fn recalled(&mut self, known: u8) {
        if !self.driver.recall.is_empty() {
            let about = self.driver.recall.remove(0);
            self.driver.recalled(about, known);
            self.listen();
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(32) {
            0..=11 if !self.client.over && !self.driver.is_gone() => {
                let sure = self.driver.hears_client();
                let said = self.client.says(input, sure, &mut self.ledger);
                self.client_says(&said);
            }
            12..=18 => {
                let (channel, how) = (input.byte(), input.byte());
                let number = self.broker.who_waits().unwrap_or(0);
                let number = if channel & 3 == 0 {
                    number
                } else {
                    u16::from(channel & 3)
                };
                let refusal = (how >= 240).then(|| REFUSALS[usize::from(how) % REFUSALS.len()]);
                let answer = self
                    .broker
                    .answer(number, refusal, how & 1 == 1, &mut self.ledger);
                self.broker_says(&answer);
            }
            19..=23 => {
                let (channel, which, octets, look) = (
                    1 + input.below(3) as u16,
                    input.byte().into(),
                    input.byte(),
                    input.byte(),
                );
                let octets = if octets == 255 {
                    5000
                } else {
                    usize::from(octets)
                };
                let piece = 9 + usize::from(look >> 3) * 16;
                let delivery = self.broker.deliver(
                    channel,
                    which,
                    octets,
                    &broker::headers(look),
                    piece,
                    &mut self.ledger,
                );
                self.broker_says(&delivery);
            }
            24 | 25 => {
                let (which, how) = (input.byte(), input.byte());
                if !self.letters.is_empty() {
                    let outcome = match how % 5 {
                        0 | 1 => Outcome::Confirmed,
                        2 => Outcome::Parked(Cause::Nacked),
                        3 => Outcome::Dropped(Cause::Unroutable),
                        _ => Outcome::Refused(Cause::PublisherAway),
                    };
                    self.settle(usize::from(which) % self.letters.len(), outcome);
                }
            }
            26 | 27 => {
                self.recalled(input.byte());
                self.ensured(input.flag());
            }
            28 | 29 => {
                let millis = input.pick(&[1, 100, 3000, 6000, 61_000]);
                self.driver.pass(millis);
                self.listen();
            }
            30 => {
                let channel = 1 + input.below(3) as u16;
                let said = match input.below(8) {
                    0..=3 => self.broker.cancel(channel),
                    4 | 5 => {
                        self.broker
                            .close_channel(channel, 541, b"INTERNAL_ERROR", MethodId(0, 0))
                    }
                    6 => frame_of(MethodId::CONNECTION_BLOCKED, b"low on memory"),
                    _ => dlx_proxy::amqp::frame::HEARTBEAT.to_vec(),
                };
                self.broker_says(&said);
            }
            31 => match input.byte() {
                0..=3 => self.driver.closed(Leg::Client),
                4 => self.cut_by(|driver| driver.closed(Leg::Broker)),
                5 | 6 => self.cut_by(|driver| driver.drain()),
                7 => {
                    let mut close = Vec::new();
                    reply::close(
                        &mut close,
                        ChannelId(0),
                        320,
                        b"CONNECTION_FORCED",
                        MethodId(0, 0),
                    );
                    self.cut_by(|driver| driver.read(Leg::Broker, &close));
                }
                _ => {}
            },
            _ => {}
        }
    }

    fn cut_by(&mut self, cut: impl FnOnce(&mut Driver)) {
        self.cut = true;
        cut(&mut self.driver);
    }

    /// The broker serves, the publisher confirms, time passes: then nothing is left to be done.
    fn settle_down(&mut self) {
        let mut said = [usize::MAX; 2];
        for _ in 0..100 {
            let now = [0, 1].map(|leg| self.driver.out[leg].len());
            // Twice as long as anything waits.
            if said == now {
                break;
            }
            said = now;
            if self.cut || self.driver.flow() == Flow::Finish {
                break;
            }
            let owed = self.client.close_ok();
            self.client_says(&owed);
            while let Some(number) = self.broker.who_waits() {
                let answer = self.broker.answer(number, None, true, &mut self.ledger);
                self.broker_says(&answer);
            }
            while !self.letters.is_empty() {
                self.settle(0, Outcome::Confirmed);
            }
            while !self.driver.recall.is_empty() {
                self.recalled(0);
            }
            while !self.driver.ensure.is_empty() {
                self.ensured(true);
            }
            self.driver.pass(12_000);
            self.listen();
        }
        let ended = self.client.over || self.broker.over || self.cut;
        if self.driver.is_gone() || ended {
            let flow = self.driver.flow();
            assert!(
                ended || flow == Flow::Finish,
                "the client is gone, and it goes on: {flow:?}"
            );
            return;
        }
        assert_eq!(self.driver.withheld(), 0, "withheld for ever");
        assert!(
            self.driver.hears_client(),
            "the client is not heard any more"
        );
        assert_eq!(self.client.delivered, self.broker.delivered, "deliveries");
        for (number, channel) in &self.client.channels {
            assert!(
                channel.due.is_empty(),
                "{:?} is not answered on {number}",
                channel.due
            );
        }
        for (number, channel) in &self.broker.channels {
            let known = *number == 0 || self.client.channels.contains_key(number);
            assert!(known, "channel {number} stays open");
            let Some(client) = self.client.channels.get(number) else {
                continue;
            };
            for tag in &channel.outstanding {
                let loose = self.ledger.loose.iter().any(|(loose, _)| loose == number);
                assert!(
                    client.view.contains(tag) || loose,
                    "{tag} on {number} is settled, but not at the broker"
                );
            }
        }
    }
}

fn frame_of(id: MethodId, text: &[u8]) -> Vec<u8> {
    method(0, id, |a| a.shortstr(text).end())
}

/// Plays a program; what went to both sides, and the dead letters.
fn play(program: &[u8], mode: Mode, version: &[u8], piece: usize) -> [Vec<u8>; 2] {
    let mut scene = Scene {
        driver: Driver::new(mode, piece),
        client: Client::default(),
        broker: Broker::default(),
        ledger: Ledger::default(),
        letters: Vec::new(),
        cut: false,
    };
    scene.driver.open(version);
    let mut input = Input::new(program);
    while !input.is_empty() && scene.driver.flow() != Flow::Finish {
        scene.step(&mut input);
    }
    scene.settle_down();
    scene.driver.end();
    scene.driver.out
}

pub(crate) fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let mode = input.pick(&[Mode::Keep, Mode::Takeover]);
    let version = input.pick::<&[u8]>(&[b"4.3.6", b"3.10.8", b"3.13.7"]);
    let piece = usize::from(input.byte());
    let program = input.rest();
    let whole = play(program, mode, version, 0);
    let again = play(program, mode, version, piece);
    for (whole, again) in whole.iter().zip(&again) {
        assert_eq!(
            shown(whole),
            shown(again),
            "in pieces of {piece} (0: the same once more)"
        );
    }
}

/// For a failure that can be read.
fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
