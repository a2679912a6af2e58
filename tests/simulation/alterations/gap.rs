//! The moment in which a queue is away is short, and what matters most: there its proxy is killed or cut off, or the network stands still, more often
//! than elsewhere.

use super::super::faults::Fault;
use super::super::net::{Micros, TcpId};
use super::super::redeclares::target_of;
use super::super::world::World;
use super::MILLI;

/// What stands still does so for that long at most, so that a pause is still one.
const STILL: Micros = 600 * MILLI;

impl World {
    pub(super) fn look_for_gaps(&mut self) {
        let broker = &self.broker;
        let is_away = |queue: &&String| broker.listed(queue.as_bytes()).is_none();
        let away = self.alterations.queues.keys().filter(is_away);
        let away = away.cloned().collect();
        let before = std::mem::replace(&mut self.alterations.away, away);
        for queue in before.difference(&self.alterations.away) {
            if let Some(listed) = self.broker.listed(queue.as_bytes()) {
                let target = target_of(&listed.arguments);
                self.accounts.is_there_again(queue, target);
            }
        }
        if self.alterations.away.is_subset(&before) {
            return;
        }
        self.publish_meanwhile();
        let drawn = self.alterations.rng.u8(..8);
        let still = self.at + self.alterations.rng.u64(..STILL);
        match drawn {
            0 | 1 if self.troubles.comes(Fault::ProxyKilled) => self.strike(Fault::ProxyKilled),
            2 if self.troubles.comes(Fault::Cut) => {
                self.accounts.fault(self.at);
                let links = self.links_of_alterations();
                links.into_iter().for_each(|tcp| self.net.cut(tcp));
            }
            0..=5 => {
                let links = self.links_of_alterations();
                links
                    .into_iter()
                    .for_each(|tcp| self.net.stand_still(tcp, still));
            }
            _ => {}
        }
    }

    /// Clients publish when they are held, and when a queue is away: what is not held then is lost.
    pub(super) fn publish_meanwhile(&mut self) {
        let (at, rng) = (self.at, &mut self.alterations.rng);
        for client in &mut self.clients {
            for _ in 0..rng.u8(..4) {
                client.publish(rng, at, &mut self.next_body, &self.plan);
            }
        }
    }

    fn links_of_alterations(&self) -> Vec<TcpId> {
        let links = self.open_peers();
        let links = links.filter(|(_, conn)| self.accounts.alters(*conn));
        links.map(|(tcp, _)| tcp).collect()
    }
}
