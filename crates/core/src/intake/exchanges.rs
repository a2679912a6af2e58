//! Which intake exchanges are known, which are being declared, and who waits for them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::intake::Effects;
use crate::machine::{Ensure, Ensured, Event, Limit, LiveLimits, Mono, Owner};

/// How long a declare is trusted.
const FRESH: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct Entry {
    /// Existed once: counts in the limit.
    exists: bool,
    /// Last confirmation by the broker on this link.
    since: Option<Mono>,
    /// The queue was missing at the binding.
    missed: bool,
    user: Option<ShortStr>,
    /// Waiting sessions. Not empty: a declare is due or pending. Each session asks for one at a
    /// time, which bounds them.
    owners: Vec<Owner>,
}

#[derive(Debug)]
pub(super) struct Exchanges {
    known: BTreeMap<ShortStr, Entry>,
    limits: LiveLimits,
}

// === impl Exchanges ===

impl Exchanges {
    pub(super) fn new(limits: LiveLimits) -> Exchanges {
        Exchanges {
            known: BTreeMap::new(),
            limits,
        }
    }

    /// False: answered already.
    pub(super) fn ask(
        &mut self,
        owner: Owner,
        ensure: &Ensure,
        now: Mono,
        fx: &mut Effects,
    ) -> bool {
        let Ensure { exchange, user } = ensure;
        if !self.known.contains_key(exchange) && !self.has_room(user.as_ref()) {
            fx.events.push(Event::LimitMet(Limit::IntakeExchanges));
            answer(&[owner], exchange, false, fx);
            return false;
        }
        let entry = self.known.entry(exchange.clone()).or_insert_with(|| Entry {
            user: user.clone(),
            ..Entry::default()
        });
        if entry.since.is_some_and(|since| since.after(FRESH) > now) {
            answer(&[owner], exchange, true, fx);
            return false;
        }
        entry.owners.push(owner);
        true
    }

    /// Room for one more; a user may have half of them.
    fn has_room(&self, user: Option<&ShortStr>) -> bool {
        let most = self.limits.now().max_intake_exchanges;
        let own = |entry: &&Entry| entry.user.as_ref() == user;
        self.known.len() < most && self.known.values().filter(own).count() < most.div_ceil(2)
    }

    /// Exchanges to declare: awaited ones first, then those that the broker may have lost.
    pub(super) fn due(&self) -> Vec<ShortStr> {
        let of = |asked: bool| {
            let due = self.known.iter().filter(move |(_, entry)| {
                let waits = !entry.owners.is_empty();
                waits == asked && (waits || entry.since.is_none())
            });
            due.map(|(exchange, _)| exchange.clone())
        };
        of(true).chain(of(false)).collect()
    }

    pub(super) fn declared(&mut self, exchange: &ShortStr, now: Mono, fx: &mut Effects) {
        if let Some(entry) = self.known.get_mut(exchange) {
            entry.since = Some(now);
            entry.missed = false;
            answer(&std::mem::take(&mut entry.owners), exchange, true, fx);
            if !std::mem::replace(&mut entry.exists, true) {
                self.tell(fx);
            }
        }
    }

    /// The queue was missing although it had existed: somebody deleted it. Retried once, then
    /// refused.
    pub(super) fn missed(&mut self, exchange: &ShortStr, fx: &mut Effects) {
        match self.known.get_mut(exchange) {
            Some(entry) if !entry.missed => entry.missed = true,
            _ => self.refused(exchange, fx),
        }
    }

    pub(super) fn refused(&mut self, exchange: &ShortStr, fx: &mut Effects) {
        if let Some(entry) = self.known.remove(exchange) {
            answer(&entry.owners, exchange, false, fx);
            if entry.exists {
                self.tell(fx);
            }
        }
    }

    pub(super) fn give_up(&mut self, fx: &mut Effects) {
        for (exchange, entry) in &mut self.known {
            answer(&std::mem::take(&mut entry.owners), exchange, false, fx);
        }
        self.known.retain(|_, entry| entry.exists);
    }

    /// The link or an own queue is gone: all must be declared again.
    pub(super) fn doubt(&mut self) {
        for entry in self.known.values_mut() {
            entry.since = None;
        }
    }

    fn tell(&self, fx: &mut Effects) {
        let count = self.known.values().filter(|entry| entry.exists).count();
        fx.events.push(Event::IntakeExchanges(count));
    }
}

fn answer(owners: &[Owner], exchange: &ShortStr, ready: bool, fx: &mut Effects) {
    for &owner in owners {
        let exchange = exchange.clone();
        fx.out.ensured.push((owner, Ensured { exchange, ready }));
    }
}
