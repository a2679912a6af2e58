//! Which queues a login may read, remembered for a minute: each question takes a connection to the broker.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Asked;
use crate::amqp::ids::{ShortStr, Vhost};

const COUNTS_FOR: Duration = Duration::from_secs(60);
const MOST: usize = 10_000;

#[derive(Clone, Default)]
pub(in crate::console::admin) struct Remembered {
    /// Passwords are not kept, and the key of this hash is random.
    hasher: RandomState,
    answers: Arc<Mutex<Answers>>,
}

type Key = (u64, Vhost, ShortStr);

#[derive(Debug, Default)]
struct Answers(BTreeMap<Key, (bool, Instant)>);

// === impl Remembered ===

impl Remembered {
    pub(super) fn known(&self, asked: &Asked, queue: &ShortStr) -> Option<bool> {
        let key = self.key(asked, queue);
        self.answers().known(&key, Instant::now())
    }

    pub(super) fn learn(&self, asked: &Asked, queue: &ShortStr, may: bool) {
        let key = self.key(asked, queue);
        self.answers().learn(key, may, Instant::now());
    }

    fn key(&self, asked: &Asked, queue: &ShortStr) -> Key {
        let login = self.hasher.hash_one(&asked.who);
        (login, asked.place.vhost.clone(), queue.clone())
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Answers ===

impl Answers {
    fn known(&self, key: &Key, now: Instant) -> Option<bool> {
        let (may, at) = self.0.get(key)?;
        (now.duration_since(*at) < COUNTS_FOR).then_some(*may)
    }

    fn learn(&mut self, key: Key, may: bool, now: Instant) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(key, (may, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_for_a_minute_and_for_its_login_alone() {
        let now = Instant::now();
        let mut answers = Answers::default();
        let asked = |login| (login, Vhost::ROOT, ShortStr::EMPTY);
        answers.learn(asked(1), true, now);
        answers.learn(asked(2), false, now);
        let known =
            |login, seconds| answers.known(&asked(login), now + Duration::from_secs(seconds));
        assert_eq!((known(1, 59), known(2, 59)), (Some(true), Some(false)));
        assert_eq!((known(3, 0), known(1, 60)), (None, None));
    }

    #[test]
    fn memory_is_bounded() {
        let mut answers = Answers::default();
        for login in 0..3 * MOST as u64 {
            answers.learn((login, Vhost::ROOT, ShortStr::EMPTY), true, Instant::now());
        }
        assert!(answers.0.len() <= MOST);
    }
}
