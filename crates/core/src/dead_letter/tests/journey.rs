//! Runs the tables: what becomes of one message, step by step.
//!
//! A block is a comment with the rule's number and then either a command and the message that it is about, or a message and the steps of its
//! way, on a broker of each generation. Answers that are the same are shown once. `only 4.x` leaves the others out; what stands behind `- `
//! happens, and is not shown. `delays` and `verdict` have no message.
//!
//! Each command changes the message. The proxy does: `plan` (a death), `publish` and `deliver` (passing), `prove`, `unproven`, `strip`,
//! `aside`, `target`, `signal` (what intake reads), `return`, `waits` (in a delay queue, then intake), `signalled`, `before`, `shown`,
//! `redrive`, `unpark`, `hidden`, `import`, `export`, `unstamped`. `types` shows the fields of the newest death, `written` the private history as a
//! string. All is the same whether that is a table or a string. The broker: `dies`, `counts`. Anybody past the proxy: `user`, `without`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::amqp::content::Content;
use crate::amqp::ids::{ShortStr, name};
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::table::{Table, TableBuilder};
use crate::dead_letter::headers::OF_THE_QUEUE;
use crate::dead_letter::proof::{self, Parked};
use crate::dead_letter::redrive::{Here, Redrive, Standing};
use crate::dead_letter::retries::Attempts;
use crate::dead_letter::{
    Bridges, Death, Dialect, Disposal, HistoryForm, Return, Rules, come_back, delivery_time,
    give_back, imported, plan, private, rejected_by, retry, signal, signalled, unparked,
};
use crate::machine::{ClientConnection, Publication, Purpose, Reason, Rejecter, Wall};

use super::asked::{self, destination, lookup, moment, number, reason, target};
use super::away::{self, BROKERS, NOW, OWN};
use super::broker::{Broker, Event, Stored};
use super::message::{self, quoted};
use super::rendered::{render, written};
use super::script::Words;

/// As the answers call [`BROKERS`]; `3.13-` has no feature flag that takes over deaths.
const NAMES: [&str; 4] = ["3.x", "3.13", "3.13-", "4.x"];

#[test]
fn rules_hold_as_the_tables_say() {
    for form in [HistoryForm::Table, HistoryForm::Compact] {
        crate::tables::hold("dead_letter/testdata", |lines| match lines {
            [command] => asked::answer(Words::of(command)),
            [first, steps @ ..] if first.starts_with("message") => on_each(first, form, steps),
            [command, message] => on_each(message, form, &["only 4.x", command]),
            _ => panic!("a block has a command and a message: {lines:?}"),
        });
    }
}

fn on_each(message: &str, form: HistoryForm, steps: &[&str]) -> String {
    let (only, steps) = match steps {
        [first, rest @ ..] if first.starts_with("only ") => (Some(&first[5..]), rest),
        _ => (None, steps),
    };
    let mut answers: Vec<(String, String)> = Vec::new();
    for (name, broker) in NAMES.into_iter().zip(BROKERS) {
        if only.is_some_and(|only| only.split(' ').all(|it| it != name)) {
            continue;
        }
        let mut journey = Journey::new(broker, form, message);
        let shown: Vec<_> = steps.iter().filter_map(|step| journey.step(step)).collect();
        let answer = shown.join("\n");
        match answers.iter_mut().find(|(_, known)| *known == answer) {
            Some((names, _)) => *names += &format!(", {name}"),
            None => answers.push((name.to_owned(), answer)),
        }
    }
    if let [(_, answer)] = &answers[..] {
        return answer.clone();
    }
    let answers = answers
        .into_iter()
        .map(|(names, answer)| format!("on {names}:\n{answer}"));
    answers.collect::<Vec<_>>().join("\n")
}

pub(crate) struct Journey {
    broker: Broker,
    form: HistoryForm,
    pub(crate) content: Content,
    pub(crate) exchange: String,
    pub(crate) key: String,
    /// Since it was published, with what the broker adds.
    stored: Option<Stored>,
}

