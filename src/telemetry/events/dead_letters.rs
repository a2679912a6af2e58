//! Dead letters: each counts, and of those that did not come to their target there is a line.

use prometheus_client::metrics::counter::Counter;
use tracing::level_filters::LevelFilter;
use tracing::trace;

use super::Reporter;
use crate::amqp::ids::ShortStr;
use crate::machine::{Cause, DeadLetter, Event, Outcome, Reason};

/// The series of the last one that was confirmed: mostly the next one's, too.
#[derive(Debug)]
pub(super) struct Counted {
    queue: ShortStr,
    reason: Reason,
    counter: Counter,
}

impl Reporter {
    /// Counts one like the last, of which nothing is written.
    pub(super) fn counts_again(&self, event: &Event) -> bool {
        let Event::DeadLetter(dead) = event else {
            return false;
        };
        let is_silent =
            dead.outcome == Outcome::Confirmed && LevelFilter::current() < LevelFilter::TRACE;
        let fits = |last: &&Counted| last.queue == dead.queue && last.reason == dead.reason;
        let last = self.counted.as_ref().filter(fits).filter(|_| is_silent);
        last.is_some_and(|last| {
            last.counter.inc();
            true
        })
    }

    pub(super) fn dead_letter(&mut self, dead: &DeadLetter) {
        let DeadLetter {
            queue,
            exchange,
            outcome,
            ..
        } = dead;
        let reason = dead.reason.as_str();
        let (ended, cause) = outcome.label();
        let (vhost, queue_label) = self.metrics.inner().names.queue(&self.vhost, queue);
        let labels = [vhost.clone(), queue_label, reason.into(), ended.into()];
        let counter = self.metrics.messages_dead_lettered.with(labels);
        counter.inc();
        let Some(cause) = cause.map(Cause::as_str) else {
            trace!(%queue, reason, %exchange, "dead letter confirmed");
            self.counted = Some(Counted {
                // A copy: this may be a slice of a read buffer.
                queue: ShortStr::copy(queue).unwrap_or_default(),
                reason: dead.reason,
                counter,
            });
            return;
        };
        let labels = [vhost, ended.into(), cause.into()];
        self.metrics.dead_letters_undelivered.with(labels).inc();
        match outcome {
            Outcome::Confirmed => {}
            Outcome::Parked(_) => {
                about!(self, PARKED, queue, cause, %queue, reason, %exchange, cause)
            }
            Outcome::Dropped(_) => {
                about!(self, DROPPED, queue, cause, %queue, reason, %exchange, cause)
            }
            Outcome::Refused(Cause::Poison) => {
                about!(self, POISON, queue, cause, %queue, reason, %exchange, cause)
            }
            Outcome::Refused(_) => {
                about!(self, NOT_PUBLISHED, queue, cause, %queue, reason, %exchange, cause)
            }
        }
    }
}
