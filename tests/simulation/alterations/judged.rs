//! What must hold of a queue that is altered: it is whole, unless an order says that somebody works on it; what is published meanwhile comes into it;
//! and nobody waits for long.

use std::collections::BTreeSet;

use dlx_proxy::alteration::Order;
use serde_json::Value;

use super::super::accounts::alterations::{aside_of, is_its_own};
use super::super::model::{Fact, Why};
use super::super::net::Micros;
use super::super::proxy::Proxy;
use super::super::world::World;
use super::listed::json;
use super::{Process, SECOND};

/// Clients wait no longer, when all goes well: the pause, and two jumps of the clock (seed 80947).
const PAUSE: Micros = 5 * SECOND;
/// Those of a proxy that takes part, and that one jump of the clock has made believe in silence: it tries to finish, or takes part once more.
const SILENCE: Micros = 12 * SECOND;
/// Where messages are moved, as this broker confirms late; and an attempt that is given up hears the rest behind all that it was given.
const MOVED: Micros = 30 * SECOND;
/// The longest pause of a publisher (`publisher.rs`).
const PUBLISHER_PAUSE: Micros = 5 * SECOND;
/// Who takes part finishes what a killed process has left: its silence, the broker's ignorance, tries with pauses.
const FINISHED_WITHIN: Micros = 120 * SECOND;

/// What was to be made of a queue.
pub(super) struct Account {
    order: Order,
    /// Processes that have to take part.
    counted: BTreeSet<Process>,
    /// With which arguments it may be.
    forms: Vec<Value>,
}

// === impl Account ===

impl Account {
    fn new(order: &Order, counted: BTreeSet<Process>) -> Account {
        let form = |arguments| serde_json::to_value(arguments).unwrap_or_default();
        Account {
            counted,
            forms: vec![form(&order.old), form(&order.new)],
            order: order.clone(),
        }
    }

    fn is_there(&mut self, form: Value) {
        if !self.forms.contains(&form) {
            self.forms.push(form);
        }
    }

    /// Whether what is published so comes into the queue.
    fn leads(&self, exchange: &[u8], key: &[u8], exchanges_go: bool) -> bool {
        if exchange.is_empty() {
            return key == self.order.queue.as_bytes();
        }
        let fits = |of: &dlx_proxy::alteration::Binding| {
            let fans = exchange == b"fan" || of.routing_key.as_bytes() == key;
            of.source.as_bytes() == exchange && fans
        };
        !exchanges_go && self.order.bindings.iter().any(fits)
    }
}

// === impl World ===

impl World {
    /// An alteration begins. Another one of the same queue may be at work, or left behind.
    pub(super) fn judge(&mut self, order: &Order) {
        let mut account = Account::new(order, self.publishing());
        for at in 0..self.proxies.len() {
            if !account.counted.contains(&self.alterations.process(at)) {
                self.accounts.takes_no_part(at);
            }
        }
        let all = &mut self.alterations;
        let is_same = |(_, of): &(usize, Order)| of.queue == order.queue;
        if let Some(before) = all.queues.remove(&order.queue)
            && all.at_work.values().any(is_same)
        {
            account
                .counted
                .retain(|process| before.counted.contains(process));
            account.forms.extend(before.forms);
            // A binding that is younger than a plan is not made again (docs/how-to/existing-queues.md).
            let bound = &mut account.order.bindings;
            bound.retain(|binding| before.order.bindings.contains(binding));
        }
        all.queues.insert(order.queue.clone(), account);
    }

    /// # Errors
    /// A message goes with its queue. Or it was to come into one and does not, as that is away: its proxy takes no part.
    pub(in super::super) fn is_not_lost(&self, fact: &Fact) -> Result<(), String> {
        let (conn, exchange, key, into) = match fact {
            Fact::Published {
                conn,
                exchange,
                key,
                into,
                ..
            } => (conn, exchange, key, into),
            Fact::Dropped {
                queue,
                copy,
                why: Why::QueueDeleted,
                ..
            } => {
                let mut queues = self.alterations.queues.iter();
                let of_it = queues.find(|(name, _)| name.as_bytes() == queue);
                let holder = self.accounts.holder(*copy);
                let holder = holder.and_then(|conn| self.alterations.conns.get(&conn));
                // What a client holds is safe if its proxy takes part; what it has just published, too.
                let is_safe = |account: &Account| {
                    let all = || self.accounts.all_take_part();
                    holder.map_or_else(all, |of| account.counted.contains(of))
                };
                return match of_it.is_some_and(|(_, account)| is_safe(account)) {
                    true => Err(format!("a message goes with its queue: {fact:?}")),
                    false => Ok(()),
                };
            }
            _ => return Ok(()),
        };
        let process = self.alterations.conns.get(conn);
        let is_another = self.accounts.is_gone(*conn) || self.accounts.alters(*conn);
        let Some(process) = process.filter(|_| !is_another) else {
            return Ok(());
        };
        // The broker refuses to make the queue again: clients go on, and the order stays.
        let proxy = self.proxies.get(process.0).and_then(Option::as_ref);
        if self.accounts.declares_refused && !proxy.is_some_and(Proxy::holds_clients) {
            return Ok(());
        }
        // A publisher waits no longer. What it publishes then comes back, and is parked.
        let since = self.alterations.held.get(&process.0);
        let is_over = since.is_some_and(|since| self.at - since > PUBLISHER_PAUSE);
        if is_over && !self.accounts.is_client(*conn) {
            return Ok(());
        }
        for (queue, account) in &self.alterations.queues {
            let leads = account.leads(exchange, key, self.accounts.exchanges_go);
            let comes = into.iter().any(|of| of == queue.as_bytes());
            if leads && !comes && account.counted.contains(process) {
                return Err(format!(
                    "a message of {process:?} for {queue}, which is altered, is lost: {fact:?}"
                ));
            }
        }
        Ok(())
    }

