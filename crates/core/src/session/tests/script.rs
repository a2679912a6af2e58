//! Both legs of a session as a script: each step says what comes in and what has to come out, and an output that nobody expected fails.

use std::sync::Arc;
use std::time::Duration;

pub(super) use super::frames::*;
use super::words::shown;
use crate::amqp::frame::{self, Front};
use crate::amqp::ids::{ChannelId, ShortStr, name};
use crate::amqp::method::{Consume, Get, MethodId};
use crate::amqp::reply;
use crate::amqp::table::TableBuilder;
use crate::dead_letter::{Dialect, HistoryForm, RuleSettings, Target};
use crate::machine::*;
use crate::objects::{DeclaredTarget, QueueType};
use crate::registry::arguments::DeclareArguments;
use crate::registry::catalogue::Report;
use crate::registry::catalogue::fact::Source;
use crate::registry::lenient::Lenient;
use crate::registry::live::LivePolicies;
use crate::registry::policy::Mode;
use crate::registry::redeclared::Existing;
use crate::registry::said_retries::SaidRetries;
use crate::registry::{Declared, Form};
use crate::session::{Effects, External, Input, Session, Settings, Turn};

pub(super) const CH: ChannelId = ChannelId(1);
pub(super) const PROBE: ChannelId = ChannelId(65_535);

/// A session and what it has said since it was last asked.
pub(super) struct Script {
    pub session: Session,
    /// Those of the session.
    pub policies: LivePolicies,
    pub now: Now,
    pub fx: Effects,
    pub to_client: Vec<u8>,
    pub to_broker: Vec<u8>,
    pub dead: Vec<(Ticket, Publication)>,
    pub ensure: Vec<Ensure>,
    pub record: Vec<(ShortStr, bool)>,
    pub events: Vec<Event>,
    /// Whether a queue is verified that could have been made anew before its consumer began. Else that is no matter of the script.
    pub doubts: bool,
    /// Whether a queue that nobody declared is asked for. Else that was tried in vain a moment ago.
    pub inquires: bool,
    /// The tickets of all dead letters so far.
    pub tickets: Vec<Ticket>,
    pub channel_max: u16,
    pub frame_max: u32,
    rest: [Vec<u8>; 2],
}

pub(super) fn target(exchange: &str) -> Target {
    Target {
        exchange: name(exchange),
        routing_key: None,
        at_least_once: false,
    }
}

pub(super) fn settings(mode: Mode) -> Settings {
    let rules = RuleSettings {
        continue_history: true,
        history_form: HistoryForm::WRITTEN,
    };
    Settings {
        user: name("dlx-proxy"),
        mode,
        lenient: Lenient::default(),
        names: super::names(),
        policies: LivePolicies::default(),
        rules,
        retained: Budget::new(1 << 20),
        catalogue: Default::default(),
        channel_limits: Default::default(),
        delays: Default::default(),
        limits: super::limits(),
    }
}

/// The same with other limits.
pub(super) fn limited(mode: Mode, change: impl FnOnce(&mut Limits)) -> Settings {
    let settings = settings(mode);
    let mut limits = Limits::clone(&settings.limits.now());
    change(&mut limits);
    settings.limits.set(limits);
    settings
}

fn start(server_properties: &[u8]) -> Vec<u8> {
    method(ChannelId::CONNECTION, MethodId::CONNECTION_START, |a| {
        a.short(9)
            .longstr(server_properties)
            .longstr(b"PLAIN")
            .longstr(b"en_US")
            .end();
    })
}

// === impl Script ===

impl Script {
    /// A session that has seen nothing.
    pub(super) fn fresh(settings: Settings) -> Script {
        Script::behind(External::Passes, settings)
    }

