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
use self::catalogue::{Catalogue, Life, Told};

pub use declared::{Declared, Form};

pub mod arguments;
pub mod believed;
pub mod broker_policy;
pub mod catalogue;
pub mod channel_limits;
pub mod declared;
pub mod existing_delays;
pub mod generated;
pub mod handling;
pub mod in_vain;
pub mod live;
pub mod policy;
pub mod redeclared;
pub mod refusal;
pub mod said_retries;
#[cfg(test)]
mod tests;
pub mod wording;

/// How long the last sight of a queue's intake exchange counts where no probe can be made. An error costs one refused declare, which teaches the
/// truth.
pub const SEEN_FOR: Duration = Duration::from_secs(24 * 3600);
/// How long knowledge of a queue is trusted at `basic.consume` and `basic.get`; older knowledge is verified first.
pub const FRESH_FOR: Duration = Duration::from_secs(60);

/// The managed queues of one session.
#[derive(Debug)]
pub struct Registry {
    queues: BTreeMap<ShortStr, Known>,
    vhost: Vhost,
    /// What all sessions know.
    catalogue: Catalogue,
    /// So many queues are managed, and so many exclusive ones known.
    most: usize,
    /// Queues that end with this connection.
    exclusive: BTreeSet<ShortStr>,
    /// The arguments of one of them spoke of retries.
    any_retries: bool,
}

/// What is known of a managed queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// What the declare said that the broker accepted.
    pub declared: Arc<Declared>,
    /// When the broker last said so.
    pub since: Mono,
    /// Which one of that name it is.
    life: Life,
    /// Whether it is still that one.
    pub standing: Standing,
}

/// Whether a queue is still the one that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The broker said so since its last consumer began; or nobody but this connection can put another in its place.
    Proven,
    /// That is to be asked before something dies.
    Assumed,
    /// The broker could not be asked. What is known is the best that there is.
    Unknown,
}

// === impl Registry ===

impl Registry {
    /// Of a session that has not opened its vhost yet.
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

    /// The session has opened this vhost.
    pub fn enter(&mut self, vhost: Vhost) {
        self.vhost = vhost;
    }

    /// The broker accepted a declare of that queue, with these bits and of that type.
    pub fn learn_type(&mut self, queue: &ShortStr, bits: u8, queue_type: QueueType, now: Mono) {
        if bits & QueueDeclare::EXCLUSIVE != 0 {
            if self.exclusive.len() >= self.most && !self.exclusive.contains(queue) {
                return;
            }
            self.exclusive.insert(queue.clone());
        }
        self.tell(queue, &Told::Type(queue_type), Source::Declare, now);
    }

    /// Something was told of a queue, or asked, by whichever session.
    pub fn tell(&self, queue: &ShortStr, told: &Told, source: Source, at: Mono) {
        self.catalogue.learn(&self.vhost, queue, told, source, at);
    }

    /// The broker accepted a declare of that queue. Returns false when there are too many of others already: then it is not managed, its rejects
    /// are forwarded, and its intake exchange still names the target.
    pub fn insert(&mut self, queue: ShortStr, declared: Declared, now: Mono) -> bool {
        let declared = self.learn(&queue, declared, Source::Declare, now);
        if self.queues.len() >= self.most && !self.queues.contains_key(&queue) {
            return false;
        }
        self.any_retries |= !declared.retries.is_silent();
        let known = Known {
            declared,
            since: now,
            life: self.catalogue.life(&self.vhost, &queue),
            standing: Standing::Proven,
        };
        self.queues.insert(queue, known);
        true
    }