    /// # Errors
    /// Clients wait for too long.
    pub(super) fn hold_no_longer(&mut self) -> Result<(), String> {
        let before = self.alterations.held.len();
        for (at, proxy) in self.proxies.iter().enumerate() {
            let held = &mut self.alterations.held;
            let Some(proxy) = proxy.as_ref().filter(|of| of.holds_clients()) else {
                held.remove(&at);
                continue;
            };
            let since = *held.entry(at).or_insert(self.at);
            let waits = self.at - since;
            let count = &mut self.accounts.count.held;
            *count = (*count).max(usize::try_from(waits / 1_000).unwrap_or_default());
            let (work, begun) = (&self.alterations.at_work, &self.alterations.begun);
            let mut of_it = work.iter().filter(|(_, (of, _))| *of == at);
            let begins = of_it.all(|(number, _)| begun.contains(number));
            let most = match self.troubles.never_any() {
                true if self.alterations.moves => MOVED,
                true if begins => PAUSE,
                true => SILENCE,
                false => FINISHED_WITHIN,
            };
            if waits > most {
                let proxy = proxy.held();
                return Err(format!(
                    "clients of proxy {at} wait for {waits} µs, {proxy:?}"
                ));
            }
        }
        if self.alterations.held.len() > before {
            self.publish_meanwhile();
        }
        Ok(())
    }

    /// # Errors
    /// A queue is missing, or is another one, or a binding of it is missing, and no order says so.
    pub(super) fn are_whole(&mut self) -> Result<(), String> {
        let all = &mut self.alterations;
        for (queue, account) in &mut all.queues {
            let place = format!("dlx-proxy.altering/{queue}");
            if self.broker.listed(place.as_bytes()).is_some() {
                let works = |number| {
                    let work = all.at_work.get(number);
                    work.is_some_and(|(_, order)| order.queue == *queue)
                };
                // Whoever had begun is killed, or not all take part: a client that finds no queue makes it as it always did.
                if (!all.begun.iter().any(works) || !self.accounts.all_take_part())
                    && let Some(listed) = self.broker.listed(queue.as_bytes())
                {
                    account.is_there(json(&listed.arguments));
                }
                continue;
            }
            let Some(listed) = self.broker.listed(queue.as_bytes()) else {
                return Err(format!("{queue} is gone, and no order says so"));
            };
            let form = json(&listed.arguments);
            if !account.forms.contains(&form) {
                let forms = &account.forms;
                return Err(format!("{queue} is made with {form}, and not {forms:?}"));
            }
            let bindings = self.broker.bindings();
            let is_there = |of: &&dlx_proxy::alteration::Binding| {
                bindings.iter().any(|it| {
                    it.destination == queue.as_bytes()
                        && it.source == of.source.as_bytes()
                        && it.key == of.routing_key.as_bytes()
                })
            };
            let mut all = account.order.bindings.iter();
            if let Some(missing) = all.find(|of| !is_there(of))
                && !self.accounts.exchanges_go
            {
                return Err(format!("{queue} is bound no more: {missing:?}"));
            }
        }
        Ok(())
    }

    /// Something of an alteration is at the broker.
    pub(super) fn has_left_anything(&self) -> bool {
        let names = self.broker.queue_names();
        let is_left = |name: &Vec<u8>| is_its_own(name) || aside_of(name).is_some();
        names.iter().any(is_left) || self.proxies.iter().flatten().any(Proxy::holds_clients)
    }

    /// Messages wait aside for room in a queue that nobody reads.
    pub(super) fn wait_for_room(&self) -> bool {
        let names = self.broker.queue_names();
        let mut asides = names.iter().filter_map(|name| aside_of(name)).peekable();
        asides.peek().is_some() && asides.all(|queue| self.broker.is_full(queue))
    }
}
