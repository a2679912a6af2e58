//! Turns each fact of the core into one log line and one counter: the one place that decides how loud a fact is. `error`: someone must act;
//! `warn`: degraded and handled; `info`: life cycle; `debug`: one session; `trace`: one message. No bodies, no credentials. Lines that every
//! message would repeat are written once a minute.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use tracing::field::{Empty, display};
use tracing::{Level, Span, debug, error, error_span, info, trace, warn};

use super::metrics::{
    CauseLabels, DeadLetterLabels, FallbackLabels, Inner, KindLabels, LegLabels, Metrics,
    RetryLabels, UndeliveredLabels, VhostGauge, VhostLabels,
};
use super::names;
use crate::amqp::ids::{ShortStr, Vhost};
use crate::machine::{Cause, DeadLetter, Event, Fallback, Leg, Limit, Outcome};
use crate::net::dial::Refused;
use crate::net::nodes::Address;
use crate::net::proxy_protocol::BadHeader;
use crate::tls::words::Failure;

/// Reports the facts of one machine, with the connection or the vhost that they are about.
#[derive(Debug)]
pub struct Reporter {
    metrics: Metrics,
    vhost: Vhost,
    user: Option<ShortStr>,
    /// Where a link leads, or led.
    node: Option<Address>,
    /// The proxy is ready only while this works.
    is_awaited: bool,
    span: Span,
}

/// Writes a line with the level that a fact has, unless the same was written within a minute.
macro_rules! seldom {
    ($self:ident, $level:expr, $what:literal, $where:expr, $cause:expr, $($fields:tt)*) => {
        if let Some(held_back) = $self.seldom($what, $where, $cause) {
            let held_back = (held_back > 0).then_some(held_back);
            match $level {
                Level::ERROR => error!($($fields)*, held_back, $what),
                Level::WARN => warn!($($fields)*, held_back, $what),
                _ => info!($($fields)*, held_back, $what),
            }
        }
    };
}

mod links;
mod redeclared;

// === impl Reporter ===

impl Reporter {
    /// For a client's session. Vhost, user and connection name are filled in when the session knows them.
    pub fn session(metrics: Metrics, peer: impl fmt::Display) -> Self {
        // The level of a span says only whether lines inside have it: always.
        let span = error_span!("session", %peer, node = Empty, vhost = Empty, user = Empty, connection = Empty);
        Self {
            metrics,
            vhost: Vhost::EMPTY,
            user: None,
            node: None,
            is_awaited: false,
            span,
        }
    }

    /// For the proxy's own links of a vhost.
    pub fn link(metrics: Metrics, vhost: Vhost) -> Self {
        let span = error_span!("link", %vhost);
        Self {
            metrics,
            vhost,
            user: None,
            node: None,
            is_awaited: false,
            span,
        }
    }

    /// Whether the proxy is ready only while the link works.
    pub fn awaited(self, is_awaited: bool) -> Self {
        Self { is_awaited, ..self }
    }

    /// A client's session leads to this node from now on.
    pub fn connected(&self, node: &Address) {
        self.span.record("node", display(node));
    }

    /// The link leads to this node from now on.
    pub fn linked(&mut self, node: Option<Address>) {
        self.node = node;
    }

