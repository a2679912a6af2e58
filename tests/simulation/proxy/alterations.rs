//! The alterations of a process: the proxy's own futures of them, each polled as a task.

use std::sync::Arc;
use std::time::Duration;

use dlx_proxy::alteration::plan::{Plan, Refusal, Seen, Wish, plan};
use dlx_proxy::alteration::{Altered, Failure, Order, Settings, Task};
use dlx_proxy::management::intake_of;
use dlx_proxy::net::alterations::Altering;

use super::super::net::Stream;
use super::super::task::{Clock, Work};
use super::dialing::connector;
use super::settings::vhost;
use super::{Proxy, Which, names};

/// Those at work.
#[derive(Default)]
pub(super) struct Alterations(Vec<One>);

struct One {
    number: u64,
    attends: bool,
    work: Work<Came>,
}

/// What came of one.
#[derive(Debug)]
pub(crate) enum Came {
    Altered(Result<Altered, Failure>),
    /// Of an order that another process wrote: whether it may be another queue.
    Attended(bool),
}

// === impl Alterations ===

impl Alterations {
    pub(super) fn woken(&self) -> impl Iterator<Item = Which> {
        let woken = self.0.iter().filter(|one| one.work.is_woken());
        woken.map(|one| Which::Alteration(one.number))
    }
}

// === impl Proxy ===

impl Proxy {
    /// # Errors
    /// All reasons against it.
    pub(crate) fn plan(&self, queue: &str, seen: Seen, wish: &Wish) -> Result<Plan, Vec<Refusal>> {
        let sessions = &self.session_settings;
        let mark = self.publisher_settings.login.mark();
        let seen = Seen { mark, ..seen };
        plan(queue, &seen, wish, &names(), |arguments| {
            intake_of(sessions, &vhost(), queue, arguments)
        })
    }

    pub(crate) fn alter(&mut self, number: u64, plan: Plan, wait: Duration) {
        let Plan {
            order,
            others,
            backlog,
            ..
        } = plan;
        let task = Task::Alter {
            wait,
            others,
            backlog,
        };
        let settings = self.alteration(order, task);
        let altering = self.altering(number);
        let work = Work::spawn(async move { Came::Altered(altering.alter(settings).await) });
        self.works(number, false, work);
    }

    pub(crate) fn attend(&mut self, number: u64, order: Order) {
        let settings = self.alteration(order, Task::Follow);
        let altering = self.altering(number);
        let work = Work::spawn(async move { Came::Attended(altering.attend(settings).await) });
        self.works(number, true, work);
    }

    fn works(&mut self, number: u64, attends: bool, work: Work<Came>) {
        self.alterations.0.push(One {
            number,
            attends,
            work,
        });
    }

    fn altering(&self, number: u64) -> Altering<Stream, Clock> {
        let dials = self.dials.clone();
        Altering {
            hub: self.hub.clone(),
            catalogue: self.session_settings.catalogue.clone(),
            clock: self.clock.clone(),
            connector: Arc::new(move || connector(&dials, Which::Alteration(number))),
        }
    }

    fn alteration(&self, order: Order, task: Task) -> Settings {
        Settings {
            login: self.publisher_settings.login.clone(),
            names: names(),
            order,
            task,
            rules: self.session_settings.rules,
        }
    }

    /// It takes part in one, or finishes one: the next order is found again.
    pub(crate) fn attends(&self) -> bool {
        self.alterations.0.iter().any(|one| one.attends)
    }

    pub(crate) fn has_alteration(&self, number: u64) -> bool {
        self.alterations.0.iter().any(|one| one.number == number)
    }

    /// Its clients wait.
    pub(crate) fn holds_clients(&self) -> bool {
        self.hub.is_swapping()
    }

    pub(super) fn poll_alteration(&mut self, number: u64) {
        let all = &mut self.alterations.0;
        let Some(at) = all.iter().position(|one| one.number == number) else {
            return;
        };
        if let Some(came) = all[at].work.poll() {
            all.swap_remove(at);
            self.came.push((number, came));
        }
    }

    pub(crate) fn take_alterations(&mut self) -> Vec<(u64, Came)> {
        std::mem::take(&mut self.came)
    }
}
