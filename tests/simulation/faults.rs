//! What goes wrong in a world, and how it is put right.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::net::{End, Micros, TcpId};
use super::proxy::Which;
use super::world::World;

/// With this their names begin.
pub(crate) const DELAY_QUEUES: &str = "dlx-proxy.delay.";
const SOURCES: &str = "source.";

const SECOND: Micros = 1_000_000;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A connection is cut; both ends see it.
    Cut,
    /// A connection swallows everything; its ends notice by their heartbeats.
    HalfOpen,
    /// A connection stands still for a while.
    Still,
    /// Both connections of a session stand still.
    BothStill,
    /// A confirm is never sent.
    ConfirmLost,
    /// A publish is nacked.
    Nacked,
    /// The broker closes a channel of a link.
    ChannelClosed,
    /// An operator closes a connection.
    ConnectionClosed,
    /// Publishing connections are blocked.
    Alarm,
    /// An exchange is deleted, and comes back.
    ExchangeDeleted,
    /// `kill -9`, and a new process.
    ProxyKilled,
    /// SIGTERM, and a new process.
    ProxyDrained,
    /// The broker is killed, and comes back with what is durable.
    BrokerRestarted,
    /// The broker accepts no connections.
    Unreachable,
    /// The publisher's link of each proxy is cut, and does not come back for a while; all others work.
    PublisherAway,
    /// The same for the recorder's. Only in worlds that say so.
    RecorderAway,
    /// A source is deleted with what is in it, and declared again, perhaps as one of another kind. Only in worlds that say so.
    QueueDeleted,
    /// A link holds messages for too long. Only in worlds that say so.
    TimedOut,
    /// All delay queues refuse what is published for a while, as a policy bounds them. Only in worlds that say so.
    DelaysFull,
    /// A client holds messages for too long. Only in worlds that say so, as with those that follow.
    ConsumerTimedOut,
    DeclaresRefused,
    /// All sources refuse what is published.
    SourcesFull,
    ManagementAway,
}

/// What others wait for: afterwards everything is where it should be, and nothing was parked meanwhile.
const OUTAGES: [Fault; 3] = [Fault::Alarm, Fault::Unreachable, Fault::PublisherAway];
const ALL: [Fault; 15] = [
    Fault::Cut,
    Fault::HalfOpen,
    Fault::Still,
    Fault::BothStill,
    Fault::ConfirmLost,
    Fault::Nacked,
    Fault::ChannelClosed,
    Fault::ConnectionClosed,
    Fault::Alarm,
    Fault::ExchangeDeleted,
    Fault::ProxyKilled,
    Fault::ProxyDrained,
    Fault::BrokerRestarted,
    Fault::Unreachable,
    Fault::PublisherAway,
];

/// Nothing is wrong afterwards.
fn passes(kind: Fault) -> bool {
    OUTAGES.contains(&kind) || kind == Fault::RecorderAway
}

/// What has to be put right.
#[derive(Clone, Copy, Debug)]
enum Remedy {
    Alarm,
    Exchange(&'static str),
    Proxy(usize),
    /// The next phase of a drain.
    Drain(usize, u8),
    /// An end notices that the connection is dead.
    Silence(TcpId),
    Delays,
    Refused,
    /// All clients declare again what there should be.
    Declares,
}

/// The faults of a world.
#[derive(Debug)]
pub(crate) struct Troubles {
    kinds: Vec<Fault>,
    /// One in so many steps.
    rarity: u32,
    remedies: Vec<(Micros, Remedy)>,
    unreachable_until: Micros,
    publisher_until: Micros,
    recorder_until: Micros,
    happened: Vec<Fault>,
    /// A confirm was late before anything went wrong: a little of its link at a time is carried, and that takes so long.
    slow: bool,
}

// === impl Troubles ===

impl Troubles {
    /// One world in five has none: there nothing may come twice. One in five has but outages.
    pub(super) fn draw(rng: &mut Rng) -> Troubles {
        let (all, share): (&[Fault], u8) = match rng.u8(..5) {
            0 => (&[], 0),
            1 => (&OUTAGES, 5),
            _ => (&ALL, rng.u8(1..5)),
        };
        let kinds = all.iter().copied().filter(|_| rng.u8(..5) < share);
        Troubles {
            kinds: kinds.collect(),
            rarity: [100, 400, 1500][rng.usize(..3)],
            remedies: Vec::new(),
            unreachable_until: 0,
            publisher_until: 0,
            recorder_until: 0,
            happened: Vec::new(),
            slow: false,
        }
    }

