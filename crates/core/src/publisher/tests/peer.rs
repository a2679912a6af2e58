//! Targets that close the connection, against a small broker that answers: whatever they do, the dead letters of others arrive soon. The careful
//! publisher comes and goes as it is needed.
//!
//! `does exchange key body …` says what a target does (`*`: any; the last that fits counts): `confirm` · `later`, 50 ms · `nothing` · `close 506`,
//! the connection · `close-channel 406: words`. Shown are, behind outcomes and facts, which arrived, in their order, and which closed what.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::link::script::properties;

#[derive(Clone, PartialEq, Eq)]
enum Does {
    Confirm,
    Later,
    Nothing,
    Close(u16),
    CloseChannel(u16, String),
}

/// One link, as the broker sees it.
struct Side {
    rig: PublisherRig,
    published: BTreeMap<u16, u64>,
    coming: Option<(u16, String, String)>,
    /// Channels whose close has no answer yet.
    closed: BTreeSet<u16>,
    /// Confirms: when, channel, number.
    later: Vec<(u64, u16, u64)>,
}

struct Peer {
    side: Side,
    careful: Option<Side>,
    /// Whether the broker lets the careful one in.
    has_room: bool,
    does: Vec<([String; 3], Does)>,
    batch: Vec<(Ticket, Publication)>,
    given: BTreeMap<String, u64>,
    told: Vec<String>,
    /// The last one of what was parked.
    header: String,
    arrived: Vec<(u64, u64)>,
    settled: Vec<(Ticket, Outcome)>,
}

impl Side {
    fn new(careful: bool, now: Now) -> Side {
        let settings = Settings {
            careful,
            ..settings()
        };
        let mut rig = Rig::new(Publisher::new(settings, now));
        rig.now = now;
        Side {
            rig,
            published: BTreeMap::new(),
            coming: None,
            closed: BTreeSet::new(),
            later: Vec::new(),
        }
    }

    fn forget(&mut self) {
        self.published.clear();
        self.closed.clear();
        self.later.clear();
    }

    /// Connects when it wants that.
    fn connect(&mut self) {
        if matches!(self.rig.machine.flow(), Flow::Reconnect(at) if at <= self.rig.now.mono) {
            self.forget();
            self.rig.up("4.3.6");
        }
    }

    /// In milliseconds since the beginning.
    fn now(&self) -> u64 {
        self.rig.now.mono.0 / 1_000 - 1_000
    }

    fn pass(&mut self) {
        self.rig.pass(10);
        let now = self.now();
        for (_, channel, tag) in self.later.extract_if(.., |(at, ..)| *at <= now) {
            self.rig.broker(&confirm(channel, tag));
        }
        if now.is_multiple_of(1_000) {
            self.rig.broker(&crate::amqp::frame::HEARTBEAT);
        }
    }
}

impl Peer {
    /// Answers all that was sent, and lets the two publishers talk.
    fn serve(&mut self) {
        loop {
            let mut quiet = true;
            for careful in [false, true] {
                let side = match careful {
                    true => self.careful.as_mut(),
                    false => Some(&mut self.side),
                };
                let sent = side.map(|side| side.rig.sent());
                for sent in sent.into_iter().flatten() {
                    quiet = false;
                    if !self.answer(careful, sent) {
                        break;
                    }
                }
            }
            for input in std::mem::take(&mut self.side.rig.fx.out.careful) {
                quiet = false;
                let now = self.side.rig.now;
                let careful = self.careful.get_or_insert_with(|| Side::new(true, now));
                careful.rig.input(input);
            }
            if let Some(careful) = &mut self.careful {
                if self.has_room {
                    careful.connect();
                }
                let settled = std::mem::take(&mut careful.rig.fx.out.settled);
                if !settled.is_empty() {
                    quiet = false;
                    self.side.rig.input(Input::Careful(settled));
                }
                let events = careful.rig.events();
                self.side
                    .rig
                    .fx
                    .events
                    .extend(events.into_iter().filter(is_told));
            }
            if self.careful.is_some() && !self.side.rig.machine.needs_careful() {
                self.careful = None;
            }
            if quiet {
                let settled = self.side.rig.fx.out.settled.drain(..);
                self.settled
                    .extend(settled.map(|(_, ticket, outcome)| (ticket, outcome)));
                self.side.rig.fx.events.retain(is_told);
                return;
            }
        }
    }

