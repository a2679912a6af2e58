//! An operator writes other policies into the settings of the proxies, while messages are on their way: each proxy hears of it by a SIGHUP of its
//! own, and one that starts reads them. Not in all worlds; what is drawn for it has a generator of its own, so that the others stay what they are.

use fastrand::Rng;

use super::net::Micros;
use super::plan::Plan;
use super::rulings::{Ruling, Rulings};
use super::world::World;

/// Makes another seed of a seed.
const SIGHUPS: u64 = 0x7369_6768_7570_7300;
const SECOND: Micros = 1_000_000;

/// When the settings change.
pub(crate) struct Sighups {
    rng: Rng,
    /// One change in so many steps; 0: none.
    rarity: u32,
    /// What the file says now.
    pub file: Rulings,
    /// Proxies that will hear of it, with the moment.
    due: Vec<(Micros, usize)>,
}

impl Sighups {
    pub(crate) fn draw(seed: u64, plan: &Plan) -> Sighups {
        let mut rng = Rng::with_seed(seed ^ SIGHUPS);
        let rarity = match rng.bool() {
            true => [150, 500, 2_000][rng.usize(..3)],
            false => 0,
        };
        Sighups {
            rarity,
            file: plan.rulings(),
            due: Vec::new(),
            rng,
        }
    }

    /// There are any in this world.
    pub(crate) fn come(&self) -> bool {
        self.rarity > 0
    }

    pub(super) fn next(&self) -> Option<Micros> {
        self.due.iter().map(|(due, _)| *due).min()
    }

    /// The policy of one queue is another one from now on. False: all stays as it is.
    fn write(&mut self, plan: &Plan) -> bool {
        if self.rarity == 0 || self.rng.u32(..self.rarity) > 0 {
            return false;
        }
        let Some(queue) = self.rng.choice(&plan.sources).cloned() else {
            return false;
        };
        let argued = plan.argued_target(&queue);
        let before = match Ruling::draw(&mut self.rng, plan, argued.as_ref()) {
            Some(ruling) => self.file.insert(queue.clone(), ruling),
            None => self.file.remove(&queue),
        };
        before.as_ref() != self.file.get(&queue)
    }
}

impl World {
    /// The settings change, or not.
    pub(super) fn change_settings(&mut self) {
        if !self.sighups.write(&self.plan) {
            return;
        }
        let said = format!("=== settings: {:?}", self.sighups.file);
        self.note(|| said);
        for proxy in 0..self.proxies.len() {
            let most = [1, SECOND, 20 * SECOND][self.sighups.rng.usize(..3)];
            let due = self.at + self.sighups.rng.u64(..most);
            self.sighups.due.push((due, proxy));
        }
    }

    /// SIGHUPs arrive. A process that has begun meanwhile reads what it knows already.
    pub(super) fn hang_up_proxies(&mut self) {
        let at = self.at;
        let (due, later): (Vec<_>, Vec<_>) =
            self.sighups.due.drain(..).partition(|(due, _)| *due <= at);
        self.sighups.due = later;
        for (_, proxy) in due {
            let Some(process) = &mut self.proxies[proxy] else {
                continue;
            };
            process.reload(&self.sighups.file);
            self.note(|| format!("=== SIGHUP of proxy {proxy}"));
            self.accounts.reloaded(proxy, &self.sighups.file, at);
        }
    }
}
