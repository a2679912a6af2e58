//! The tasks of a world, and its clock. A task is the proxy's own driver; it is polled when somebody has woken it, and never else: who is
//! forgotten sleeps for good.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use dlx_proxy::machine::{Leg, Machine, Mono, Now, Wall};
use dlx_proxy::net::clock;
use dlx_proxy::net::drive::{Drive, Outlet};

use super::net::{Micros, Stream, TcpId};

/// The driver of one machine.
pub(crate) struct Task<M: Machine, O> {
    /// Until it has ended.
    drive: Option<Drive<M, O, Stream, Clock>>,
    woken: Arc<Woken>,
}

/// Any future of the proxy's.
pub(crate) struct Work<T> {
    future: Pin<Box<dyn Future<Output = T>>>,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

/// The clock of a world, which only the world moves. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Clock(Arc<Mutex<Timers>>);

#[derive(Default)]
struct Timers {
    at: Micros,
    set: BTreeMap<Key, Waker>,
    last: u64,
}

/// When, and a number of its own.
type Key = (Micros, u64);

/// A timer that is set, or not.
#[derive(Default)]
pub(crate) struct Timer(Option<(Clock, Key)>);

// === impl Task ===

impl<M: Machine, O: Outlet<M>> Task<M, O> {
    pub(crate) fn spawn(drive: Drive<M, O, Stream, Clock>) -> Task<M, O> {
        Task {
            drive: Some(drive),
            woken: Arc::new(Woken(AtomicBool::new(true))),
        }
    }

    pub(crate) fn machine(&self) -> Option<&M> {
        self.drive.as_ref().map(Drive::machine)
    }

    /// The connection of a leg, while there is one.
    pub(crate) fn tcp(&self, leg: Leg) -> Option<TcpId> {
        Some(self.drive.as_ref()?.stream(leg)?.tcp())
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.drive.is_some() && self.woken.0.load(Ordering::Relaxed)
    }

    pub(crate) fn poll(&mut self) {
        let Some(drive) = &mut self.drive else { return };
        self.woken.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(self.woken.clone());
        if drive.poll(&mut Context::from_waker(&waker)).is_ready() {
            self.drive = None;
        }
    }

    /// The process is ending.
    pub(crate) fn drain(&mut self) {
        if let Some(drive) = &mut self.drive {
            drive.drain();
            self.woken.clone().wake();
        }
    }

    /// Nothing waits in its inbox.
    pub(crate) fn has_heard_all(&self) -> bool {
        let drive = self.drive.as_ref();
        drive.is_none_or(|drive| !drive.waits().inbox)
    }

    /// What it could do at this moment and does not, as nobody has woken it.
    pub(crate) fn sleeps_through(&self, now: Micros) -> Option<String> {
        let drive = self.drive.as_ref().filter(|_| !self.is_woken())?;
        let waits = drive.waits();
        for leg in [Leg::Client, Leg::Broker] {
            let Some(stream) = drive.stream(leg) else {
                continue;
            };
            if waits.read[leg as usize] && stream.is_readable() {
                return Some(format!("{leg:?} could be read"));
            }
            if waits.write[leg as usize] && stream.is_writable() || stream.is_flushable() {
                return Some(format!("to {leg:?} could be written"));
            }
        }
        let late = waits.until.is_some_and(|until| until.0 <= now);
        match waits.inbox {
            true => Some("there is something in its inbox".into()),
            false => late.then(|| "it wanted to be called".into()),
        }
    }
}

// === impl Work ===

impl<T> Work<T> {
    pub(crate) fn spawn(future: impl Future<Output = T> + 'static) -> Work<T> {
        Work {
            future: Box::pin(future),
            woken: Arc::new(Woken(AtomicBool::new(true))),
        }
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.woken.0.load(Ordering::Relaxed)
    }

    /// What came of it: it is not polled again.
    pub(crate) fn poll(&mut self) -> Option<T> {
        self.woken.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(self.woken.clone());
        let polled = self.future.as_mut().poll(&mut Context::from_waker(&waker));
        match polled {
            Poll::Ready(came) => Some(came),
            Poll::Pending => None,
        }
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// === impl Clock ===

impl Clock {
    /// It is later now: who waited for that is woken.
    pub(crate) fn set(&self, at: Micros) {
        let mut timers = self.lock();
        timers.at = at;
        while let Some(first) = timers.set.first_entry().filter(|first| first.key().0 <= at) {
            first.remove().wake();
        }
    }

    /// When somebody will be woken.
    pub(crate) fn next(&self) -> Option<Micros> {
        self.lock().set.keys().next().map(|(at, _)| *at)
    }

    fn lock(&self) -> MutexGuard<'_, Timers> {
        self.0.lock().expect("no panic")
    }
}

impl clock::Clock for Clock {
    type Timer = Timer;

    fn now(&self) -> Now {
        let at = self.lock().at;
        Now {
            mono: Mono(at),
            wall: Wall(1_700_000_000_000 + at / 1_000),
        }
    }

    fn poll_until(&self, timer: &mut Timer, at: Mono, cx: &mut Context<'_>) -> Poll<()> {
        timer.stop();
        let mut timers = self.lock();
        if at.0 <= timers.at {
            return Poll::Ready(());
        }
        timers.last += 1;
        let key = (at.0, timers.last);
        timers.set.insert(key, cx.waker().clone());
        timer.0 = Some((self.clone(), key));
        Poll::Pending
    }
}

// === impl Timer ===

impl Timer {
    fn stop(&mut self) {
        if let Some((clock, key)) = self.0.take() {
            clock.lock().set.remove(&key);
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.stop();
    }
}
