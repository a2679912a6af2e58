//! What this session knows of queues and where their dead letters go; and the words in which it is said to the broker and heard from it.
//!
//! The *target* of a queue comes from its own arguments, completed key by key by policies (S2.1): ours, then the broker's. The arguments are
//! told to the broker as the name of an intake exchange ([`crate::objects`]), so that no registry has to survive a restart or be shared; what
//! policies add is looked up when a message dies ([`live`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::amqp::method::QueueDeclare;
use crate::machine::Mono;
use crate::objects::QueueType;

use self::catalogue::fact::Source;
use self::catalogue::{Catalogue, Life, Report};

pub use declared::{Declared, Form};

pub mod adoption;
pub mod arguments;
pub mod believed;
pub mod broker_policy;
pub mod catalogue;
pub mod channel_limits;
pub mod declared;
pub mod delayed_exchanges;
pub mod existing_delays;
pub mod generated;
pub mod handling;
pub mod in_vain;
pub mod lenient;
pub mod live;
pub mod policy;
pub mod reach;
pub mod redeclared;
pub mod refusal;
pub mod said_retries;
#[cfg(test)]
mod tests;
pub mod wording;

/// How long the last sight of an intake exchange counts without a probe. An error costs a refused
/// declare, which corrects it.
pub const SEEN_FOR: Duration = Duration::from_secs(24 * 3600);
/// How long facts are trusted at `basic.consume` and `basic.get`; older ones are verified first.
pub const FRESH_FOR: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Registry {
    queues: BTreeMap<ShortStr, Known>,
    vhost: Vhost,
    catalogue: Catalogue,
    /// Limit of managed queues, and of known exclusive ones.
    most: usize,
    /// Queues that end with this connection.
    exclusive: BTreeSet<ShortStr>,
    /// Some queue's arguments mention retries.
    any_retries: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub declared: Arc<Declared>,
    /// Last confirmation by the broker.
    pub since: Mono,
    /// Which of successive queues of that name.
    life: Life,
    /// Whether the queue is still the known one.
    pub standing: Standing,
    /// It could not be asked for: its form is not known.
    pub is_guess: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Confirmed since the last consumer began, or replaceable by this connection only.
    Proven,
    /// To be asked before a death.
    Assumed,
    /// The broker could not be asked. The known facts are the best available.
    Unknown,
}

// === impl Registry ===

impl Registry {
    pub fn new(catalogue: Catalogue, most: usize) -> Registry {
        Registry {
            queues: BTreeMap::new(),
            vhost: Vhost::default(),
            catalogue,
            most,
            exclusive: BTreeSet::new(),
            any_retries: false,
        }
    }

    pub fn enter(&mut self, vhost: Vhost) {
        self.vhost = vhost;
    }

    /// Type of a queue whose declare was accepted, with its bits.
    pub fn learn_type(&mut self, queue: &ShortStr, bits: u8, queue_type: QueueType, now: Mono) {
        if bits & QueueDeclare::EXCLUSIVE != 0 {
            if self.exclusive.len() >= self.most && !self.exclusive.contains(queue) {
                return;
            }
            self.exclusive.insert(queue.clone());
        }
        self.tell(queue, &Report::Type(queue_type), Source::Declare, now);
    }

    /// Records news of a queue from any session.
    pub fn tell(&self, queue: &ShortStr, told: &Report, source: Source, at: Mono) {
        self.catalogue.learn(&self.vhost, queue, told, source, at);
    }

    /// Records an accepted declare. False: too many queues, so it is not managed; its rejects are
    /// forwarded, and its intake exchange still names the target.
    pub fn insert(&mut self, queue: ShortStr, declared: Declared, now: Mono) -> bool {
        let declared = self.learn(&queue, declared, Source::Declare, now);
        if !self.has_room_for(&queue) {
            return false;
        }
        self.any_retries |= !declared.retries.is_silent();
        let known = Known {
            declared,
            since: now,
            life: self.life(&queue),
            standing: Standing::Proven,
            is_guess: false,
        };
        self.queues.insert(queue, known);
        true
    }

    /// Records a queue from an accepted declare, or from answers of the broker. The latter keep
    /// what an earlier declare added.
    pub fn learn(
        &self,
        queue: &ShortStr,
        declared: Declared,
        source: Source,
        now: Mono,
    ) -> Arc<Declared> {
        let declared = Arc::new(declared);
        // What is exclusive and not on that list would stay in the catalogue for good.
        if !declared.is_exclusive() || self.exclusive.contains(queue) {
            let told = Report::Declared(declared.clone());
            self.tell(queue, &told, source, now);
        }
        declared
    }

