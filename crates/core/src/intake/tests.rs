//! The intake against a scripted broker: `testdata/*.txt`. By itself its broker makes what is declared on channel 1 and accepts the consumer;
//! `manual` ends that, `auto` begins it again.

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::amqp::content::Content;
use crate::amqp::frame;
use crate::amqp::ids::name;
use crate::amqp::method::MethodId;
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::table::{ArrayBuilder, TableBuilder};
use crate::dead_letter::proof::{self, Parked};
use crate::dead_letter::{HistoryForm, RuleSettings};
use crate::link::peer::{Rig, Sent, content, login, method, with_headers};
use crate::link::script::{Script, Words, check, properties, quoted, runs, tell};
use crate::machine::{Ensure, Limits, LiveLimits, Wall};
use crate::objects::{self, Names};
use crate::registry::broker_policy::{BrokerPolicies, BrokerPolicy};
use crate::registry::catalogue::Report;
use crate::registry::catalogue::fact::Source;
use crate::registry::live::LivePolicies;
use crate::registry::policy::{Definition, Pattern, Policies, Policy};
use crate::registry::{Declared, Form};

mod away;

use self::away::away;

/// Tickets of parked messages are above that: `p1` is the first.
const PARKED_TICKETS: u64 = 1 << 63;

/// A policy of the proxy's sends what dies in `jobs…` to `policy-x`.
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
        login: login(),
        names: Names::default(),
        policies: LivePolicies::new(policies),
        catalogue: Default::default(),
        queue_type: QueueType::Quorum,
        prefetch: 1000,
        limits: LiveLimits::new(Limits::of_tests()),
        rules: RuleSettings {
            continue_history: true,
            history_form: HistoryForm::Table,
        },
        recorded: false,
    }
}

struct Scripted {
    rig: Rig<Intake>,
    auto: bool,
    /// Of the last message that was got.
    got: u64,
    /// What has not come yet of the last delivery.
    rest: Vec<u8>,
    counts: Option<String>,
}

impl Script for Scripted {
    type Machine = Intake;

    /// `new [fresh] [manual] [shown] [classic] [recorded] [retry=MS] [quiet=MS] [version=…]`: consuming at once, unless `fresh`: not connected, or
    /// `manual`.
    fn begin(words: &mut Words) -> Scripted {
        let mut settings = settings();
        if words.flag("classic") {
            settings.queue_type = QueueType::Classic;
        }
        settings.recorded = words.flag("recorded");
        let mut limits = Limits::of_tests();
        let millis = |it: Option<u64>| it.map_or(Duration::ZERO, Duration::from_millis);
        limits.parked_retry = millis(words.option_number("retry"));
        limits.intake_quiet = millis(words.option_number("quiet"));
        settings.limits.set(limits);
        let mut script = Scripted {
            rig: Rig::new(Intake::new(settings, Now::default())),
            auto: !words.flag("manual"),
            got: 0,
            rest: Vec::new(),
            counts: None,
        };
        let version = words.option("version");
        let shown = words.flag("shown") || !script.auto;
        if !words.flag("fresh") {
            script.rig.up(&version.unwrap_or("4.3.6".to_owned()));
            script.rig.events();
        }
        if !shown {
            tell(&mut script, &mut None);
        }
        script
    }

    fn rig(&mut self) -> &mut Rig<Intake> {
        &mut self.rig
    }

