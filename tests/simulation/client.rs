//! An application: declares, publishes, consumes and settles at random, and knows at each moment which answers it may get.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fastrand::Rng;

use super::codec::frame::Frame;
use super::codec::methods::{Arg, Args, BODY, Method};
use super::codec::wire;
use super::decoder::Decoder;
use super::net::{End, Found, Micros, Net, TcpId};
use super::plan::{Plan, text};

/// Octets in a body frame: small, so that contents have many.
const PIECE: usize = 4096 - 8;
/// Where it publishes.
const PUBLISHING: u16 = 1;
/// Channels that it may open.
pub(crate) const CHANNELS: u16 = 5;
/// Publishes without a confirm.
const UNCONFIRMED: usize = 30;

/// What a client says of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Ack,
    Dead,
    Requeue,
}

/// What the accounts hear of a client.
#[derive(Debug)]
pub(crate) enum Said {
    Verb(u16, u64, Verb),
    /// A channel is opened: tags begin anew.
    Opened(u16),
    /// It was in the wrong: the broker may close this channel (0: the connection).
    Wrong(u16),
}

/// One connection of an application.
pub(crate) struct Client {
    pub id: usize,
    pub tcp: TcpId,
    stage: Stage,
    decoder: Decoder,
    out: VecDeque<u8>,
    channels: BTreeMap<u16, Channel>,
    /// It does not read until then.
    pub deaf_until: Micros,
    /// What it said since the accounts asked.
    pub said: Vec<Said>,
    /// What it saw since the world asked, with the channel.
    pub seen: Vec<(u16, Frame)>,
    /// No new messages, and everything that comes is settled.
    pub winding_up: bool,
    consumers: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Handshake,
    Open,
    Closing,
    Gone,
}

#[derive(Debug, Default)]
struct Channel {
    /// `close` is sent.
    closing: bool,
    /// Replies that are due, in the order of their requests.
    due: VecDeque<&'static str>,
    /// The queue of each tag that it has not settled.
    unacked: BTreeMap<u64, String>,
    last_tag: u64,
    published: u64,
    unconfirmed: usize,
    /// Its consumers, whether they are confirmed or not.
    consumers: BTreeMap<String, String>,
    /// Of these, those that are confirmed: others are not cancelled (S7.11).
    consuming: BTreeSet<String>,
    /// Of a recover: what came before its reply is not ours any more.
    recovering: bool,
    /// The queue of each get that is due.
    gets: VecDeque<String>,
}

// === impl Client ===

impl Client {
    pub(crate) fn connect(id: usize, tcp: TcpId) -> Client {
        let mut client = Client {
            id,
            tcp,
            stage: Stage::Handshake,
            decoder: Decoder::default(),
            out: VecDeque::new(),
            channels: BTreeMap::new(),
            deaf_until: 0,
            said: Vec::new(),
            seen: Vec::new(),
            winding_up: false,
            consumers: 0,
        };
        client.out.extend(b"AMQP\0\0\x09\x01");
        client
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.stage == Stage::Gone
    }

    /// It could write, read, or do something of its own.
    pub(crate) fn can_write(&self, net: &Net) -> bool {
        !self.is_gone() && !self.out.is_empty() && net.writable(self.tcp, End::Dialer)
    }

    pub(crate) fn can_read(&self, net: &Net, at: Micros) -> bool {
        !self.is_gone() && self.deaf_until <= at && net.readable(self.tcp, End::Dialer, at)
    }

    pub(crate) fn can_act(&self) -> bool {
        self.stage == Stage::Open && self.out.len() < 20_000
    }

    pub(crate) fn write(&mut self, most: usize, net: &mut Net) {
        let bytes: Vec<u8> = self.out.iter().take(most).copied().collect();
        match net.write(self.tcp, End::Dialer, &bytes) {
            Some(taken) => drop(self.out.drain(..taken)),
            None => self.hang_up(net),
        }
    }

