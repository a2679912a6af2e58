//! The policies in force, and where a queue's dead letters go by them *now*: a change acts at the next death.
//!
//! Each key is looked up by itself (S2.1): first in the queue's own arguments, then in the policy of the proxy that fits the queue (the other way
//! round where that policy overrules arguments), then in the broker's policy. A policy of the proxy beats the broker's as an argument does,
//! because a declare tells the broker of it as an argument.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};

use crate::amqp::ids::{ShortStr, Vhost};
use crate::amqp::table::Table;
use crate::amqp::version::Version;
use crate::dead_letter::retries::Retries;
use crate::dead_letter::{Lookup, Target};
use crate::objects::{DeclaredTarget, Names, QueueType};

use super::Declared;
use super::arguments::{MESSAGE_TTL, OVERFLOW};
use super::broker_policy::{Added, BrokerPolicies, least};
use super::policy::{Mode, Policies, Queue};
use super::redeclared::{Entry, Existing, Redeclared};
use super::said_retries::SaidRetries;

/// An overflow mode (S1.3).
const REJECT_PUBLISH_DLX: &[u8] = b"reject-publish-dlx";

/// Shared cells, each with a snapshot that is replaced as a whole without a lock. Clones share
/// them.
#[derive(Clone, Debug, Default)]
pub struct LivePolicies(Arc<Cells>);

#[derive(Debug, Default)]
struct Cells {
    ours: ArcSwap<Policies>,
    brokers: ArcSwap<BrokerPolicies>,
    redeclared: ArcSwap<Redeclared>,
    changes: AtomicU32,
    hears_broker: AtomicBool,
}

// === impl LivePolicies ===

impl LivePolicies {
    /// While the broker's policies are unknown.
    pub fn new(ours: Policies) -> LivePolicies {
        let live = LivePolicies::default();
        live.set_ours(ours);
        live
    }

    pub fn ours(&self) -> Guard<Arc<Policies>> {
        self.0.ours.load()
    }

    pub fn set_ours(&self, ours: Policies) {
        self.0.ours.store(Arc::new(ours));
        self.0.changes.fetch_add(1, Ordering::Relaxed);
    }

