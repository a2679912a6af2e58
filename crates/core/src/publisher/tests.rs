//! The publisher against a scripted broker, by the rows of the table of outcomes.

use bytes::Bytes;

use super::*;
use crate::amqp::content::Content;
use crate::amqp::frame::Kind;
use crate::amqp::ids::name;
use crate::amqp::method::{MethodId, Publish};
use crate::amqp::properties::{Properties, Property};
use crate::amqp::table::{Table, TableBuilder};
use crate::link::peer::{Rig, Sent, close, method, with_headers};
use crate::machine::{DeadLetter, Event, Limits, Mono, Purpose, Reason, Rejecter};
use crate::machine::{Flow, Leg, Machine};

mod away;
mod bounds;
mod bridges;
mod careful;
mod comes_back;
mod delayed;
mod delays;
mod delivery_time;
mod faults;
mod liveness;
mod no_delays;
mod ordinary;
mod over_bridges;
mod peer;

mod quota;
mod redrive;
mod retries;
mod returned;
mod routes;

const SESSION: Owner = Owner(7);
const INTAKE: Owner = Owner(1);

type PublisherRig = Rig<Publisher>;

fn settings() -> Settings {
    Settings {
        login: Login {
            vhost: name("/"),
            user: name("proxy"),
            password: Bytes::from_static(b"secret"),
            seed: 1,
        },
        names: Names::default(),
        on_unroutable: OnUnroutable::Park,
        limits: LiveLimits::new(Limits {
            intake_bytes: 8_000,
            ..Limits::of_tests()
        }),
        intake: Some(INTAKE),
        existing_delays: Default::default(),
        prefetch: 8,
        careful: false,
    }
}

fn rig_with(settings: Settings) -> PublisherRig {
    let mut rig = Rig::new(Publisher::new(settings, Now::default()));
    rig.up("4.3.6");
    rig.events();
    rig
}

fn rig() -> PublisherRig {
    rig_with(settings())
}

fn message(exchange: &str, routing_key: &str, body: &str) -> Publication {
    Publication {
        exchange: name(exchange),
        routing_key: name(routing_key),
        content: Content {
            properties: Bytes::from_static(&[0, 0]),
            body: Bytes::copy_from_slice(body.as_bytes()),
        },
        queue: name("work"),
        reason: Reason::Rejected,
        at_least_once: false,
        history_cut: false,
        purpose: Purpose::Death,
        by: None,
    }
}

fn foreign(exchange: &str) -> Publication {
    let mut publication = message(exchange, "k", "f");
    publication.content.properties = Bytes::from_static(b"\x00\x10\x03bob");
    publication
}

type Published = (u16, String, String, String);

impl PublisherRig {
    fn publish_as(&mut self, owner: Owner, batch: Vec<(u64, Publication)>) {
        let batch = batch.into_iter().map(|(n, p)| (Ticket(n), p)).collect();
        self.input(Input::Publish(owner, batch));
    }

    fn publish(&mut self, ticket: u64, publication: Publication) {
        self.publish_as(SESSION, vec![(ticket, publication)]);
    }

    /// Opens all requested channels; returns what was published meanwhile.
    fn published(&mut self) -> Vec<Published> {
        let mut published = Vec::new();
        loop {
            let sent = self.sent();
            let opened: Vec<u16> = sent
                .iter()
                .filter(|sent| sent.method() == Some(MethodId::CHANNEL_OPEN))
                .map(|sent| sent.channel)
                .collect();
            published.extend(publishes(&sent));
            if opened.is_empty() {
                return published;
            }
            for channel in opened {
                self.ready(channel);
            }
        }
    }

    fn ready(&mut self, channel: u16) {
        let opened = method(channel, MethodId::CHANNEL_OPEN_OK, |a| a.longstr(b"").end());
        self.broker(&opened);
        self.answer(channel);
    }

    /// Channels that ask whether the broker works; nothing else may be sent.
    fn asked(&mut self) -> Vec<u16> {
        let sent = self.sent();
        assert_eq!(publishes(&sent), []);
        let asks = sent
            .iter()
            .filter(|sent| sent.method() == Some(MethodId::CONFIRM_SELECT));
        asks.map(|sent| sent.channel).collect()
    }