    /// The same, with such a connection to the broker.
    pub(super) fn behind(external: External, settings: Settings) -> Script {
        Script {
            policies: settings.policies.clone(),
            session: Session::of_client(
                Arc::new(settings),
                name("192.0.2.7"),
                external,
                Now {
                    mono: Mono(0),
                    wall: Wall::of_seconds(1000),
                },
            ),
            now: Now {
                mono: Mono(0),
                wall: Wall::of_seconds(1000),
            },
            fx: Effects::default(),
            to_client: Vec::new(),
            to_broker: Vec::new(),
            dead: Vec::new(),
            ensure: Vec::new(),
            record: Vec::new(),
            events: Vec::new(),
            doubts: false,
            inquires: false,
            tickets: Vec::new(),
            channel_max: 2047,
            frame_max: 131_072,
            rest: [Vec::new(), Vec::new()],
        }
    }

    /// A session with an open channel 1, on which nothing is known.
    pub(super) fn open(settings: Settings) -> Script {
        Script::fresh(settings).opened()
    }

    fn opened(self) -> Script {
        self.opened_at("4.3.6")
    }

    /// By a broker of this version.
    pub(super) fn opened_at(mut self, version: &str) -> Script {
        self.client(&frame::PROTOCOL).passes();
        self.handshake(version.as_bytes());
        self.open_channel();
        self.events.clear();
        self
    }

    /// The client opens channel 1.
    pub(super) fn open_channel(&mut self) {
        let open = method(CH, MethodId::CHANNEL_OPEN, |a| a.shortstr(b"").end());
        self.client(&open).passes();
        let ok = method(CH, MethodId::CHANNEL_OPEN_OK, |a| a.longstr(b"").end());
        self.broker(&ok).passes();
    }

    /// From connection.start to connection.open-ok.
    pub(super) fn handshake(&mut self, version: &[u8]) {
        let zero = ChannelId::CONNECTION;
        let mut properties = TableBuilder::default();
        properties.longstr(b"version", version);
        let said = start(properties.as_table().0);
        let shown = match Dialect::of_version(version) {
            None => said.clone(),
            Some(_) => {
                properties.longstr(b"dlx_proxy", env!("CARGO_PKG_VERSION").as_bytes());
                start(properties.as_table().0)
            }
        };
        self.broker(&said).client_gets(&[&shown]);
        let mut properties = TableBuilder::default();
        properties.longstr(b"connection_name", b"worker 1");
        let properties = properties.finish();
        self.client(&method(zero, MethodId::CONNECTION_START_OK, |a| {
            a.longstr(&properties)
                .shortstr(b"PLAIN")
                .longstr(b"\0guest\0guest")
                .shortstr(b"en_US")
                .end();
        }))
        .passes();
        let (channel_max, frame_max) = (self.channel_max, self.frame_max);
        let tune =
            |a: &mut reply::Arguments<'_>| a.short(channel_max).long(frame_max).short(60).end();
        self.broker(&method(zero, MethodId::CONNECTION_TUNE, tune))
            .passes();
        self.client(&method(zero, MethodId::CONNECTION_TUNE_OK, tune))
            .passes();
        self.client(&method(zero, MethodId::CONNECTION_OPEN, |a| {
            a.shortstr(b"/").shortstr(b"").octet(0).end()
        }))
        .passes();
        self.broker(&method(zero, MethodId::CONNECTION_OPEN_OK, |a| {
            a.shortstr(b"").end()
        }))
        .passes();
    }

