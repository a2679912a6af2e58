//! What is judged beside losses, as far as what the proxies said in the end lets it be: retries, and what arrived twice.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::load::Source;
use super::retries::{Judged, Others};
use super::round::{Found, Tally};
use super::stage::Stage;

/// What the proxies said in the end of what they had to do.
pub(crate) struct Seen {
    /// Returned messages may have gone back at once.
    refused: bool,
    /// A dead letter may have been published twice.
    confirms_lost: bool,
}

impl Seen {
    /// While all proxies still run.
    pub(crate) async fn of(stage: &Stage) -> Seen {
        Seen {
            refused: stage.may_have_refused().await,
            confirms_lost: stage.plan.hasty
                || !stage.plan.fault.keeps_confirms()
                || stage.may_have_lost_confirms().await,
        }
    }

    /// Whether what was delayed, returned or held came when it should.
    pub(crate) fn waits(&self, stage: &Stage, tally: &mut Tally) {
        for source in &stage.sources {
            let is_delayed = |number| source.delay_of(number).is_some();
            let (late, early) = source.ledger.deliveries().late(is_delayed);
            // Behind what is held others wait, too.
            if !source.held {
                tally.late.extend(late);
            }
            tally.early += early.len();
            if !early.is_empty() {
                let early = early.join(", ");
                tally
                    .problems
                    .push(format!("{source}: delayed, and early: {early}"));
            }
            if source.ledger.settled_twice.load(Relaxed) > 0 {
                let twice = format!("{source}: settled twice at the broker");
                tally.problems.push(twice);
            }
            let Some(promise) = source.retries() else {
                continue;
            };
            let lost = &source.ledger.lost;
            let others = Others {
                queue: source.kind == "quorum",
                refused: self.refused,
                lost: (stage.consumers_of(source) > 1).then(|| lost.load(Relaxed)),
            };
            let judged = source.ledger.deliveries().judge(promise, others);
            let Judged {
                back,
                unjudged,
                taken_back,
                early,
                over,
            } = judged;
            tally.back += back;
            tally.unjudged += unjudged;
            tally.taken_back += taken_back;
            tally.early += early.len();
            tally.over += over.len();
            for (what, which) in [("early", early), ("over the limit", over)] {
                if !which.is_empty() {
                    let which = which.join(", ");
                    tally
                        .problems
                        .push(format!("{source}: back {what}: {which}"));
                }
            }
        }
    }

    /// If no confirm was lost, nothing of which the broker has seen one death may arrive twice, whoever moved it.
    pub(crate) fn duplicates(&self, stage: &Stage, found: &Found, tally: &mut Tally) {
        if self.confirms_lost {
            return;
        }
        let once = |source: &&Arc<Source>| {
            !source.is_native && (!source.is_rejected() || source.ledger.lost.load(Relaxed) == 0)
        };
        for source in stage.sources.iter().filter(once) {
            let arrived = found.of(source);
            let twice = arrived.len() - found.seen(source).len();
            if twice > 0 {
                tally.problems.push(format!(
                    "{source}: {twice} arrived twice, and no confirm was lost"
                ));
            }
        }
    }
}
