//! A small broker that answers, and whose targets do what a test wants. The careful publisher comes and goes as it is needed.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// What a target does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    Confirm,
    /// Takes it, and confirms it 50 ms later.
    ConfirmLater,
    /// Takes it, and says nothing.
    Nothing,
    /// Closes the connection with that code.
    Close(u16),
    /// Closes the channel with that code and text.
    CloseChannel(u16, &'static str),
}

/// What its targets do.
type Doing = fn(&Published) -> Does;

/// One link, as the broker sees it.
pub(super) struct Side {
    pub(super) rig: PublisherRig,
    published: BTreeMap<u16, u64>,
    coming: Option<(u16, String, String)>,
    /// Channels whose close has no answer yet.
    closed: BTreeSet<u16>,
    /// Confirms: when, channel, number.
    later: Vec<(u64, u16, u64)>,
}

/// A broker; see the module.
pub(super) struct Peer {
    pub(super) side: Side,
    pub(super) careful: Option<Side>,
    /// How often there was one.
    pub(super) opened: usize,
    /// Whether the broker lets the careful one in.
    pub(super) has_room: bool,
    pub(super) does: Doing,
    /// Bodies that arrived, and when; those that closed the connection, when, and whether that was the careful one's.
    pub(super) arrived: Vec<(String, u64)>,
    pub(super) faults: Vec<(String, u64, bool)>,
    pub(super) settled: Vec<(u64, Outcome)>,
    pub(super) events: Vec<Event>,
    /// The last header that came for the parking queue.
    pub(super) header: Option<Sent>,
}

impl Side {
    fn new(settings: Settings, now: Now) -> Side {
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

    /// The connection is lost.
    pub(super) fn cut(&mut self) {
        self.rig.cut();
        self.published.clear();
        self.closed.clear();
    }

    /// Connects when it wants that.
    fn connect(&mut self) {
        if matches!(self.rig.machine.flow(), Flow::Reconnect(at) if at <= self.rig.now.mono) {
            self.published.clear();
            self.closed.clear();
            self.later.clear();
            self.rig.up("4.3.6");
        }
    }

    fn now(&self) -> u64 {
        self.rig.now.mono.0 / 1_000
    }

    fn pass(&mut self) {
        self.rig.pass(10);
        let now = self.now();
        for (_, channel, tag) in self.later.extract_if(.., |(at, ..)| *at <= now) {
            self.rig.ack(channel, tag, false);
        }
    }
}

impl Peer {
    pub(super) fn new(does: Doing) -> Peer {
        let now = Rig::new(Publisher::new(settings(), Now::default())).now;
        let mut side = Side::new(settings(), now);
        side.connect();
        Peer {
            side,
            careful: None,
            opened: 0,
            has_room: true,
            does,
            arrived: Vec::new(),
            faults: Vec::new(),
            settled: Vec::new(),
            events: Vec::new(),
            header: None,
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.side.now()
    }

    /// Answers all that was sent, and lets the two publishers talk.
    pub(super) fn serve(&mut self) {
        loop {
            let sent = self.side.rig.sent();
            let mut quiet = sent.is_empty();
            for sent in sent {
                if !self.answer(false, sent) {
                    break;
                }
            }
            let sent = self.careful.as_mut().map(|side| side.rig.sent());
            for sent in sent.into_iter().flatten() {
                quiet = false;
                if !self.answer(true, sent) {
                    break;
                }
            }
            let handed = std::mem::take(&mut self.side.rig.fx.out.careful);
            for input in handed {
                quiet = false;
                let now = self.side.rig.now;
                let careful = self.careful.get_or_insert_with(|| {
                    self.opened += 1;
                    let careful = true;
                    Side::new(
                        Settings {
                            careful,
                            ..settings()
                        },
                        now,
                    )
                });
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
                self.events.extend(careful.rig.events());
            }
            if self.careful.is_some() && !self.side.rig.machine.needs_careful() {
                self.careful = None;
            }
            if quiet {
                self.settled.extend(self.side.rig.settled());
                self.events.extend(self.side.rig.events());
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
                side.rig
                    .broker(&method(channel, MethodId::CONFIRM_SELECT_OK, |_| {}));
            }
            (_, Some(MethodId::BASIC_PUBLISH)) => {
                let (channel, exchange, routing_key, _) = publishes(&[sent]).remove(0);
                *side.published.get_mut(&channel).unwrap() += 1;
                side.coming = Some((channel, exchange, routing_key));
            }
            (Kind::Header, _) => {
                let coming = side.coming.as_ref();
                if coming.is_some_and(|coming| coming.1 == "dlx-proxy.parked") {
                    self.header = Some(sent);
                }
            }
            (Kind::Body, _) => {
                let (channel, exchange, routing_key) = side.coming.take().unwrap();
                let body = String::from_utf8(sent.payload).unwrap();
                let (tag, now) = (side.published[&channel], side.now());
                match (self.does)(&(channel, exchange, routing_key, body.clone())) {
                    Does::Confirm => {
                        self.arrived.push((body, now));
                        side.rig.ack(channel, tag, false);
                    }
                    Does::ConfirmLater => {
                        self.arrived.push((body, now));
                        side.later.push((now + 50, channel, tag));
                    }
                    Does::Nothing => {}
                    Does::CloseChannel(code, text) => {
                        self.faults.push((body, now, careful));
                        side.published.insert(channel, 0);
                        side.closed.insert(channel);
                        side.rig.close(channel, code, text);
                    }
                    Does::Close(code) => {
                        self.faults.push((body, now, careful));
                        side.rig.close(0, code, "closed");
                        side.rig.fx.broker.finish().0.clear();
                        side.published.clear();
                        side.later.clear();
                        return false;
                    }
                }
            }
            _ => {}
        }
        true
    }

    pub(super) fn pass(&mut self, millis: u64) {
        for _ in 0..millis / 10 {
            let sides = [Some(&mut self.side), self.careful.as_mut()];
            for side in sides.into_iter().flatten() {
                side.pass();
                if side.now().is_multiple_of(1_000) {
                    side.rig.broker(&crate::amqp::frame::HEARTBEAT);
                }
            }
            self.side.connect();
            self.serve();
        }
    }

    pub(super) fn publish(&mut self, ticket: u64, exchange: &str, key: &str) {
        let message = message(exchange, key, &format!("{ticket}"));
        self.publish_all(vec![(ticket, message)]);
    }

    pub(super) fn publish_all(&mut self, batch: Vec<(u64, Publication)>) {
        self.side.rig.publish_as(SESSION, batch);
        self.serve();
    }

    pub(super) fn outcome(&self, ticket: u64) -> Option<Outcome> {
        let mut found = self.settled.iter().filter(|(of, _)| *of == ticket);
        found.next().map(|(_, outcome)| *outcome)
    }
}