    /// What went to the client since somebody looked.
    pub(super) fn sent_to_client(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.to_client)
    }

    /// The same of the broker.
    pub(super) fn sent_to_broker(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.to_broker)
    }

    /// The session knows this queue's target, and the client consumes from it under the same name.
    pub(super) fn managed(self, queue: &str, target: Target) -> Script {
        let existing = Existing {
            exchange: Some(target.exchange.clone()),
            routing_key: target.routing_key.clone(),
        };
        let form = Form::of(0, &DeclareArguments::read(b"").with(&existing));
        self.managed_as(queue, target, false, form).consume(queue)
    }

    /// The session knows this queue, its target, and what it has at the broker.
    pub(super) fn managed_as(
        mut self,
        queue: &str,
        target: Target,
        taken_over: bool,
        form: Form,
    ) -> Script {
        let declared = Declared {
            said: DeclaredTarget::Target(target),
            retries: SaidRetries::default(),
            queue_type: QueueType::Classic,
            taken_over,
            form,
            kept: Default::default(),
        };
        self.manages(queue, declared);
        self
    }

    pub(super) fn manages(&mut self, queue: &str, declared: Declared) {
        let mut turn = Turn {
            src: &[],
            now: self.now,
            fx: &mut self.fx,
            mute: false,
        };
        self.session.line(&mut turn).1.manage(name(queue), declared);
        self.collect(&[]);
    }

    /// The client consumes from a queue, under the queue's name.
    pub(super) fn consume(mut self, queue: &str) -> Script {
        self.consumes(queue);
        self
    }

    /// The same.
    pub(super) fn consumes(&mut self, queue: &str) {
        let consume = method(CH, MethodId::BASIC_CONSUME, |a| {
            a.short(0)
                .shortstr(queue.as_bytes())
                .shortstr(queue.as_bytes())
                .octet(0)
                .longstr(b"")
                .end();
        });
        self.client(&consume).passes();
        self.broker(&method(CH, MethodId::BASIC_CONSUME_OK, |a| {
            a.shortstr(queue.as_bytes()).end()
        }))
        .passes();
    }

    pub(super) fn client(&mut self, bytes: &[u8]) -> Said<'_> {
        if !self.inquires {
            self.asked_in_vain(bytes);
        }
        self.read(Leg::Client, bytes)
    }

    /// Of each queue that is read in these frames, and that nobody knows.
    fn asked_in_vain(&self, mut bytes: &[u8]) {
        while let Front::Whole(_, payload, whole) = frame::front(bytes) {
            bytes = &bytes[whole..];
            let queue = match payload {
                [0, 60, 0, 20, ..] => Consume::parse(payload).map(|consume| consume.queue),
                [0, 60, 0, 70, ..] => Get::parse(payload).map(|get| get.queue),
                _ => continue,
            };
            let (registry, now) = (&self.session.registry, self.now.mono);
            let user = self.session.peer.user.as_ref();
            if let Some(queue) = queue.ok().and_then(ShortStr::copy)
                && registry.get(&queue).is_none()
                && registry.is_unknown(&queue, user, now)
            {
                registry.tell(&queue, &Report::InVain(user.cloned()), Source::Refusal, now);
                registry.says_unknown(&queue, now);
            }
        }
    }

    pub(super) fn broker(&mut self, bytes: &[u8]) -> Said<'_> {
        self.read(Leg::Broker, bytes)
    }

    /// As the driver does: what was not consumed is offered again with what comes next.
    fn read(&mut self, leg: Leg, bytes: &[u8]) -> Said<'_> {
        let mut all = std::mem::take(&mut self.rest[leg as usize]);
        all.extend_from_slice(bytes);
        let consumed = self.session.read(leg, &all, self.now, &mut self.fx);
        self.collect(&all);
        self.rest[leg as usize] = all.split_off(consumed);
        if !self.doubts {
            self.session.registry.trust_all();
        }
        Said {
            script: self,
            from: leg,
            came: bytes.to_vec(),
        }
    }

    /// The outcome of dead letters; then the client is read again, if it may.
    pub(super) fn settled(&mut self, outcomes: &[(Ticket, Outcome)]) -> Said<'_> {
        self.input(Input::Settled(outcomes.to_vec()))
    }

    /// Something that no leg says; then the client is read again, if it may.
    pub(super) fn input(&mut self, input: Input) -> Said<'_> {
        self.session.input(input.into(), self.now, &mut self.fx);
        self.collect(&[]);
        self.resume()
    }

    /// A leg ends.
    pub(super) fn gone(&mut self, leg: Leg) -> Said<'_> {
        self.session.closed(leg, self.now, &mut self.fx);
        self.collect(&[]);
        Said {
            script: self,
            from: leg,
            came: Vec::new(),
        }
    }

    /// The process is ending.
    pub(super) fn drain(&mut self) -> Said<'_> {
        Machine::drain(&mut self.session, self.now, &mut self.fx);
        self.collect(&[]);
        Said {
            script: self,
            from: Leg::Client,
            came: Vec::new(),
        }
    }

    /// Time passes.
    pub(super) fn wait(&mut self, time: Duration) -> Said<'_> {
        self.now.mono = self.now.mono.after(time);
        while self
            .session
            .deadline()
            .is_some_and(|at| at <= self.now.mono)
        {
            self.session.timeout(self.now, &mut self.fx);
            self.collect(&[]);
            if self.session.flow() == Flow::Finish {
                break;
            }
        }
        self.resume()
    }

    pub(super) fn resume(&mut self) -> Said<'_> {
        if self.session.wants_read(Leg::Client, 0) && !self.rest[Leg::Client as usize].is_empty() {
            return self.read(Leg::Client, &[]);
        }
        Said {
            script: self,
            from: Leg::Client,
            came: Vec::new(),
        }
    }

    /// The only dead letter that was handed over since the last look.
    pub(super) fn ticket(&mut self) -> Ticket {
        assert_eq!(self.dead.len(), 1, "dead letters: {:?}", self.dead);
        self.dead.remove(0).0
    }

    /// Another session of the same user and the same process.
    pub(super) fn another(&self) -> Script {
        let mut script = Script::open((*self.session.settings).clone());
        script.now = self.now;
        script
    }

    fn collect(&mut self, src: &[u8]) {
        for (leg, out) in [
            (Leg::Client, &mut self.to_client),
            (Leg::Broker, &mut self.to_broker),
        ] {
            let (buffered, run) = self.fx.wire(leg).finish();
            out.append(buffered);
            out.extend_from_slice(&src[run]);
        }
        let tickets = self.fx.out.dead.iter().map(|dead| dead.0);
        self.tickets.extend(tickets);
        self.dead.append(&mut self.fx.out.dead);
        self.ensure.append(&mut self.fx.out.ensure);
        let record = self.fx.out.record.drain(..);
        self.record.extend(record.map(|of| (of.0, of.2)));
        self.events.append(&mut self.fx.events);
    }
}

