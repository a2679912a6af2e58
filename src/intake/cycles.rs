//! Cycles through named exchanges (S6.1): dropped at once when a survey of the vhost shows that there is nowhere else to go.
//!
//! What is known of the bindings only raises the suspicion: somebody may have bound a queue a moment ago, past this proxy, and to drop its copy
//! would be a loss. So a suspect is held until a survey that was begun after it came. If that says the same, it is what the broker would
//! have said at that moment, and the suspect is dropped; else, or when no survey comes in time, it is published, and if it was a cycle, that
//! ends one lap late. Without a management URL there are no surveys, and nobody is suspected.
//!
//! Held ones are overtaken by what comes after them: of no importance for those that are dropped, and the others are rare.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::dead_letter::closes;
use crate::intake::Effects;
use crate::machine::{Change, Mono, Now, Publication, Survey, Ticket};
use crate::routing::Routing;

/// A survey that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two surveys there is so many times as long as the first one took, since each reads all bindings of the vhost ...
const REST: u32 = 4;
/// ... but so long at least,
const SHORTEST_REST: Duration = Duration::from_millis(100);
/// and so long after one that failed or took too long.
const SETBACK: Duration = Duration::from_secs(10);
/// When the next one is further away, nobody waits for it.
const SOON: Duration = Duration::from_secs(1);
/// A cycle that ended late shows that too little is known of an exchange; or that it has other queues too, where no survey helps. So of
/// each exchange that is a lesson only so often.
const LESSON: Duration = Duration::from_secs(60);
/// Exchanges of which that is remembered; beyond, all are forgotten.
const MOST_LESSONS: usize = 1000;
/// Changes that are kept while a survey is under way; those beyond may not be known afterwards.
const MOST_MEANWHILE: usize = 1024;

/// The suspects, and what is known.
#[derive(Debug)]
pub(super) struct Cycles {
    /// Somebody answers when a survey is asked for.
    surveyed: bool,
    routing: Routing,
    held: VecDeque<Suspect>,
    /// How many may be held; beyond, they go round once more.
    most: usize,
    /// When the survey that is under way was asked for.
    asked: Option<Mono>,
    /// What changed since then: the survey may have missed it.
    meanwhile: Vec<Change>,
    /// Another survey has to be asked for.
    wanted: bool,
    /// No survey is asked for before this time.
    rest_until: Mono,
    /// Until when late cycles by these exchanges teach nothing.
    lessons: BTreeMap<ShortStr, Mono>,
}

#[derive(Debug)]
struct Suspect {
    ticket: Ticket,
    came: Mono,
    publication: Publication,
}

/// What becomes of a suspect.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) ticket: Ticket,
    pub(super) publication: Publication,
    /// All its copies would be cycles.
    pub(super) cycle: bool,
}

// === impl Cycles ===

impl Cycles {
    /// The state in which nothing is known.
    pub(super) fn new(surveyed: bool, prefetch: u16) -> Cycles {
        Cycles {
            surveyed,
            routing: Routing::default(),
            held: VecDeque::new(),
            // As few as may wait for one target that fails: the rest of the vhost goes on.
            most: usize::from(prefetch / 4),
            asked: None,
            meanwhile: Vec::new(),
            wanted: false,
            rest_until: Mono(0),
            lessons: BTreeMap::new(),
        }
    }

    /// The link is up: what was so before may be so no more.
    pub(super) fn begin(&mut self, now: Now, fx: &mut Effects) {
        if self.surveyed {
            self.want(now, fx);
        }
    }

    /// The broker has all signals again.
    pub(super) fn forget(&mut self) {
        self.held.clear();
    }

    /// Clients changed something.
    pub(super) fn changed(&mut self, changes: Vec<Change>) {
        if !self.surveyed {
            return;
        }
        if self.asked.is_some() {
            let room = MOST_MEANWHILE.saturating_sub(self.meanwhile.len());
            self.meanwhile.extend(changes.iter().take(room).cloned());
        }
        for change in changes {
            self.routing.apply(change);
        }
    }

    /// A dead letter on its way out; `None`: it is held.
    pub(super) fn pass(
        &mut self,
        ticket: Ticket,
        publication: Publication,
        now: Now,
        fx: &mut Effects,
    ) -> Option<Publication> {
        let soon = self.asked.is_some() || self.rest_until <= now.mono.after(SOON);
        let may_hold = self.surveyed && soon && self.held.len() < self.most;
        if !may_hold || publication.exchange.is_empty() || !self.suspects(&publication) {
            return Some(publication);
        }
        self.held.push_back(Suspect {
            ticket,
            came: now.mono,
            publication,
        });
        self.want(now, fx);
        None
    }