impl Journey {
    pub(crate) fn new(broker: Broker, form: HistoryForm, line: &str) -> Journey {
        let message = message::build(line, form);
        Journey {
            broker,
            form,
            content: message.content,
            exchange: message.exchange,
            key: message.key,
            stored: None,
        }
    }

    pub(crate) fn step(&mut self, step: &str) -> Option<String> {
        let (command, is_shown) = match step.strip_prefix("- ") {
            Some(command) => (command, false),
            None => (step, true),
        };
        let mut words = Words::of(command);
        let answer = self.command(&words.verb.clone(), &mut words);
        words.done();
        is_shown.then_some(answer)
    }

    fn command(&mut self, verb: &str, words: &mut Words) -> String {
        let properties = self.content.properties.clone();
        match verb {
            "plan" => self.plan(words),
            "publish" => {
                let rules = self.rules(words);
                let changed = private::on_publish(&properties, self.key.as_bytes(), &rules);
                self.changed(changed)
            }
            "deliver" => {
                let own = words.take("own").unwrap_or("dlx-proxy".to_owned());
                let dialect = self.rules(words).dialect;
                self.changed(bridges().on_delivery(&properties, own.as_bytes(), dialect))
            }
            "prove" | "unproven" => self.prove(verb == "prove", words),
            "strip" => self.changed(private::stripped(&properties, &self.rules(words))),
            "unstamped" => self.changed(rejected_by::without(&properties)),
            "hidden" => self.changed(unparked::without_user_id(&properties)),
            "export" => self.changed(Some(imported::exported(&properties, OWN))),
            "aside" => self.changed(delivery_time::set_aside(&properties)),
            "import" => {
                let user = words.take("user").unwrap();
                let rules = self.rules(words);
                match imported::imported(&properties, user.as_bytes(), &rules) {
                    Ok(properties) => self.changed(Some(properties)),
                    Err(malformed) => malformed.to_string(),
                }
            }
            "target" => {
                let now = words.take("now").unwrap().parse().unwrap();
                let properties = delivery_time::for_target(&properties, Wall(now));
                let too_far = properties.as_ref().is_some_and(|it| it.too_far);
                let lost = if too_far { "without its time, " } else { "" };
                format!("{lost}{}", self.changed(properties.map(|it| it.properties)))
            }
            "signal" => match signal(self.key.as_bytes(), &bridges().content(&self.content)) {
                Err(implausible) => format!("implausible: {implausible}"),
                Ok(signal) => format!(
                    "signal queue={} reason={} exchange={} count={}",
                    signal.queue,
                    signal.reason.as_str(),
                    quoted(signal.exchange),
                    signal.count
                ),
            },
            "signalled" => {
                let key = words.take("key").unwrap_or(self.key.clone());
                let Some((content, key)) = signalled(&self.content, key.as_bytes(), OWN) else {
                    return "as it is".to_owned();
                };
                if let Ok(signal) = signal(&key, &content) {
                    self.exchange = String::from_utf8(signal.exchange.to_vec()).unwrap();
                }
                self.key = key.to_string();
                self.is_now(content.properties);
                format!("key={} {}", self.key, self.rendered())
            }
            "return" => match self.give_back(words) {
                Some(disposal) => self.becomes(disposal),
                None => "native".to_owned(),
            },
            "waits" => self.wait(words),
            "before" => {
                let queue = words.take("queue").unwrap_or("q".to_owned());
                match self.take_back(&queue) {
                    None => "not back".to_owned(),
                    Some((Attempts { all, failed }, _)) => format!(
                        "back from=({}, {}) all={all} failed={failed} {}",
                        quoted(self.exchange.as_bytes()),
                        self.key,
                        self.rendered()
                    ),
                }
            }
            "shown" => {
                let parsed = Properties::parse(&properties).unwrap();
                let (retry, original) = retry::read(&parsed, OWN).unwrap();
                let shown = retry.shown(&parsed, original, words.flag("acquired"));
                render(&shown.unwrap())
            }
            "redrive" => self.redrive(words),
            "unpark" => {
                let (now, lookup) = (moment(words), lookup(words));
                match unparked::unparked(&properties, OWN, now, |_| lookup.clone()) {
                    None => "stays".to_owned(),
                    Some((target, properties)) => {
                        self.is_now(properties);
                        let exchange = quoted(&target.exchange);
                        format!("to exchange={exchange} {}", self.rendered())
                    }
                }
            }
            "types" => {
                let parsed = Properties::parse(&properties).unwrap();
                let deaths = Table(parsed.headers().unwrap()).get(b"x-death");
                let deaths = deaths.unwrap().unwrap().as_array().unwrap();
                let newest = deaths.values().next().unwrap().unwrap();
                let fields = newest.as_table().unwrap().fields().map(Result::unwrap);
                let types =
                    fields.map(|it| format!("{}:{}", quoted(it.name), char::from(it.value.tag)));
                types.collect::<Vec<_>>().join(" ")
            }
            "written" => written(&properties),
            "dies" => self.die(words),
            "counts" => {
                let mut headers = TableBuilder::default();
                for (name, word) in OF_THE_QUEUE.into_iter().zip(["delivery", "acquired"]) {
                    if let Some(count) = number(words, word) {
                        headers.long(name, count.try_into().unwrap());
                    }
                }
                self.edit_headers(|table| [table.0, &headers.finish()].concat())
            }
            "without" => {
                let gone = words.take("header").unwrap();
                self.edit_headers(|table| table.without(|name| name == gone.as_bytes()).unwrap())
            }
            "user" => {
                let user = words.take("id");
                let edited = Properties::parse(&properties).unwrap().edit(&Edit {
                    user_id: user.map_or(Change::Remove, |user| Change::Set(user.into())),
                    ..Edit::default()
                });
                self.changed(Some(edited))
            }
            other => panic!("no command {other}"),
        }
    }

