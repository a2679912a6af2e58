//! The management API of a world: each proxy reads policies and queues there, and asks for single queues. What it is told is as old as its answer
//! takes, and now and then there is none.

use std::fmt;

use dlx_proxy::machine::Mono;
use dlx_proxy::net::question::Question;

use super::model::QueueView;
use super::net::Micros;
use super::rulings::Rulings;
use super::world::World;

const SECOND: Micros = 1_000_000;
/// From one reading of the policies to the next, and of the queues.
const EVERY: [Micros; 2] = [5 * SECOND, 120 * SECOND];

/// What is asked for, or told, at a moment, by proxy.
#[derive(Default)]
pub(crate) struct Api {
    due: Vec<(Micros, usize, Turn)>,
    pub(super) away_until: Micros,
}

enum Turn {
    Asks(What),
    /// Nothing: the API is away.
    Policies(Option<Rulings>),
    Queues(Option<Vec<QueueView>>, Mono),
    Queue(Question, Option<QueueView>, Mono),
}

#[derive(Clone, Copy)]
enum What {
    Policies,
    Queues,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

impl Api {
    pub(super) fn next(&self) -> Option<Micros> {
        self.due.iter().map(|(due, ..)| *due).min()
    }
}

impl World {
    /// A process begins, which knows nothing.
    pub(super) fn begins_to_read(&mut self, proxy: usize) {
        self.unknown.api.due.retain(|(_, of, _)| *of != proxy);
        if !self.unknown.managed {
            return;
        }
        if let Some(process) = &mut self.proxies[proxy] {
            process.will_read();
        }
        self.accounts.knows_of_broker(proxy, None, self.at);
        for what in [What::Policies, What::Queues] {
            self.later(SECOND, proxy, Turn::Asks(what));
        }
    }

    fn later(&mut self, most: Micros, proxy: usize, turn: Turn) {
        let due = self.at + self.unknown.rng.u64(..most);
        self.unknown.api.due.push((due, proxy, turn));
    }

    /// What is due is asked for and told.
    pub(super) fn manage(&mut self) {
        for proxy in 0..self.proxies.len() {
            let asked = self.proxies[proxy].as_mut().map(|of| of.take_questions());
            for question in asked.unwrap_or_default() {
                let listed = self.broker.listed(&question.queue);
                let listed = listed.filter(|_| !self.is_api_away());
                let turn = Turn::Queue(question, listed, self.now());
                self.later(2 * SECOND, proxy, turn);
            }
        }
        let at = self.at;
        let due = &mut self.unknown.api.due;
        let (due, later): (Vec<_>, Vec<_>) = due.drain(..).partition(|(due, ..)| *due <= at);
        self.unknown.api.due = later;
        for (_, proxy, turn) in due {
            self.take_turn(proxy, turn);
        }
    }

    pub(super) fn is_api_away(&self) -> bool {
        self.unknown.api.away_until > self.at
    }

    fn take_turn(&mut self, proxy: usize, turn: Turn) {
        let answers = !self.is_api_away();
        let now = self.now();
        let (at, accounts) = (self.at, &mut self.accounts);
        let Some(process) = &mut self.proxies[proxy] else {
            return;
        };
        match turn {
            Turn::Asks(What::Policies) => {
                let told = answers.then(|| self.unknown.policies.clone());
                self.later(SECOND, proxy, Turn::Policies(told));
            }
            Turn::Asks(What::Queues) => {
                let names = self.broker.queue_names();
                let all = names.iter().filter_map(|name| self.broker.listed(name));
                let told = answers.then(|| all.collect());
                self.later(SECOND, proxy, Turn::Queues(told, now));
            }
            Turn::Policies(told) => {
                process.hears_policies(told.as_ref());
                if let Some(told) = told {
                    accounts.knows_of_broker(proxy, Some(&told), at);
                }
                self.asks_again(proxy, What::Policies);
            }
            Turn::Queues(told, asked) => {
                if let Some(told) = &told {
                    process.hears_default_type(self.plan.default_type, asked);
                    process.hears_queues(told, asked);
                    self.alterations.has_listed(proxy);
                }
                self.asks_again(proxy, What::Queues);
            }
            Turn::Queue(question, told, asked) => {
                if let Some(told) = &told {
                    process.hears_queue(told, asked);
                }
                drop(question); // the session is told
            }
        }
    }

    fn asks_again(&mut self, proxy: usize, what: What) {
        let due = self.at + EVERY[what as usize];
        self.unknown.api.due.push((due, proxy, Turn::Asks(what)));
    }
}
