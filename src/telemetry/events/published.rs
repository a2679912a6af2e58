//! Publishes that the proxy delays: each counts when it waits, and when it is due.

use std::time::Duration;

use tracing::trace;

use super::Reporter;
use crate::machine::{Cause, Outcome};

impl Reporter {
    /// `delay`: on its way into a delay queue; none when it is due.
    pub(super) fn published(&self, delay: Option<Duration>, outcome: Outcome) {
        let (ended, cause) = outcome.label();
        let ended = match (delay, outcome) {
            (Some(_), Outcome::Confirmed) => "waiting",
            (None, Outcome::Refused(_)) => "late",
            _ => ended,
        };
        let vhost = self.metrics.inner().names.vhost(&self.vhost);
        self.metrics
            .delayed_publishes
            .with([vhost, ended.into()])
            .inc();
        match (delay, cause.map(Cause::as_str)) {
            (_, None) => trace!(?delay, ended, "delayed publish"),
            (Some(delay), Some(cause)) => {
                line!(
                    self.metrics,
                    PUBLISH_NOT_DELAYED,
                    String::new(),
                    cause,
                    ?delay,
                    cause
                );
            }
            (None, Some(cause)) => {
                line!(
                    self.metrics,
                    PUBLISH_ASTRAY,
                    String::new(),
                    cause,
                    ended,
                    cause
                );
            }
        }
    }
}
