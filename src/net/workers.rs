//! The threads that sessions run on. Each has a runtime and a poller of its own, so what arrives for a connection wakes only the thread that
//! serves it. Where threads share a poller, one thread waits in it for all, and each wake-up of a task costs the wake-up of a thread, too.
//! [`mod@super::balance`] says which thread has which sessions.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;

use super::background::Background;
use super::balance::{self, Balance, Load, Move};
use super::stream::Plain;

/// Between two looks at what the threads have to do.
const PERIOD: Duration = Duration::from_millis(250);

/// Clones share the threads, which end with the last clone.
#[derive(Clone, Debug)]
pub struct Workers {
    all: Arc<[Worker]>,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    sessions: Arc<()>,
    /// In thousandths of a processor, when they were counted last.
    busy: AtomicU32,
    /// As many of its sessions as are to leave, and for which thread.
    leaving: AtomicUsize,
    to: AtomicUsize,
    /// None: the calling runtime's.
    _thread: Option<Background>,
}

/// The place of a session on a thread. Hold it as long as the session runs there.
#[derive(Debug)]
pub struct Seat {
    number: usize,
    _held: Arc<()>,
}

// === impl Workers ===

impl Workers {
    /// The first thread is the calling runtime's, which also runs the links.
    ///
    /// # Errors
    /// The system has no more threads or pollers.
    pub fn start(threads: usize) -> io::Result<Workers> {
        let mut all = vec![Worker::new(Handle::current(), None)];
        for number in 1..threads {
            let thread = Background::start(&format!("sessions-{number}"), 0)?;
            all.push(Worker::new(thread.runtime().clone(), Some(thread)));
        }
        let workers = Workers { all: all.into() };
        if threads > 1 {
            tokio::spawn(balance(Arc::downgrade(&workers.all)));
        }
        Ok(workers)
    }

    pub async fn answer(&self) {
        for worker in self.all.iter() {
            // An error: the thread has ended, and with it what it could stand still with.
            drop(worker.runtime.spawn(async {}).await);
        }
    }

    /// For a new session.
    pub fn seat(&self) -> (Handle, Seat) {
        let number = balance::place(self.all.iter().map(Worker::load));
        self.seat_on(number)
    }

    /// Where the session of that seat, which has just done something, goes on. `None`: where it is.
    pub fn leaves(&self, seat: &Seat) -> Option<(Handle, Seat)> {
        let to = self.all.get(seat.number)?.let_go()?;
        Some(self.seat_on(to))
    }

    fn seat_on(&self, number: usize) -> (Handle, Seat) {
        let worker = self.all.get(number);
        let held = worker.map(|worker| worker.sessions.clone());
        let seat = Seat {
            number,
            _held: held.unwrap_or_default(),
        };
        let runtime = worker.map(|worker| worker.runtime.clone());
        (runtime.unwrap_or_else(Handle::current), seat)
    }
}

impl Worker {
    fn new(runtime: Handle, thread: Option<Background>) -> Worker {
        Worker {
            runtime,
            sessions: Arc::default(),
            busy: AtomicU32::default(),
            leaving: AtomicUsize::default(),
            to: AtomicUsize::default(),
            _thread: thread,
        }
    }

    fn load(&self) -> Load {
        Load {
            busy: self.busy.load(Ordering::Relaxed),
            sessions: Arc::strong_count(&self.sessions) - 1,
        }
    }

    fn let_go(&self) -> Option<usize> {
        // The usual case costs a read.
        if self.leaving.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let one = |leaving: usize| leaving.checked_sub(1);
        let left = self
            .leaving
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one);
        left.ok().map(|_| self.to.load(Ordering::Relaxed))
    }

    fn worked(&self) -> Duration {
        self.runtime.metrics().worker_total_busy_duration(0)
    }
}

/// Until the last of the workers' clones is gone.
async fn balance(all: Weak<[Worker]>) {
    let mut balance = Balance::default();
    let (mut before, mut since) = (Vec::new(), Instant::now());
    loop {
        tokio::time::sleep(PERIOD).await;
        let Some(all) = all.upgrade() else { return };
        let (elapsed, now) = (since.elapsed(), Instant::now());
        let worked: Vec<Duration> = all.iter().map(Worker::worked).collect();
        for ((worker, now), before) in all.iter().zip(&worked).zip(&before) {
            let share = now.saturating_sub(*before).as_micros() * 1000 / elapsed.as_micros().max(1);
            let share = u32::try_from(share).unwrap_or(u32::MAX);
            worker.busy.store(share, Ordering::Relaxed);
        }
        (before, since) = (worked, now);
        let loads: Vec<Load> = all.iter().map(Worker::load).collect();
        for worker in all.iter() {
            worker.leaving.store(0, Ordering::Relaxed);
        }
        if let Some(Move { from, to, sessions }) = balance.next(&loads)
            && let Some(worker) = all.get(from)
        {
            worker.to.store(to, Ordering::Relaxed);
            worker.leaving.store(sessions, Ordering::Relaxed);
        }
    }
}

/// Moves a connection to the calling thread's poller.
///
/// # Errors
/// The system has no room there.
pub fn adopt(stream: Plain) -> io::Result<Plain> {
    Ok(match stream {
        Plain::Left(stream) => Plain::Left(TcpStream::from_std(stream.into_std()?)?),
        Plain::Right(stream) => Plain::Right(UnixStream::from_std(stream.into_std()?)?),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::Workers;

    fn is_busy(workers: &Workers, number: usize) {
        workers.all[number].busy.store(900, Ordering::Relaxed);
    }

    #[tokio::test]
    async fn sessions_go_to_the_first_thread_that_is_not_busy() {
        let workers = Workers::start(2).unwrap();
        let (first, _seat) = workers.seat();
        let (second, _other) = workers.seat();
        assert_eq!(first.id(), second.id());
        is_busy(&workers, 0);
        let (third, _third) = workers.seat();
        assert_ne!(third.id(), first.id());
        let thread = third.spawn(async { std::thread::current().name().map(str::to_owned) });
        assert_eq!(thread.await.unwrap().as_deref(), Some("sessions-1"));
    }

    #[tokio::test]
    async fn as_many_leave_as_are_to() {
        let workers = Workers::start(2).unwrap();
        let (_, seat) = workers.seat();
        assert!(workers.leaves(&seat).is_none());
        workers.all[0].to.store(1, Ordering::Relaxed);
        workers.all[0].leaving.store(1, Ordering::Relaxed);
        let (_, moved) = workers.leaves(&seat).unwrap();
        assert_eq!(moved.number, 1);
        assert!(workers.leaves(&seat).is_none());
        assert_eq!(workers.all[1].load().sessions, 1);
    }

    #[tokio::test]
    async fn the_threads_end_with_the_last_clone() {
        let workers = Workers::start(2).unwrap();
        is_busy(&workers, 0);
        let (runtime, _seat) = workers.seat();
        let task = runtime.spawn(std::future::pending::<()>());
        drop(workers);
        assert!(task.await.unwrap_err().is_cancelled());
    }
}
