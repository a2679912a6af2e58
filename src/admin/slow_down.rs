//! Failed logins are slowed down, address by address: each failure doubles the wait before the next attempt, and those who try at the same time
//! stand in a line. A success ends it. Nobody is locked out.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Between two attempts after the first failure.
const FIRST: Duration = Duration::from_millis(250);
/// After many; and whoever would have to wait for longer in the line is sent away.
const LONGEST: Duration = Duration::from_secs(8);
/// So long after its last failure an address begins anew.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Addresses that are remembered. Beyond it the one goes that has waited for the longest time.
const MOST: usize = 10_000;

/// The waits of all addresses. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct SlowDown(Arc<Mutex<Book>>);

/// The line is too long: try again after this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ComeBackAfter(pub(super) Duration);

/// The waits, without a clock.
#[derive(Debug, Default)]
struct Book(BTreeMap<IpAddr, Line>);

/// What is known of one address that has failed.
#[derive(Debug)]
struct Line {
    /// Between two attempts.
    wait: Duration,
    /// When the next attempt may begin.
    next: Instant,
}

// === impl SlowDown ===

impl SlowDown {
    /// Waits until this address may try to log in.
    ///
    /// # Errors
    /// When too many from there wait already.
    pub(super) async fn turn(&self, peer: IpAddr) -> Result<(), ComeBackAfter> {
        let wait = self.book().enter(peer, Instant::now())?;
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    /// The broker refused the login.
    pub(super) fn failed(&self, peer: IpAddr) {
        self.book().failed(peer, Instant::now());
    }

    /// The broker accepted the login.
    pub(super) fn succeeded(&self, peer: IpAddr) {
        self.book().succeeded(peer);
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Book ===

impl Book {
    /// How long an attempt has to wait; with it, its place in the line is taken.
    fn enter(&mut self, peer: IpAddr, now: Instant) -> Result<Duration, ComeBackAfter> {
        let Some(line) = self.0.get_mut(&key(peer)) else {
            return Ok(Duration::ZERO);
        };
        let begin = line.next.max(now);
        let wait = begin - now;
        if wait > LONGEST {
            return Err(ComeBackAfter(wait - LONGEST));
        }
        line.next = begin + line.wait;
        Ok(wait)
    }

    fn failed(&mut self, peer: IpAddr, now: Instant) {
        let key = key(peer);
        let wait = match self.0.get(&key) {
            Some(line) if now < line.next + FORGOTTEN => (line.wait * 2).min(LONGEST),
            Some(_) => FIRST,
            None => {
                self.make_room();
                FIRST
            }
        };
        let next = self.0.get(&key).map_or(now, |line| line.next);
        let next = next.max(now + wait);
        self.0.insert(key, Line { wait, next });
    }

    fn succeeded(&mut self, peer: IpAddr) {
        self.0.remove(&key(peer));
    }

    fn make_room(&mut self) {
        if self.0.len() < MOST {
            return;
        }
        let oldest = self.0.iter().min_by_key(|(_, line)| line.next);
        if let Some(key) = oldest.map(|(key, _)| *key) {
            self.0.remove(&key);
        }
    }
}

/// Who counts as one: an IPv4 address, or the half of an IPv6 address that names a network, as the other half is the guest's to choose.
fn key(peer: IpAddr) -> IpAddr {
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

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn each_failure_doubles_the_wait_up_to_a_bound_and_a_success_ends_it() {
        let (mut book, mut now) = (Book::default(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..8 {
            let wait = book.enter(ip(HERE), now).expect("no line");
            waits.push(wait.as_millis());
            now += wait;
            book.failed(ip(HERE), now);
        }
        assert_eq!(waits, [0, 250, 500, 1000, 2000, 4000, 8000, 8000]);
        assert_eq!(book.enter(ip("192.0.2.2"), now), Ok(Duration::ZERO));
        book.succeeded(ip(HERE));
        assert_eq!(book.enter(ip(HERE), now), Ok(Duration::ZERO));
        assert_eq!(book.enter(ip(HERE), now), Ok(Duration::ZERO));
    }

    #[test]
    fn those_who_try_at_the_same_time_stand_in_a_line_of_bounded_length() {
        let (mut book, now) = (Book::default(), Instant::now());
        for _ in 0..4 {
            book.failed(ip(HERE), now);
        }
        let mut enter = || book.enter(ip(HERE), now);
        let waits: Vec<_> = std::iter::from_fn(|| enter().ok()).collect();
        assert_eq!(waits, [2000, 4000, 6000, 8000].map(millis));
        assert_eq!(enter(), Err(ComeBackAfter(millis(2000))));
    }

    #[test]
    fn a_line_that_has_ended_long_ago_is_forgotten() {
        let (mut book, now) = (Book::default(), Instant::now());
        for _ in 0..6 {
            book.failed(ip(HERE), now);
        }
        let later = now + FORGOTTEN + LONGEST;
        assert_eq!(book.enter(ip(HERE), later), Ok(Duration::ZERO));
        let later = later + FORGOTTEN + LONGEST;
        book.failed(ip(HERE), later);
        assert_eq!(book.enter(ip(HERE), later), Ok(FIRST));
    }

    #[test]
    fn a_network_of_ipv6_is_one_and_an_ipv4_address_is_one_however_it_is_written() {
        let (mut book, now) = (Book::default(), Instant::now());
        book.failed(ip("2001:db8::1"), now);
        assert_eq!(book.enter(ip("2001:db8::ffff:2"), now), Ok(FIRST));
        assert_eq!(book.enter(ip("2001:db8:0:1::1"), now), Ok(Duration::ZERO));
        book.failed(ip("::ffff:192.0.2.1"), now);
        assert_eq!(book.enter(ip(HERE), now), Ok(FIRST));
    }

    #[test]
    fn only_so_many_addresses_are_remembered() {
        let (mut book, now) = (Book::default(), Instant::now());
        for number in 0..=MOST as u32 {
            let peer = IpAddr::V4(number.into());
            book.failed(peer, now + millis(number.into()));
        }
        assert_eq!(book.0.len(), MOST);
        assert_eq!(book.enter(IpAddr::V4(0.into()), now), Ok(Duration::ZERO));
        assert_ne!(book.enter(IpAddr::V4(1.into()), now), Ok(Duration::ZERO));
    }
}
