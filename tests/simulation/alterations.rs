//! An operator alters queues (`dlx-proxy queues alter`) while everything goes on: one proxy makes a queue anew, the others find its order, late,
//! and take part or finish it. Not in all worlds; what is drawn for it has a generator of its own, so that the others stay what they are.

mod gap;
mod judged;
mod listed;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dlx_proxy::alteration::plan::{Plan as Planned, Wish};
use dlx_proxy::alteration::{Altered, Failure, Order};
use dlx_proxy::link::mark_in;
use dlx_proxy::objects::OwnObject;
use fastrand::Rng;
use serde_json::Value;

use super::model::Conn;
use super::net::Micros;
use super::plan::Plan;
use super::proxy::{Came, names};
use super::world::World;
use judged::Account;

const MILLI: Micros = 1_000;
const SECOND: Micros = 1_000_000;
/// Makes another seed of a seed.
const ALTERATIONS: u64 = 0x616c_7465_7261_7469;
/// So long may clients wait for what is moved.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// In its last deeds it has one in so many steps.
const LAST_RARITY: u32 = 300;

/// Alters queues.
pub(crate) struct Alterations {
    rng: Rng,
    /// One in so many steps; 0: none.
    rarity: u32,
    /// They may move what is in the queue.
    moves: bool,
    /// So many more when nothing goes wrong any more.
    last_ones: u8,
    /// From one look of a proxy for orders to the next, at most.
    every: Micros,
    /// The number of the last one, or of a part that a proxy takes in one.
    last: u64,
    /// Those at work in their processes, with their proxies; and which of them proxies have begun.
    at_work: BTreeMap<u64, (usize, Order)>,
    begun: BTreeSet<u64>,
    due: Vec<(Micros, usize, Turn)>,
    /// The process of each connection: its proxy, and its number there.
    conns: BTreeMap<Conn, Process>,
    processes: BTreeMap<usize, u64>,
    /// By queue: what was to be made of it last.
    queues: BTreeMap<String, Account>,
    /// Of these, those that are missing.
    away: BTreeSet<String>,
    /// Proxies that have listed all queues: others do not know what was altered before.
    listed: BTreeSet<usize>,
    /// Since when the clients of a proxy wait.
    held: BTreeMap<usize, Micros>,
}

/// A proxy, and which of its processes.
type Process = (usize, u64);

/// What a proxy does, or is told, at a moment.
enum Turn {
    /// It asks for orders.
    Looks,
    Told(Vec<Order>),
    /// It asks what that queue is.
    Relearns(String),
}

// === impl Alterations ===

impl Alterations {
    /// Of about one world in three. Queues that are deleted by others are another question; and so are retries by rules that change, whose dead
    /// letters wait for longer than the accounts have an earlier rule count. `sighups`: rules change.
    pub(crate) fn draw(seed: u64, plan: &Plan, sighups: bool) -> Alterations {
        let mut rng = Rng::with_seed(seed ^ ALTERATIONS);
        let is_left_out = plan.changing || plan.retrying && sighups;
        let works = rng.bool() && !is_left_out;
        Alterations {
            // The accounts of retries do not know what a move does to their counts. Not drawn, so that the other worlds stay what they are.
            moves: seed.is_multiple_of(2) && !plan.retrying,
            rarity: [100, 300, 1_000][rng.usize(..3)] * u32::from(works),
            last_ones: rng.u8(..3) * u8::from(works),
            every: [20 * MILLI, SECOND, 20 * SECOND][rng.usize(..3)],
            last: 0,
            at_work: BTreeMap::new(),
            begun: BTreeSet::new(),
            away: BTreeSet::new(),
            listed: BTreeSet::new(),
            due: Vec::new(),
            conns: BTreeMap::new(),
            processes: BTreeMap::new(),
            queues: BTreeMap::new(),
            held: BTreeMap::new(),
            rng,
        }
    }

    pub(crate) fn work(&self) -> bool {
        self.rarity > 0
    }

    /// There are two where one would be, now and then.
    pub(crate) fn proxies(&mut self, drawn: usize) -> usize {
        match self.work() && self.rng.bool() {
            true => 2,
            false => drawn,
        }
    }

    /// A client that connects only publishes: those whom the pause is for.
    pub(super) fn has_publishers(&mut self) -> bool {
        self.work() && self.rng.u8(..4) == 0
    }