    fn answer(&mut self, channel: u16) {
        self.broker(&method(channel, MethodId::CONFIRM_SELECT_OK, |_| {}));
    }

    fn ack(&mut self, channel: u16, tag: u64, multiple: bool) {
        self.broker(&method(channel, MethodId::BASIC_ACK, |a| {
            a.longlong(tag).octet(u8::from(multiple)).end();
        }));
    }

    fn nack(&mut self, channel: u16, tag: u64) {
        self.broker(&method(channel, MethodId::BASIC_NACK, |a| {
            a.longlong(tag).octet(0).end();
        }));
    }

    fn close(&mut self, channel: u16, code: u16, text: &str) {
        self.broker(&close(channel, code, text, MethodId::BASIC_PUBLISH));
    }

    fn give_back(&mut self, channel: u16, exchange: &str, routing_key: &str, content: &Content) {
        let returned = method(channel, MethodId::BASIC_RETURN, |a| {
            a.short(312)
                .shortstr(b"NO_ROUTE")
                .shortstr(exchange.as_bytes())
                .shortstr(routing_key.as_bytes())
                .end();
        });
        self.broker(&crate::link::peer::content(returned, channel, content));
    }

    /// Time passes; the broker sends something each second, but no answers.
    fn live(&mut self, mut millis: u64) {
        while millis > 0 {
            let step = millis.min(1_000);
            self.pass(step);
            self.broker(&crate::amqp::frame::HEARTBEAT);
            millis -= step;
        }
    }

    fn alarm(&mut self, on: bool) {
        self.broker(&match on {
            true => method(0, MethodId::CONNECTION_BLOCKED, |a| {
                a.shortstr(b"low on disk").end();
            }),
            false => method(0, MethodId::CONNECTION_UNBLOCKED, |_| {}),
        });
    }

    fn told(&mut self) -> Vec<bool> {
        let told = std::mem::take(&mut self.fx.out.takes);
        assert!(told.iter().all(|(owner, _)| *owner == INTAKE));
        told.into_iter().map(|(_, up)| up).collect()
    }

    fn cut(&mut self) {
        self.machine.closed(Leg::Broker, self.now, &mut self.fx);
        self.fx.broker.finish().0.clear();
    }

    fn settled(&mut self) -> Vec<(u64, Outcome)> {
        let settled = std::mem::take(&mut self.fx.out.settled);
        settled
            .into_iter()
            .map(|(_, ticket, outcome)| (ticket.0, outcome))
            .collect()
    }
}

fn publishes(sent: &[Sent]) -> Vec<Published> {
    let mut published: Vec<Published> = Vec::new();
    for sent in sent {
        if sent.method() == Some(MethodId::BASIC_PUBLISH) {
            let publish = Publish::parse(&sent.payload).unwrap();
            assert_eq!(publish.bits, 1, "mandatory");
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            published.push((
                sent.channel,
                text(publish.exchange),
                text(publish.routing_key),
                String::new(),
            ));
        }
        if sent.kind == Kind::Body {
            let last = published.last_mut().unwrap();
            last.3.push_str(std::str::from_utf8(&sent.payload).unwrap());
        }
    }
    published
}

fn row(channel: u16, exchange: &str, routing_key: &str, body: &str) -> Published {
    (channel, exchange.into(), routing_key.into(), body.into())
}

fn headers(sent: &[Sent]) -> Vec<(String, Vec<u8>)> {
    let header = sent.iter().find(|sent| sent.kind == Kind::Header).unwrap();
    let properties = Properties::parse(&header.payload[12..]).unwrap();
    let table = Table(properties.headers().unwrap_or_default());
    let fields = table.fields().map(|field| field.unwrap());
    fields
        .map(|field| {
            let name = String::from_utf8(field.name.to_vec()).unwrap();
            (name, field.value.data.to_vec())
        })
        .collect()
}

fn user_id(sent: &[Sent]) -> Option<String> {
    let header = sent.iter().find(|sent| sent.kind == Kind::Header).unwrap();
    let properties = Properties::parse(&header.payload[12..]).unwrap();
    let user = properties.get(Property::UserId)?;
    Some(String::from_utf8(user.to_vec()).unwrap())
}
