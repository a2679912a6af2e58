//! The facts of queues whose dead letters go elsewhere than their own arguments say, and of the record of them.

use std::time::Instant;

use tracing::{Level, error, info, warn};

use crate::amqp::ids::ShortStr;
use crate::machine::DeadLettersTo;

use super::Reporter;

// === impl Reporter ===

impl Reporter {
    pub(super) fn redeclared(
        &self,
        queue: &ShortStr,
        before: &DeadLettersTo,
        now: &DeadLettersTo,
        own: Option<&DeadLettersTo>,
    ) {
        self.metrics.inner().queues_redeclared.inc();
        match own {
            None => {
                info!(%queue, %before, %now, "a declare changed where the dead letters of its queue go")
            }
            Some(own) => {
                warn!(%queue, %before, %now, %own, "a declare changed where the rejected messages of its queue go; what expires or overflows still goes by the queue's own arguments and the broker's policies")
            }
        }
    }

    pub(super) fn rejects_only(&self, queue: &ShortStr, now: &DeadLettersTo, own: &DeadLettersTo) {
        const WHAT: &str = "a policy of the proxy acts on the rejected messages of a queue only; what expires or overflows still goes by the queue's own arguments and the broker's policies";
        let place = format!("{}/{queue}", self.vhost);
        let repeats = &self.metrics.inner().repeats;
        if repeats.is_first((WHAT, place, ""), Instant::now()) {
            warn!(%queue, %now, %own, "{WHAT}");
        }
    }

    pub(super) fn not_recorded(&self, queue: &ShortStr) {
        self.metrics.inner().redeclares_unrecorded.inc();
        seldom!(self, Level::WARN, "what a declare said is not recorded yet: other proxies do not know it", Some(queue), "", %queue);
    }

    pub(super) fn record_unread(&self, cause: &str) {
        seldom!(
            self,
            Level::WARN,
            "the record of redeclared queues cannot be read: only what is declared here counts",
            None,
            "",
            cause
        );
    }

    pub(super) fn record_foreign(&self, messages: u64) {
        self.metrics.inner().record_foreign.inc_by(messages);
        seldom!(
            self,
            Level::WARN,
            "the record of redeclared queues has messages that no proxy with this user wrote: somebody publishes to its stream, which takes room there",
            None,
            "",
            messages
        );
    }
}
