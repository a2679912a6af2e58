//! The intake against a scripted broker.

use bytes::Bytes;

use super::*;
use crate::amqp::content::Content;
use crate::amqp::ids::name;
use crate::amqp::method::{ExchangeName, MethodId, QueueBind, QueueDeclare, Settle};
use crate::amqp::table::{ArrayBuilder, Table, TableBuilder};
use crate::dead_letter::RuleSettings;
use crate::link::Login;
use crate::link::peer::{Rig, close, content, method, with_headers};
use crate::machine::LiveLimits;
use crate::machine::{Ensure, Event, Limit, Limits, Owner, Purpose, Reason};
use crate::machine::{Flow, Leg, Machine};
use crate::objects::Names;
use crate::registry::live::LivePolicies;
use crate::registry::policy::{Definition, Pattern, Policies, Policy};

mod consuming;
mod declaring;
mod held;
mod leaving;
mod no_signals;
mod parked;
mod policies;
mod quiet;
mod returning;

type IntakeRig = Rig<Intake>;

fn settings() -> Settings {
    let policies = Policies::new(vec![Policy {
        pattern: Pattern::new("^jobs").unwrap(),
        definition: Definition {
            dead_letter_exchange: Some(name("policy-x")),
            ..Definition::default()
        },
        ..Policy::default()
    }]);
    Settings {
        login: Login {
            vhost: name("/"),
            user: name("proxy"),
            password: Bytes::from_static(b"secret"),
            seed: 1,
        },
        names: Names::default(),
        policies: LivePolicies::new(policies),
        catalogue: Default::default(),
        queue_type: QueueType::Quorum,
        prefetch: 1000,
        limits: LiveLimits::new(Limits::of_tests()),
        rules: RuleSettings {
            continue_history: true,
        },
        recorded: false,
    }
}

fn fresh() -> IntakeRig {
    Rig::new(Intake::new(settings(), Now::default()))
}

/// Up, all objects declared, consuming.
fn rig() -> IntakeRig {
    rig_of(settings())
}

fn rig_of(settings: Settings) -> IntakeRig {
    let mut rig = Rig::new(Intake::new(settings, Now::default()));
    rig.up("4.3.6");
    rig.objects();
    rig.consuming();
    rig.events();
    rig
}

const OBJECTS: [(u16, MethodId); 7] = [
    (1, MethodId::EXCHANGE_DECLARE),
    (1, MethodId::QUEUE_DECLARE),
    (1, MethodId::QUEUE_BIND),
    (1, MethodId::EXCHANGE_DECLARE),
    (1, MethodId::EXCHANGE_DECLARE),
    (1, MethodId::QUEUE_DECLARE),
    (1, MethodId::QUEUE_BIND),
];
const CONSUME: [(u16, MethodId); 2] = [(2, MethodId::BASIC_QOS), (2, MethodId::BASIC_CONSUME)];

impl IntakeRig {
    fn declare_ok(&mut self) {
        self.broker(&method(1, MethodId::EXCHANGE_DECLARE_OK, |_| {}));
    }

    fn queue_ok(&mut self) {
        self.broker(&method(1, MethodId::QUEUE_DECLARE_OK, |a| {
            a.shortstr(b"q").long(0).long(0).end();
        }));
    }

    fn bind_ok(&mut self) {
        self.broker(&method(1, MethodId::QUEUE_BIND_OK, |_| {}));
    }

    fn objects(&mut self) {
        let methods = self.methods();
        assert_eq!(methods[0], (1, MethodId::CHANNEL_OPEN));
        assert_eq!(methods[1..], OBJECTS);
        self.broker(&method(1, MethodId::CHANNEL_OPEN_OK, |a| {
            a.longstr(b"").end()
        }));
        self.objects_ok();
    }

    fn objects_ok(&mut self) {
        self.declare_ok();
        self.queue_ok();
        self.bind_ok();
        self.declare_ok();
        self.declare_ok();
        self.queue_ok();
        self.bind_ok();
    }

    /// Opens the consumer; returns its prefetch.
    fn consuming(&mut self) -> u16 {
        self.consumes().0
    }

    fn consumes(&mut self) -> (u16, String, Vec<u8>) {
        let sent = self.sent();
        let [open, qos, consume] = &sent[..] else {
            panic!("{sent:?}");
        };
        assert!(open.is(2, MethodId::CHANNEL_OPEN));
        assert!(qos.is(2, MethodId::BASIC_QOS));
        assert!(consume.is(2, MethodId::BASIC_CONSUME));
        self.consume_ok();
        let mut rest = &consume.payload[6..];
        let mut short = || {
            let (text, behind) = rest[1..].split_at(rest[0].into());
            rest = behind;
            text.to_vec()
        };
        let (_queue, name) = (short(), short());
        let prefetch = u16::from_be_bytes([qos.payload[8], qos.payload[9]]);
        (
            prefetch,
            String::from_utf8(name).unwrap(),
            rest[5..].to_vec(),
        )
    }

