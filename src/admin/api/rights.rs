//! What one user may read in one vhost, as the broker says. What it said is remembered for a minute.

use std::collections::{BTreeMap, BTreeSet};

use super::super::looks::Looks;
use super::super::problem::Problem;
use super::Asked;
use super::remembered::Remembered;
use crate::amqp::ids::ShortStr;
use crate::walk::{Answers, Failure};

/// For one answer the broker is asked about so many queues, one after another: that takes it a second at most (3.10.8, 4.3.6).
const MOST_ASKED: usize = 300;

/// Asks the broker. Clones remember the same.
#[derive(Clone)]
pub(in crate::admin) struct Rights {
    looks: Looks,
    said: Remembered,
}

// === impl Rights ===

impl Rights {
    pub(in crate::admin) fn new(looks: Looks) -> Rights {
        Rights {
            looks,
            said: Remembered::default(),
        }
    }

    /// Whether the broker lets the user into the vhost. It is asked each time: what is remembered is not for those who have lost their login.
    ///
    /// # Errors
    /// When it does not.
    pub(in crate::admin) async fn enter(&self, asked: &Asked) -> Result<(), Problem> {
        let vhost = &asked.place.vhost;
        self.looks.enter(asked.who.clone(), asked.peer, vhost).await
    }

    /// Those of these queues that the user may read; and of how many that was not asked, since there are too many of them.
    ///
    /// # Errors
    /// When the broker does not even let the user in.
    pub(in crate::admin) async fn readable<'a>(
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
            let answers = may_read_each(&self.looks, asked, ask.clone()).await?;
            for (queue, may) in ask.into_iter().zip(answers) {
                self.said.learn(asked, &queue, may);
                if may {
                    readable.insert(queue);
                }
            }
        }
        Ok((readable, unasked))
    }

    /// Whether there are these queues, as far as the broker tells that user.
    ///
    /// # Errors
    /// When it does not even let the user in.
    pub(super) async fn are_there(
        &self,
        asked: &Asked,
        queues: BTreeSet<ShortStr>,
    ) -> Result<BTreeMap<ShortStr, bool>, Problem> {
        let queues: Vec<_> = queues.into_iter().take(MOST_ASKED).collect();
        if queues.is_empty() {
            return Ok(BTreeMap::new());
        }
        let answers = told(&self.looks, asked, queues.clone()).await?;
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
}

/// What to say of queues of which the broker was not asked whether the user may read them.
pub(super) fn not_asked(queues: usize) -> Vec<String> {
    let note = format!(
        "whether you may read {queues} more queues was not asked yet: ask again within a minute"
    );
    (queues > 0).then_some(note).into_iter().collect()
}

/// Whether the broker lets the user read that queue.
///
/// # Errors
/// When it does not even let the user in.
pub(super) async fn may_read(looks: &Looks, asked: &Asked) -> Result<bool, Problem> {
    let queues = vec![asked.place.queue.clone()];
    Ok(may_read_each(looks, asked, queues).await? == [true])
}

/// The same of several queues.
async fn may_read_each(
    looks: &Looks,
    asked: &Asked,
    queues: Vec<ShortStr>,
) -> Result<Vec<bool>, Problem> {
    let number = queues.len();
    let may = |refused: Option<Problem>| match refused {
        None => Ok(true),
        Some(problem) if problem.is_about_the_queue() => Ok(false),
        Some(problem) => Err(problem),
    };
    match told(looks, asked, queues).await {
        Ok(answers) => {
            let refused = answers.into_iter().map(|answer| answer.map(Problem::from));
            refused.map(may).collect()
        }
        // The user may not even enter the vhost.
        Err(problem) => Ok(vec![may(Some(problem))?; number]),
    }
}

/// Whether the broker lets the user read that queue.
///
/// # Errors
/// When it says no, in its words, or cannot be asked.
pub(super) async fn ask(looks: &Looks, asked: &Asked) -> Result<(), Problem> {
    let answers = told(looks, asked, vec![asked.place.queue.clone()]).await?;
    match answers.into_iter().flatten().next() {
        None => Ok(()),
        Some(refused) => Err(refused.into()),
    }
}

async fn told(looks: &Looks, asked: &Asked, queues: Vec<ShortStr>) -> Result<Answers, Problem> {
    let vhost = asked.place.vhost.clone();
    looks
        .readable(asked.who.clone(), asked.peer, vhost, queues)
        .await
}