    pub fn report(&mut self, event: &Event) {
        let span = self.span.clone();
        let _inside = span.enter();
        match event {
            Event::SessionOpened { vhost, user, name } => {
                self.session_opened(vhost, user.as_ref(), name.as_deref())
            }
            Event::QueueManaged { queue, taken_over } => self.queue_managed(queue, *taken_over),
            Event::Redeclared {
                queue,
                before,
                now,
                own,
            } => self.redeclared(queue, before, now, own.as_ref()),
            Event::RejectsOnly { queue, now, own } => self.rejects_only(queue, now, own),
            Event::NotRecorded { queue } => self.not_recorded(queue),
            Event::RecordUnread { cause } => self.record_unread(cause),
            Event::RecordForeign { messages } => self.record_foreign(*messages),
            Event::DeclareLeft { queue, cause } => {
                self.metrics.declare_left(&self.vhost, queue, Some(*cause));
                self.fell_back("declare", queue, *cause);
            }
            Event::RejectForwarded { queue, cause } => self.fell_back("reject", queue, *cause),
            Event::ReturnForwarded { queue, cause } => self.fell_back("return", queue, *cause),
            Event::CrashNotCounted { queue, cause } => self.crash_not_counted(queue, *cause),
            Event::RetriesInVain { queue, problem } => {
                seldom!(self, Level::WARN, "arguments of a queue ask for retries in vain", Some(queue), "", %queue, problem)
            }
            Event::GoesWithMessages { queue, problem } => {
                seldom!(self, Level::WARN, "a queue goes with the messages that wait in it", Some(queue), "", %queue, problem)
            }
            Event::StillWaiting { queue, deleted } => {
                let request = if *deleted { "delete" } else { "purge" };
                seldom!(self, Level::WARN, "messages that wait for a retry are not in the queue that was purged or deleted, and come back: `dlx-proxy retries purge` removes them", Some(queue), request, %queue, request)
            }
            Event::Retried {
                queue,
                delay,
                outcome,
            } => self.retried(queue, *delay, *outcome),
            Event::CameBack { queue } => self.came_back(queue),
            Event::Redriven { queue, outcome } => self.redriven(queue, *outcome),
            Event::Kept {
                queue,
                returned,
                cause,
            } => self.kept(queue, *returned, *cause),
            Event::KeptReturned { queue } => self.kept_returned(queue),
            Event::NotRetained { queue, limit } => {
                self.metrics.limit_met(*limit);
                self.fell_back("delivery", queue, Fallback::Budget);
            }
            Event::LimitMet(limit) => self.metrics.limit_met(*limit),
            Event::ExternalRefused => self.external_refused(),
            Event::NameRefused { name } => self.name_refused(name),
            Event::DeadLetter(dead) => self.dead_letter(dead),
            Event::EditDropped => self.edit_dropped(),
            Event::DeliveryTimeDropped { queue } => {
                self.metrics.limit_met(Limit::DeliveryTime);
                seldom!(self, Level::WARN, "a message goes on without its x-opt-delivery-time, which is more than 100 years ahead", Some(queue), "", %queue)
            }
            Event::LinkUp { role, version } => self.link_up(*role, version),
            Event::LinkDown { role, cause } => self.link_down(*role, cause),
            Event::VhostNative { cause } => self.vhost_native(cause),
            Event::Blocked(blocked) => self.blocked(*blocked),
            Event::ChannelClosed { role, cause } => self.channel_closed(*role, cause),
            Event::InternalExchange { exchange } => self.internal_exchange(exchange),
            Event::TargetConvicted {
                exchange,
                routing_key,
            } => self.target_convicted(exchange, routing_key),
            Event::Consuming(consuming) => self.consuming(*consuming),
            Event::IntakeWorks => self.intake_works(),
            Event::IntakeRefused { code, cause } => self.intake_refused(*code, cause),
            Event::HandedOver => {
                warn!("nothing can be published: the intake queue is left to other proxies")
            }
            Event::IntakeExchanges(number) => self.intake_exchanges(*number),
            Event::ParkedTried {
                moved,
                waiting,
                staying,
                ..
            } => self.parked_tried(*moved, *waiting, *staying),
            Event::OwnQueue {
                queue,
                witness,
                trouble,
            } => (self.metrics).own_queue(&self.vhost, queue, *witness, trouble.clone()),
            Event::OtherUser(user) => self.other_user(user.as_ref()),
            Event::OwnQueueGone { queue } => self.metrics.own_queue_gone(&self.vhost, queue),
            Event::ProbeOverLimit => self.probe_over_limit(),
            Event::ProtocolFault { leg, what } => self.protocol_fault(*leg, what),
        }
    }

    /// Writes that a client was refused because the broker could not be reached. Clients connect again and again until it can, so seldom.
    pub fn client_refused(&self, Refused { node, error }: &Refused) {
        let _inside = self.span.enter();
        let broker = node.as_ref().map(display);
        seldom!(self, Level::WARN, "client refused: the broker cannot be reached", None, "", broker, %error);
    }

    /// Writes and counts that a client was refused because its connection did not begin with a PROXY header.
    pub fn header_refused(&self, error: &BadHeader) {
        let _inside = self.span.enter();
        self.metrics.inner().proxy_headers_refused.inc();
        if let BadHeader::Late = error {
            self.metrics.limit_met(Limit::HandshakeTimeout);
        }
        seldom!(self, Level::WARN, "client refused: its connection to `listen-proxy-protocol` did not begin with a valid PROXY header", None, "", %error);
    }

    /// Writes and counts that the TLS handshake with a client failed. That is mostly the client's fault, but somebody has to find out why.
    pub fn handshake_failed(&self, error: &io::Error) {
        let _inside = self.span.enter();
        let failure = Failure::of(error);
        let (cause, words) = (failure.as_str(), failure.words());
        self.metrics
            .inner()
            .handshakes_failed
            .get_or_create(&CauseLabels { cause })
            .inc();
        match failure {
            // As a probe of a load balancer does.
            Failure::Ended => {
                debug!(%error, words, "the TLS handshake with a client failed")
            }
            _ => {
                seldom!(self, Level::INFO, "the TLS handshake with a client failed", None, cause, words, %error)
            }
        }
    }