    /// A cycle that would have gone on by this exchange ended one lap late.
    pub(super) fn late(&mut self, exchange: &ShortStr, now: Now, fx: &mut Effects) {
        let known = self.lessons.get(exchange);
        let is_lesson = known.is_none_or(|until| *until <= now.mono);
        if !self.surveyed || exchange.is_empty() || !is_lesson {
            return;
        }
        if self.lessons.len() >= MOST_LESSONS {
            self.lessons.clear();
        }
        let until = now.mono.after(LESSON);
        self.lessons.insert(exchange.clone(), until);
        self.want(now, fx);
    }

    /// A survey came: it decides on those that were here when it was begun. `None`: it failed, and nobody waits for another.
    pub(super) fn surveyed(
        &mut self,
        survey: Option<Survey>,
        now: Now,
        fx: &mut Effects,
    ) -> Vec<Verdict> {
        let asked = self.asked.take().unwrap_or(now.mono);
        let Some(survey) = survey else {
            self.rest_until = now.mono.after(SETBACK);
            return self.held.drain(..).map(Suspect::released).collect();
        };
        let rest = asked.until(now.mono).saturating_mul(REST);
        self.rest_until = now.mono.after(rest.max(SHORTEST_REST));
        let begun = survey.begun;
        // What was known goes first: there is room for one.
        self.routing = Routing::default();
        self.routing = Routing::of(survey);
        // Before what was seen since is added: the two together may never have been so.
        let decided = self.held.partition_point(|suspect| suspect.came <= begun);
        let suspects: Vec<Suspect> = self.held.drain(..decided).collect();
        let verdicts = suspects
            .into_iter()
            .map(|suspect| Verdict {
                cycle: self.suspects(&suspect.publication),
                ticket: suspect.ticket,
                publication: suspect.publication,
            })
            .collect();
        for change in std::mem::take(&mut self.meanwhile) {
            self.routing.apply(change);
        }
        if !self.held.is_empty() {
            self.want(now, fx);
        }
        verdicts
    }

    /// What is due; and the suspects that have waited long enough.
    pub(super) fn timeout(&mut self, now: Now, fx: &mut Effects) -> Vec<Verdict> {
        let late = |since: Mono| since.after(PATIENCE) <= now.mono;
        if self.asked.is_some_and(late) {
            self.asked = None;
            self.rest_until = now.mono.after(SETBACK);
        }
        let overdue = self.held.partition_point(|suspect| late(suspect.came));
        self.ask(now, fx);
        self.held.drain(..overdue).map(Suspect::released).collect()
    }

    /// When [`Cycles::timeout`] wants to be called.
    pub(super) fn deadline(&self) -> Option<Mono> {
        let next = match self.asked {
            Some(asked) => Some(asked.after(PATIENCE)),
            None => self.wanted.then_some(self.rest_until),
        };
        let oldest = self.held.front();
        let overdue = oldest.map(|suspect| suspect.came.after(PATIENCE));
        [next, overdue].into_iter().flatten().min()
    }

    /// As far as is known, there is nowhere to go but round.
    fn suspects(&self, publication: &Publication) -> bool {
        let exchange = &publication.exchange;
        closes(publication, |keys, headers| {
            self.routing.targets(exchange, keys, headers)
        })
        .is_some()
    }

    /// There is something that the next survey may tell. (The one that is under way may be too old for it: whoever is held then wants another.)
    fn want(&mut self, now: Now, fx: &mut Effects) {
        self.wanted |= self.asked.is_none();
        self.ask(now, fx);
    }

    fn ask(&mut self, now: Now, fx: &mut Effects) {
        if self.wanted && self.asked.is_none() && self.rest_until <= now.mono {
            self.wanted = false;
            self.asked = Some(now.mono);
            self.meanwhile.clear();
            fx.out.survey = true;
        }
    }
}

// === impl Suspect ===

impl Suspect {
    /// Nobody can tell: it goes on.
    fn released(self) -> Verdict {
        Verdict {
            ticket: self.ticket,
            publication: self.publication,
            cycle: false,
        }
    }
}