/// What the session said to one step. Every step must ask; what nobody asked for fails at the next.
#[must_use]
pub(super) struct Said<'a> {
    script: &'a mut Script,
    from: Leg,
    came: Vec<u8>,
}

// === impl Said ===

impl Said<'_> {
    /// What came in goes out on the other leg, unchanged and alone.
    #[track_caller]
    pub(super) fn passes(self) {
        let came = self.came.clone();
        match self.from {
            Leg::Client => self.says(&[], &came),
            Leg::Broker => self.says(&came, &[]),
        }
    }

    /// Nothing goes out.
    #[track_caller]
    pub(super) fn silent(self) {
        self.says(&[], &[]);
    }

    /// This goes to the broker, nothing to the client.
    #[track_caller]
    pub(super) fn broker_gets(self, bytes: &[&[u8]]) {
        self.says(&[], &bytes.concat());
    }

    /// This goes to the client, nothing to the broker.
    #[track_caller]
    pub(super) fn client_gets(self, bytes: &[&[u8]]) {
        self.says(&bytes.concat(), &[]);
    }

    #[track_caller]
    fn says(self, client: &[u8], broker: &[u8]) {
        let (to_client, to_broker) = (
            std::mem::take(&mut self.script.to_client),
            std::mem::take(&mut self.script.to_broker),
        );
        assert_eq!(shown(&to_client), shown(client), "to the client");
        assert_eq!(shown(&to_broker), shown(broker), "to the broker");
        assert_eq!(
            (to_client.as_slice(), to_broker.as_slice()),
            (client, broker)
        );
    }
}
