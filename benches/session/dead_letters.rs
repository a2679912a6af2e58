//! A dead letter from its delivery to its ack: the session that withholds the reject, and the publisher with a broker that confirms at once.

use std::hint::black_box;
use std::time::{Duration, Instant};

use dlx_core::amqp::frame;
use dlx_core::amqp::ids::{ChannelId, DeliveryTag, ShortStr};
use dlx_core::amqp::method::{Deliver, MethodId};
use dlx_core::amqp::reply;
use dlx_core::amqp::table::TableBuilder;
use dlx_core::link::Login;
use dlx_core::machine::{Leg, LiveLimits, Machine, Owner};
use dlx_core::publisher::{self, OnUnroutable, Publisher};
use dlx_core::session;

use crate::{Bench, CHANNEL, QUEUE, TAG, content, limits, method};

/// As many as are on their way at once, with a prefetch of 1,000 under load.
const BATCH: u64 = 500;

struct Relay {
    bench: Bench,
    publisher: Publisher,
    fx: publisher::Effects,
    published: u64,
}

/// How long it takes for so many batches, a message.
pub(crate) fn time(batches: u32) -> Duration {
    let mut relay = Relay::open();
    let mut spent = Duration::ZERO;
    for batch in 0..=u64::from(batches) {
        let tags = batch * BATCH + 1..=(batch + 1) * BATCH;
        let (mut given, mut taken) = (Vec::new(), Vec::new());
        for tag in tags.map(DeliveryTag) {
            let said = Deliver {
                consumer_tag: TAG,
                delivery_tag: tag,
                redelivered: false,
                exchange: b"",
                routing_key: QUEUE,
            };
            reply::deliver(&mut given, CHANNEL, &said);
            content(&mut given, 100);
            reply::nack(&mut taken, CHANNEL, tag, false, false);
        }
        let begun = Instant::now();
        relay.pass(&given, &taken);
        // The first one opens the publisher's channel.
        if batch > 0 {
            spent += begun.elapsed();
        }
    }
    spent / batches / BATCH as u32
}

// === impl Relay ===

impl Relay {
    fn open() -> Relay {
        let mut arguments = TableBuilder::default();
        arguments
            .longstr(b"x-dead-letter-exchange", b"")
            .longstr(b"x-dead-letter-routing-key", b"bench.dead");
        let bench = Bench::open(true, b"4.3.6", &arguments.finish());
        let settings = publisher::Settings {
            login: Login {
                vhost: ShortStr::copy(b"/").unwrap_or_default(),
                user: ShortStr::copy(b"dlx-proxy").unwrap_or_default(),
                password: Default::default(),
                seed: 1,
            },
            names: Default::default(),
            on_unroutable: OnUnroutable::Park,
            limits: LiveLimits::new(limits()),
            intake: Some(Owner(0)),
            existing_delays: Default::default(),
            prefetch: 1000,
            careful: false,
        };
        let mut relay = Relay {
            publisher: Publisher::new(settings, bench.now),
            fx: publisher::Effects::default(),
            published: 0,
            bench,
        };
        let (now, fx) = (relay.bench.now, &mut relay.fx);
        relay.publisher.connected(Leg::Broker, now, fx);
        let mut properties = TableBuilder::default();
        properties.longstr(b"version", b"4.3.6");
        let properties = properties.finish();
        let control = ChannelId::CONNECTION;
        relay.says(&method(control, MethodId::CONNECTION_START, |a| {
            a.short(9)
                .longstr(&properties)
                .longstr(b"PLAIN")
                .longstr(b"en_US")
                .end();
        }));
        relay.says(&method(control, MethodId::CONNECTION_TUNE, |a| {
            a.short(2047).long(131_072).short(60).end();
        }));
        relay.says(&method(control, MethodId::CONNECTION_OPEN_OK, |a| {
            a.shortstr(b"").end()
        }));
        relay
    }

    /// The broker to the publisher.
    fn says(&mut self, bytes: &[u8]) {
        let now = self.bench.now;
        self.publisher.read(Leg::Broker, bytes, now, &mut self.fx);
    }

    fn pass(&mut self, given: &[u8], taken: &[u8]) {
        let (now, session) = (self.bench.now, &mut self.bench.session);
        let fx = &mut self.bench.fx;
        session.read(Leg::Broker, given, now, fx);
        fx.client.finish();
        let known = session.read(Leg::Client, taken, now, fx);
        if known < taken.len() {
            // Before the first one it asks whether the queue is the one that was declared.
            session.read(Leg::Broker, &still_there(), now, fx);
            session.read(Leg::Client, &taken[known..], now, fx);
        }
        fx.broker.finish().0.clear();
        let dead = std::mem::take(&mut fx.out.dead);
        assert_eq!(dead.len(), BATCH as usize, "all are withheld");
        let dead = publisher::Input::Publish(Owner(1), dead);
        self.publisher.input(dead, now, &mut self.fx);
        let out = self.fx.broker.finish().0;
        if self.published == 0 {
            out.clear();
            let channel = ChannelId(1);
            self.says(&method(channel, MethodId::CHANNEL_OPEN_OK, |a| {
                a.longstr(b"").end()
            }));
            self.says(&method(channel, MethodId::CONFIRM_SELECT_OK, |_| {}));
        }
        let out = self.fx.broker.finish().0;
        assert!(black_box(out.len()) > 100, "published at once");
        out.clear();
        self.published += BATCH;
        let mut confirm = Vec::new();
        reply::ack(
            &mut confirm,
            ChannelId(1),
            DeliveryTag(self.published),
            true,
        );
        self.says(&confirm);
        let settled = self.fx.out.settled.drain(..);
        let settled: Vec<_> = settled
            .map(|(_, ticket, outcome)| (ticket, outcome))
            .collect();
        assert_eq!(settled.len(), BATCH as usize, "all are confirmed");
        self.fx.events.clear();
        let fx = &mut self.bench.fx;
        let settled = Box::new(session::Input::Settled(settled));
        self.bench.session.input(settled, now, fx);
        let out = fx.broker.finish().0;
        assert!(black_box(out.len()) >= frame::HEAD, "acked at once");
        out.clear();
        fx.events.clear();
    }
}

fn still_there() -> Vec<u8> {
    let probe = ChannelId(u16::MAX);
    let opened = method(probe, MethodId::CHANNEL_OPEN_OK, |a| a.longstr(b"").end());
    let declared = method(probe, MethodId::QUEUE_DECLARE_OK, |a| {
        a.shortstr(QUEUE).long(0).long(0).end();
    });
    let closed = method(probe, MethodId::CHANNEL_CLOSE_OK, |_| {});
    [opened, declared, closed].concat()
}