    pub(super) fn next(&self) -> Option<Micros> {
        self.due.iter().map(|(due, ..)| *due).min()
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn process(&self, proxy: usize) -> Process {
        let number = self.processes.get(&proxy).copied();
        (proxy, number.unwrap_or_default())
    }

    pub(super) fn belongs(&mut self, conn: Conn, proxy: usize) {
        if self.work() {
            let process = self.process(proxy);
            self.conns.insert(conn, process);
        }
    }

    pub(super) fn has_listed(&mut self, proxy: usize) {
        self.listed.insert(proxy);
    }

    /// It knows what it has to know before clients come.
    pub(super) fn is_ready(&self, proxy: usize) -> bool {
        !self.work() || self.listed.contains(&proxy)
    }

    fn later(&mut self, at: Micros, most: Micros, proxy: usize, turn: Turn) {
        let due = at + self.rng.u64(..most);
        self.due.push((due, proxy, turn));
    }

    /// An argument that changes nothing for the accounts.
    fn wish(&mut self) -> Wish {
        let rng = &mut self.rng;
        let locators = ["client-local", "balanced"];
        let much: i64 = 1_000_000 + rng.i64(0..1_000);
        let (name, value): (_, Value) = match rng.u8(..3) {
            0 => ("x-max-length", much.into()),
            1 => ("x-expires", (much * 1_000).into()),
            _ => ("x-queue-leader-locator", locators[rng.usize(..2)].into()),
        };
        let mut wish = Wish::default();
        if self.moves {
            wish.max_pause = MAX_PAUSE;
        }
        match name == "x-queue-leader-locator" && rng.bool() {
            true => drop(wish.unset.insert(name.to_owned())),
            false => drop(wish.set.insert(name.to_owned(), value)),
        }
        wish
    }
}

// === impl World ===

impl World {
    /// A process begins, which knows no order.
    pub(super) fn begins_to_look(&mut self, proxy: usize) {
        let (at, all) = (self.at, &mut self.alterations);
        if all.work() {
            *all.processes.entry(proxy).or_default() += 1;
            all.due.retain(|(_, of, _)| *of != proxy);
            all.held.remove(&proxy);
            all.listed.remove(&proxy);
            all.later(at, all.every, proxy, Turn::Looks);
            if !all.at_work.is_empty() || self.has_left_anything() {
                self.accounts.takes_no_part(proxy);
            }
        }
    }

    /// The operator alters a queue, or not.
    pub(super) fn alter(&mut self) {
        let all = &mut self.alterations;
        if all.work() && all.rng.u32(..all.rarity) == 0 {
            self.begin_alteration();
        }
    }

    /// While nothing goes wrong, too.
    pub(super) fn alter_last(&mut self) {
        let all = &mut self.alterations;
        if all.last_ones > 0 && all.rng.u32(..LAST_RARITY) == 0 {
            all.last_ones -= 1;
            self.begin_alteration();
        }
    }

    fn begin_alteration(&mut self) {
        let up = (0..self.proxies.len()).filter(|at| self.proxies[*at].is_some());
        let up: Vec<usize> = up.filter(|at| !self.is_ending(*at)).collect();
        let reachable = self.troubles.reachable(self.at);
        let works = !self.alterations.begun.is_empty();
        // Mostly one at a time.
        if (works || !reachable) && self.alterations.rng.u8(..8) > 0 {
            return;
        }
        let (sources, targets) = (self.plan.sources.clone(), self.plan.targets.clone());
        let queues = [&sources[..], &sources, &targets].concat();
        let wish = self.alterations.wish();
        let rng = &mut self.alterations.rng;
        let (Some(&at), Some(queue)) = (rng.choice(&up), rng.choice(&queues)) else {
            return;
        };
        let wait = Duration::from_secs([1, 5, 15][rng.usize(..3)]);
        let seen = self.seen();
        let Some(proxy) = &mut self.proxies[at] else {
            return;
        };
        let planned = proxy.plan(queue, seen, &wish);
        let said = format!("=== alteration of {queue} by proxy {at}: {planned:?}");
        match planned {
            Ok(planned) if self.has_intake(&planned) => {
                let number = self.alterations.number();
                let order = &planned.order;
                self.judge(order);
                self.alterations.begun.insert(number);
                self.alterations.at_work.insert(number, (at, order.clone()));
                if let Some(proxy) = &mut self.proxies[at] {
                    proxy.alter(number, planned, wait);
                }
                self.accounts.count.alterations += 1;
            }
            Ok(_) | Err(_) => {}
        }
        self.note(|| said);
    }

    /// The exchange that the new queue names is there. Who asks the intake for it waits by another clock.
    fn has_intake(&self, planned: &Planned) -> bool {
        let exchanges = self.broker.exchanges();
        let is_there = |name: &[u8]| exchanges.iter().any(|of| of.name == name);
        planned.intake.as_ref().is_none_or(|name| is_there(name))
    }

    /// Processes that have to take part: those that are connected, and so listed.
    fn publishing(&self) -> BTreeSet<Process> {
        let links = self.broker.names();
        let is_marked = |name: &[u8]| mark_in(&String::from_utf8_lossy(name)).is_some();
        let links = links.filter(|(_, name)| is_marked(name));
        let of = |(conn, _)| self.alterations.conns.get(&conn).copied();
        links.filter_map(of).collect()
    }

    // --- those that find it

    /// What is due of what proxies do by themselves.
    pub(super) fn look_for_orders(&mut self) {
        let (at, all) = (self.at, &mut self.alterations);
        let due: Vec<_> = all.due.extract_if(.., |(due, ..)| *due <= at).collect();
        for (_, proxy, turn) in due {
            match turn {
                Turn::Looks => {
                    let told = Turn::Told(self.orders());
                    self.alterations.later(at, 50 * MILLI, proxy, told);
                }
                Turn::Told(orders) => {
                    self.attend(proxy, orders);
                    let every = self.alterations.every;
                    self.alterations.later(at, every, proxy, Turn::Looks);
                }
                Turn::Relearns(queue) => self.relearn(proxy, &queue),
            }
        }
    }

