//! The redrives and purges of a process: the proxy's own book, walks and drivers.

use dlx_proxy::console::redrives::{Book, NotBegun, Order, Shown};
use dlx_proxy::net::clock::Clock as _;
use dlx_proxy::net::walks::Mover;
use dlx_proxy::walk::{Ended, Failure, Walk};
use tokio::sync::mpsc;

use super::super::task::Task;
use super::dialing::connector;
use super::settings::short;
use super::{Proxy, Which, names};

/// Those at work, by the operator's numbers.
#[derive(Default)]
pub(super) struct Walks {
    book: Book,
    all: Vec<Walking>,
    /// Until the world takes them.
    ended: Vec<(u64, Shown)>,
}

/// One of them.
pub(super) struct Walking {
    pub number: u64,
    /// Its number in the book.
    id: u64,
    queue: String,
    pub task: Task<Walk, Mover>,
    told: mpsc::Receiver<Ended>,
}

impl Walks {
    pub(super) fn all(&self) -> &[Walking] {
        &self.all
    }
}

impl Proxy {
    pub(crate) fn begin(&mut self, number: u64, order: &Order) -> Result<(), NotBegun> {
        let (most, now) = (self.settings.limits().max_redrives, self.clock.now().wall);
        let connector = connector(&self.dials, Which::Walk(number));
        let (clock, names) = (self.clock.clone(), names());
        let alone = self.hub.walking(&order.login.vhost, &order.queue);
        let alone = alone.ok_or_else(|| NotBegun::Altered(order.queue.clone()))?;
        let mut walking = None;
        let begun = self.walks.book.begin(order, &names, most, now, |progress| {
            let settings = order.walk(&short("dlx-proxy"), &names);
            let (tell, told, drive) = Mover::drive(alone, settings, progress, clock, connector);
            walking = Some((told, Task::spawn(drive)));
            tell
        });
        let id = begun?;
        let (told, task) = walking.expect("it has begun");
        self.walks.all.push(Walking {
            number,
            id,
            queue: order.queue.to_string(),
            task,
            told,
        });
        Ok(())
    }

    pub(crate) fn has_walk(&self, number: u64) -> bool {
        self.id_of(number).is_some()
    }

    /// How many are at work in that queue.
    pub(crate) fn walks_in(&self, queue: &str) -> usize {
        let all = self.walks.all.iter();
        all.filter(|walking| walking.queue == queue).count()
    }

    fn id_of(&self, number: u64) -> Option<u64> {
        let mut all = self.walks.all.iter();
        Some(all.find(|walking| walking.number == number)?.id)
    }

    /// False: it has ended.
    pub(crate) fn pause(&mut self, number: u64, pause: bool) -> bool {
        let id = self.id_of(number);
        id.is_some_and(|id| self.walks.book.pause(id, pause))
    }

    /// False: it has ended.
    pub(crate) fn cancel(&mut self, number: u64) -> bool {
        let id = self.id_of(number);
        id.is_some_and(|id| self.walks.book.cancel(id))
    }

    pub(super) fn poll_walk(&mut self, number: u64) {
        let now = self.clock.now().wall;
        let mut all = self.walks.all.iter_mut();
        let Some(walking) = all.find(|walking| walking.number == number) else {
            return;
        };
        walking.task.poll();
        if walking.task.machine().is_some() {
            return;
        }
        let ended = walking.told.try_recv().unwrap_or(Err(Failure::Silent));
        let shown = self.walks.book.ended(walking.id, Some(ended), now);
        self.walks.all.retain(|walking| walking.number != number);
        let shown = shown.expect("the book knows it");
        self.walks.ended.push((number, shown));
    }

    /// What became of those that have ended.
    pub(crate) fn take_ended(&mut self) -> Vec<(u64, Shown)> {
        std::mem::take(&mut self.walks.ended)
    }

    /// The process ends: they are told so with the sessions, and have no longer than these.
    pub(super) fn drain_walks(&mut self, phase: u8) {
        match phase {
            0 => {
                for walking in &self.walks.all {
                    self.walks.book.cancel(walking.id);
                }
            }
            _ => self.walks.all.clear(),
        }
    }
}
