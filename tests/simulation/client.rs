//! An application: declares, publishes, consumes and settles at random, and knows at each moment which answers it may get.

mod closing;
mod consuming;
mod declaring;
mod publishing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fastrand::Rng;

use super::accounts::history::History;
use super::codec::frame::Frame;
use super::codec::methods::{Arg, Args, Method};
use super::codec::value::Bytes;
use super::codec::wire;
use super::decoder::Decoder;
use super::net::{End, Found, Micros, Net, TcpId};
use super::plan::{Plan, own_queue, text};
use super::redeclares::Saying;
use super::retries::By;
use declaring::told_of_cancels;
pub(crate) use publishing::LIVES;
use publishing::Letter;

/// Bytes in a body frame: small, so that contents have many.
const PIECE: usize = 4096 - 8;
/// Where it publishes.
pub(crate) const PUBLISHING: u16 = 1;
/// Channels that it may open.
pub(crate) const CHANNELS: u16 = 5;

/// What a client says of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Ack,
    Dead,
    /// With `requeue`.
    Returned(By),
    /// By `basic.recover`.
    Recovered,
}

/// What the accounts hear of a client.
#[derive(Debug)]
pub(crate) enum Said {
    Verb(u16, u64, Verb),
    /// It has published this, with this history.
    Published(Bytes, History),
    /// It has published this, which is to arrive no sooner than that.
    Delayed(Bytes, u64),
    /// It says something of a delivery beforehand, and wants so many milliseconds for it.
    Judged(u16, u64, u64),
    /// It reads that such a publish, or any other, was confirmed, or refused.
    Answered(Bytes, bool),
    /// It has declared a queue, of which that says this.
    Declared(u16, String, Saying),
    /// A channel is opened: tags begin anew.
    Opened(u16),
    /// It wants all back.
    Recovers(u16),
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
    /// Its worker hangs until then: it reads, and does nothing of its own.
    hangs_until: Micros,
    /// A session may have waited for it then, or for an answer to it.
    pub busy_at: Micros,
    /// What it said since the accounts asked.
    pub said: Vec<Said>,
    /// What it saw since the world asked, with the channel; did it look?
    pub seen: Vec<(u16, Frame, bool)>,
    /// No new messages, and everything that comes is settled.
    pub winding_up: bool,
    /// It publishes nothing, so no alarm is its concern.
    pub only_consumes: bool,
    /// It asks for nothing once it has declared: what waits for an answer would keep its publishes back, too.
    pub only_publishes: bool,
    /// The queue that it has for itself.
    own: Option<String>,
    /// The one that it is of the application.
    pub release: usize,
    /// Queues have changed: it declares them all again.
    pub declares: bool,
    /// It asks for confirms.
    confirms: bool,
    /// It declares nothing, and logs in as this user.
    pub stranger: Option<&'static str>,
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
    /// By tag: what it has not settled.
    unacked: BTreeMap<u64, Held>,
    last_tag: u64,
    published: u64,
    unconfirmed: BTreeMap<u64, Unconfirmed>,
    /// Its consumers, whether they are confirmed or not, and their queues.
    consumers: BTreeMap<String, String>,
    /// Of these, those that are confirmed: others are not cancelled (S7.11).
    consuming: BTreeSet<String>,
    /// Of a recover: what came before its reply is not ours any more.
    recovering: bool,
}

/// A publish.
#[derive(Debug)]
struct Unconfirmed {
    body: Bytes,
    is_delayed: bool,
}

/// A delivery.
#[derive(Debug)]
struct Held {
    letter: Option<Letter>,
    /// It is acked when that publish is confirmed.
    waits_for: Option<u64>,
}

// === impl Client ===

impl Client {
    pub(crate) fn connect(id: usize, tcp: TcpId, plan: &Plan) -> Client {
        let mut client = Client {
            id,
            tcp,
            stage: Stage::Handshake,
            decoder: Decoder::default(),
            out: VecDeque::new(),
            channels: BTreeMap::new(),
            deaf_until: 0,
            hangs_until: 0,
            busy_at: 0,
            said: Vec::new(),
            seen: Vec::new(),
            winding_up: false,
            only_consumes: false,
            only_publishes: false,
            own: plan.own.is_some().then(|| own_queue(id)),
            release: 0,
            declares: false,
            confirms: plan.delays.is_empty() || !id.is_multiple_of(3),
            stranger: None,
            consumers: 0,
        };
        client.out.extend(b"AMQP\0\0\x09\x01");
        client
    }