    /// The watchdog sees those that are bound; who lists all queues, the others too.
    fn orders(&mut self) -> Vec<Order> {
        let lists = self.alterations.rng.bool();
        let bindings = self.broker.bindings();
        let is_bound = |name: &Vec<u8>| bindings.iter().any(|of| of.destination == *name);
        let names = self.broker.queue_names().into_iter();
        let names = names.filter(|name| is_order(name) && (lists || is_bound(name)));
        names.filter_map(|name| self.order_of(&name)).collect()
    }

    fn attend(&mut self, proxy: usize, orders: Vec<Order>) {
        let number = self.alterations.number();
        let order = self.alterations.rng.choice(orders);
        let Some((process, order)) = self.proxies[proxy].as_mut().zip(order) else {
            return;
        };
        if !process.attends() {
            let said = format!("=== proxy {proxy} attends to {}", order.queue);
            self.alterations
                .at_work
                .insert(number, (proxy, order.clone()));
            process.attend(number, order);
            self.note(|| said);
        }
    }

    fn relearn(&mut self, proxy: usize, queue: &str) {
        let now = self.now();
        let listed = self.broker.listed(queue.as_bytes());
        let listed = listed.filter(|_| !self.is_api_away());
        if let (Some(process), Some(listed)) = (&self.proxies[proxy], listed) {
            process.hears_queue(&listed, now);
        }
    }

    // --- what comes of them

    /// Hears what came of alterations, and judges what must hold meanwhile.
    ///
    /// # Errors
    /// What does not.
    pub(super) fn look_at_alterations(&mut self) -> Result<(), String> {
        if !self.alterations.work() {
            return Ok(());
        }
        for at in 0..self.proxies.len() {
            let came = self.proxies[at].as_mut().map(|of| of.take_alterations());
            for (number, came) in came.unwrap_or_default() {
                self.note(|| format!("=== alteration {number} of proxy {at}: {came:?}"));
                self.came(at, number, came)?;
            }
        }
        self.look_for_gaps();
        self.forget_the_killed();
        self.hold_no_longer()?;
        self.are_whole()
    }

    fn came(&mut self, at: usize, number: u64, came: Came) -> Result<(), String> {
        self.alterations.begun.remove(&number);
        let Some((_, order)) = self.alterations.at_work.remove(&number) else {
            return Ok(());
        };
        match came {
            Came::Attended(false) => return Ok(()),
            Came::Attended(true) => self.accounts.count.attended += 1,
            Came::Altered(Ok(altered)) => {
                self.accounts.count.altered += 1;
                self.has_altered(&order.queue, &altered)?;
            }
            Came::Altered(Err(failure)) => {
                self.accounts.count.unaltered += 1;
                self.has_failed(&failure)?;
            }
        }
        let all = &mut self.alterations;
        all.later(self.at, 20 * MILLI, at, Turn::Relearns(order.queue));
        Ok(())
    }

    fn has_altered(&mut self, queue: &str, altered: &Altered) -> Result<(), String> {
        let pause = usize::try_from(altered.pause.as_millis()).unwrap_or(usize::MAX);
        let longest = &mut self.accounts.count.pause;
        *longest = pause.max(*longest);
        let is_unbound = !altered.unbound.is_empty() && !self.accounts.exchanges_go;
        match altered.lost > 0 || is_unbound {
            true => Err(format!("the alteration of {queue}: {altered:?}")),
            false => Ok(()),
        }
    }

    fn has_failed(&self, failure: &Failure) -> Result<(), String> {
        match failure {
            // The broker refuses to make such a queue, which it had made for a trial; and no client of a proxy that takes no part was first.
            Failure::Back(_)
                if !self.accounts.declares_refused && self.accounts.all_take_part() =>
            {
                Err(failure.to_string())
            }
            _ => Ok(()),
        }
    }

    fn forget_the_killed(&mut self) {
        let proxies = &self.proxies;
        let works = |at: usize, number| {
            let proxy = proxies[at].as_ref();
            proxy.is_some_and(|proxy| proxy.has_alteration(number))
        };
        let all = &mut self.alterations;
        let killed = all.at_work.iter();
        let killed = killed.filter(|(number, (at, _))| !works(*at, **number));
        let killed: Vec<u64> = killed.map(|(number, _)| *number).collect();
        for number in killed {
            all.at_work.remove(&number);
            self.accounts.count.killed += usize::from(all.begun.remove(&number));
        }
    }

    /// No alteration is at work, and nothing of one is left, unless it is tried in vain.
    pub(super) fn has_no_alterations(&self) -> bool {
        !self.alterations.work()
            || self.wait_for_room()
            || self.alterations.at_work.is_empty()
                && self.alterations.last_ones == 0
                && !self.has_left_anything()
    }
}

fn is_order(name: &[u8]) -> bool {
    matches!(names().parse(name), Some(OwnObject::Order(_)))
}