    /// From any session.
    pub fn declared_by_anybody(&self, queue: &[u8]) -> Option<Arc<Declared>> {
        let known = self.catalogue.get(&self.vhost, queue)?;
        known.declared().map(|declared| declared.value.clone())
    }

    /// Names of arguments that the queue had otherwise, before it was made anew.
    pub fn altered(&self, queue: &[u8]) -> Option<Arc<[ShortStr]>> {
        self.catalogue.get(&self.vhost, queue)?.altered().cloned()
    }

    /// Changes when a question that had failed is answered.
    pub fn news(&self) -> u32 {
        self.catalogue.news()
    }

    /// News since then: whether this session's facts match.
    pub fn reported_since(&self, queue: &[u8], since: Mono) -> Option<bool> {
        let known = self.catalogue.get(&self.vhost, queue)?;
        let told = known.declared().filter(|told| told.at >= since)?;
        let mine = self.get(queue).map(|known| &known.declared.form);
        Some(mine.is_some_and(|form| form.is_like(&told.value.form)))
    }

    /// Whether the queue is unknown, and this user has not asked in vain a moment ago.
    pub fn is_unknown(&self, queue: &[u8], user: Option<&ShortStr>, now: Mono) -> bool {
        let Some(known) = self.catalogue.get(&self.vhost, queue) else {
            return true;
        };
        let in_vain = known
            .in_vain(user)
            .is_some_and(|at| at.until(now) < FRESH_FOR);
        known.declared().is_none() && known.queue_type().is_none() && !in_vain
    }

    /// Records a question. True: the first one.
    pub fn ask(&self, queue: &ShortStr, now: Mono) -> bool {
        let known = self.catalogue.get(&self.vhost, queue);
        self.tell(queue, &Report::Asked, Source::Refusal, now);
        known.is_none_or(|known| known.asked().is_none())
    }

    /// Records the warning about an unknown queue. True: the first one.
    pub fn says_unknown(&self, queue: &ShortStr, now: Mono) -> bool {
        let known = self.catalogue.get(&self.vhost, queue);
        let is_said = known.is_some_and(|known| known.is_said());
        if !is_said {
            self.tell(queue, &Report::Said, Source::Refusal, now);
        }
        !is_said
    }

    /// Adopts the facts of other sessions, to be verified. False: unknown, or too many queues.
    pub fn adopt(&mut self, queue: &ShortStr) -> bool {
        let Some(known) = self.catalogue.get(&self.vhost, queue) else {
            return false;
        };
        let Some(declared) = known.declared().filter(|_| self.has_room_for(queue)) else {
            return false;
        };
        self.any_retries |= !declared.value.retries.is_silent();
        let known = Known {
            declared: declared.value.clone(),
            since: declared.at,
            life: Life::default(),
            standing: Standing::Assumed,
            is_guess: false,
        };
        self.queues.insert(queue.clone(), known);
        true
    }

    /// Assumes facts about an unknown queue. Other sessions do not see them. Unless this user has asked in vain, it is asked before a message dies.
    pub fn assume(
        &mut self,
        queue: &ShortStr,
        declared: Declared,
        user: Option<&ShortStr>,
        now: Mono,
    ) {
        if self.has_room_for(queue) {
            let known = Known {
                declared: Arc::new(declared),
                since: now,
                life: self.life(queue),
                standing: match self.is_unknown(queue, user, now) {
                    true => Standing::Assumed,
                    false => Standing::Unknown,
                },
                is_guess: true,
            };
            self.queues.insert(queue.clone(), known);
        }
    }

    fn has_room_for(&self, queue: &[u8]) -> bool {
        self.queues.len() < self.most || self.queues.contains_key(queue)
    }

    /// Forgets the queue in this session only.
    pub fn let_go(&mut self, queue: &ShortStr) {
        self.queues.remove(&**queue);
    }

    /// The queue may have been replaced, for every session: the broker cancelled a consumer.
    pub fn doubt(&self, queue: &ShortStr) {
        self.catalogue.doubt(&self.vhost, queue);
    }

    /// The same, and this session's deliveries do not die any more: it deleted the queue, or ended
    /// the last consumer.
    pub fn leave(&mut self, queue: &ShortStr) {
        self.queues.remove(&**queue);
        self.doubt(queue);
    }

    /// The broker reports the queue as gone or replaced.
    pub fn end(&mut self, queue: &ShortStr, now: Mono) {
        self.queues.remove(&**queue);
        self.exclusive.remove(queue);
        self.catalogue.end(&self.vhost, queue, now);
    }

    /// The broker reports another queue with that name.
    pub fn replaced(&mut self, queue: &ShortStr, now: Mono) {
        self.queues.remove(&**queue);
        self.exclusive.remove(queue);
        self.catalogue.replace(&self.vhost, queue, now);
    }

