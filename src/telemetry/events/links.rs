//! The facts of the proxy's own links.

use tracing::field::display;
use tracing::{Level, debug, error, info, warn};

use crate::amqp::ids::ShortStr;
use crate::amqp::reply_code::ACCESS_REFUSED;
use crate::amqp::version::Version;
use crate::machine::Role;

use super::Reporter;
use crate::telemetry::metrics::{LinkLabels, VhostLabels};

// === impl Reporter ===

impl Reporter {
    pub(super) fn link_up(&self, role: Role, version: &[u8]) {
        self.link_state(role, 1);
        let broker = String::from_utf8_lossy(version);
        let node = self.node.as_ref().map(display);
        info!(link = role.as_str(), node, %broker, "link is up");
        let version = Version::parse(version);
        self.metrics.broker_is(version);
        if version.is_some_and(Version::is_unknown) {
            let (major, minor) = Version::NEWEST;
            let treated_as = format_args!("{major}.{minor}");
            seldom!(self, Level::WARN, "the broker is newer than those that the proxy was tested with, and is treated as the newest of these", None, "newer", %broker, %treated_as);
        }
    }

    pub(super) fn link_down(&self, role: Role, cause: &str) {
        let was_up = self.link_state(role, 0) == 1;
        let inner = self.metrics.inner();
        inner
            .link_failures
            .get_or_create(&LinkLabels::new(&inner.names.vhost(&self.vhost), role))
            .inc();
        match role {
            Role::Publisher => {
                self.vhost_gauge(|inner| &inner.publisher_blocked, 0);
            }
            Role::Intake => {
                self.vhost_gauge(|inner| &inner.intake_consuming, 0);
            }
            Role::Recorder | Role::Pulse | Role::Walk => {}
        }
        let link = role.as_str();
        if was_up {
            let node = self.node.as_ref().map(display);
            warn!(link, node, cause, "link lost");
        } else {
            seldom!(
                self,
                Level::WARN,
                "link cannot be opened",
                Some(&self.vhost),
                link,
                link,
                cause
            );
        }
    }

    pub(super) fn intake_works(&self) {
        self.vhost_gauge(|inner| &inner.vhost_native, 0);
    }

    /// Of other refusals the closed channel tells.
    pub(super) fn intake_refused(&self, code: u16, cause: &str) {
        if code == ACCESS_REFUSED {
            self.vhost_native(cause);
        }
    }

    pub(super) fn vhost_native(&self, cause: &str) {
        // Each link finds out. Where the proxy is not ready for that, an error says so.
        let is_news = self.vhost_gauge(|inner| &inner.vhost_native, 1) == 0;
        if is_news && !self.is_awaited {
            warn!(
                cause,
                "the proxy's user may not use this vhost: its queues stay native"
            );
        }
    }

    pub(super) fn other_user(&self, user: Option<&ShortStr>) {
        let is_there = i64::from(user.is_some());
        let was_there = self.vhost_gauge(|inner| &inner.other_user, is_there) == 1;
        match user {
            Some(user) => {
                error!(other = %user, "proxies with another user work in this vhost: each parks what the other ones delay or park, as `implausible`. Give all of them the same user, or each user a `prefix`");
            }
            None if was_there => info!("no proxies with another user work in this vhost any more"),
            None => {}
        }
    }

    pub(super) fn blocked(&self, blocked: bool) {
        self.vhost_gauge(|inner| &inner.publisher_blocked, blocked.into());
        if blocked {
            warn!("the broker blocks the publisher (a memory or disk alarm): dead letters wait");
        } else {
            info!("the broker unblocked the publisher");
        }
    }

    pub(super) fn channel_closed(&self, role: Role, cause: &str) {
        self.count_closed(role);
        seldom!(
            self,
            Level::WARN,
            "the broker closed a channel of a link",
            None,
            role.as_str(),
            link = role.as_str(),
            cause
        );
    }

    pub(super) fn internal_exchange(&self, exchange: &ShortStr) {
        self.count_closed(Role::Publisher);
        seldom!(self, Level::INFO, "the dead-letter exchange is internal: it is reached over a bridge", Some(exchange), "", %exchange);
    }

    pub(super) fn target_convicted(&self, exchange: &ShortStr, routing_key: &ShortStr) {
        seldom!(self, Level::WARN, "dead letters to this target close the publisher's connection: they are tried alone, and parked after retry-for", Some(exchange), "", %exchange, %routing_key);
    }

    fn count_closed(&self, role: Role) {
        let inner = self.metrics.inner();
        inner
            .link_channels_closed
            .get_or_create(&LinkLabels::new(&inner.names.vhost(&self.vhost), role))
            .inc();
    }

    pub(super) fn consuming(&self, consuming: bool) {
        self.vhost_gauge(|inner| &inner.intake_consuming, consuming.into());
        info!(consuming, "intake consumer");
    }

    pub(super) fn parked_tried(&self, moved: usize, waiting: usize, staying: usize) {
        let gauge = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.vhost_gauge(|inner| &inner.parked_waiting, gauge(waiting));
        self.vhost_gauge(|inner| &inner.parked_staying, gauge(staying));
        if moved > 0 {
            let inner = self.metrics.inner();
            let vhost = inner.names.vhost(&self.vhost);
            let labels = VhostLabels { vhost };
            inner
                .parked_moved
                .get_or_create(&labels)
                .inc_by(moved as u64);
            info!(
                moved,
                waiting, staying, "parked messages went to their targets"
            );
        } else if waiting + staying > 0 {
            debug!(waiting, staying, "parked messages were tried again");
        }
    }

    pub(super) fn intake_exchanges(&self, number: usize) {
        self.vhost_gauge(
            |inner| &inner.intake_exchanges,
            i64::try_from(number).unwrap_or(i64::MAX),
        );
        debug!(number, "intake exchanges");
    }

    /// Answers with the state before.
    fn link_state(&self, role: Role, up: i64) -> i64 {
        let inner = self.metrics.inner();
        inner
            .link_up
            .get_or_create(&LinkLabels::new(&inner.names.vhost(&self.vhost), role))
            .set(up)
    }
}
