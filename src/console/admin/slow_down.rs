//! Failed logins are slowed down, by address and name: each failure doubles the wait before the next attempt, and those who try at the same time
//! stand in a line. A success ends the wait of its own name, and of no other. Names that have not failed share a line in which nobody waits for
//! long: so a name that failed holds up no other, and whoever tries one name after the other is slowed down, too. Whom the broker has let in from
//! there waits for nobody. Nobody is locked out.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::login::Credentials;

const FIRST: Duration = Duration::from_millis(250);
/// Maximum delay; a longer wait is refused.
const LONGEST: Duration = Duration::from_secs(8);
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Remembered lines. Above this number the one idle for longest is dropped.
const MOST: usize = 10_000;
/// Waiting attempts hold connections: this many for names that have failed, and for others. More
/// are refused.
const MOST_WAITING: usize = 16;

#[derive(Clone)]
pub(super) struct SlowDown {
    book: Arc<Mutex<Book>>,
    waiting: [Arc<Semaphore>; 2],
    /// Names and passwords are not kept, and the key of this hash is random.
    hasher: RandomState,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    from: IpAddr,
    user: u64,
    login: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ComeBackAfter(pub(super) Duration);

#[derive(Debug, Default)]
struct Book(BTreeMap<Key, Line>);

/// An address with a name; without a name: all names that have not failed.
type Key = (IpAddr, Option<u64>);

#[derive(Debug)]
struct Line {
    /// Between two attempts. Zero: no failures.
    wait: Duration,
    next: Instant,
    failed: Instant,
    /// The login that the broker accepted.
    let_in: Option<u64>,
}

// === impl SlowDown ===

impl SlowDown {
    pub(super) fn attempt(&self, from: IpAddr, credentials: &Credentials) -> Attempt {
        Attempt::new(&self.hasher, from, credentials.user(), credentials)
    }