    /// Where anything goes wrong, these do too.
    pub(super) fn also(&mut self, kinds: impl IntoIterator<Item = Fault>) {
        if !self.kinds.is_empty() {
            self.kinds.extend(kinds);
        }
    }

    /// That may happen here.
    pub(super) fn comes(&self, kind: Fault) -> bool {
        self.kinds.contains(&kind)
    }

    /// How often each happened.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for fault in &self.happened {
            *counts.entry(format!("{fault:?}")).or_default() += 1;
        }
        counts
    }

    pub(super) fn next_heal(&self) -> Option<Micros> {
        self.remedies.iter().map(|(due, _)| *due).min()
    }

    pub(super) fn reachable(&self, at: Micros) -> bool {
        self.unreachable_until <= at
    }

    /// That link of a proxy cannot be had.
    pub(super) fn is_away(&self, which: Which, at: Micros) -> bool {
        match which {
            Which::Publisher => self.publisher_until > at,
            Which::Recorder => self.recorder_until > at,
            _ => false,
        }
    }

    /// One was closed from the broker's side, in order: by itself, or as a channel of it crashed.
    pub(super) fn has_closed_connections(&self) -> bool {
        let closes = [Fault::ConnectionClosed, Fault::ChannelClosed];
        closes.iter().any(|fault| self.happened.contains(fault))
    }

    /// A confirm was late.
    pub(super) fn late_confirm(&mut self) {
        self.slow |= self.happened.is_empty();
    }

    /// Confirms are late here though nothing is wrong.
    pub(super) fn is_slow(&self) -> bool {
        self.slow
    }

    /// Nothing ever goes wrong here.
    pub(super) fn never_any(&self) -> bool {
        self.kinds.is_empty() && self.happened.is_empty()
    }

    /// Nothing goes wrong here, or went wrong before, but what passes by itself.
    pub(super) fn only_outages(&self) -> bool {
        let mut kinds = self.kinds.iter().chain(&self.happened);
        kinds.all(|kind| passes(*kind))
    }
}

// === impl World ===

impl World {
    pub(super) fn draw_fault(&mut self) {
        if self.troubles.kinds.is_empty() || self.rng.u32(..self.troubles.rarity) != 0 {
            return;
        }
        let kind = self.troubles.kinds[self.rng.usize(..self.troubles.kinds.len())];
        self.strike(kind);
    }

    pub(super) fn strike(&mut self, kind: Fault) {
        self.note(|| format!("!!! {kind:?}"));
        // A delay alone makes nothing twice, unless it outlasts somebody's patience.
        self.accounts.fault(self.at);
        self.troubles.happened.push(kind);
        self.happen(kind);
    }