    /// False if it closed the connection: then nothing of the rest was read.
    fn answer(&mut self, careful: bool, sent: Sent) -> bool {
        let side = match careful {
            true => self.careful.as_mut().unwrap(),
            false => &mut self.side,
        };
        let channel = sent.channel;
        if side.closed.contains(&channel) {
            // It was on its way; the answer to the close ends that.
            if sent.method() == Some(MethodId::CHANNEL_CLOSE_OK) {
                side.closed.remove(&channel);
            }
            return true;
        }
        match (sent.kind, sent.method()) {
            (_, Some(MethodId::CHANNEL_OPEN)) => {
                side.published.insert(channel, 0);
                let opened = method(channel, MethodId::CHANNEL_OPEN_OK, |a| a.longstr(b"").end());
                side.rig.broker(&opened);
            }
            (_, Some(MethodId::CONFIRM_SELECT)) => {
                let selected = method(channel, MethodId::CONFIRM_SELECT_OK, |_| {});
                side.rig.broker(&selected);
            }
            (_, Some(MethodId::BASIC_PUBLISH)) => {
                let publish = Publish::parse(&sent.payload).unwrap();
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                *side.published.get_mut(&channel).unwrap() += 1;
                side.coming = Some((channel, text(publish.exchange), text(publish.routing_key)));
            }
            (Kind::Header, _)
                if side
                    .coming
                    .as_ref()
                    .is_some_and(|it| it.1 == "dlx-proxy.parked") =>
            {
                let header = format!("parked with {}", properties(&sent.payload[12..]));
                if header != self.header {
                    self.told.push(header.clone());
                    self.header = header;
                }
            }
            (Kind::Body, _) => {
                let (channel, exchange, key) = side.coming.take().unwrap();
                let body = String::from_utf8(sent.payload).unwrap();
                let (tag, now) = (side.published[&channel], side.now());
                let of = [&exchange, &key, &body];
                let fits = |rule: &[String; 3]| {
                    rule.iter()
                        .zip(of)
                        .all(|(rule, of)| rule == "*" || rule == of)
                };
                let does = self.does.iter().rfind(|(rule, _)| fits(rule));
                let does = does.map_or(Does::Confirm, |(_, does)| does.clone());
                let closes = |what| {
                    let by = if careful { "the careful one's " } else { "" };
                    format!("{body} closed {by}{what} at {now}")
                };
                match does {
                    Does::Confirm | Does::Later => {
                        let given = self.given.get(&body).copied().unwrap_or(now);
                        self.arrived.push((body.parse().unwrap(), now - given));
                        match does {
                            Does::Later => side.later.push((now + 50, channel, tag)),
                            _ => side.rig.broker(&confirm(channel, tag)),
                        }
                    }
                    Does::Nothing => {}
                    Does::CloseChannel(code, text) => {
                        self.told.push(closes("channel"));
                        side.published.insert(channel, 0);
                        side.closed.insert(channel);
                        let close =
                            crate::link::peer::close(channel, code, &text, MethodId::BASIC_PUBLISH);
                        side.rig.broker(&close);
                    }
                    Does::Close(code) => {
                        self.told.push(closes("connection"));
                        let close =
                            crate::link::peer::close(0, code, "closed", MethodId::BASIC_PUBLISH);
                        side.rig.broker(&close);
                        side.rig.fx.broker.finish().0.clear();
                        side.forget();
                        return false;
                    }
                }
            }
            _ => {}
        }
        true
    }
}

fn confirm(channel: u16, tag: u64) -> Vec<u8> {
    method(channel, MethodId::BASIC_ACK, |a| {
        a.longlong(tag).octet(0).end()
    })
}

/// What becomes of a dead letter is told by its outcome.
fn is_told(event: &Event) -> bool {
    matches!(
        event,
        Event::TargetClosesConnection { .. } | Event::LimitMet(_)
    )
}

impl Script for Peer {
    type Machine = Publisher;

    fn begin(_: &mut Words) -> Peer {
        let now = Rig::new(Publisher::new(settings(), Now::default())).now;
        let mut side = Side::new(false, now);
        side.connect();
        side.rig.events();
        Peer {
            side,
            careful: None,
            has_room: true,
            does: Vec::new(),
            batch: Vec::new(),
            given: BTreeMap::new(),
            told: Vec::new(),
            header: String::new(),
            arrived: Vec::new(),
            settled: Vec::new(),
        }
    }

    fn rig(&mut self) -> &mut PublisherRig {
        &mut self.side.rig
    }

    fn line(&mut self, words: &mut Words) -> bool {
        match words.verb.as_str() {
            "does" => {
                let of = [words.word(), words.word(), words.word()];
                let does = match words.word().as_str() {
                    "confirm" => Does::Confirm,
                    "later" => Does::Later,
                    "nothing" => Does::Nothing,
                    "close" => Does::Close(words.number()),
                    "close-channel" => {
                        Does::CloseChannel(words.number(), std::mem::take(&mut words.text))
                    }
                    other => panic!("nothing does {other}"),
                };
                self.does.push((of, does));
            }
            // In one batch with what is published next.
            "with" => self.batch.extend(published(words)),
            "publish" => {
                let mut batch = std::mem::take(&mut self.batch);
                batch.extend(published(words));
                let now = self.side.now();
                for (ticket, _) in &batch {
                    self.given.entry(ticket.0.to_string()).or_insert(now);
                }
                self.side.rig.input(Input::Publish(SESSION, batch));
                self.serve();
            }
            "pass" => {
                for _ in 0..words.number::<u64>() / 10 {
                    let sides = [Some(&mut self.side), self.careful.as_mut()];
                    sides.into_iter().flatten().for_each(Side::pass);
                    self.side.connect();
                    self.serve();
                }
            }
            "room" => self.has_room = words.word() == "yes",
            "cut" => {
                let sides = [Some(&mut self.side), self.careful.as_mut()];
                for side in sides.into_iter().flatten() {
                    side.rig
                        .machine
                        .closed(Leg::Broker, side.rig.now, &mut side.rig.fx);
                    side.rig.fx.broker.finish().0.clear();
                    side.forget();
                }
            }
            "drain" => {
                self.side.rig.drain();
                self.serve();
            }
            _ => return false,
        }
        true
    }

    fn told(&mut self) -> Vec<String> {
        self.settled.sort_by_key(|(ticket, _)| *ticket);
        let settled = std::mem::take(&mut self.settled);
        let mut told = runs(
            settled
                .into_iter()
                .map(|(ticket, outcome)| (ticket.0, format!("{outcome:?}"))),
        );
        let arrived = std::mem::take(&mut self.arrived).into_iter();
        told.extend(runs(arrived.map(|(body, took)| {
            let late = if took < 1_000 { "" } else { " late" };
            (body, format!("arrived{late}"))
        })));
        told.append(&mut self.told);
        told.extend(
            self.careful
                .as_ref()
                .map(|_| "(the careful one works)".to_owned()),
        );
        told
    }
}

#[test]
fn whatever_targets_do_others_go_on() {
    check::<Peer>("publisher/testdata/careful");
}