    /// What a queue is: by a declare that was accepted, or as far as the broker tells otherwise. Then what a declare asked for beyond that stays known.
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
            let told = Told::Declared(declared.clone());
            self.tell(queue, &told, source, now);
        }
        declared
    }

    /// What anybody knows of a queue.
    pub fn declared_by_anybody(&self, queue: &[u8]) -> Option<Arc<Declared>> {
        let known = self.catalogue.get(&self.vhost, queue)?;
        known.declared().map(|declared| declared.value.clone())
    }

    /// Changes when something is learnt for which a session had asked in vain.
    pub fn news(&self) -> u32 {
        self.catalogue.news()
    }

    /// What somebody was told since then of a queue: whether that is what this session knows of it.
    pub fn told_since(&self, queue: &[u8], since: Mono) -> Option<bool> {
        let known = self.catalogue.get(&self.vhost, queue)?;
        let told = known.declared().filter(|told| told.at >= since)?;
        let mine = self.get(queue).map(|known| &known.declared.form);
        Some(mine.is_some_and(|form| form.is_like(&told.value.form)))
    }

    /// Whether nobody knows what a queue is, and it was not asked for in vain not long ago.
    pub fn is_unknown(&self, queue: &[u8], now: Mono) -> bool {
        let Some(known) = self.catalogue.get(&self.vhost, queue) else {
            return true;
        };
        let in_vain = known.in_vain().is_some_and(|at| at.until(now) < FRESH_FOR);
        known.declared().is_none() && known.queue_type().is_none() && !in_vain
    }

    /// A queue is asked for. Returns whether nobody has asked before.
    pub fn ask(&self, queue: &ShortStr, now: Mono) -> bool {
        let known = self.catalogue.get(&self.vhost, queue);
        self.tell(queue, &Told::Asked, Source::Refusal, now);
        known.is_none_or(|known| known.asked().is_none())
    }

    /// That nobody knows what it is has to be said. Returns whether it was not before.
    pub fn says_unknown(&self, queue: &ShortStr, now: Mono) -> bool {
        let known = self.catalogue.get(&self.vhost, queue);
        let is_said = known.is_some_and(|known| known.is_said());
        if !is_said {
            self.tell(queue, &Told::Said, Source::Refusal, now);
        }
        !is_said
    }

    /// Takes over what any session knows of a queue that this one does not know: it is to be verified first. False: nobody knows it, or there are
    /// too many of others already.
    pub fn adopt(&mut self, queue: &ShortStr) -> bool {
        let Some(known) = self.catalogue.get(&self.vhost, queue) else {
            return false;
        };
        let Some(declared) = known.declared().filter(|_| self.queues.len() < self.most) else {
            return false;
        };
        self.any_retries |= !declared.value.retries.is_silent();
        let known = Known {
            declared: declared.value.clone(),
            since: declared.at,
            life: Life::default(),
            standing: Standing::Assumed,
        };
        self.queues.insert(queue.clone(), known);
        true
    }

    /// Nobody knows what the queue is, and it cannot be asked: this is taken for granted. For others it stays unknown.
    pub fn assume(&mut self, queue: &ShortStr, declared: Declared, now: Mono) {
        if self.queues.len() < self.most {
            let known = Known {
                declared: Arc::new(declared),
                since: now,
                life: self.catalogue.life(&self.vhost, queue),
                standing: Standing::Unknown,
            };
            self.queues.insert(queue.clone(), known);
        }
    }

    /// This session knows nothing of it any more; others do.
    pub fn let_go(&mut self, queue: &ShortStr) {
        self.queues.remove(&**queue);
    }

    /// The queue may have gone, and another may have come, for every session: the broker cancelled a consumer.
    pub fn doubt(&self, queue: &ShortStr) {
        self.catalogue.doubt(&self.vhost, queue);
    }

    /// The same, and what this session was given from it does not die any more: its delete was asked for, or its last consumer has gone.
    pub fn leave(&mut self, queue: &ShortStr) {
        self.queues.remove(&**queue);
        self.doubt(queue);
    }

    /// The broker says that the queue is gone, or is another one than is known.
    pub fn end(&mut self, queue: &ShortStr, now: Mono) {
        self.queues.remove(&**queue);
        self.exclusive.remove(queue);
        self.catalogue.end(&self.vhost, queue, now);
    }

    /// Whether the arguments of any spoke of retries.
    pub fn any_retries(&self) -> bool {
        self.any_retries
    }

    /// The queues that are managed.
    pub fn names(&self) -> impl Iterator<Item = &ShortStr> {
        self.queues.keys()
    }

    /// What is known of the queue, however long ago.
    pub fn get(&self, queue: &[u8]) -> Option<&Known> {
        self.queues.get(queue)
    }

    /// The type of a queue, whoever declared it. `None`: nobody did.
    pub fn queue_type(&self, queue: &[u8]) -> Option<QueueType> {
        self.catalogue.get(&self.vhost, queue)?.queue_type()
    }

    /// The type of queues that are declared without one. `None`: it is not known.
    pub fn default_type(&self) -> Option<QueueType> {
        self.catalogue.default_type(&self.vhost)?.value
    }

    /// Whether that was asked for not long ago, were it in vain.
    pub fn was_asked_for_default_type(&self, now: Mono) -> bool {
        let known = self.catalogue.default_type(&self.vhost);
        known.is_some_and(|known| known.value.is_some() || known.at.until(now) < FRESH_FOR)
    }

    /// The broker told that type, or could not be asked.
    pub fn learn_default_type(&self, told: Option<QueueType>, now: Mono) {
        let source = Source::Refusal;
        self.catalogue
            .learn_default_type(&self.vhost, told, source, now);
    }

    /// Which intake exchange a queue was last seen with, by whichever session. `None`: nobody saw it within a day.
    pub fn seen_intake(&self, queue: &[u8], now: Mono) -> Option<Option<ShortStr>> {
        let known = self.catalogue.get(&self.vhost, queue)?;
        let seen = known.intake()?;
        (seen.at.until(now) < SEEN_FOR).then(|| seen.value.clone())
    }

    /// Whether the queue is known to go with its last consumer.
    pub fn is_auto_delete(&self, queue: &[u8]) -> bool {
        self.get(queue)
            .is_some_and(|known| known.declared.form.bits & QueueDeclare::AUTO_DELETE != 0)
    }

    /// Whether the queue is known, and recently enough to begin consuming from it without verifying.
    pub fn is_fresh(&self, queue: &[u8], now: Mono) -> bool {
        self.get(queue).is_some_and(|known| {
            let asked_in_vain = known.standing == Standing::Unknown;
            known.since.until(now) < FRESH_FOR && (asked_in_vain || self.is_same_life(queue))
        })
    }

    /// Whether the queue is known, and no session has seen the end of one of that name meanwhile.
    pub fn is_same_life(&self, queue: &[u8]) -> bool {
        self.get(queue)
            .is_some_and(|known| known.life == self.catalogue.life(&self.vhost, queue))
    }

    /// Whether a message of the queue may die without a question.
    pub fn is_alive(&self, queue: &[u8], now: Mono) -> bool {
        let standing = self.get(queue).map(|known| known.standing);
        standing.is_some_and(|standing| match standing {
            Standing::Proven => self.is_same_life(queue),
            Standing::Assumed => false,
            // After a while it is asked again.
            Standing::Unknown => self.is_fresh(queue, now),
        })
    }

    /// A consumer has begun. Between the queue's declare and that moment somebody else may have put another queue in its place.
    pub fn consumed(&mut self, queue: &[u8]) {
        if let Some(known) = self.queues.get_mut(queue)
            && known.standing == Standing::Proven
            && !known.declared.is_exclusive()
        {
            known.standing = Standing::Assumed;
        }
    }

    /// All of them will do: for scripts that are about something else.
    #[cfg(test)]
    pub(crate) fn trust_all(&mut self) {
        let assumed = |known: &&mut Known| known.standing == Standing::Assumed;
        for known in self.queues.values_mut().filter(assumed) {
            known.standing = Standing::Proven;
        }
    }

    /// The broker said that the queue is the one that is known; or that is taken for granted.
    pub fn verified(&mut self, queue: &[u8], now: Mono) {
        let life = self.catalogue.life(&self.vhost, queue);
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
    /// With the connection its exclusive queues end.
    fn drop(&mut self) {
        for queue in &self.exclusive {
            self.catalogue.forget(&self.vhost, queue);
        }
    }
}