    fn happen(&mut self, kind: Fault) {
        // Now and then longer than anybody's patience.
        let most = if passes(kind) { 60 } else { 20 };
        let soon = self.at + self.rng.u64(SECOND / 100..most * SECOND);
        match kind {
            Fault::Cut => {
                if let Some(tcp) = self.any_tcp() {
                    self.net.cut(tcp);
                }
            }
            Fault::HalfOpen => {
                if let Some(tcp) = self.any_tcp() {
                    self.net.swallow(tcp);
                    let due = self.at + self.rng.u64(30 * SECOND..60 * SECOND);
                    self.troubles.remedies.push((due, Remedy::Silence(tcp)));
                }
            }
            Fault::Still => {
                if let Some(tcp) = self.any_tcp() {
                    self.net.stand_still(tcp, soon);
                }
            }
            Fault::BothStill => {
                let these: Vec<TcpId> = self.clients.iter().map(|client| client.tcp).collect();
                if let Some(tcp) = self.rng.choice(&these).copied() {
                    self.net.stand_still(tcp, soon);
                    let client = self
                        .clients
                        .iter()
                        .find(|client| client.tcp == tcp)
                        .map(|client| client.id);
                    let broker = self.peers.iter().find(|(_, peer)| peer.client == client);
                    if let Some((tcp, _)) = broker {
                        self.net.stand_still(*tcp, soon);
                    }
                }
            }
            Fault::ConfirmLost | Fault::Nacked => {
                let jobs = self.broker.jobs();
                if jobs > 0 {
                    let at = self.rng.usize(..jobs);
                    let now = self.millis();
                    match kind {
                        Fault::Nacked => self.broker.nack(at, now),
                        // A client would wait for ever for one of a delayed publish that its session has held for longer.
                        _ => {
                            let (works, accounts) = (self.alterations.work(), &self.accounts);
                            let spared = |conn| works && accounts.is_client(conn);
                            self.broker.lose(at, spared)
                        }
                    };
                }
            }
            Fault::ChannelClosed => {
                if let Some((_, conn)) = self.any_link() {
                    let channel = self.rng.u16(1..4);
                    self.broker.close_channel(conn, channel, 541, "it crashed");
                }
            }
            Fault::ConnectionClosed => self.close_a_connection(),
            Fault::Alarm => {
                self.broker.alarm(true);
                self.troubles.remedies.push((soon, Remedy::Alarm));
            }
            Fault::ExchangeDeleted => {
                let exchange = ["dlx", "fan"][self.rng.usize(..2)];
                self.broker.delete_exchange(exchange);
                self.accounts.exchanges_go = true;
                self.troubles
                    .remedies
                    .push((soon, Remedy::Exchange(exchange)));
            }
            Fault::ProxyKilled => {
                let at = self.rng.usize(..self.proxies.len());
                if self.proxies[at].take().is_some() {
                    self.troubles.remedies.push((soon, Remedy::Proxy(at)));
                }
            }
            Fault::ProxyDrained => {
                let at = self.rng.usize(..self.proxies.len());
                if self.proxies[at].is_some() && !self.is_ending(at) {
                    self.troubles.remedies.push((self.at, Remedy::Drain(at, 0)));
                }
            }
            Fault::BrokerRestarted => {
                for (tcp, _) in self.open_peers().collect::<Vec<_>>() {
                    self.net.cut(tcp);
                    self.forget(tcp);
                }
                self.broker.restart(self.millis());
                self.troubles.unreachable_until = self.at + self.rng.u64(..10 * SECOND);
            }
            Fault::Unreachable => self.troubles.unreachable_until = soon,
            Fault::QueueDeleted => self.delete_source(),
            Fault::TimedOut => {
                if let Some((_, conn)) = self.any_link() {
                    let millis = self.rng.u64(1..20) * 1_000;
                    (1..4).any(|channel| self.broker.channel_times_out(conn, channel, millis));
                }
            }
            Fault::DelaysFull | Fault::SourcesFull => {
                let full = if kind == Fault::DelaysFull {
                    DELAY_QUEUES
                } else {
                    SOURCES
                };
                self.broker.refuse_publishes(Some(full));
                self.troubles.remedies.push((soon, Remedy::Delays));
            }
            Fault::ConsumerTimedOut => self.time_out_a_client(),
            Fault::DeclaresRefused => {
                let answer = self.unknown.refusal();
                self.broker.refuse_declares(SOURCES, Some(answer));
                self.accounts.declares_refused = true;
                self.troubles.remedies.push((soon, Remedy::Refused));
            }
            Fault::ManagementAway => self.unknown.api.away_until = soon,
            Fault::PublisherAway => {
                self.troubles.publisher_until = soon;
                self.cut_links(Which::Publisher);
            }
            Fault::RecorderAway => {
                self.troubles.recorder_until = soon;
                self.cut_links(Which::Recorder);
            }
        }
    }

    fn cut_links(&mut self, which: Which) {
        let links = self.proxies.iter().flatten();
        let links = links.filter_map(|proxy| proxy.tcp_of(which));
        for tcp in links.collect::<Vec<_>>() {
            self.net.cut(tcp);
        }
    }

    /// What is due is put right.
    pub(super) fn heal(&mut self) {
        let at = self.at;
        let (due, later) = self
            .troubles
            .remedies
            .drain(..)
            .partition(|(due, _)| *due <= at);
        let due: Vec<(Micros, Remedy)> = due;
        self.troubles.remedies = later;
        for (_, remedy) in due {
            self.put_right(remedy);
        }
    }