    pub fn set_brokers(&self, brokers: BrokerPolicies) {
        self.0.brokers.store(Arc::new(brokers));
        self.0.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Changes with own and broker policies.
    pub fn changes(&self) -> u32 {
        self.0.changes.load(Ordering::Relaxed)
    }

    /// Whether the last reading of policies succeeded.
    pub fn set_hears_broker(&self, hears: bool) {
        self.0.hears_broker.store(hears, Ordering::Relaxed);
    }

    /// Whether asking about an unknown queue makes sense.
    pub fn hears_broker(&self) -> bool {
        self.0.hears_broker.load(Ordering::Relaxed)
    }

    /// Retries for a queue with these arguments; `mode`: the global one.
    pub fn retries(
        &self,
        queue: Queue<'_>,
        said: SaidRetries,
        mode: Mode,
        version: Option<Version>,
    ) -> Option<Retries> {
        let (ours, said) = (self.ours(), said.of_returns());
        if said.is_silent() && !ours.speak_of_retries() {
            return None;
        }
        let policy = ours.matching(queue);
        let mode = policy.and_then(|policy| policy.mode).unwrap_or(mode);
        let by_policy = policy.map(|policy| policy.definition.retries.clone());
        let overrules = policy.is_some_and(|policy| policy.overrules_arguments);
        match mode {
            Mode::Off => None,
            Mode::Full | Mode::RejectsOnly => {
                let by_policy = by_policy.unwrap_or_default().of_returns();
                let by_broker = self.0.brokers.load().limits(queue).delivery_limit;
                said.by_us((by_policy, overrules), by_broker, queue.queue_type, version)
            }
        }
    }

    /// How long a delivery of such a queue may stay unsettled; `mode`: the global one.
    pub fn ack_timeout(
        &self,
        queue: Queue<'_>,
        said: &SaidRetries,
        mode: Mode,
    ) -> Option<Duration> {
        let ours = self.ours();
        if said.ack_timeout.is_none() && !ours.speak_of_ack_timeouts() {
            return None;
        }
        let policy = ours.matching(queue);
        let mode = policy.and_then(|policy| policy.mode).unwrap_or(mode);
        if mode == Mode::Off || queue.queue_type == QueueType::Other {
            return None;
        }
        let set = policy.and_then(|policy| policy.definition.retries.ack_timeout);
        let millis = match policy.is_some_and(|policy| policy.overrules_arguments) {
            true => set.or(said.ack_timeout),
            false => said.ack_timeout.or(set),
        };
        Some(Duration::from_millis(millis?.into()))
    }

    /// For a declared queue. `names`: of its possible intake exchanges.
    pub fn target_of_declared(
        &self,
        queue: Queue<'_>,
        declared: &Declared,
        names: &Names,
    ) -> Lookup {
        let redeclared = self.0.redeclared.load();
        let said = match redeclared.is_empty() {
            true => None,
            false => last_said(&redeclared, queue, declared, names),
        };
        self.target(queue, said.as_deref().unwrap_or(&declared.said))
    }

    pub fn target(&self, queue: Queue<'_>, said: &DeclaredTarget) -> Lookup {
        match self.target_and_added(queue, said) {
            Ok((target, Some(added))) => Lookup::Target(added.to(target)),
            Ok((target, None)) if target.routing_key.is_some() => Lookup::Target(target),
            Ok((_, None)) => Lookup::KeyUnknown,
            Err(nowhere) => nowhere,
        }
    }

    pub fn target_of_unknown(&self, queue: Queue<'_>) -> Lookup {
        let said = DeclaredTarget::Policy {
            at_least_once: false,
        };
        match said.target(self.ours().matching(queue)) {
            Some(_) => self.target(queue, &said),
            None => Lookup::Unknown,
        }
    }

    /// `None`: only the message's own TTL counts, as far as known.
    pub fn message_ttl(&self, queue: Queue<'_>, declared: Option<&Declared>) -> Option<Duration> {
        let argument = declared.and_then(|declared| {
            let argument = Table(&declared.form.arguments).get(MESSAGE_TTL);
            argument.ok()??.as_integer()
        });
        let by_broker = self.0.brokers.load().limits(queue).message_ttl;
        let millis = u64::try_from(least(argument, by_broker)?).ok()?;
        Some(Duration::from_millis(millis))
    }

    /// Whether a message refused by the full queue is also dead-lettered.
    pub fn dies_when_full(&self, queue: Queue<'_>, declared: Option<&Declared>) -> bool {
        let argument =
            declared.and_then(|declared| Table(&declared.form.arguments).get(OVERFLOW).ok()?);
        let by_argument = argument.map(|said| said.as_longstr() == Some(REJECT_PUBLISH_DLX));
        let by_broker = || self.0.brokers.load().limits(queue).dies_when_full;
        by_argument.or_else(by_broker).unwrap_or(false)
    }

    /// As far as known. Negative: unlimited.
    pub fn broker_delivery_limit(&self, queue: Queue<'_>) -> Option<i64> {
        self.0.brokers.load().limits(queue).delivery_limit
    }

    /// Whether the broker dead-letters from this queue: to an intake exchange, by argument, or by a
    /// policy that is certain. Otherwise it discards rejects.
    pub fn broker_dead_letters(&self, queue: Queue<'_>, declared: &Declared) -> bool {
        declared.taken_over
            || declared.existing().exchange.is_some()
            || self.0.brokers.load().names_exchange(queue)
    }

    /// Whether a broker policy gives the queue an intake exchange, as no argument names another
    /// one.
    pub fn is_adopted(&self, queue: Queue<'_>, declared: &Declared) -> bool {
        declared.existing().exchange.is_none() && self.0.brokers.load().adopts(queue)
    }

    pub fn brokers(&self) -> Guard<Arc<BrokerPolicies>> {
        self.0.brokers.load()
    }

    /// The same for a signal with that key.
    ///
    /// A key set by a broker policy at the death is on it already. So known broker policies only
    /// show whether the key is a set key, which counts alone (S2.2), or the message's own, beside
    /// which `CC` may count.
    pub fn target_of_signal(
        &self,
        queue: Queue<'_>,
        intake: &ShortStr,
        said: &DeclaredTarget,
        routing_key: &[u8],
    ) -> Lookup {
        let redeclared = self.0.redeclared.load();
        let said = redeclared
            .said(queue.vhost, queue.name, &Existing::taken_over(intake))
            .unwrap_or(said);
        match self.target_and_added(queue, said) {
            Ok((target, None)) => Lookup::Target(target),
            Ok((target, Some(added))) => {
                let is_alone = said.target_or(self.ours().matching(queue), None).is_none();
                let counts = |key: &ShortStr| is_alone || **key == *routing_key;
                let set = added.routing_key.filter(counts);
                let added = Added {
                    routing_key: set,
                    ..added
                };
                Lookup::Target(added.to(target))
            }
            Err(nowhere) => nowhere,
        }
    }

    /// Whether the last declare of a queue with this intake exchange has another target.
    pub fn is_redeclared(&self, queue: Queue<'_>, intake: &ShortStr) -> bool {
        let existing = Existing::taken_over(intake);
        let redeclared = self.0.redeclared.load();
        redeclared
            .said(queue.vhost, queue.name, &existing)
            .is_some()
    }

    /// Number of redeclared queues.
    pub fn count_redeclared(&self) -> usize {
        self.0.redeclared.load().len()
    }

    pub fn redeclared(&self) -> Guard<Arc<Redeclared>> {
        self.0.redeclared.load()
    }

    /// Entries of other proxies of the vhost, or of an earlier process.
    pub fn learn(&self, vhost: &Vhost, entries: &[(ShortStr, Entry)]) {
        let with = |before: &Arc<Redeclared>| before.with(vhost, entries.iter().cloned());
        self.0.redeclared.rcu(with);
    }

    /// Applies an accepted declare on all connections. `own`: the target in the queue's arguments.
    /// Returns its entry, and what counted before, if that differs.
    pub fn redeclare(
        &self,
        vhost: &Vhost,
        queue: &ShortStr,
        existing: &Existing,
        own: &DeclaredTarget,
        said: &DeclaredTarget,
    ) -> Option<(Entry, DeclaredTarget)> {
        let before = self.0.redeclared.load();
        let counted = before.said(vhost, queue, existing).unwrap_or(own);
        if counted.is_but_for_the_strategy(said) {
            return None;
        }
        let said = (!own.is_but_for_the_strategy(said)).then(|| said.clone());
        let entry = self.count(vhost, queue, existing, said.as_ref());
        Some((entry, counted.clone()))
    }

    /// Makes this entry the queue's newest. Returns it with its new number.
    pub fn count_again(&self, vhost: &Vhost, queue: &ShortStr, entry: &Entry) -> Entry {
        self.count(vhost, queue, &entry.existing, entry.said.as_ref())
    }

    fn count(
        &self,
        vhost: &Vhost,
        queue: &ShortStr,
        existing: &Existing,
        said: Option<&DeclaredTarget>,
    ) -> Entry {
        let next = |redeclared: &Redeclared| Entry {
            number: redeclared
                .entry(vhost, queue)
                .map_or(1, |known| known.number.saturating_add(1)),
            existing: existing.clone(),
            said: said.cloned(),
        };
        let before = self
            .0
            .redeclared
            .rcu(|redeclared| redeclared.with(vhost, [(queue.clone(), next(redeclared))]));
        next(&before)
    }

    /// The queue is deleted: declares count no more. Returns an entry for that, if there were any.
    pub fn forget(&self, vhost: &Vhost, queue: &ShortStr) -> Option<Entry> {
        let counted = |redeclared: &Redeclared| {
            let known = redeclared.entry(vhost, queue)?;
            known.said.as_ref()?;
            Some(Entry {
                number: known.number.saturating_add(1),
                existing: known.existing.clone(),
                said: None,
            })
        };
        let before = self
            .0
            .redeclared
            .rcu(|redeclared| match counted(redeclared) {
                Some(entry) => Arc::new(redeclared.with(vhost, [(queue.clone(), entry)])),
                None => redeclared.clone(),
            });
        counted(&before)
    }

    /// The target, and what the broker's policy adds, if known.
    ///
    /// # Errors
    /// No target is known.
    fn target_and_added(
        &self,
        queue: Queue<'_>,
        said: &DeclaredTarget,
    ) -> Result<(Target, Option<Added>), Lookup> {
        let brokers = self.0.brokers.load();
        let added = brokers.added(queue);
        let exchange = added.as_ref().and_then(|added| added.exchange.as_ref());
        match said.target_or(self.ours().matching(queue), exchange) {
            Some(target) => Ok((target, added)),
            None if added.is_some() && brokers.are_read() => Err(Lookup::NoExchange),
            None => Err(Lookup::Unknown),
        }
    }
}

/// From the last declare on any connection. `None`: not redeclared.
fn last_said<'a>(
    redeclared: &'a Redeclared,
    queue: Queue<'_>,
    declared: &Declared,
    names: &Names,
) -> Option<Cow<'a, DeclaredTarget>> {
    let existing = declared.existing();
    let entry = redeclared.of(queue.vhost, queue.name, &existing)?;
    Some(match &entry.said {
        Some(said) => Cow::Borrowed(said),
        // What the queue was made with, though this connection may have said something else before.
        None => Cow::Owned(existing.said(names).like(&declared.said)),
    })
}