    /// # Errors
    /// It saw what it cannot have been sent.
    pub(crate) fn read(
        &mut self,
        most: usize,
        at: Micros,
        net: &mut Net,
        plan: &Plan,
    ) -> Result<(), String> {
        match net.read(self.tcp, End::Dialer, most, at) {
            Found::Nothing => {}
            Found::Fin | Found::Reset => self.hang_up(net),
            Found::Bytes(bytes) => {
                for (channel, frame) in self.decoder.feed(&bytes)? {
                    self.seen.push((channel, frame.clone()));
                    self.heard(channel, &frame, plan)?;
                }
                if self.stage == Stage::Gone {
                    net.close(self.tcp, End::Dialer);
                }
            }
        }
        Ok(())
    }

    /// Ends without a word.
    pub(crate) fn hang_up(&mut self, net: &mut Net) {
        if !self.is_gone() {
            net.close(self.tcp, End::Dialer);
            self.stage = Stage::Gone;
        }
    }

    pub(crate) fn heartbeat(&mut self) {
        if self.stage == Stage::Open {
            self.out.extend([8, 0, 0, 0, 0, 0, 0, 0xce]);
        }
    }

    /// Replies that are due.
    pub(crate) fn unanswered(&self) -> Vec<(u16, &'static str)> {
        let due = |(id, channel): (&u16, &Channel)| {
            let id = *id;
            channel
                .due
                .iter()
                .map(move |name| (id, *name))
                .collect::<Vec<_>>()
        };
        self.channels.iter().flat_map(due).collect()
    }

    /// Messages that it has not settled, and publishes without a confirm.
    pub(crate) fn open_items(&self) -> (usize, usize) {
        let sum = |of: fn(&Channel) -> usize| self.channels.values().map(of).sum();
        (
            sum(|channel| channel.unacked.len()),
            sum(|channel| channel.unconfirmed),
        )
    }

    fn send(&mut self, channel: u16, name: &str, args: &Args) {
        let method = Method::named(name).expect("a method of the table");
        let octets = wire::method(channel, method, args, PIECE);
        self.out.extend(octets);
    }

    /// A request and the name of its reply.
    fn request(&mut self, channel: u16, name: &'static str, args: &Args, reply: &'static str) {
        self.send(channel, name, args);
        self.channels
            .entry(channel)
            .or_default()
            .due
            .push_back(reply);
    }

    // --- what it does

    /// Something, at random.
    pub(crate) fn act(
        &mut self,
        rng: &mut Rng,
        at: Micros,
        next_body: &mut u64,
        plan: &Plan,
        net: &mut Net,
    ) {
        let channel = if rng.bool() {
            PUBLISHING
        } else {
            rng.u16(2..=CHANNELS)
        };
        match self.channels.get(&channel) {
            None => return self.open_channel(channel, plan),
            Some(state) if state.closing || state.due.len() > 20 => return,
            Some(_) => {}
        }
        // Nothing new when it winds up but consumers.
        let most = if self.winding_up { 700 } else { 1000 };
        match rng.u16(..most) {
            0..400 if channel == PUBLISHING => self.publish(rng, next_body, plan),
            0..400 => self.settle(channel, rng),
            400..600 => self.settle(channel, rng),
            600..700 => self.consume(channel, rng, plan),
            700..760 => self.get(channel, rng, plan),
            760..780 => self.cancel(channel, rng),
            780..800 => self.declare_again(channel, rng, plan),
            800..810 => self.recover(channel),
            810..820 => self.qos(channel, rng),
            820..830 => self.close_channel(channel),
            830..834 => self.wrong(channel, rng),
            834..838 => self.close(),
            838..841 => self.hang_up(net),
            841..850 => self.deaf_until = at + rng.u64(..20_000_000),
            _ => self.settle(channel, rng),
        }
    }

