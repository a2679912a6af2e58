//! The time that machines are told, and the timer of a driver's task. The simulation has a clock of its own.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use tokio::time::Sleep;

use crate::machine::{Mono, Now, Wall};

pub trait Clock: Clone {
    type Timer: Default;

    fn now(&self) -> Now;

    /// Ready at `at`; until then the task is woken at that time. Replaces the timer's earlier
    /// setting.
    fn poll_until(&self, timer: &mut Self::Timer, at: Mono, cx: &mut Context<'_>) -> Poll<()>;
}

#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

#[derive(Debug, Default)]
pub struct Timer(Option<(Mono, Pin<Box<Sleep>>)>);

// === impl SystemClock ===

impl SystemClock {
    pub fn start() -> SystemClock {
        SystemClock {
            start: Instant::now(),
        }
    }

    fn instant(&self, mono: Mono) -> tokio::time::Instant {
        let far = Duration::from_secs(3600 * 24 * 365);
        tokio::time::Instant::from_std(self.start + Duration::from_micros(mono.0).min(far))
    }
}

impl Clock for SystemClock {
    type Timer = Timer;

    fn now(&self) -> Now {
        let mono = Mono(u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX));
        let wall = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| {
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            });
        Now {
            mono,
            wall: Wall(wall),
        }
    }

    fn poll_until(&self, timer: &mut Timer, at: Mono, cx: &mut Context<'_>) -> Poll<()> {
        let instant = self.instant(at);
        let (set_to, sleep) = timer
            .0
            .get_or_insert_with(|| (at, Box::pin(tokio::time::sleep_until(instant))));
        if *set_to != at {
            sleep.as_mut().reset(instant);
            *set_to = at;
        }
        sleep.as_mut().poll(cx)
    }
}