    /// It declares nothing.
    pub(crate) fn becomes_stranger(&mut self, user: &'static str) {
        self.stranger = Some(user);
        self.own = None;
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

    pub(crate) fn can_act(&self, at: Micros) -> bool {
        let hangs = self.hangs_until > at && !self.winding_up;
        self.is_open() && self.out.len() < 20_000 && !hangs
    }

    pub(crate) fn is_open(&self) -> bool {
        self.stage == Stage::Open
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
                    // It does not look at deliveries any more when it has said goodbye.
                    let looks = self.stage == Stage::Open
                        && self.channels.get(&channel).is_some_and(|of| !of.closing);
                    self.seen.push((channel, frame.clone(), looks));
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

    /// Replies that are due, and confirms that no fault of the broker's can lose.
    pub(crate) fn unanswered(&self) -> Vec<(u16, &'static str)> {
        let due = |(id, channel): (&u16, &Channel)| {
            let delayed = channel.unconfirmed.values().filter(|of| of.is_delayed);
            let delayed = delayed.map(|_| "basic.ack");
            let due = channel.due.iter().copied().chain(delayed);
            due.map(|name| (*id, name)).collect::<Vec<_>>()
        };
        self.channels.iter().flat_map(due).collect()
    }

    pub(crate) fn is_busy(&self, at: Micros) -> bool {
        self.deaf_until > at || !self.unanswered().is_empty()
    }

    /// Messages that it has not settled, and publishes without a confirm.
    pub(crate) fn open_items(&self) -> (usize, usize) {
        let sum = |of: fn(&Channel) -> usize| self.channels.values().map(of).sum();
        (
            sum(|channel| channel.unacked.len()),
            sum(|channel| channel.unconfirmed.len()),
        )
    }

    fn send(&mut self, channel: u16, name: &str, args: &Args) {
        let method = Method::named(name).expect("a method of the table");
        let bytes = wire::method(channel, method, args, PIECE);
        self.out.extend(bytes);
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
        let only_publishes = self.only_publishes && !self.winding_up;
        let channel = if only_publishes || rng.bool() {
            PUBLISHING
        } else {
            rng.u16(2..=CHANNELS)
        };
        match self.channels.get(&channel) {
            None => return self.open_channel(channel, plan),
            Some(state) if state.closing || state.due.len() > 20 => return,
            Some(_) => {}
        }
        if channel == PUBLISHING && std::mem::take(&mut self.declares) {
            return self.declare_all(plan);
        }
        if only_publishes {
            return self.publish(rng, at, next_body, plan);
        }
        // Nothing new when it winds up but consumers.
        let most = if self.winding_up { 700 } else { 1000 };
        match rng.u16(..most) {
            0..400 if channel == PUBLISHING => self.publish(rng, at, next_body, plan),
            0..400 => self.settle(channel, rng, plan),
            400..600 => self.settle(channel, rng, plan),
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
            850..860 => self.hangs_until = at + rng.u64(..20_000_000),
            _ => self.settle(channel, rng, plan),
        }
    }

    // --- what it hears

    fn heard(&mut self, id: u16, frame: &Frame, plan: &Plan) -> Result<(), String> {
        match &*frame.name {
            "connection.start" => {
                let user = self.stranger.unwrap_or("guest");
                let response = Arg::Text(format!("\0{user}\0{user}").into_bytes());
                let mut args = vec![
                    ("mechanism", text("PLAIN")),
                    ("response", response),
                    ("locale", text("en_US")),
                ];
                if plan.changing || plan.unknown {
                    args.insert(0, ("client-properties", told_of_cancels()));
                }
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
                if !channel.recovering {
                    let held = Held {
                        letter: Letter::of(frame),
                        waits_for: None,
                    };
                    channel.unacked.insert(tag, held);
                }
                if name == "basic.deliver" {
                    return Ok(());
                }
            }
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
                if let Some(publishes) = frame.confirms() {
                    self.answered(id, &publishes, name == "basic.ack")?;
                }
                return Ok(());
            }
            "basic.return" => return Ok(()),
            "basic.cancel" => {
                let tag = frame.arg("consumer-tag").map(Arg::text).unwrap_or_default();
                let tag = String::from_utf8_lossy(tag).into_owned();
                channel.consumers.remove(&tag);
                channel.consuming.remove(&tag);
                return Ok(());
            }
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