    fn open_channel(&mut self, channel: u16, plan: &Plan) {
        self.said.push(Said::Opened(channel));
        self.request(channel, "channel.open", &Args::new(), "channel.open-ok");
        if channel == PUBLISHING {
            for (name, args) in &plan.declares {
                self.request(channel, name, args, reply_of(name));
            }
            self.request(channel, "confirm.select", &Args::new(), "confirm.select-ok");
        }
    }

    fn publish(&mut self, rng: &mut Rng, next_body: &mut u64, plan: &Plan) {
        let unconfirmed = self
            .channels
            .get(&PUBLISHING)
            .map_or(0, |channel| channel.unconfirmed);
        if self.winding_up || unconfirmed >= UNCONFIRMED {
            return;
        }
        *next_body += 1;
        let mut body = format!("{next_body:08}").into_bytes();
        body.resize(8 + [0, 10, 300, 9000][rng.usize(..4)], b'.');
        let queue = &plan.sources[rng.usize(..plan.sources.len())];
        let mut args = vec![("exchange", text("")), ("routing-key", text(queue))];
        args.push(("mandatory", Arg::Bit(rng.bool())));
        args.push(("delivery-mode", Arg::Number(2)));
        if rng.u8(..6) == 0 {
            args.push(("expiration", text(&rng.u8(..100).to_string())));
        }
        args.push((BODY, Arg::Text(body)));
        self.send(PUBLISHING, "basic.publish", &args);
        let channel = self.channels.entry(PUBLISHING).or_default();
        channel.published += 1;
        channel.unconfirmed += 1;
    }

    fn settle(&mut self, id: u16, rng: &mut Rng) {
        let winding_up = self.winding_up;
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let tags: Vec<u64> = channel.unacked.keys().copied().collect();
        let Some(&tag) = rng.choice(&tags) else {
            return;
        };
        let multiple = rng.u8(..4) == 0;
        let verb = match rng.u8(..20) {
            0..2 if !winding_up => Verb::Requeue,
            0..7 => Verb::Ack,
            _ => Verb::Dead,
        };
        let these = if multiple { tags[0]..=tag } else { tag..=tag };
        channel.unacked.retain(|tag, _| !these.contains(tag));
        let said = tags.iter().filter(|tag| these.contains(tag));
        self.said.extend(said.map(|tag| Said::Verb(id, *tag, verb)));
        let mut args = vec![("delivery-tag", Arg::Number(tag))];
        let name = match verb {
            Verb::Ack => "basic.ack",
            _ if multiple || rng.bool() => "basic.nack",
            _ => "basic.reject",
        };
        args.push(("multiple", Arg::Bit(multiple)));
        args.push(("requeue", Arg::Bit(verb == Verb::Requeue)));
        self.send(id, name, &args);
    }

    fn consume(&mut self, id: u16, rng: &mut Rng, plan: &Plan) {
        let queue = any_queue(rng, plan);
        let most = if self.winding_up { 8 } else { 2 };
        let Some(channel) = self
            .channels
            .get_mut(&id)
            .filter(|channel| channel.consumers.len() < most)
        else {
            return;
        };
        if self.winding_up && !plan.sources.contains(queue) {
            return;
        }
        self.consumers += 1;
        let tag = format!("c{}", self.consumers);
        channel.consumers.insert(tag.clone(), queue.clone());
        let args = vec![("queue", text(queue)), ("consumer-tag", text(&tag))];
        self.request(id, "basic.consume", &args, "basic.consume-ok");
    }

    fn get(&mut self, id: u16, rng: &mut Rng, plan: &Plan) {
        let queue = any_queue(rng, plan);
        if self.winding_up && !plan.sources.contains(queue) {
            return;
        }
        self.request(
            id,
            "basic.get",
            &vec![("queue", text(queue))],
            "basic.get-ok",
        );
        let channel = self.channels.entry(id).or_default();
        channel.gets.push_back(queue.clone());
    }