    /// `2 deliver exchange queue [body] …` and `3 get-ok exchange [body] …` have what `delivered` and `parked` know · `settle 1..3=confirmed
    /// 4=refused/nacked` · `ensure OWNER exchange` · `publisher up` · `record yes` · `missing` · `lap N`: a minute, and the lock · `knows queue` ·
    /// `policy ^queue [exchange=…] [key=…]`, or `policy none` · `no-policies` of the proxy · `counts`.
    fn line(&mut self, words: &mut Words) -> bool {
        let yes = ["up", "yes"];
        match (words.channel, words.verb.as_str()) {
            (Some(2), "deliver") => self.deliver(words),
            (Some(2), "rest") => {
                let rest = std::mem::take(&mut self.rest);
                self.rig.broker(&rest);
            }
            (Some(3), "get-ok") => {
                let message = parked(words);
                self.got += 1;
                let tag = self.got;
                let got = method(3, MethodId::BASIC_GET_OK, |a| {
                    a.longlong(tag).octet(0);
                    a.shortstr(b"dlx-proxy.parked").shortstr(b"k").long(9).end();
                });
                self.rig.broker(&content(got, 3, &message));
            }
            (None, "settle") => {
                let outcomes = std::mem::take(&mut words.options).into_iter().flat_map(
                    |(numbers, outcome)| {
                        let (numbers, base) = match numbers.strip_prefix('p') {
                            Some(numbers) => (numbers, PARKED_TICKETS),
                            None => (numbers.as_str(), 0),
                        };
                        let (first, last) = numbers.split_once("..").unwrap_or((numbers, numbers));
                        let (first, last): (u64, u64) =
                            (first.parse().unwrap(), last.parse().unwrap());
                        (first..=last).map(move |n| (Ticket(base + n), outcome_of(&outcome)))
                    },
                );
                self.rig.input(Input::Settled(outcomes.collect()));
            }
            (None, "ensure") => {
                let owner: u64 = words.number();
                let ensure = Ensure {
                    exchange: name(&words.word()),
                    user: Some(name(&owner.to_string())),
                };
                self.rig.input(Input::Ensure(Owner(owner), ensure));
            }
            (None, "publisher") => self
                .rig
                .input(Input::Publisher(yes.contains(&&*words.word()))),
            (None, "record") => self.rig.input(Input::Record(yes.contains(&&*words.word()))),
            (None, "missing") => self.rig.input(Input::Missing),
            (None, "lap") => {
                for _ in 0..60 {
                    self.rig.pass(1_000);
                    self.rig.broker(&frame::HEARTBEAT);
                }
                for count in [words.number(), 0] {
                    self.rig.broker(&method(3, MethodId::QUEUE_DECLARE_OK, |a| {
                        a.shortstr(b"dlx-proxy.parked").long(count).long(0).end();
                    }));
                }
            }
            (None, "knows") => {
                let settings = &self.rig.machine.settings;
                let form = Form::of(0, b"");
                let declared =
                    Declared::of_queue(form, objects::QueueType::Classic, &settings.names);
                let (vhost, told) = (&settings.login.vhost, Report::Declared(Arc::new(declared)));
                let queue = name(&words.word());
                settings
                    .catalogue
                    .learn(vhost, &queue, &told, Source::Management, Mono(1));
            }
            (None, "policy") => {
                let (pattern, exchange, key) =
                    (words.word(), words.option("exchange"), words.option("key"));
                let told = (pattern != "none").then(|| BrokerPolicy {
                    vhost: "/",
                    pattern: &pattern,
                    apply_to: "queues",
                    exchange: exchange.as_deref(),
                    routing_key: key.as_deref(),
                    ..BrokerPolicy::default()
                });
                self.rig
                    .machine
                    .settings
                    .policies
                    .set_brokers(BrokerPolicies::new(told, &Names::default()).0);
            }
            (None, "no-policies") => self
                .rig
                .machine
                .settings
                .policies
                .set_ours(Policies::default()),
            (None, "manual") => self.auto = false,
            (None, "auto") => self.auto = true,
            (None, "counts") => {
                let (held, bytes) = (
                    self.rig.machine.held(),
                    self.rig.machine.consumer.mover.bytes,
                );
                let reads = self.rig.machine.reads();
                self.counts = Some(format!("holds {held} ({bytes}), reads: {reads}"));
            }
            _ => return false,
        }
        true
    }

