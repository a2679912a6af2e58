//! A small broker that answers, and whose targets do what a test wants.

use std::collections::BTreeMap;

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
}

/// What its targets do.
type Doing = fn(&Published) -> Does;

/// A broker; see the module.
pub(super) struct Peer {
    pub(super) rig: PublisherRig,
    pub(super) does: Doing,
    pub(super) published: BTreeMap<u16, u64>,
    coming: Option<(u16, String, String)>,
    /// Bodies that arrived, and when; those that closed the connection, and when.
    pub(super) arrived: Vec<(String, u64)>,
    pub(super) faults: Vec<(String, u64)>,
    pub(super) settled: Vec<(u64, Outcome)>,
    /// Confirms: when, channel, number.
    later: Vec<(u64, u16, u64)>,
}

impl Peer {
    pub(super) fn new(does: Doing) -> Peer {
        Peer {
            rig: rig(),
            does,
            published: BTreeMap::new(),
            coming: None,
            arrived: Vec::new(),
            faults: Vec::new(),
            settled: Vec::new(),
            later: Vec::new(),
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.rig.now.mono.0 / 1_000
    }

    /// Answers all that was sent.
    pub(super) fn serve(&mut self) {
        loop {
            let sent = self.rig.sent();
            if sent.is_empty() {
                self.settled.extend(self.rig.settled());
                return;
            }
            for sent in sent {
                if !self.answer(sent) {
                    break;
                }
            }
        }
    }

    /// False if it closed the connection: then nothing of the rest was read.
    pub(super) fn answer(&mut self, sent: Sent) -> bool {
        let channel = sent.channel;
        match (sent.kind, sent.method()) {
            (_, Some(MethodId::CHANNEL_OPEN)) => {
                self.published.insert(channel, 0);
                let opened = method(channel, MethodId::CHANNEL_OPEN_OK, |a| a.longstr(b"").end());
                self.rig.broker(&opened);
            }
            (_, Some(MethodId::CONFIRM_SELECT)) => {
                self.rig
                    .broker(&method(channel, MethodId::CONFIRM_SELECT_OK, |_| {}));
            }
            (_, Some(MethodId::BASIC_PUBLISH)) => {
                let (channel, exchange, routing_key, _) = publishes(&[sent]).remove(0);
                *self.published.get_mut(&channel).unwrap() += 1;
                self.coming = Some((channel, exchange, routing_key));
            }
            (Kind::Body, _) => {
                let (channel, exchange, routing_key) = self.coming.take().unwrap();
                let body = String::from_utf8(sent.payload).unwrap();
                let tag = self.published[&channel];
                match (self.does)(&(channel, exchange, routing_key, body.clone())) {
                    Does::Confirm => {
                        self.arrived.push((body, self.now()));
                        self.rig.ack(channel, tag, false);
                    }
                    Does::ConfirmLater => {
                        self.arrived.push((body, self.now()));
                        self.later.push((self.now() + 50, channel, tag));
                    }
                    Does::Nothing => {}
                    Does::Close(code) => {
                        self.faults.push((body, self.now()));
                        self.rig.close(0, code, "closed");
                        self.rig.fx.broker.finish().0.clear();
                        self.published.clear();
                        self.later.clear();
                        let Flow::Reconnect(at) = self.rig.machine.flow() else {
                            panic!("no way back");
                        };
                        self.rig
                            .pass(self.rig.now.mono.until(at).as_millis() as u64 + 10);
                        self.rig.up("4.3.6");
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
            self.rig.pass(10);
            let now = self.now();
            for (_, channel, tag) in self.later.extract_if(.., |(at, ..)| *at <= now) {
                self.rig.ack(channel, tag, false);
            }
            self.serve();
        }
        self.rig.broker(&crate::amqp::frame::HEARTBEAT);
    }

    pub(super) fn publish(&mut self, ticket: u64, exchange: &str, key: &str) {
        self.rig
            .publish(ticket, message(exchange, key, &format!("{ticket}")));
        self.serve();
    }

    pub(super) fn outcome(&self, ticket: u64) -> Option<Outcome> {
        let mut found = self.settled.iter().filter(|(of, _)| *of == ticket);
        found.next().map(|(_, outcome)| *outcome)
    }
}