    fn consume_ok(&mut self) {
        self.broker(&method(2, MethodId::BASIC_CONSUME_OK, |a| {
            a.shortstr(b"dlx-proxy").end();
        }));
    }

    fn deliver(&mut self, tag: u64, exchange: &str, content: &Content) {
        self.deliver_as(false, tag, exchange, content);
    }

    fn deliver_as(&mut self, redelivered: bool, tag: u64, exchange: &str, content_: &Content) {
        let deliver = method(2, MethodId::BASIC_DELIVER, |a| {
            a.shortstr(b"dlx-proxy")
                .longlong(tag)
                .octet(redelivered.into())
                .shortstr(exchange.as_bytes())
                .shortstr(b"k")
                .end();
        });
        self.broker(&content(deliver, 2, content_));
    }

    /// Time passes; the broker is not silent.
    fn pass_alive(&mut self, millis: u64) {
        for _ in 0..millis / 1000 {
            self.pass(1000);
            self.broker(&[8, 0, 0, 0, 0, 0, 0, 0xce]);
        }
    }

    /// Whether the publisher was told to forget its items, since the last call.
    fn hands_over(&mut self) -> bool {
        std::mem::take(&mut self.fx.out.hand_over)
    }

    fn answered(&mut self) {
        self.input(Input::Publisher(false));
        self.input(Input::Publisher(true));
    }

    fn consuming_again(&mut self) {
        assert_eq!(self.methods(), CONSUME);
        self.consume_ok();
    }

    fn cancel(&mut self) {
        self.broker(&method(2, MethodId::BASIC_CANCEL, |a| {
            a.shortstr(b"dlx-proxy").octet(1).end();
        }));
    }

    fn cut(&mut self) {
        self.machine.closed(Leg::Broker, self.now, &mut self.fx);
        self.fx.broker.finish().0.clear();
    }

    /// Each owner has its own user.
    fn ensure(&mut self, owner: u64, exchange: &str) {
        let ensure = Ensure {
            exchange: name(exchange),
            user: Some(name(&owner.to_string())),
        };
        self.input(Input::Ensure(Owner(owner), ensure));
    }

    /// Answers since the last call.
    fn ensured(&mut self) -> Vec<(u64, String, bool)> {
        let ensured = std::mem::take(&mut self.fx.out.ensured);
        ensured
            .into_iter()
            .map(|(owner, e)| (owner.0, e.exchange.to_string(), e.ready))
            .collect()
    }

    fn dead(&mut self) -> Vec<(Ticket, Publication)> {
        std::mem::take(&mut self.fx.out.dead)
    }

    fn settle(&mut self, outcomes: &[(Ticket, Outcome)]) {
        self.input(Input::Settled(outcomes.to_vec()));
    }

    /// Since the last call: method, tag, multiple.
    fn settlements(&mut self) -> Vec<(MethodId, u64, bool)> {
        let sent = self.sent();
        let settles = sent.iter().filter(|sent| sent.channel == 2);
        settles
            .map(|sent| {
                let settle = Settle::parse(&sent.payload).unwrap();
                assert!(!settle.requeue);
                (
                    sent.method().unwrap(),
                    settle.delivery_tag.0,
                    settle.multiple,
                )
            })
            .collect()
    }
}

/// A message that expired in that queue, from an intake exchange.
fn died_in(queue: &str, body: &str) -> Content {
    with_headers(died(queue, "expired"), body)
}

fn died(queue: &str, reason: &str) -> TableBuilder {
    died_from(queue, reason, "")
}

fn died_from(queue: &str, reason: &str, exchange: &str) -> TableBuilder {
    let mut keys = ArrayBuilder::default();
    keys.longstr(b"k");
    let mut entry = TableBuilder::default();
    entry
        .long(b"count", 1)
        .longstr(b"reason", reason.as_bytes())
        .longstr(b"queue", queue.as_bytes())
        .timestamp(b"time", 1_700_000_000)
        .longstr(b"exchange", exchange.as_bytes())
        .array(b"routing-keys", &keys);
    let mut deaths = ArrayBuilder::default();
    deaths.table(&entry);
    let mut headers = TableBuilder::default();
    headers.array(b"x-death", &deaths);
    headers
}