    fn external_refused(&self) {
        self.metrics.inner().externals_refused.inc();
        seldom!(
            self,
            Level::WARN,
            "client refused: it chose EXTERNAL, and the broker would log it in as the user of the proxy's own certificate",
            None,
            "",
            mechanism = "EXTERNAL"
        );
    }

    fn session_opened(&mut self, vhost: &Vhost, user: Option<&ShortStr>, name: Option<&[u8]>) {
        self.vhost = vhost.clone();
        self.span.record("vhost", display(vhost));
        if let Some(user) = user {
            self.span.record("user", display(user));
        }
        self.user = user.cloned();
        if let Some(name) = name {
            self.span
                .record("connection", display(String::from_utf8_lossy(name)));
        }
        debug!("session opened");
    }

    fn queue_managed(&self, queue: &ShortStr, taken_over: bool) {
        let mode = if taken_over { "takeover" } else { "keep" };
        if taken_over {
            self.metrics.declare_left(&self.vhost, queue, None);
        }
        self.metrics
            .inner()
            .queues_managed
            .get_or_create(&KindLabels { mode })
            .inc();
        debug!(%queue, mode, "queue is managed");
    }

    fn fell_back(&self, request: &'static str, queue: &ShortStr, fallback: Fallback) {
        let cause = names::fallback(fallback);
        self.metrics
            .inner()
            .fallbacks
            .get_or_create(&FallbackLabels { request, cause })
            .inc();
        match fallback {
            // What the client or somebody before it chose: nothing is degraded. Of a channel limit `ProbeOverLimit` has told.
            Fallback::NativeQueue
            | Fallback::NotSupported
            | Fallback::Stale
            | Fallback::Forbidden
            | Fallback::ChannelLimit => {
                debug!(%queue, request, cause, "left to the broker");
            }
            // A matter of the user, whatever it declares.
            Fallback::NoPermission => {
                seldom!(self, Level::WARN, "left to the broker: its user may not write to the intake exchange", self.user.as_ref(), cause, %queue, request, cause)
            }
            Fallback::Undeclared => {
                warn!(%queue, "nobody declared the queue here, and it cannot be asked what it is: what is rejected there is left to the broker. `dlx-proxy queues` says what can be done");
            }
            _ => {
                seldom!(self, Level::WARN, "left to the broker", Some(queue), cause, %queue, request, cause)
            }
        }
    }

    fn crash_not_counted(&self, queue: &ShortStr, cause: Fallback) {
        let cause = names::fallback(cause);
        let labels = FallbackLabels {
            request: "crash",
            cause,
        };
        self.metrics.inner().fallbacks.get_or_create(&labels).inc();
        seldom!(self, Level::WARN, "a client was lost, and what it had not settled goes back uncounted", Some(queue), cause, %queue, cause);
    }

    fn kept(&self, queue: &ShortStr, returned: bool, cause: Fallback) {
        let cause = names::fallback(cause);
        let kept = &self.metrics.inner().rejects_kept;
        kept.get_or_create(&CauseLabels { cause }).inc();
        seldom!(self, Level::WARN, "a reject or a return is kept: its message stays unsettled until the proxy can publish it", Some(queue), cause, %queue, returned, cause);
    }

    fn kept_returned(&self, queue: &ShortStr) {
        self.metrics.inner().rejects_returned.inc();
        seldom!(self, Level::WARN, "a message that was kept unsettled went back to its queue", Some(queue), "", %queue);
    }

    fn probe_over_limit(&self) {
        self.metrics.inner().probes_over_limit.inc();
        seldom!(
            self,
            Level::WARN,
            "a probe of the proxy met a limit on channels: the broker closed the client's connection, and the proxy opens no more probes for that user for a day",
            self.user.as_ref(),
            "",
            limit = "max-channels"
        );
    }

    fn name_refused(&self, name: &ShortStr) {
        self.metrics.inner().names_refused.inc();
        seldom!(self, Level::WARN, "a client named an object of the proxy's own and was refused", Some(name), "", %name);
    }

