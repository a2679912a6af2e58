//! Everything at once: a broker, proxies, clients and the connections between them, under one clock that only the world moves. Each step
//! picks one of all things that could happen next.

mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fastrand::Rng;

use super::accounts::{Accounts, Whose};
use super::client::Client;
use super::codec::value::Bytes;
use super::decoder::Decoder;
use super::faults::Troubles;
use super::model::{Broker, Conn, Options, User};
use super::net::{End, Found, Micros, Net, TcpId};
use super::plan::Plan;
use super::proxy::{self, Proxy, Which};
use super::pump::Move;
use watch::{gist, gist_line};

/// Microseconds between two looks of those who keep connections alive.
const HEARTBEAT: Micros = 4_000_000;
/// After the last fault everything has to be settled within so much time: `retry-for`, refused vhosts and silences among it.
const HEALED_WITHIN: Micros = 400_000_000;
/// And within so many steps.
const STEPS_AT_MOST: u64 = 2_000_000;
/// Lines of the trace that are kept.
const TRACE: usize = 1_000_000;

/// A world; the same seed makes the same.
pub(crate) struct World {
    pub(super) rng: Rng,
    pub at: Micros,
    pub(super) net: Net,
    pub(super) broker: Broker,
    pub(super) proxies: Vec<Option<Proxy>>,
    settings: Vec<proxy::Settings>,
    pub(super) clients: Vec<Client>,
    /// The broker's end of each connection.
    pub(super) peers: BTreeMap<TcpId, Peer>,
    /// By client: the connection that its session has to the broker.
    behind: BTreeMap<usize, Conn>,
    /// By client: its proxy.
    pub(super) through: BTreeMap<usize, usize>,
    /// Clients whose proxy is ending: it closes their connections itself.
    pub(super) dismissed: BTreeSet<usize>,
    pub accounts: Accounts,
    pub troubles: Troubles,
    pub(super) plan: Plan,
    next_body: u64,
    next_client: usize,
    /// As many clients as there shall be.
    wanted: usize,
    heartbeat_at: Micros,
    /// How far the clock goes with a step.
    pace: Micros,
    pub steps: u64,
    /// From the last fault until nothing was under way any more.
    pub settled_after: Micros,
    trace: VecDeque<String>,
    traced: bool,
    phase: Phase,
}

/// A connection as the broker has it.
pub(super) struct Peer {
    pub conn: Conn,
    /// What it has not taken yet.
    rest: Vec<u8>,
    tap: Decoder,
    /// For the trace.
    heard: Decoder,
    /// What it has sent, by channel, that the client has not seen: of a client's connection.
    sent: BTreeMap<u16, VecDeque<(String, u64, Bytes)>>,
    pub client: Option<usize>,
    closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// New messages, and faults.
    Load,
    /// No new ones; what is open is settled.
    WindingUp {
        since: Micros,
    },
    Over,
}

/// One thing that could happen.
#[derive(Clone, Copy, Debug)]
enum Action {
    Proxy(usize, Which, Move),
    Connect(usize, Which),
    BrokerReads(TcpId),
    BrokerWrites(TcpId),
    BrokerCloses(TcpId),
    Job(usize),
    Tick,
    ClientWrites(usize),
    ClientReads(usize),
    ClientActs(usize),
    Heal,
}

// === impl World ===