    fn rendered(&self) -> String {
        render(&self.content.properties)
    }

    fn is_now(&mut self, properties: Bytes) {
        self.content.properties = properties;
        self.stored = None;
    }

    fn changed(&mut self, properties: Option<Bytes>) -> String {
        let Some(properties) = properties else {
            return "same".to_owned();
        };
        self.is_now(properties);
        format!("changed {}", self.rendered())
    }

    fn edit_headers(&mut self, change: impl FnOnce(Table<'_>) -> Vec<u8>) -> String {
        let properties = Properties::parse(&self.content.properties).unwrap();
        let headers = change(Table(properties.headers().unwrap_or_default()));
        let edited = properties.with_headers(headers);
        self.changed(Some(edited))
    }

    fn rules(&self, words: &mut Words) -> Rules {
        let dialect = words.take("dialect");
        let dialect = dialect.map(|dialect| match &*dialect {
            "3.x" => Dialect::V3,
            "3.13" => Dialect::V3_13,
            "4.x" => Dialect::V4,
            other => panic!("no dialect {other}"),
        });
        let most = words.take("max-history");
        Rules {
            dialect: dialect.unwrap_or(self.broker.dialect),
            max_history: most.map_or(256, |n| n.parse().unwrap()),
            continue_history: words.take("history").is_none_or(|mode| mode == "continue"),
            history_form: self.form,
            stamp: words.flag("stamp"),
        }
    }

    fn plan(&mut self, words: &mut Words) -> String {
        let (rules, target) = (self.rules(words), target(words).unwrap());
        let now = number(words, "now").unwrap_or(NOW.seconds());
        let bridges = bridges();
        let content = bridges.content(&self.content);
        let by = words.flag("by").then(rejecter);
        let queue = name(&words.take("queue").unwrap());
        let death = Death {
            queue: &queue,
            reason: Reason::parse(words.take("reason").unwrap().as_bytes()).unwrap(),
            exchange: bridges.behind(self.exchange.as_bytes()),
            routing_key: self.key.as_bytes(),
            content: &content,
            recorded: words.flag("recorded"),
            by: by.as_ref(),
        };
        let disposal = plan(&death, &target, &rules, now).unwrap();
        assert_eq!(plan(&death, &target, &rules, now), Ok(disposal.clone()));
        self.becomes(disposal)
    }

    fn prove(&mut self, proves: bool, words: &mut Words) -> String {
        let own = words.take("own").unwrap_or("dlx-proxy".to_owned());
        let (exchange, cause) = (words.take("exchange"), words.take("cause"));
        let parked = exchange.as_ref().zip(cause.as_ref());
        let parked = parked.map(|(exchange, cause)| Parked {
            exchange: exchange.as_bytes(),
            cause: cause.as_bytes(),
        });
        let properties = &self.content.properties;
        let changed = match proves {
            true => proof::prove(properties, own.as_bytes(), parked),
            false => proof::unproven(properties, own.as_bytes(), parked.unwrap()),
        };
        if parked.is_some() {
            self.exchange = "dlx-proxy.parked".to_owned();
        }
        self.changed(changed)
    }

    /// Back in that queue: it is as it was before, with how often it came back, and when its TTL is over.
    fn take_back(&mut self, queue: &str) -> Option<(Attempts, Option<Wall>)> {
        let properties = self.content.properties.clone();
        let parsed = Properties::parse(&properties).unwrap();
        let (retry, original) = retry::back_in(queue.as_bytes(), &parsed, OWN)?;
        let before = retry.before(&self.content, original).unwrap();
        (self.exchange, self.key) = (retry.exchange.to_string(), retry.routing_key.to_string());
        self.is_now(before.properties);
        Some((retry.attempts, retry.deadline))
    }

    fn give_back(&mut self, words: &mut Words) -> Option<Disposal> {
        let queue = words.take("queue").unwrap_or("q".to_owned());
        let (attempts, deadline) = self.take_back(&queue).unwrap_or_default();
        let (rules, retries, now) = (self.rules(words), asked::retries(words), moment(words));
        let by = words.take("by-exchange").map(|by| name(&by));
        let held = number(words, "held").unwrap_or(0);
        let queue = name(&queue);
        let of = Return {
            attempts: attempts.plus(asked::before(words)),
            deadline,
            queue_ttl: number(words, "ttl").map(Duration::from_millis),
            delivered: Wall(now.0 - held),
            returned: asked::verb(words),
            knows_all: !words.flag("unsure"),
            fits: !words.flag("too-big"),
            by_exchange: by.as_ref(),
            verdict: None,
            ..away::returned(&queue, (&self.exchange, &self.key), &self.content)
        };
        give_back(&of, &retries, &lookup(words), &rules, OWN, now)
    }

    /// In a delay queue, where it dies; then the intake has it.
    fn wait(&mut self, words: &mut Words) -> String {
        let (at, lookup) = (moment(words), lookup(words));
        let queue = words.take("queue");
        let queue = queue.unwrap_or("dlx-proxy.delay.1000".to_owned());
        let reason = reason(words, Reason::Expired);
        let content = away::died(self.broker, &self.content, (&queue, reason), at);
        let by_exchange = |queue: &[u8]| ShortStr::new([b"dlx-proxy.return/", queue].concat());
        let came_back = come_back(
            &content,
            &self.rules(words),
            OWN,
            |queue| queue.starts_with(b"dlx-proxy.delay."),
            by_exchange,
            |_| lookup.clone(),
            at,
        );
        match came_back {
            None => "none of ours".to_owned(),
            Some(came_back) => self.becomes(came_back.disposal),
        }
    }

    fn redrive(&mut self, words: &mut Words) -> String {
        let bridges = bridges();
        let by_exchange = words.flag("by-exchange");
        let return_exchange = |queue: &[u8]| {
            let exchange = ShortStr::new([b"dlx-proxy.return/", queue].concat());
            exchange.filter(|_| by_exchange)
        };
        let here = Here {
            own_user: OWN,
            dialect: self.broker.dialect,
            history_form: self.form,
            bridges: &bridges,
            is_own_queue: &|queue| queue.starts_with(b"dlx-proxy."),
            return_exchange: &return_exchange,
        };
        let of = Standing {
            exchange: self.exchange.as_bytes(),
            routing_key: self.key.as_bytes(),
            content: &self.content,
        };
        let redrive = Redrive {
            to: destination(&words.take("to").unwrap()),
            keep_history: !words.flag("forget"),
            by: name("ann"),
            edit: asked::edit(words),
        };
        match redrive.publication(&of, &here, NOW) {
            Err(stays) => format!("stays: {stays}"),
            Ok(sent) => {
                let seen = &sent.seen_as;
                let keys: Vec<_> = seen.cc.iter().map(ToString::to_string).collect();
                let (exchange, key) = (quoted(&seen.exchange), quoted(&seen.routing_key));
                let seen = format!("seen as ({exchange}, {key}) [{}]", keys.join(", "));
                self.published("redrive", sent.publication) + "\n" + &seen
            }
        }
    }

    fn die(&mut self, words: &mut Words) -> String {
        let stored = self.stored.take();
        let publish = || {
            self.broker
                .publish(&self.content, &self.exchange, &self.key)
        };
        let mut stored = stored.unwrap_or_else(publish);
        let event = Event {
            queue: words.take("queue").unwrap_or("q".to_owned()),
            reason: reason(words, Reason::Expired),
            exchange: stored.exchange.clone(),
            key: stored.key.clone(),
            time: number(words, "t").unwrap_or(NOW.seconds()),
            expiration: words.take("oe"),
        };
        self.broker.kill(&mut stored, &event);
        self.content = self.broker.deliver(&stored);
        self.exchange = words.take("to").unwrap_or(stored.exchange.clone());
        self.stored = Some(stored);
        self.rendered()
    }

    fn becomes(&mut self, disposal: Disposal) -> String {
        match disposal {
            Disposal::Drop(lap) => {
                let lap: Vec<_> = lap.iter().map(ToString::to_string).collect();
                format!("drop cycle [{}]", lap.join(", "))
            }
            Disposal::Publish(publication) => self.published("publish", publication),
            Disposal::Park(publication, cause) => {
                self.published(&format!("park {cause:?}"), publication)
            }
            Disposal::Retry(publication) => {
                self.published(&format!("retry: {:?}", publication.purpose), publication)
            }
            Disposal::LeaveToBroker(why) => format!("leave to the broker: {why:?}"),
        }
    }

    fn published(&mut self, how: &str, publication: Publication) -> String {
        let Publication {
            exchange,
            routing_key,
            queue,
            reason,
            at_least_once,
            history_cut,
            ..
        } = publication;
        (self.exchange, self.key) = (exchange.to_string(), routing_key.to_string());
        self.is_now(publication.content.properties);
        let mut of = format!("of={queue}/{}", reason.as_str());
        if at_least_once && publication.purpose == Purpose::Death {
            of += " at-least-once";
        }
        if history_cut {
            of += " cut";
        }
        let (exchange, key) = (quoted(&exchange), quoted(&routing_key));
        format!(
            "{how} exchange={exchange} key={key} {of} {}",
            self.rendered()
        )
    }
}

fn bridges() -> Bridges {
    Bridges::new(name("dlx-proxy.bridge/"))
}

fn rejecter() -> Rejecter {
    Rejecter {
        connection: Arc::new(ClientConnection {
            name: Some(name("worker 1")),
            user: None,
            host: name("192.0.2.7"),
        }),
        consumer: Some(name("tag")),
        held: Duration::from_millis(1_234),
    }
}
