//! A session and two peers that say anything: sound frames, broken ones, other protocols. It stays bounded, goes on, and what it does not look
//! into passes to the last octet.

mod driver;
mod input;
mod trace;

use dlx_proxy::amqp::frame;
use dlx_proxy::amqp::ids::ChannelId;
use dlx_proxy::amqp::method::MethodId;
use dlx_proxy::machine::{Cause, Ensured, Flow, Leg, Outcome};
use dlx_proxy::registry::policy::Mode;
use dlx_proxy::session::Input as Said;

use driver::Driver;
use input::Input;

/// Methods that somebody acts on, of both sides.
const METHODS: &[MethodId] = &[
    MethodId::CHANNEL_OPEN,
    MethodId::CHANNEL_OPEN_OK,
    MethodId::CHANNEL_CLOSE,
    MethodId::CHANNEL_CLOSE_OK,
    MethodId::CHANNEL_FLOW_OK,
    MethodId::QUEUE_DECLARE,
    MethodId::QUEUE_DECLARE_OK,
    MethodId::QUEUE_DELETE,
    MethodId::BASIC_CONSUME,
    MethodId::BASIC_CONSUME_OK,
    MethodId::BASIC_DELIVER,
    MethodId::BASIC_GET,
    MethodId::BASIC_GET_OK,
    MethodId::BASIC_ACK,
    MethodId::BASIC_NACK,
    MethodId::BASIC_REJECT,
    MethodId::BASIC_PUBLISH,
    MethodId::BASIC_CANCEL,
    MethodId::BASIC_CANCEL_OK,
    MethodId::BASIC_RECOVER,
    MethodId::BASIC_RECOVER_OK,
    MethodId::EXCHANGE_DECLARE,
    MethodId::EXCHANGE_BIND,
    MethodId::QUEUE_BIND,
    MethodId::TX_SELECT,
    MethodId::CONNECTION_START,
    MethodId::CONNECTION_TUNE_OK,
    MethodId::CONNECTION_OPEN_OK,
    MethodId::CONNECTION_CLOSE,
    MethodId(60, 99),
];

/// Arguments as the methods have them, so that views are not always cut short.
fn arguments(input: &mut Input<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..input.below(7) {
        match input.below(7) {
            0 => out.extend([0, 0]),
            1 => out.extend(b"\x01q"),
            2 => out.push(input.byte()),
            3 => out.extend(u64::from(input.byte() % 8).to_be_bytes()),
            4 => out.extend(b"\0\0\0\x1f\x16x-dead-letter-exchangeS\0\0\0\x03dlx"),
            5 => out.extend([0; 4]),
            _ => out.extend(input.bytes(3)),
        }
    }
    out
}

/// What a peer says next.
fn said(input: &mut Input<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    match input.below(8) {
        0 => out.extend_from_slice(input.text()),
        1 | 2 => {
            let (channel, octets) = (ChannelId(input.below(3) as u16), u64::from(input.byte()));
            let properties = input.pick::<&[u8]>(&[
                b"\0\0",
                b"\x20\0\0\0\0\x14\x11x-dlx-proxy-secretV",
                b"\xff",
                b"",
            ]);
            frame::put(&mut out, 2, channel, |out| {
                out.extend([0, 60, 0, 0]);
                out.extend(octets.to_be_bytes());
                out.extend_from_slice(properties);
            });
            if input.flag() {
                let body = vec![b'b'; octets as usize];
                frame::put(&mut out, 3, channel, |out| out.extend(body));
            }
        }
        3 => {
            let (kind, channel) = (input.below(10) as u8, ChannelId(input.below(3) as u16));
            let payload = input.text();
            frame::put(&mut out, kind, channel, |out| {
                out.extend_from_slice(payload)
            });
        }
        _ => {
            let (MethodId(class, method), channel) =
                (input.pick(METHODS), ChannelId(input.below(4) as u16));
            let arguments = arguments(input);
            frame::put(&mut out, 1, channel, |out| {
                out.extend(class.to_be_bytes());
                out.extend(method.to_be_bytes());
                out.extend_from_slice(&arguments);
            });
        }
    }
    match input.byte() {
        255 => out.truncate(out.len() / 2),
        254 => out
            .iter_mut()
            .last()
            .into_iter()
            .for_each(|last| *last ^= 1),
        _ => {}
    }
    out
}