    pub fn any_retries(&self) -> bool {
        self.any_retries
    }

    pub fn names(&self) -> impl Iterator<Item = &ShortStr> {
        self.queues.keys()
    }

    pub fn get(&self, queue: &[u8]) -> Option<&Known> {
        self.queues.get(queue)
    }

    /// `None`: nobody declared it.
    pub fn queue_type(&self, queue: &[u8]) -> Option<QueueType> {
        self.catalogue.get(&self.vhost, queue)?.queue_type()
    }

    /// The vhost's default. `None`: unknown.
    pub fn default_type(&self) -> Option<QueueType> {
        self.catalogue.default_type(&self.vhost)?.value
    }

    /// Whether that was asked recently, even in vain.
    pub fn was_asked_for_default_type(&self, now: Mono) -> bool {
        let known = self.catalogue.default_type(&self.vhost);
        known.is_some_and(|known| known.value.is_some() || known.at.until(now) < FRESH_FOR)
    }

    pub fn learn_default_type(&self, told: Option<QueueType>, now: Mono) {
        let source = Source::Refusal;
        self.catalogue
            .learn_default_type(&self.vhost, told, source, now);
    }

    /// The queue's last known intake exchange, from any session. `None`: not seen within a day.
    pub fn seen_intake(&self, queue: &[u8], now: Mono) -> Option<Option<ShortStr>> {
        let known = self.catalogue.get(&self.vhost, queue)?;
        let seen = known.intake()?;
        (seen.at.until(now) < SEEN_FOR).then(|| seen.value.clone())
    }

    pub fn is_auto_delete(&self, queue: &[u8]) -> bool {
        self.get(queue)
            .is_some_and(|known| known.declared.form.bits & QueueDeclare::AUTO_DELETE != 0)
    }

    /// Whether facts are recent enough to consume without verifying.
    pub fn is_fresh(&self, queue: &[u8], now: Mono) -> bool {
        self.get(queue).is_some_and(|known| {
            let asked_in_vain = known.standing == Standing::Unknown;
            known.since.until(now) < FRESH_FOR && (asked_in_vain || self.is_same_life(queue))
        })
    }

    pub fn life(&self, queue: &[u8]) -> Life {
        self.catalogue.life(&self.vhost, queue)
    }

    /// The life in which a queue is known here. `None`: it is not managed.
    pub fn known_life(&self, queue: &[u8]) -> Option<Life> {
        let known = self.get(queue)?.life;
        Some(match known == Life::default() {
            true => self.life(queue),
            false => known,
        })
    }

    /// Whether no session has seen the queue's end since.
    pub fn is_same_life(&self, queue: &[u8]) -> bool {
        self.get(queue)
            .is_some_and(|known| known.life == self.life(queue))
    }

    /// Whether a message may die without a question.
    pub fn is_alive(&self, queue: &[u8], now: Mono) -> bool {
        let standing = self.get(queue).map(|known| known.standing);
        standing.is_some_and(|standing| match standing {
            Standing::Proven => self.is_same_life(queue),
            Standing::Assumed => false,
            // After a while it is asked again.
            Standing::Unknown => self.is_fresh(queue, now),
        })
    }

    /// A consumer has begun. The queue may have been replaced since its declare.
    pub fn consumed(&mut self, queue: &[u8]) {
        if let Some(known) = self.queues.get_mut(queue)
            && known.standing == Standing::Proven
            && !known.declared.is_exclusive()
        {
            known.standing = Standing::Assumed;
        }
    }

    /// For scripts about other subjects.
    #[cfg(test)]
    pub(crate) fn trust_all(&mut self) {
        let assumed = |known: &&mut Known| known.standing == Standing::Assumed;
        for known in self.queues.values_mut().filter(assumed) {
            known.standing = Standing::Proven;
        }
    }

    /// The broker confirmed the known facts; or they are assumed.
    pub fn verified(&mut self, queue: &[u8], now: Mono) {
        let life = self.life(queue);
        if let Some(known) = self.queues.get_mut(queue) {
            (known.since, known.life, known.standing) = (now, life, Standing::Proven);
        }
    }

    /// The broker could not be asked.
    pub fn unverified(&mut self, queue: &[u8], now: Mono) {
        if let Some(known) = self.queues.get_mut(queue) {
            (known.since, known.standing) = (now, Standing::Unknown);
        }
    }
}

impl Drop for Registry {
    /// Exclusive queues end with the connection.
    fn drop(&mut self) {
        for queue in &self.exclusive {
            self.catalogue.forget(&self.vhost, queue);
        }
    }
}