    /// From now on nothing is wrong any more.
    pub(super) fn heal_all(&mut self) {
        self.troubles.kinds.clear();
        self.troubles.unreachable_until = 0;
        self.troubles.publisher_until = 0;
        self.troubles.recorder_until = 0;
        self.unknown.api.away_until = 0;
        for (_, remedy) in std::mem::take(&mut self.troubles.remedies) {
            self.put_right(remedy);
        }
    }

    fn put_right(&mut self, remedy: Remedy) {
        self.note(|| format!("... {remedy:?}"));
        match remedy {
            Remedy::Alarm => self.broker.alarm(false),
            Remedy::Exchange(name) => self.exchange_again(name),
            Remedy::Proxy(at) => {
                if self.proxies[at].is_none() {
                    self.start_proxy(at);
                }
            }
            Remedy::Drain(at, phase) => self.drain(at, phase),
            Remedy::Silence(tcp) => self.notice(tcp),
            Remedy::Delays => self.broker.refuse_publishes(None),
            Remedy::Refused => self.broker.refuse_declares(SOURCES, None),
            Remedy::Declares => {
                self.clients.iter_mut().for_each(|of| of.declares = true);
                if self.clients.iter().all(|client| client.stranger.is_some()) {
                    self.make_queues();
                }
            }
        }
    }

    /// By a client, whose session knows it then, or by an operator.
    fn delete_source(&mut self) {
        let Some(name) = self.rng.choice(&self.plan.sources).cloned() else {
            return;
        };
        self.accounts.gone_once.insert(name.clone().into());
        let client = match self.rng.bool() {
            true => self.rng.choice(&mut self.clients),
            false => None,
        };
        if !client.is_some_and(|client| client.delete(&name)) {
            self.broker.delete_queue(&name);
        }
        if self.rng.u8(..3) == 0 {
            let asked = self.plan.change_kind(&name, &mut self.rng);
            self.accounts.changes(&name, asked, self.at);
        }
        let most = [SECOND, 20 * SECOND, 60 * SECOND][self.rng.usize(..3)];
        let again = self.at + self.rng.u64(..most);
        self.troubles.remedies.push((again, Remedy::Declares));
    }

    /// A declare of what there should be was refused, as an older one has come before it: an operator clears the way.
    pub(super) fn clear_the_way(&mut self) {
        for queue in std::mem::take(&mut self.accounts.refused) {
            self.accounts.fault(self.at);
            self.broker.delete_queue(&String::from_utf8_lossy(&queue));
            self.put_right(Remedy::Declares);
        }
    }

    /// The ends of a dead connection notice, as their heartbeats did not come.
    fn notice(&mut self, tcp: TcpId) {
        let millis = self.millis();
        if let Some(peer) = self.peers.get(&tcp) {
            self.broker.hang_up(peer.conn, millis);
            self.net.close(tcp, End::Acceptor);
            self.forget(tcp);
        }
        let mut clients = self.clients.iter_mut();
        if let Some(client) = clients.find(|client| client.tcp == tcp) {
            client.hang_up(&mut self.net);
        }
        self.net.cut(tcp);
    }

    /// It accepts no clients any more.
    pub(super) fn is_ending(&self, at: usize) -> bool {
        let ending =
            |(_, remedy): &(Micros, Remedy)| matches!(remedy, Remedy::Drain(of, _) if *of == at);
        self.troubles.remedies.iter().any(ending)
    }

    /// Phase after phase, as `drain.rs` does; at the end of the grace, or of all machines, a new process begins.
    fn drain(&mut self, at: usize, phase: u8) {
        let Some(proxy) = &mut self.proxies[at] else {
            return;
        };
        match phase {
            0 => {
                proxy.drain(phase);
                let these = self.through.iter().filter(|(_, of)| **of == at);
                self.dismissed.extend(these.map(|(client, _)| *client));
            }
            1 | 2 => proxy.drain(phase),
            _ => {
                self.proxies[at] = None;
                return self.start_proxy(at);
            }
        }
        // Each phase ends when its tasks have, or with the grace.
        let wait = self.rng.u64(SECOND / 10..8 * SECOND);
        self.troubles
            .remedies
            .push((self.at + wait, Remedy::Drain(at, phase + 1)));
    }
}