    fn told(&mut self) -> Vec<String> {
        let out = std::mem::take(&mut self.rig.fx.out);
        let mut told = runs(out.dead.iter().map(|(ticket, publication)| {
            let number = ticket.0 % PARKED_TICKETS;
            (number, publishes(publication, number < ticket.0))
        }));
        told.extend(
            out.hand_over
                .then(|| "asks the publisher to forget".to_owned()),
        );
        told.extend(out.ensured.iter().map(|(owner, it)| match it.ready {
            true => format!("{} has {}", owner.0, it.exchange),
            false => format!("{} cannot have {}", owner.0, it.exchange),
        }));
        told.extend(self.counts.take());
        told
    }

    fn answer(&mut self, sent: &Sent) -> (bool, Vec<u8>) {
        let channel = sent.channel;
        if sent.is(3, MethodId::CHANNEL_OPEN) {
            self.got = 0;
        }
        let id = match (channel, sent.method()) {
            _ if !self.auto => return (true, Vec::new()),
            (1, Some(MethodId::CHANNEL_OPEN)) => return (false, Vec::new()),
            (1, Some(MethodId::EXCHANGE_DECLARE)) => MethodId::EXCHANGE_DECLARE_OK,
            (1, Some(MethodId::QUEUE_DECLARE)) => MethodId::QUEUE_DECLARE_OK,
            (1, Some(MethodId::QUEUE_BIND)) => MethodId::QUEUE_BIND_OK,
            (2, Some(MethodId::BASIC_CONSUME)) => MethodId::BASIC_CONSUME_OK,
            _ => return (true, Vec::new()),
        };
        (
            channel == 2,
            method(channel, id, |a| a.shortstr(b"q").long(0).long(0).end()),
        )
    }
}

impl Scripted {
    fn deliver(&mut self, words: &mut Words) {
        let redelivered = words.flag("redelivered");
        let begun = words.flag("begun");
        let bytes: Option<u64> = words.option_number("bytes");
        let exchange = words.word();
        let now = self.rig.now.wall;
        let message = match words.option_number::<u64>("away") {
            Some(ago) => away(Wall(now.0 - ago), words),
            None => delivered(words),
        };
        let tag = self.rig.machine.consumer.mover.next_tag();
        let deliver = method(2, MethodId::BASIC_DELIVER, |a| {
            a.shortstr(b"dlx-proxy")
                .longlong(tag)
                .octet(redelivered.into());
            a.shortstr(exchange.as_bytes()).shortstr(b"k").end();
        });
        if begun {
            let whole = content(deliver.clone(), 2, &message);
            self.rest = whole[deliver.len()..].to_vec();
            return self.rig.broker(&deliver);
        }
        let Some(bytes) = bytes else {
            return self.rig.broker(&content(deliver, 2, &message));
        };
        self.rig.broker(&deliver);
        let mut one = |kind, payload: &[u8]| {
            let mut out = Vec::new();
            frame::put(&mut out, kind, CONSUMER, |out| out.extend(payload));
            self.rig.broker(&out);
        };
        one(
            2,
            &[&[0, 60, 0, 0][..], &bytes.to_be_bytes(), &[0, 0]].concat(),
        );
        for _ in 0..bytes >> 20 {
            one(3, &[0; 1 << 20]);
        }
    }
}

fn publishes(publication: &Publication, parked: bool) -> String {
    let Publication { queue, purpose, .. } = publication;
    let to = [&publication.exchange, &publication.routing_key]
        .map(|it| quoted(it))
        .join(" ");
    let (reason, body) = (
        publication.reason.as_str(),
        quoted(&publication.content.body),
    );
    let which = if parked { " of the parked" } else { "" };
    let sure = if publication.at_least_once {
        " at-least-once"
    } else {
        ""
    };
    let properties = properties(&publication.content.properties);
    format!(
        "{which} goes to {to}{sure} as {purpose:?}, from {queue} ({reason}): {properties} '{body}'"
    )
    .trim_start()
    .to_owned()
}

/// `confirmed`, or `refused/cause` and alike.
fn outcome_of(text: &str) -> Outcome {
    let (outcome, cause) = text.split_once('/').unwrap_or((text, ""));
    let cause = Cause::ALL.into_iter().find(|it| it.as_str() == cause);
    match (outcome, cause) {
        ("confirmed", None) => Outcome::Confirmed,
        ("parked", Some(cause)) => Outcome::Parked(cause),
        ("dropped", Some(cause)) => Outcome::Dropped(cause),
        ("refused", Some(cause)) => Outcome::Refused(cause),
        _ => panic!("no outcome {text}"),
    }
}

