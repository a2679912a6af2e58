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

    const HERE: &str = "192.0.2.1";

    fn attempt(from: &str, user: &str, password: &str) -> Attempt {
        // The same key for all attempts of the tests.
        static HASHER: std::sync::LazyLock<RandomState> =
            std::sync::LazyLock::new(RandomState::new);
        let from = from.parse().expect("an address");
        Attempt::new(&HASHER, from, user, (user, password))
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn enter(book: &mut Book, attempt: Attempt, now: Instant) -> Result<Duration, ComeBackAfter> {
        book.enter(attempt, LONGEST, now)
    }

    fn fails(book: &mut Book, attempt: Attempt, times: usize, now: Instant) {
        (0..times).for_each(|_| book.failed(attempt, now));
    }

    #[test]
    fn each_failure_doubles_the_wait_up_to_a_bound_and_a_success_ends_it() {
        let (mut book, mut now) = (Book::default(), Instant::now());
        let me = attempt(HERE, "me", "wrong");
        let mut waits = Vec::new();
        for _ in 0..8 {
            let wait = enter(&mut book, me, now).expect("no line");
            waits.push(wait.as_millis());
            now += wait;
            book.failed(me, now);
        }
        assert_eq!(waits, [0, 250, 500, 1000, 2000, 4000, 8000, 8000]);
        let elsewhere = attempt("192.0.2.2", "me", "wrong");
        assert_eq!(enter(&mut book, elsewhere, now), Ok(Duration::ZERO));
        book.succeeded(attempt(HERE, "me", "right"), now);
        now += FIRST;
        assert_eq!(enter(&mut book, me, now), Ok(Duration::ZERO));
        book.failed(me, now);
        assert_eq!(enter(&mut book, me, now), Ok(FIRST));
    }

    /// A user could otherwise guess another's password between own logins.
    #[test]
    fn a_success_ends_no_wait_of_another_name() {
        let (mut book, now) = (Book::default(), Instant::now());
        let (admin, eve) = (attempt(HERE, "admin", "guess"), attempt(HERE, "eve", "own"));
        for _ in 0..4 {
            book.failed(admin, now);
            book.succeeded(eve, now);
        }
        assert_eq!(enter(&mut book, admin, now), Ok(millis(2000)));
    }

    #[test]
    fn nobody_waits_long_for_what_others_do_and_whom_the_broker_let_in_does_not_wait() {
        let (mut book, now) = (Book::default(), Instant::now());
        book.succeeded(attempt(HERE, "admin", "right"), now);
        fails(&mut book, attempt(HERE, "admin", "guess"), 20, now);
        let admin = attempt(HERE, "admin", "right");
        assert_eq!(enter(&mut book, admin, now), Ok(Duration::ZERO));
        let guess = attempt(HERE, "admin", "guess");
        assert_eq!(enter(&mut book, guess, now), Ok(LONGEST));
        for wait in 1..=3 {
            let newcomer = attempt(HERE, &format!("new {wait}"), "right");
            assert_eq!(enter(&mut book, newcomer, now), Ok(FIRST * wait));
        }
        // The password was changed.
        book.failed(admin, now);
        assert!(!book.has_let_in(admin));
    }

    #[test]
    fn whoever_tries_name_after_name_is_slowed_down_too() {
        let (mut book, now) = (Book::default(), Instant::now());
        let names = (0..8).map(|number| attempt(HERE, &format!("name {number}"), "guess"));
        let waits: Vec<_> = names
            .map(|name| {
                let wait = enter(&mut book, name, now).expect("a short line");
                book.failed(name, now);
                wait
            })
            .collect();
        assert_eq!(waits, [0, 1, 2, 3, 4, 5, 6, 7].map(|wait| FIRST * wait));
    }

    #[test]
    fn those_who_try_at_the_same_time_stand_in_a_line_of_bounded_length() {
        let (mut book, now) = (Book::default(), Instant::now());
        let me = attempt(HERE, "me", "wrong");
        fails(&mut book, me, 4, now);
        let mut again = || enter(&mut book, me, now);
        let waits: Vec<_> = std::iter::from_fn(|| again().ok()).collect();
        assert_eq!(waits, [2000, 4000, 6000, 8000].map(millis));
        assert_eq!(again(), Err(ComeBackAfter(millis(2000))));
        // And who finds no place to wait takes none.
        let refused = book.enter(me, Duration::ZERO, now);
        assert_eq!(refused, Err(ComeBackAfter(millis(10_000))));
    }

    #[test]
    fn a_line_that_has_ended_long_ago_is_forgotten() {
        let (mut book, now) = (Book::default(), Instant::now());
        let me = attempt(HERE, "me", "wrong");
        fails(&mut book, me, 6, now);
        let later = now + FORGOTTEN;
        assert_eq!(enter(&mut book, me, later), Ok(Duration::ZERO));
        book.failed(me, later);
        assert_eq!(enter(&mut book, me, later), Ok(FIRST));
    }

    #[test]
    fn a_network_of_ipv6_is_one_and_an_ipv4_address_is_one_however_it_is_written() {
        let (mut book, now) = (Book::default(), Instant::now());
        let mut failed = |from| book.failed(attempt(from, "me", "wrong"), now);
        failed("2001:db8::1");
        failed("::ffff:192.0.2.1");
        let mut wait = |from| enter(&mut book, attempt(from, "me", "wrong"), now);
        assert_eq!(wait("2001:db8::ffff:2"), Ok(FIRST));
        assert_eq!(wait("2001:db8:0:1::1"), Ok(Duration::ZERO));
        assert_eq!(wait(HERE), Ok(FIRST));
    }

    #[test]
    fn only_so_many_lines_are_remembered() {
        let (mut book, now) = (Book::default(), Instant::now());
        let name = |number: usize| attempt(HERE, &format!("name {number}"), "wrong");
        for number in 0..=MOST {
            book.failed(name(number), now + millis(number as u64));
        }
        assert_eq!(book.0.len(), MOST);
        assert!(!book.0.contains_key(&name(0).own()));
        assert!(book.0.contains_key(&name(MOST).own()));
    }
}