    fn cancel(&mut self, id: u16, rng: &mut Rng) {
        let Some(channel) = self.channels.get_mut(&id).filter(|_| !self.winding_up) else {
            return;
        };
        let tags: Vec<String> = channel.consuming.iter().cloned().collect();
        let Some(tag) = rng.choice(&tags) else {
            return;
        };
        channel.consumers.remove(tag);
        channel.consuming.remove(tag);
        let no_wait = rng.u8(..4) == 0;
        let args = vec![("consumer-tag", text(tag)), ("no-wait", Arg::Bit(no_wait))];
        match no_wait {
            true => self.send(id, "basic.cancel", &args),
            false => self.request(id, "basic.cancel", &args, "basic.cancel-ok"),
        }
    }

    fn declare_again(&mut self, id: u16, rng: &mut Rng, plan: &Plan) {
        let queue = any_queue(rng, plan);
        let (name, args) = plan.declare(queue);
        let mut args = args.clone();
        if rng.bool() {
            args.push(("passive", Arg::Bit(true)));
        }
        self.request(id, name, &args, "queue.declare-ok");
    }

    fn recover(&mut self, id: u16) {
        if self
            .channels
            .get(&id)
            .is_some_and(|channel| channel.recovering)
        {
            return;
        }
        self.request(
            id,
            "basic.recover",
            &vec![("requeue", Arg::Bit(true))],
            "basic.recover-ok",
        );
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.recovering = true;
            let tags = std::mem::take(&mut channel.unacked);
            self.said.extend(
                tags.into_keys()
                    .map(|tag| Said::Verb(id, tag, Verb::Requeue)),
            );
        }
    }

    fn qos(&mut self, id: u16, rng: &mut Rng) {
        let count = Arg::Number(u64::from([1_u16, 5, 50][rng.usize(..3)]));
        self.request(
            id,
            "basic.qos",
            &vec![("prefetch-count", count)],
            "basic.qos-ok",
        );
    }

    fn close_channel(&mut self, id: u16) {
        self.request(id, "channel.close", &Args::new(), "channel.close-ok");
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.closing = true;
        }
    }

    /// Something that closes the channel.
    fn wrong(&mut self, id: u16, rng: &mut Rng) {
        self.said.push(Said::Wrong(id));
        match rng.u8(..3) {
            0 => {
                let args = vec![("queue", text("missing")), ("passive", Arg::Bit(true))];
                self.request(id, "queue.declare", &args, "queue.declare-ok");
            }
            1 => self.send(
                id,
                "basic.ack",
                &vec![("delivery-tag", Arg::Number(1_000_000))],
            ),
            _ => {
                let args = vec![
                    ("exchange", text("missing")),
                    (BODY, Arg::Text(b"00000000".to_vec())),
                ];
                self.send(id, "basic.publish", &args);
            }
        }
    }

    /// In order.
    pub(crate) fn close(&mut self) {
        if self.stage == Stage::Open {
            self.send(
                0,
                "connection.close",
                &vec![("reply-code", Arg::Number(200))],
            );
            self.stage = Stage::Closing;
        }
    }

    // --- what it hears

    fn heard(&mut self, id: u16, frame: &Frame, plan: &Plan) -> Result<(), String> {
        match &*frame.name {
            "connection.start" => {
                let response = Arg::Text(b"\0guest\0guest".to_vec());
                let args = vec![
                    ("mechanism", text("PLAIN")),
                    ("response", response),
                    ("locale", text("en_US")),
                ];
                self.send(0, "connection.start-ok", &args);
            }
            "connection.tune" => {
                let args = ["channel-max", "frame-max", "heartbeat"]
                    .map(|name| (name, Arg::Number(frame.number(name))));
                self.send(0, "connection.tune-ok", &args.to_vec());
                self.send(0, "connection.open", &vec![("virtual-host", text("/"))]);
            }
            "connection.open-ok" => {
                self.stage = Stage::Open;
                self.open_channel(PUBLISHING, plan);
            }
            "connection.close" => {
                self.send(0, "connection.close-ok", &Args::new());
                self.stage = Stage::Closing;
                self.channels.clear();
            }
            "connection.close-ok" => {
                self.stage = Stage::Gone;
                self.channels.clear();
            }
            "connection.blocked" | "connection.unblocked" => {}
            _ if self.stage == Stage::Closing => {}
            name => return self.heard_on(id, name, frame),
        }
        Ok(())
    }

    fn heard_on(&mut self, id: u16, name: &str, frame: &Frame) -> Result<(), String> {
        let unexpected = || format!("client {} did not expect {frame} on channel {id}", self.id);
        let channel = self.channels.get_mut(&id).ok_or_else(unexpected)?;
        match name {
            "channel.close" => {
                // One that crosses ours is answered all the same, and so is ours (S7.12).
                match channel.closing {
                    true => channel.due = VecDeque::from(["channel.close-ok"]),
                    false => drop(self.channels.remove(&id)),
                }
                self.send(id, "channel.close-ok", &Args::new());
                return Ok(());
            }
            "basic.deliver" | "basic.get-ok" => {
                let tag = frame.number("delivery-tag");
                if tag != channel.last_tag + 1 {
                    return Err(format!(
                        "client {}: tag {tag} follows {}",
                        self.id, channel.last_tag
                    ));
                }
                channel.last_tag = tag;
                let queue = match name {
                    "basic.deliver" => {
                        let consumer = frame.arg("consumer-tag").map(Arg::text).unwrap_or_default();
                        let consumer = String::from_utf8_lossy(consumer).into_owned();
                        channel
                            .consumers
                            .get(&consumer)
                            .cloned()
                            .unwrap_or_default()
                    }
                    _ => channel.gets.pop_front().unwrap_or_default(),
                };
                if !channel.recovering {
                    channel.unacked.insert(tag, queue);
                }
                if name == "basic.deliver" {
                    return Ok(());
                }
            }
            "basic.get-empty" => drop(channel.gets.pop_front()),
            "basic.consume-ok" => {
                let tag = frame.arg("consumer-tag").map(Arg::text).unwrap_or_default();
                let tag = String::from_utf8_lossy(tag).into_owned();
                channel.consuming.insert(tag);
            }
            "basic.ack" | "basic.nack" => {
                let tag = frame.number("delivery-tag");
                if tag > channel.published {
                    return Err(format!("client {}: a confirm of publish {tag}", self.id));
                }
                // The broker's own order is checked by the one who compares both sides.
                channel.unconfirmed = usize::try_from(channel.published - tag).unwrap_or(0);
                return Ok(());
            }
            "basic.return" | "basic.cancel" => return Ok(()),
            _ => {}
        }
        let wanted = if name == "basic.get-empty" {
            "basic.get-ok"
        } else {
            name
        };
        let at = channel.due.iter().position(|due| *due == wanted);
        // Those of consumers come late (S7.11).
        let late = |due: &&str| matches!(*due, "basic.consume-ok" | "basic.cancel-ok");
        let Some(at) = at.filter(|at| channel.due.iter().take(*at).all(&late) || late(&wanted))
        else {
            return Err(format!(
                "client {} did not expect {frame} on channel {id}; due: {:?}",
                self.id, channel.due
            ));
        };
        channel.due.remove(at);
        channel.recovering &= name != "basic.recover-ok";
        if name == "channel.close-ok" {
            self.channels.remove(&id);
        }
        Ok(())
    }
}

fn any_queue<'a>(rng: &mut Rng, plan: &'a Plan) -> &'a String {
    match rng.u8(..4) {
        0 => &plan.targets[rng.usize(..plan.targets.len())],
        _ => &plan.sources[rng.usize(..plan.sources.len())],
    }
}

fn reply_of(request: &str) -> &'static str {
    match request {
        "exchange.declare" => "exchange.declare-ok",
        "queue.bind" => "queue.bind-ok",
        _ => "queue.declare-ok",
    }
}