/// `queue [body]`: a message that died there, or `-`: without a death. `reason=…` (expired) · `from=exchange` · `cc=key` · `user=…` ·
/// `expiration=…` · `size=N` · `count=N`: an `x-delivery-count` · `broken`: headers that cannot be walked.
fn delivered(words: &mut Words) -> Content {
    let broken = words.flag("broken");
    let (queue, body) = (words.word(), words.next().unwrap_or("hi".to_owned()));
    let (reason, from) = (words.option("reason"), words.option("from"));
    let cc = words.option("cc");
    let mut headers = TableBuilder::default();
    if let Some(key) = &cc {
        let mut keys = ArrayBuilder::default();
        keys.longstr(key.as_bytes());
        headers.array(b"CC", &keys);
    }
    if let Some(count) = words.option_number("count") {
        headers.long(b"x-delivery-count", count);
    }
    if broken {
        headers.members(b"\x05x");
    } else if queue != "-" {
        let mut keys = ArrayBuilder::default();
        keys.longstr(b"k");
        if let Some(key) = &cc {
            keys.longstr(key.as_bytes());
        }
        let mut entry = TableBuilder::default();
        entry
            .long(b"count", 1)
            .longstr(b"reason", reason.unwrap_or("expired".to_owned()).as_bytes())
            .longstr(b"queue", queue.as_bytes())
            .timestamp(b"time", 1_700_000_000)
            .longstr(b"exchange", from.unwrap_or_default().as_bytes())
            .array(b"routing-keys", &keys);
        let mut deaths = ArrayBuilder::default();
        deaths.table(&entry);
        headers.array(b"x-death", &deaths);
    }
    let body = words
        .option_number("size")
        .map_or(body, |size| "x".repeat(size));
    let message = with_headers(headers, &body);
    let set = |value: Option<String>| value.map_or(Change::Keep, |value| Change::Set(value.into()));
    let edit = Edit {
        user_id: set(words.option("user")),
        expiration: set(words.option("expiration")),
        ..Edit::default()
    };
    let is_plain = matches!(
        (&edit.user_id, &edit.expiration),
        (Change::Keep, Change::Keep)
    );
    let properties =
        (!is_plain).then(|| Properties::parse(&message.properties).unwrap().edit(&edit));
    Content {
        properties: properties.unwrap_or_else(|| message.properties.clone()),
        ..message
    }
}

/// `exchange [body]`: as the publisher parked it. `cause=…` (no_exchange) · `by=user` (proxy) · `plain`: nobody's · `died=queue` there, when
/// nobody knew a target.
fn parked(words: &mut Words) -> Content {
    let plain = words.flag("plain");
    let (exchange, body) = (words.word(), words.next().unwrap_or("a".to_owned()));
    let cause = words.option("cause").unwrap_or("no_exchange".to_owned());
    let user = words.option("by").unwrap_or("proxy".to_owned());
    let mut properties = Bytes::from_static(&[0, 0]);
    if let Some(queue) = words.option("died") {
        let mut death = TableBuilder::default();
        death.longstr(b"queue", queue.as_bytes());
        let (mut deaths, mut headers) = <(ArrayBuilder, TableBuilder)>::default();
        deaths.table(&death);
        headers.array(b"x-death", &deaths).longstr(b"CC", b"copy");
        properties = with_headers(headers, "").properties;
    }
    let said = Parked {
        exchange: exchange.as_bytes(),
        cause: cause.as_bytes(),
    };
    if !plain {
        properties = proof::prove(&properties, user.as_bytes(), Some(said)).unwrap();
    }
    Content {
        properties,
        body: body.into(),
    }
}

#[test]
fn it_does_what_the_scripts_say() {
    check::<Scripted>("intake/testdata");
}
