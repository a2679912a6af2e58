//! Everything at once: a broker, proxies, clients and the connections between them, under one clock that only the world moves. Each step
//! picks one of all things that could happen next.

mod connections;
mod consumers;
mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dlx_proxy::machine::Mono;
use dlx_proxy::net::clock::Clock as _;
use fastrand::Rng;

use super::accounts::Accounts;
use super::alterations::Alterations;
use super::client::Client;
use super::codec::value::Bytes;
use super::decoder::Decoder;
use super::faults::{Fault, Troubles};
use super::model::{Broker, Conn, Options};
use super::net::{End, Micros, Net, TcpId};
use super::operator::Operator;
use super::plan::Plan;
use super::proxy::{self, Proxy, Which};
use super::sighups::Sighups;
use super::task::Clock;
use super::unknown::{Declaring, Unknown};
use watch::{gist, gist_line};

/// Microseconds between two looks of those who keep connections alive.
const HEARTBEAT: Micros = 4_000_000;
/// After the last fault everything has to be settled within so much time: `retry-for`, refused vhosts and silences among it.
const HEALED_WITHIN: Micros = 400_000_000;
/// And within so many steps.
const STEPS_AT_MOST: u64 = 2_000_000;
/// Makes another seed of a seed.
const RETRIES: u64 = 0x7265_7472_6965_7300;
/// And another one.
const LIVES: u64 = 0x6c69_7665_7300_0000;
/// And one more.
const GOING: u64 = 0x676f_696e_6700_0000;
/// And another of these.
const DELAYED: u64 = 0x6465_6c61_7965_6400;
/// And the last one.
const TIMEOUTS: u64 = 0x7469_6d65_6f75_7473;
/// Lines of the trace that are kept.
const TRACE: usize = 1_000_000;