impl World {
    pub(crate) fn new(seed: u64, traced: bool) -> World {
        let mut rng = Rng::with_seed(seed);
        let proxies = if rng.u8(..4) == 0 { 2 } else { 1 };
        let settings = proxy::Settings::draw(&mut rng);
        let troubles = Troubles::draw(&mut rng);
        let plan = Plan::draw(&mut rng);
        let options = Options {
            users: ["guest", "dlx-proxy"].map(User::administrator).to_vec(),
            heartbeat: 10,
            ..Options::default()
        };
        let mut world = World {
            at: 1_000_000,
            net: Net::default(),
            broker: Broker::new(options),
            proxies: Vec::new(),
            settings: vec![settings; proxies],
            clients: Vec::new(),
            peers: BTreeMap::new(),
            behind: BTreeMap::new(),
            through: BTreeMap::new(),
            dismissed: BTreeSet::new(),
            accounts: Accounts::new(plan.set_keys()),
            troubles,
            plan,
            next_body: 0,
            next_client: 0,
            wanted: rng.usize(1..4),
            heartbeat_at: 0,
            pace: [5, 50, 500, 5_000][rng.usize(..4)],
            steps: 0,
            settled_after: 0,
            trace: VecDeque::new(),
            traced,
            phase: Phase::Load,
            rng,
        };
        for at in 0..proxies {
            world.proxies.push(None);
            world.start_proxy(at);
        }
        world
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// What did not hold, and what happened before.
    pub(crate) fn run(&mut self, steps: u64) -> Result<(), String> {
        while self.phase != Phase::Over {
            if self.steps == steps && self.phase == Phase::Load {
                self.wind_up();
            }
            self.step()
                .map_err(|what| format!("step {}, at {} µs: {what}", self.steps, self.at))?;
            self.steps += 1;
        }
        Ok(())
    }

    pub(crate) fn trace(&self) -> impl Iterator<Item = &String> {
        self.trace.iter()
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if self.traced {
            let line = format!("{:>12} {}", self.at, line());
            self.trace.push_back(line);
            if self.trace.len() > TRACE {
                self.trace.pop_front();
            }
        }
    }

    fn step(&mut self) -> Result<(), String> {
        self.at += self.rng.u64(0..=self.pace);
        if self.phase == Phase::Load {
            self.draw_fault();
            if self.rng.u16(..800) == 0 {
                self.at += self.rng.u64(..1_500_000);
            }
        }
        self.heartbeats();
        self.keep_clients();
        let mut actions = self.actions();
        if actions.is_empty() {
            match self.next_moment() {
                Some(next) => self.at = next.max(self.at + 1),
                None => self.at += HEARTBEAT,
            }
            actions = self.actions();
        }
        if let Some(action) = self.rng.choice(&actions).copied() {
            self.note(|| format!("{action:?}"));
            self.act(action)?;
        }
        self.look()?;
        self.judge_end()
    }

    // --- what could happen

    fn actions(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut moves = Vec::new();
        for (at, proxy) in self.proxies.iter().enumerate() {
            let Some(proxy) = proxy else { continue };
            proxy.moves(self.at, &self.net, &mut moves);
            actions.extend(
                moves
                    .drain(..)
                    .map(|(which, what)| Action::Proxy(at, which, what)),
            );
            for (which, wants) in [
                (Which::Publisher, proxy.publisher.wants_connection(self.at)),
                (Which::Intake, proxy.intake.wants_connection(self.at)),
            ] {
                actions.extend(wants.then_some(Action::Connect(at, which)));
            }
        }
        let tcps: Vec<TcpId> = self.peers.keys().copied().collect();
        for tcp in tcps {
            self.actions_of_peer(tcp, &mut actions);
        }
        actions.extend((0..self.broker.jobs()).map(Action::Job));
        if self
            .broker
            .deadline()
            .is_some_and(|due| due <= self.millis())
        {
            actions.push(Action::Tick);
        }
        for (at, client) in self.clients.iter().enumerate() {
            actions.extend(
                client
                    .can_write(&self.net)
                    .then_some(Action::ClientWrites(at)),
            );
            actions.extend(
                client
                    .can_read(&self.net, self.at)
                    .then_some(Action::ClientReads(at)),
            );
        }
        let busy = !actions.is_empty();
        for at in 0..self.clients.len() {
            let seldom = if self.phase == Phase::Load { 4 } else { 64 };
            if self.clients[at].can_act() && (!busy || self.rng.u8(..seldom) == 0) {
                actions.push(Action::ClientActs(at));
            }
        }
        if self.troubles.next_heal().is_some_and(|due| due <= self.at) {
            actions.push(Action::Heal);
        }
        actions
    }

    fn actions_of_peer(&mut self, tcp: TcpId, actions: &mut Vec<Action>) {
        let Some(peer) = self.peers.get(&tcp).filter(|peer| !peer.closed) else {
            return;
        };
        let conn = peer.conn;
        let waits = !self.broker.output(conn).is_empty();
        if waits && self.net.writable(tcp, End::Acceptor) {
            actions.push(Action::BrokerWrites(tcp));
        }
        if self.broker.is_closed(conn) {
            if !waits {
                actions.push(Action::BrokerCloses(tcp));
            }
        } else if self.net.readable(tcp, End::Acceptor, self.at)
            || !peer.rest.is_empty() && !self.broker.is_blocked(conn)
        {
            actions.push(Action::BrokerReads(tcp));
        }
    }

    /// When something will happen by itself.
    fn next_moment(&self) -> Option<Micros> {
        let proxies = self.proxies.iter().flatten().map(Proxy::due);
        let broker = self.broker.deadline().map(|due| (due - WALL) * 1000);
        let deaf = self
            .clients
            .iter()
            .map(|client| client.deaf_until)
            .filter(|until| *until > self.at)
            .min();
        let others = [
            broker,
            deaf,
            self.net.next_move(self.at),
            self.troubles.next_heal(),
            Some(self.heartbeat_at),
        ];
        proxies.chain(others).flatten().min()
    }

    pub(super) fn millis(&self) -> u64 {
        WALL + self.at / 1000
    }

    // --- what happens

    fn act(&mut self, action: Action) -> Result<(), String> {
        // Any number of octets, mostly few: frames are cut anywhere.
        let most = [1, 8, 50, 1000, 65_536, 65_536, 65_536, 65_536][self.rng.usize(..8)];
        match action {
            Action::Proxy(at, which, what) => {
                let (now, net) = (self.at, &mut self.net);
                if let Some(proxy) = &mut self.proxies[at] {
                    proxy.do_move((which, what), most, now, net);
                }
            }
            Action::Connect(at, which) => self.connect_link(at, which),
            Action::BrokerReads(tcp) => self.broker_reads(tcp, most),
            Action::BrokerWrites(tcp) => self.broker_writes(tcp, most)?,
            Action::BrokerCloses(tcp) => {
                self.net.close(tcp, End::Acceptor);
                self.forget(tcp);
            }
            Action::Job(at) => self.broker.run(at, self.millis()),
            Action::Tick => self.broker.tick(self.millis()),
            Action::ClientWrites(at) => self.clients[at].write(most, &mut self.net),
            Action::ClientReads(at) => {
                self.clients[at].read(most, self.at, &mut self.net, &self.plan)?;
                self.compare(at)?;
            }
            Action::ClientActs(at) => {
                let client = &mut self.clients[at];
                client.act(
                    &mut self.rng,
                    self.at,
                    &mut self.next_body,
                    &self.plan,
                    &mut self.net,
                );
                // What a client does in a hurry is explained by itself.
                if client.is_gone() {
                    self.accounts.fault(self.at);
                }
            }
            Action::Heal => self.heal(),
        }
        Ok(())
    }

    pub(super) fn start_proxy(&mut self, at: usize) {
        let seed = self.rng.u64(..);
        self.proxies[at] = Some(Proxy::start(self.settings[at].clone(), seed, self.at));
    }

    /// A connection to the broker, if it lets us.
    fn dial(&mut self, whose: Whose) -> Option<TcpId> {
        if !self.troubles.reachable(self.at) {
            return None;
        }
        let tcp = self.net.open([200, 5_000, 100_000][self.rng.usize(..3)]);
        let conn = self.broker.connect();
        self.accounts.belongs(conn, whose);
        let client = match whose {
            Whose::Client(client) => Some(client),
            Whose::Publisher | Whose::Intake => None,
        };
        let peer = Peer {
            conn,
            rest: Vec::new(),
            tap: Decoder::default(),
            heard: Decoder::behind_header(),
            sent: BTreeMap::new(),
            client,
            closed: false,
        };
        self.peers.insert(tcp, peer);
        Some(tcp)
    }

    fn connect_link(&mut self, at: usize, which: Which) {
        let whose = match which {
            Which::Publisher => Whose::Publisher,
            Which::Intake | Which::Session(_) => Whose::Intake,
        };
        let tcp = self.dial(whose);
        if let Some(proxy) = &mut self.proxies[at] {
            proxy.connected(which, tcp, self.at, &mut self.net);
        }
    }

    fn keep_clients(&mut self) {
        self.clients.retain(|client| !client.is_gone());
        while self.clients.len() < self.wanted {
            let up: Vec<usize> = (0..self.proxies.len())
                .filter(|at| self.proxies[*at].is_some() && !self.is_ending(*at))
                .collect();
            let Some(&at) = self.rng.choice(&up) else {
                return;
            };
            let id = self.next_client;
            let Some(broker) = self.dial(Whose::Client(id)) else {
                return;
            };
            self.next_client += 1;
            self.through.insert(id, at);
            self.behind.insert(id, self.peers[&broker].conn);
            let tcp = self.net.open([200, 5_000, 100_000][self.rng.usize(..3)]);
            let now = self.at;
            if let Some(proxy) = &mut self.proxies[at] {
                proxy.accept(tcp, broker, now);
            }
            let mut client = Client::connect(id, tcp);
            client.winding_up = self.phase != Phase::Load;
            self.clients.push(client);
        }
    }

    fn broker_reads(&mut self, tcp: TcpId, most: usize) {
        let now = self.millis();
        let mut heard = Vec::new();
        let Some(peer) = self.peers.get_mut(&tcp) else {
            return;
        };
        match self.net.read(tcp, End::Acceptor, most, self.at) {
            Found::Bytes(bytes) => {
                if self.traced {
                    heard = peer.heard.feed(&bytes).unwrap_or_default();
                }
                peer.rest.extend(bytes);
            }
            Found::Nothing => {}
            Found::Fin | Found::Reset => {
                // What it has not read is lost, as its process ends with the socket.
                self.broker.hang_up(peer.conn, now);
                self.net.close(tcp, End::Acceptor);
                return self.forget(tcp);
            }
        }
        let conn = peer.conn;
        let taken = self.broker.read(conn, &peer.rest, now);
        peer.rest.drain(..taken);
        for (channel, frame) in heard {
            self.note(|| format!("    {conn:?} {channel} > {}", gist_line(&frame)));
        }
    }

    fn broker_writes(&mut self, tcp: TcpId, most: usize) -> Result<(), String> {
        let Some(peer) = self.peers.get_mut(&tcp) else {
            return Ok(());
        };
        let output = self.broker.output(peer.conn);
        let bytes: Vec<u8> = output.iter().take(most).copied().collect();
        let Some(taken) = self.net.write(tcp, End::Acceptor, &bytes) else {
            self.broker.hang_up(peer.conn, WALL + self.at / 1000);
            self.forget(tcp);
            return Ok(());
        };
        output.drain(..taken);
        for (channel, frame) in peer.tap.feed(&bytes[..taken])? {
            if peer.client.is_some() {
                peer.sent
                    .entry(channel)
                    .or_default()
                    .push_back(gist(&frame));
            }
        }
        Ok(())
    }

    /// The broker's end of a connection is no more.
    pub(super) fn forget(&mut self, tcp: TcpId) {
        if let Some(peer) = self.peers.get_mut(&tcp) {
            peer.closed = true;
        }
    }

    fn heartbeats(&mut self) {
        if self.at < self.heartbeat_at {
            return;
        }
        self.heartbeat_at = self.at + HEARTBEAT;
        for client in &mut self.clients {
            client.heartbeat();
        }
    }

    fn wind_up(&mut self) {
        self.note(|| "=== winding up".into());
        self.phase = Phase::WindingUp { since: self.at };
        self.heal_all();
        for client in &mut self.clients {
            client.winding_up = true;
            client.deaf_until = 0;
        }
        self.pace = 1_000;
    }
}

/// Milliseconds of the wall clock when a world begins.
pub(crate) const WALL: u64 = 1_700_000_000_000;

// === impl Peer ===

impl Peer {
    pub(super) fn is_open(&self) -> bool {
        !self.closed
    }
}
