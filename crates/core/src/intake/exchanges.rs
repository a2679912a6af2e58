//! Which intake exchanges are known, which are being declared, and who waits for them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::intake::Effects;
use crate::machine::{Ensure, Ensured, Event, Limit, LiveLimits, Mono, Owner};

/// A declared exchange is not declared again for so long.
const FRESH: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct Entry {
    /// It existed at some time: it counts.
    exists: bool,
    /// When the broker last said so, in this life of the link.
    since: Option<Mono>,
    /// The broker did not find our queue when it was to be bound.
    missed: bool,
    user: Option<ShortStr>,
    /// Who waits. Not empty: it is being declared, or will be. Each session asks for one at a time, so there are no more than sessions.
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

    /// False: it is answered already.
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

    /// Whether there may be one more, for this user: one user may have half of them.
    fn has_room(&self, user: Option<&ShortStr>) -> bool {
        let most = self.limits.now().max_intake_exchanges;
        let own = |entry: &&Entry| entry.user.as_ref() == user;
        self.known.len() < most && self.known.values().filter(own).count() < most.div_ceil(2)
    }

    /// Those to be declared: first what somebody waits for, then all that the broker may have lost.
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

    /// It is declared and bound.
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

    /// The broker did not find the queue, which was there a moment ago: whoever deleted it did not mean the exchange. Once; then it is refused.
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

    /// Tells all who wait for an exchange that there is none for them.
    pub(super) fn give_up(&mut self, fx: &mut Effects) {
        for (exchange, entry) in &mut self.known {
            answer(&std::mem::take(&mut entry.owners), exchange, false, fx);
        }
        self.known.retain(|_, entry| entry.exists);
    }

    /// The link, or a queue of ours, is gone: what was declared has to be declared again.
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