    fn dead_letter(&self, dead: &DeadLetter) {
        let DeadLetter {
            queue,
            reason,
            exchange,
            outcome,
            ..
        } = dead;
        let outcome = *outcome;
        let inner = self.metrics.inner();
        let reason = reason.as_str();
        let (ended, cause) = names::outcome(outcome);
        let (vhost, queue_label) = inner.names.queue(&self.vhost, queue);
        let labels = DeadLetterLabels {
            vhost: vhost.clone(),
            queue: queue_label,
            reason,
            outcome: ended,
        };
        inner.dead_letters.get_or_create(&labels).inc();
        let Some(cause) = cause else {
            return trace!(%queue, reason, %exchange, "dead letter confirmed");
        };
        let name = cause.as_str();
        inner
            .undelivered
            .get_or_create(&UndeliveredLabels {
                vhost,
                outcome: ended,
                cause: name,
            })
            .inc();
        match outcome {
            Outcome::Confirmed => {}
            Outcome::Parked(_) => {
                seldom!(self, Level::WARN, "dead letter parked", Some(queue), name, %queue, reason, %exchange, cause = name);
            }
            Outcome::Dropped(_) => {
                seldom!(self, Level::WARN, "dead letter dropped", Some(queue), name, %queue, reason, %exchange, cause = name);
            }
            Outcome::Refused(cause) => {
                // A message that even the parking queue does not take closes connections until somebody looks at it.
                let level = if cause == Cause::Poison {
                    Level::ERROR
                } else {
                    Level::WARN
                };
                seldom!(self, level, "dead letter not published", Some(queue), name, %queue, reason, %exchange, cause = name);
            }
        }
    }

    fn retried(&self, queue: &ShortStr, delay: Duration, outcome: Outcome) {
        let (ended, cause) = names::outcome(outcome);
        let labels = self.retry_labels(queue, ended);
        self.metrics.inner().retries.get_or_create(&labels).inc();
        match cause.map(Cause::as_str) {
            None => trace!(%queue, ?delay, "message waits for a retry"),
            Some(cause) if outcome == Outcome::Refused(Cause::QueueFull) => {
                seldom!(self, Level::WARN, "a message that comes back finds no room in its queue: it waits, and is not counted", Some(queue), cause, %queue, cause);
            }
            Some(cause) => {
                seldom!(self, Level::WARN, "a message could not be published to its delay queue: it stays unsettled, or is parked if it had waited in a delay queue before", Some(queue), cause, %queue, ?delay, cause);
            }
        }
    }

    fn came_back(&self, queue: &ShortStr) {
        let labels = self.retry_labels(queue, "returned");
        self.metrics.inner().retries.get_or_create(&labels).inc();
        trace!(%queue, "message is back in its queue");
    }

    fn redriven(&self, queue: &ShortStr, outcome: Outcome) {
        let vhost = self.metrics.inner().names.vhost(&self.vhost);
        let (outcome, cause) = names::outcome(outcome);
        let labels = names::RedriveLabels { vhost, outcome };
        self.metrics.inner().redriven.get_or_create(&labels).inc();
        trace!(%queue, outcome, cause = cause.map(Cause::as_str), "dead letter was sent back");
    }

    fn retry_labels(&self, queue: &ShortStr, outcome: &'static str) -> RetryLabels {
        let (vhost, queue) = self.metrics.inner().names.queue(&self.vhost, queue);
        RetryLabels {
            vhost,
            queue,
            outcome,
        }
    }

    fn edit_dropped(&self) {
        self.metrics.inner().edits_dropped.inc();
        debug!("a header of the proxy's own would not fit the frame and was dropped");
    }

    fn protocol_fault(&self, leg: Leg, what: &'static str) {
        let (leg, level) = match leg {
            Leg::Client => ("client", Level::INFO), // a client's own affair
            Leg::Broker => ("broker", Level::WARN),
        };
        self.metrics
            .inner()
            .protocol_faults
            .get_or_create(&LegLabels { leg })
            .inc();
        seldom!(self, level, "fault of the protocol", None, what, leg, what);
    }

    fn vhost_gauge(&self, gauge: impl Fn(&Inner) -> &VhostGauge, value: i64) -> i64 {
        let inner = self.metrics.inner();
        gauge(inner)
            .get_or_create(&VhostLabels {
                vhost: inner.names.vhost(&self.vhost),
            })
            .set(value)
    }

    fn seldom(
        &self,
        what: &'static str,
        place: Option<&ShortStr>,
        cause: &'static str,
    ) -> Option<u64> {
        let place = place
            .map(|name| format!("{}/{name}", self.vhost))
            .unwrap_or_default();
        self.metrics
            .inner()
            .repeats
            .write((what, place, cause), Instant::now())
    }
}

#[cfg(test)]
mod tests;