/// Says it, and if that leg is not looked into any more, all of it must have passed.
fn read(driver: &mut Driver, leg: Leg, bytes: &[u8]) {
    let other = leg.other() as usize;
    let (raw, before) = (driver.is_raw(leg), driver.out[other].len());
    driver.read(leg, bytes);
    if raw {
        assert_eq!(
            driver.out[other][before..],
            *bytes,
            "not all that is not looked into passes"
        );
    }
}

fn play(program: &[u8], version: Option<&[u8]>, mode: Mode, piece: usize) -> Option<[Vec<u8>; 2]> {
    let mut driver = Driver::new(mode, piece);
    if let Some(version) = version {
        driver.open(version);
    }
    let mut input = Input::new(program);
    while !input.is_empty() && driver.flow() != Flow::Finish {
        match input.below(16) {
            0..=6 => {
                let said = said(&mut input);
                read(&mut driver, Leg::Client, &said);
            }
            7..=12 => {
                let said = said(&mut input);
                read(&mut driver, Leg::Broker, &said);
            }
            13 => driver.pass(input.pick(&[1, 4000, 11_000, 61_000])),
            14 => {
                if let Some((ticket, _)) = driver.dead.pop() {
                    let outcome =
                        input.pick(&[Outcome::Confirmed, Outcome::Refused(Cause::PublisherAway)]);
                    driver.input(Said::Settled(vec![(ticket, outcome)]));
                }
                if let Some(exchange) = driver.ensure.pop() {
                    driver.input(Said::Ensured(Ensured {
                        exchange,
                        ready: input.flag(),
                    }));
                }
            }
            _ => match input.byte() {
                0..=15 => driver.closed(Leg::Client),
                16..=19 => driver.closed(Leg::Broker),
                20..=23 => driver.drain(),
                _ => {}
            },
        }
    }
    // A session always has an end: its peers go, and it does within what it waits at most.
    driver.closed(Leg::Client);
    driver.pass(60_000);
    assert_eq!(
        driver.flow(),
        Flow::Finish,
        "its client is gone, and it goes on"
    );
    driver.end();
    let [client, broker] = driver.out;
    // What is no frame is dropped as it comes once the client knows of the end: there pieces may matter.
    if driver.draining && piece > 0 {
        return None;
    }
    Some([client, broker])
}

/// Not AMQP 0-9-1: everything passes, both ways.
fn tunnel(input: &mut Input<'_>, piece: usize) {
    let mut driver = Driver::new(Mode::Full, piece);
    let mut sent = [Vec::new(), Vec::new()];
    while !input.is_empty() {
        let leg = if input.flag() {
            Leg::Client
        } else {
            Leg::Broker
        };
        let bytes = said(input);
        sent[leg as usize].extend_from_slice(&bytes);
        driver.read(leg, &bytes);
    }
    // Until it is known whether it is, at most seven octets are held back.
    let client = &sent[Leg::Client as usize];
    let known = client.len().min(frame::PROTOCOL.len());
    if client[..known] != frame::PROTOCOL[..known]
        || (known < 8 && !sent[Leg::Broker as usize].is_empty())
    {
        assert_eq!(driver.out[Leg::Client as usize], sent[Leg::Broker as usize]);
        assert!(sent[0].starts_with(&driver.out[Leg::Broker as usize]));
        assert_eq!(&driver.out[Leg::Broker as usize], client);
    }
}

pub(crate) fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let (what, piece) = (input.byte(), usize::from(input.byte()));
    let mode = if what & 16 == 0 {
        Mode::RejectsOnly
    } else {
        Mode::Full
    };
    let version = match what % 8 {
        0 => return tunnel(&mut input, piece),
        1 => None,
        2 => Some(&b"3.9.1"[..]),
        3 => Some(&b"3.10.8"[..]),
        4 => Some(&b"3.13.7"[..]),
        _ => Some(&b"4.3.6"[..]),
    };
    let program = input.rest();
    let whole = play(program, version, mode, 0);
    let again = play(program, version, mode, piece);
    assert!(
        again.is_none() || whole == again,
        "in pieces of {piece} (0: the same once more)"
    );
}
