//! What one user may read in one vhost, as the broker says. What it said is remembered for a minute.

use std::collections::{BTreeMap, BTreeSet};

use super::super::looks::Looks;
use super::super::problem::Problem;
use super::Asked;
use crate::amqp::ids::ShortStr;
use crate::console::count::count;
use crate::walk::Failure;

/// Queues that one answer checks, one after another: at most a second (3.10.8, 4.3.6).
const MOST_ASKED: usize = 300;

// === impl Looks ===

impl Looks {
    /// The queues that the user may read, and the number not checked because there were too many.
    ///
    /// # Errors
    /// When the broker refuses the user.
    pub(in crate::console::admin) async fn readable<'a>(
        &self,
        asked: &Asked,
        queues: impl IntoIterator<Item = &'a ShortStr>,
    ) -> Result<(BTreeSet<ShortStr>, usize), Problem> {
        let (mut ask, mut unasked) = (Vec::new(), 0);
        let mut readable = BTreeSet::new();
        let mut seen = BTreeSet::new();
        // Those first that the caller shows first.
        for queue in queues.into_iter().filter(|queue| seen.insert(*queue)) {
            match self.said.known(asked, queue) {
                Some(true) => {
                    readable.insert(queue.clone());
                }
                Some(false) => {}
                None if ask.len() < MOST_ASKED => ask.push(queue.clone()),
                None => unasked += 1,
            }
        }
        if !ask.is_empty() {
            let answers = self.may_read_each(asked, ask.clone()).await?;
            for (queue, may) in ask.into_iter().zip(answers) {
                self.said.learn(asked, &queue, may);
                if may {
                    readable.insert(queue);
                }
            }
        }
        Ok((readable, unasked))
    }

    /// Which queues exist, as far as the broker tells this user.
    ///
    /// # Errors
    /// When the broker refuses the user.
    pub(super) async fn are_there(
        &self,
        asked: &Asked,
        queues: BTreeSet<ShortStr>,
    ) -> Result<BTreeMap<ShortStr, bool>, Problem> {
        let queues: Vec<_> = queues.into_iter().take(MOST_ASKED).collect();
        if queues.is_empty() {
            return Ok(BTreeMap::new());
        }
        let answers = self.told(asked, queues.clone()).await?;
        let is_there = |answer| match answer {
            // Asked before the broker looks for the queue.
            Some(Failure::Refused { code: 403, .. }) => None,
            Some(Failure::Refused { code: 404, .. }) => Some(false),
            Some(_) | None => Some(true),
        };
        let answers = queues.into_iter().zip(answers);
        let told = answers.filter_map(|(queue, answer)| Some((queue, is_there(answer)?)));
        Ok(told.collect())
    }

    pub(super) async fn may_read(&self, asked: &Asked) -> Result<bool, Problem> {
        let queues = vec![asked.place.queue.clone()];
        Ok(self.may_read_each(asked, queues).await? == [true])
    }

    async fn may_read_each(
        &self,
        asked: &Asked,
        queues: Vec<ShortStr>,
    ) -> Result<Vec<bool>, Problem> {
        let number = queues.len();
        let may = |refused: Option<Problem>| match refused {
            None => Ok(true),
            Some(problem) if problem.is_about_the_queue() => Ok(false),
            Some(problem) => Err(problem),
        };
        match self.told(asked, queues).await {
            Ok(answers) => {
                let refused = answers.into_iter().map(|answer| answer.map(Problem::from));
                refused.map(may).collect()
            }
            // The user may not even enter the vhost.
            Err(problem) => Ok(vec![may(Some(problem))?; number]),
        }
    }

    /// # Errors
    /// When the user may not read the queue, in the broker's words.
    pub(super) async fn must_read(&self, asked: &Asked) -> Result<(), Problem> {
        let answers = self.told(asked, vec![asked.place.queue.clone()]).await?;
        match answers.into_iter().flatten().next() {
            None => Ok(()),
            Some(refused) => Err(refused.into()),
        }
    }
}

pub(in crate::console::admin) fn not_asked(queues: usize) -> Vec<String> {
    let note = format!(
        "Not checked: {}. Load this again within a minute to see those that you may read.",
        count(queues as u64, "more queue")
    );
    (queues > 0).then_some(note).into_iter().collect()
}