/// A world; the same seed makes the same.
pub(crate) struct World {
    pub(super) rng: Rng,
    pub at: Micros,
    /// Told by the world.
    clock: Clock,
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
    /// The broker has had an alarm since then.
    alarm_since: Option<Micros>,
    pub(super) plan: Plan,
    pub(super) operator: Operator,
    pub(super) alterations: Alterations,
    pub(super) sighups: Sighups,
    pub(super) unknown: Unknown,
    /// Which release a client is of.
    releases: Rng,
    pub(super) next_body: u64,
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
    /// A task of a proxy goes on.
    Poll(usize, Which),
    /// Something that is under way arrives at a proxy.
    Deliver((TcpId, End)),
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
        let mut troubles = Troubles::draw(&mut rng);
        let mut plan = Plan::draw(&mut rng);
        let mut apart = Rng::with_seed(seed ^ RETRIES);
        plan.draw_retries(&mut apart);
        let mut unknown = Unknown::draw(seed, &mut plan);
        let sighups = Sighups::draw(seed, &plan);
        let mut settings = settings.with_policies(&plan, &mut apart, sighups.come());
        let mut apart = Rng::with_seed(seed ^ LIVES);
        plan.draw_lives(&mut apart);
        // Who would declare again?
        plan.changing &= unknown.declaring != Declaring::None;
        plan.draw_redeclares(seed);
        plan.draw_delays(&mut Rng::with_seed(seed ^ DELAYED));
        let mut alterations = Alterations::draw(seed, &plan, sighups.come());
        let proxies = alterations.proxies(proxies);
        unknown.managed |= alterations.work();
        let operator = Operator::draw(seed);
        if operator.works() {
            plan.draw_going(&mut Rng::with_seed(seed ^ GOING));
        }
        settings = settings.with_redeclares(&plan).with_delays(&plan);
        settings.own.clone_from(&plan.own);
        if unknown.is_on {
            settings.max_queues = 65_536;
            // Only a policy of the proxy's may name a target, and what can never be copied would come back for ever.
            let room = if sighups.come() { 20_000 } else { 0 };
            settings.retained = settings.retained.max(room);
        }
        let redeclares = plan.redeclares.is_some();
        let full = plan.retrying && apart.bool();
        troubles.also(plan.changing.then_some(Fault::QueueDeleted));
        troubles.also(full.then_some(Fault::DelaysFull));
        let times_out = Rng::with_seed(seed ^ TIMEOUTS).bool();
        troubles.also(times_out.then_some(Fault::TimedOut));
        troubles.also(unknown.faults());
        let others = [Fault::RecorderAway, Fault::ProxyKilled];
        troubles.also(others.into_iter().filter(|_| redeclares));
        let options = Options {
            users: [&Operator::users()[..], &[Unknown::worker()]].concat(),
            default_type: unknown.default_type,
            heartbeat: 10,
            ..Options::default()
        };
        let mut world = World {
            at: 1_000_000,
            clock: Clock::default(),
            net: Net::default(),
            broker: Broker::new(options),
            proxies: Vec::new(),
            settings: vec![settings; proxies],
            clients: Vec::new(),
            peers: BTreeMap::new(),
            behind: BTreeMap::new(),
            through: BTreeMap::new(),
            dismissed: BTreeSet::new(),
            accounts: Accounts::new(&plan),
            troubles,
            operator,
            alterations,
            sighups,
            unknown,
            releases: Rng::with_seed(seed ^ LIVES ^ RETRIES),
            alarm_since: None,
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
        let said = format!(
            "policies {:?}, retries {:?}",
            world.sighups.file, world.plan.retries
        );
        world.note(|| said);
        let said = format!("{:?}", world.unknown);
        world.note(|| said);
        world.clock.set(world.at);
        world.make_all();
        let few_queues = world.settings[0].max_queues < 65_536;
        let askable = !world.unknown.forbidden && !world.troubles.comes(Fault::DeclaresRefused);
        world.accounts.is_as_drawn(askable, few_queues);
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
            self.operate()?;
            self.alter();
            self.change_settings();
            self.change_broker_policies();
            if self.rng.u16(..800) == 0 {
                self.at += self.rng.u64(..1_500_000);
            }
        }
        if let Phase::WindingUp { .. } = self.phase {
            self.operate_last()?;
            self.alter_last();
        }
        self.clock.set(self.at);
        self.hang_up_proxies();
        self.manage();
        self.look_for_orders();
        self.heartbeats();
        self.keep_clients();
        let mut actions = self.actions();
        if actions.is_empty() {
            match self.next_moment() {
                Some(next) => self.at = next.max(self.at + 1),
                None => self.at += HEARTBEAT,
            }
            self.clock.set(self.at);
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
        for (at, proxy) in self.proxies.iter().enumerate() {
            let Some(proxy) = proxy else { continue };
            actions.extend(proxy.woken().map(|which| Action::Poll(at, which)));
            actions.extend(
                proxy
                    .dials()
                    .into_iter()
                    .map(|which| Action::Connect(at, which)),
            );
        }
        let moving = self.net.deliverable(self.at);
        actions.extend(moving.into_iter().map(Action::Deliver));
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
            if self.clients[at].can_act(self.at) && (!busy || self.rng.u8(..seldom) == 0) {
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
            self.clock.next(),
            Some(self.heartbeat_at),
            self.sighups.next(),
            self.unknown.api.next(),
            self.alterations.next(),
        ];
        others.into_iter().flatten().min()
    }

    pub(super) fn now(&self) -> Mono {
        self.clock.now().mono
    }

    pub(super) fn millis(&self) -> u64 {
        WALL + self.at / 1000
    }

    // --- what happens

    fn act(&mut self, action: Action) -> Result<(), String> {
        // Any number of bytes, mostly few: frames are cut anywhere.
        let most = [1, 8, 50, 1000, 65_536, 65_536, 65_536, 65_536][self.rng.usize(..8)];
        match action {
            Action::Poll(at, which) => {
                self.net.set_most(most);
                if let Some(proxy) = &mut self.proxies[at] {
                    proxy.poll(which);
                }
            }
            Action::Deliver(way) => self.net.deliver(way, most),
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
        let file = &self.sighups.file;
        self.settings[at].rulings.clone_from(file);
        self.accounts.begins(at, file, self.at);
        self.proxies[at] = Some(Proxy::start(self.settings[at].clone(), seed, &self.clock));
        self.begins_to_read(at);
        self.begins_to_look(at);
    }

    fn wind_up(&mut self) {
        self.note(|| "=== winding up".into());
        self.phase = Phase::WindingUp { since: self.at };
        self.heal_all();
        self.winds_up_walks();
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