    /// Waits for this attempt's turn.
    ///
    /// # Errors
    /// When too many are waiting.
    pub(super) async fn turn(&self, attempt: Attempt) -> Result<(), ComeBackAfter> {
        let has_failed = self.book().has_failed(attempt, Instant::now());
        let place = self.waiting[usize::from(has_failed)].try_acquire();
        let longest = place.as_ref().map_or(Duration::ZERO, |_| LONGEST);
        let wait = self.book().enter(attempt, longest, Instant::now())?;
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    pub(super) fn has_let_in(&self, attempt: Attempt) -> bool {
        self.book().has_let_in(attempt)
    }

    pub(super) fn failed(&self, attempt: Attempt) {
        self.book().failed(attempt, Instant::now());
    }

    pub(super) fn succeeded(&self, attempt: Attempt) {
        self.book().succeeded(attempt, Instant::now());
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for SlowDown {
    fn default() -> SlowDown {
        SlowDown {
            book: Arc::default(),
            waiting: [(), ()].map(|()| Arc::new(Semaphore::new(MOST_WAITING))),
            hasher: RandomState::new(),
        }
    }
}

// === impl Attempt ===

impl Attempt {
    fn new(hasher: &RandomState, from: IpAddr, user: impl Hash, login: impl Hash) -> Attempt {
        Attempt {
            from: network(from),
            user: hasher.hash_one(user),
            login: hasher.hash_one(login),
        }
    }

    fn own(self) -> Key {
        (self.from, Some(self.user))
    }
}

// === impl Book ===

impl Book {
    fn enter(
        &mut self,
        attempt: Attempt,
        longest: Duration,
        now: Instant,
    ) -> Result<Duration, ComeBackAfter> {
        if self.has_let_in(attempt) {
            return Ok(Duration::ZERO);
        }
        let key = match self.has_failed(attempt, now) {
            true => attempt.own(),
            false => (attempt.from, None),
        };
        let line = self.0.get_mut(&key).filter(|line| line.counts(now));
        let Some(line) = line else {
            return Ok(Duration::ZERO);
        };
        let begin = line.next.max(now);
        let wait = begin - now;
        if wait > longest {
            return Err(ComeBackAfter(wait - longest));
        }
        line.next = begin + line.wait;
        Ok(wait)
    }

    fn has_failed(&self, attempt: Attempt, now: Instant) -> bool {
        let own = self.0.get(&attempt.own());
        own.is_some_and(|line| line.counts(now))
    }

    fn has_let_in(&self, attempt: Attempt) -> bool {
        let own = self.0.get(&attempt.own());
        own.is_some_and(|line| line.let_in == Some(attempt.login))
    }

    fn failed(&mut self, attempt: Attempt, now: Instant) {
        self.line((attempt.from, None), now).lengthen(FIRST, now);
        let own = self.line(attempt.own(), now);
        own.lengthen(LONGEST, now);
        own.let_in = own.let_in.filter(|login| *login != attempt.login);
    }

    fn succeeded(&mut self, attempt: Attempt, now: Instant) {
        *self.line(attempt.own(), now) = Line {
            let_in: Some(attempt.login),
            ..Line::new(now)
        };
    }

    fn line(&mut self, key: Key, now: Instant) -> &mut Line {
        if self.0.len() >= MOST && !self.0.contains_key(&key) {
            let oldest = self.0.iter().min_by_key(|(_, line)| line.next);
            if let Some(key) = oldest.map(|(key, _)| *key) {
                self.0.remove(&key);
            }
        }
        self.0.entry(key).or_insert_with(|| Line::new(now))
    }
}

// === impl Line ===

impl Line {
    fn new(now: Instant) -> Line {
        Line {
            wait: Duration::ZERO,
            next: now,
            failed: now,
            let_in: None,
        }
    }

    fn counts(&self, now: Instant) -> bool {
        !self.wait.is_zero() && now < self.failed + FORGOTTEN
    }

    fn lengthen(&mut self, most: Duration, now: Instant) {
        self.wait = match self.counts(now) {
            true => (self.wait * 2).min(most),
            false => FIRST,
        };
        self.failed = now;
        self.next = self.next.max(now + self.wait);
    }
}

/// An IPv4 address, or the network half of an IPv6 address, because hosts choose the other half.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let network = address.to_bits() >> 64 << 64;
            Ipv6Addr::from_bits(network).into()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::tests::lines_hold;

    /// The same key for all attempts.
    fn attempt(hasher: &RandomState, from: &str, user: &str, password: &str) -> Attempt {
        let from = from.parse().expect("an address");
        Attempt::new(hasher, from, user, (user, password))
    }

    #[tokio::test]
    async fn logins_wait_as_the_table_says() {
        let (hasher, mut book, mut now) = (RandomState::new(), Book::default(), Instant::now());
        lines_hold("console/admin/testdata/slow_down.txt", async |line| {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().expect("a number");
            let of = |from: &str| attempt(&hasher, from, words[2], words[3]);
            let longest = match words[..] {
                [""] => {
                    book = Book::default();
                    return String::new();
                }
                ["after", _] => {
                    now += Duration::from_millis(number(1));
                    return String::new();
                }
                ["fails", from, ..] => {
                    let times = words.get(4).map_or(1, |_| number(4));
                    (0..times).for_each(|_| book.failed(of(from), now));
                    return String::new();
                }
                ["succeeds", from, ..] => {
                    book.succeeded(of(from), now);
                    return String::new();
                }
                ["is-let-in", from, ..] => return book.has_let_in(of(from)).to_string(),
                ["waits", ..] => LONGEST,
                ["without-a-place", ..] => Duration::ZERO,
                _ => panic!("{line}"),
            };
            match book.enter(of(words[1]), longest, now) {
                Ok(wait) => wait.as_millis().to_string(),
                Err(ComeBackAfter(wait)) => format!("refused for {}", wait.as_millis()),
            }
        })
        .await;
    }

    #[test]
    fn only_so_many_lines_are_remembered() {
        let (hasher, mut book, now) = (RandomState::new(), Book::default(), Instant::now());
        let name =
            |number: usize| attempt(&hasher, "192.0.2.1", &format!("name {number}"), "wrong");
        for number in 0..=MOST {
            let later = Duration::from_millis(number as u64);
            book.failed(name(number), now + later);
        }
        assert_eq!(book.0.len(), MOST);
        assert!(!book.0.contains_key(&name(0).own()));
        assert!(book.0.contains_key(&name(MOST).own()));
    }
}
