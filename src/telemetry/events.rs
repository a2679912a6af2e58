//! Each fact of the core becomes one line ([`facts`]) and one counter. No bodies, no credentials.
//!
//! [`facts`]: super::facts

use std::fmt;
use std::io;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tracing::field::{Empty, display};
use tracing::{Span, debug, error_span, trace};

use super::metrics::{Metrics, Table, number};
use super::series::Series;
use crate::amqp::ids::{ShortStr, Vhost};
use crate::amqp::reply_code::ACCESS_REFUSED;
use crate::amqp::version::Version;
use crate::machine::{Cause, DeadLettersTo, Event, Fallback, Leg, Limit, Outcome, Role};
use crate::net::dial::Refused;
use crate::net::nodes::Address;
use crate::net::proxy_protocol::BadHeader;
use crate::tls::words::Failure;
use dead_letters::Counted;

mod published;

#[derive(Debug)]
pub struct Reporter {
    metrics: Metrics,
    vhost: Vhost,
    user: Option<ShortStr>,
    node: Option<Address>,
    is_awaited: bool,
    span: Span,
    counted: Option<Counted>,
}

/// A line about a queue, an exchange or a user; repeats are counted per name.
macro_rules! about {
    ($self:ident, $fact:ident, $name:expr, $cause:expr $(, $($fields:tt)+)?) => {
        line!($self.metrics, $fact, $self.place($name), $cause $(, $($fields)+)?)
    };
}

macro_rules! plain {
    ($self:ident, $fact:ident, $cause:expr $(, $($fields:tt)+)?) => {
        line!($self.metrics, $fact, String::new(), $cause $(, $($fields)+)?)
    };
}

// Below its macros.
mod dead_letters;

// === impl Reporter ===

impl Reporter {
    pub fn session(metrics: Metrics, peer: impl fmt::Display) -> Self {
        // The level of a span says only whether lines inside have it: always.
        let span = error_span!("session", %peer, node = Empty, vhost = Empty, user = Empty, connection = Empty);
        Self::new(metrics, Vhost::EMPTY, span)
    }

    pub fn link(metrics: Metrics, vhost: Vhost) -> Self {
        let span = error_span!("link", %vhost);
        Self::new(metrics, vhost, span)
    }

    fn new(metrics: Metrics, vhost: Vhost, span: Span) -> Self {
        Self {
            metrics,
            vhost,
            user: None,
            node: None,
            is_awaited: false,
            span,
            counted: None,
        }
    }

    pub fn awaited(self, is_awaited: bool) -> Self {
        Self { is_awaited, ..self }
    }

    pub fn connected(&self, node: &Address) {
        self.span.record("node", display(node));
    }

    pub fn linked(&mut self, node: Option<Address>) {
        self.node = node;
    }

    pub fn report(&mut self, event: &Event) {
        if !self.counts_again(event) {
            self.tell(event);
        }
    }

    fn tell(&mut self, event: &Event) {
        let span = self.span.clone();
        let _inside = span.enter();
        match event {
            Event::SessionOpened { vhost, user, name } => {
                self.session_opened(vhost, user.as_ref(), name.as_deref())
            }
            Event::QueueManaged { queue, taken_over } => self.queue_managed(queue, *taken_over),
            Event::DeclareLeft { queue, cause } => {
                self.metrics.declare_left(&self.vhost, queue, Some(*cause));
                self.fell_back("declare", queue, *cause);
            }
            Event::RejectForwarded { queue, cause } => self.fell_back("reject", queue, *cause),
            Event::ReturnForwarded { queue, cause } => self.fell_back("return", queue, *cause),
            Event::NotRetained { queue, limit } => {
                self.metrics.limit_met(*limit);
                self.fell_back("delivery", queue, Fallback::Budget);
            }
            Event::LimitMet(limit) => self.metrics.limit_met(*limit),
            Event::DeadLetter(dead) => self.dead_letter(dead),
            Event::Retried {
                queue,
                delay,
                outcome,
            } => self.retried(queue, *delay, *outcome),
            Event::Published { delay, outcome } => self.published(*delay, *outcome),
            Event::TakenBack { queue, timeout } => self.taken_back(queue, *timeout),
            Event::SettledLate => plain!(self, SETTLED_LATE, ""),
            Event::CameBack { queue } => {
                self.count_retry(queue, "returned");
                trace!(%queue, "message is back in its queue");
            }
            Event::Redriven { queue, outcome } => self.redriven(queue, *outcome),
            Event::DeliveryTimeDropped { queue } => {
                self.metrics.limit_met(Limit::DeliveryTime);
                about!(self, DELIVERY_TIME_DROPPED, queue, "", %queue);
            }
            Event::Kept {
                queue,
                returned,
                cause,
            } => {
                let cause = cause.as_str();
                self.metrics.rejects_kept.with([cause.into()]).inc();
                about!(self, KEPT, queue, cause, %queue, returned, cause);
            }
            Event::CrashNotCounted { queue, cause } => {
                let cause = cause.as_str();
                self.metrics
                    .fallbacks
                    .with(["crash".into(), cause.into()])
                    .inc();
                about!(self, CRASH_NOT_COUNTED, queue, cause, %queue, cause);
            }
            event => self.of_link(event),
        }
    }

    fn taken_back(&mut self, queue: &ShortStr, timeout: Duration) {
        let (vhost, name) = self.metrics.inner().names.queue(&self.vhost, queue);
        self.metrics.ack_timeouts.with([vhost, name]).inc();
        about!(self, TAKEN_BACK, queue, "", %queue, ?timeout);
    }

    /// Those of the proxy's own links and queues.
    fn of_link(&mut self, event: &Event) {
        match event {
            Event::LinkUp { role, version } => self.link_up(*role, version),
            Event::LinkDown { role, cause } => self.link_down(*role, cause),
            Event::VhostNative { cause } => self.vhost_native(cause),
            Event::IntakeWorks => drop(self.set(|table| &table.vhost_native, 0)),
            // Of other refusals the closed channel tells.
            Event::IntakeRefused {
                code: ACCESS_REFUSED,
                cause,
            } => self.vhost_native(cause),
            Event::IntakeRefused { .. } => {}
            Event::OtherUser(user) => self.other_user(user.as_ref()),
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
            } => {
                self.metrics
                    .own_queue(&self.vhost, queue, *witness, trouble.clone());
            }
            Event::OwnQueueGone { queue } => self.metrics.own_queue_gone(&self.vhost, queue),
            Event::Blocked(blocked) => {
                self.set(|table| &table.publisher_blocked, (*blocked).into());
                match blocked {
                    true => plain!(self, BLOCKED, ""),
                    false => plain!(self, UNBLOCKED, ""),
                }
            }
            Event::ChannelClosed { role, cause } => {
                let link = role.as_str();
                plain!(self, CHANNEL_CLOSED, link, link, cause);
            }
            Event::Consuming(consuming) => {
                self.set(|table| &table.intake_consuming, (*consuming).into());
                plain!(self, CONSUMING, "", consuming);
            }
            Event::HandedOver => plain!(self, HANDED_OVER, ""),
            Event::IntakeExchanges(number) => debug!(number, "intake exchanges"),
            event => self.write(event),
        }
    }

    fn write(&self, event: &Event) {
        match event {
            Event::PrefetchOfChannel => plain!(self, PREFETCH_OF_CHANNEL, ""),
            Event::DeclareDiffers {
                queue,
                argument,
                wanted,
                has,
            } => {
                let wanted = wanted.as_deref().unwrap_or("none");
                let has = has.as_deref().unwrap_or("none");
                about!(self, DECLARE_DIFFERS, queue, "", %queue, %argument, wanted, has)
            }
            Event::Redeclared {
                queue,
                before,
                now,
                own,
            } => self.redeclared(queue, before, now, own.as_ref()),
            Event::RejectsOnly { queue, now, own } => {
                about!(self, REJECTS_ONLY, queue, "", %queue, %now, %own)
            }
            Event::NotRecorded { queue } => about!(self, NOT_RECORDED, queue, "", %queue),
            Event::RecordUnread { cause } => plain!(self, RECORD_UNREAD, "", cause),
            Event::RecordForeign { messages } => plain!(self, RECORD_FOREIGN, "", messages),
            Event::RetriesInVain { queue, problem } => {
                about!(self, RETRIES_IN_VAIN, queue, "", %queue, problem)
            }
            Event::GoesWithMessages { queue, problem } => {
                about!(self, GOES_WITH_MESSAGES, queue, "", %queue, problem)
            }
            Event::StillWaiting { queue, deleted } => {
                let request = if *deleted { "delete" } else { "purge" };
                about!(self, STILL_WAITING, queue, request, %queue, request);
            }
            Event::KeptReturned { queue } => about!(self, KEPT_RETURNED, queue, "", %queue),
            Event::ExternalRefused => plain!(self, EXTERNAL_REFUSED, "", mechanism = "EXTERNAL"),
            Event::NameRefused { name } => about!(self, NAME_REFUSED, name, "", %name),
            Event::VerdictUnused { queue, cause } => {
                let cause = cause.as_str();
                about!(self, VERDICT_UNUSED, queue, cause, %queue, cause)
            }
            Event::EditDropped => plain!(self, EDIT_DROPPED, ""),
            Event::InternalExchange { exchange } => {
                about!(self, INTERNAL_EXCHANGE, exchange, "", %exchange)
            }
            Event::TargetClosesConnection {
                exchange,
                routing_key,
            } => {
                about!(self, CLOSES_CONNECTION, exchange, "", %exchange, %routing_key);
            }
            Event::ProbeOverLimit => {
                let user = &self.user.clone().unwrap_or_default();
                about!(self, PROBE_OVER_LIMIT, user, "", limit = "max-channels");
            }
            Event::ProtocolFault {
                leg: Leg::Client,
                what,
            } => plain!(self, CLIENT_FAULT, what, what),
            Event::ProtocolFault {
                leg: Leg::Broker,
                what,
            } => plain!(self, BROKER_FAULT, what, what),
            _ => {}
        }
    }

    /// The broker could not be reached. Rarely logged, because clients reconnect again and again.
    pub fn client_refused(&self, Refused { node, error }: &Refused) {
        let _inside = self.span.enter();
        let broker = node.as_ref().map(display);
        plain!(self, CLIENT_REFUSED, "", broker, %error);
    }

    pub fn header_refused(&self, error: &BadHeader) {
        let _inside = self.span.enter();
        if let BadHeader::Late = error {
            self.metrics.limit_met(Limit::HandshakeTimeout);
        }
        plain!(self, HEADER_REFUSED, "", %error);
    }

    /// Mostly the client's fault, but operators must find the cause.
    pub fn handshake_failed(&self, error: &io::Error) {
        let _inside = self.span.enter();
        let failure = Failure::of(error);
        let (cause, words) = failure.told();
        match failure {
            Failure::Ended => plain!(self, HANDSHAKE_ENDED, cause, words, %error),
            _ => plain!(self, HANDSHAKE_FAILED, cause, cause, words, %error),
        }
    }

    fn session_opened(&mut self, vhost: &Vhost, user: Option<&ShortStr>, name: Option<&[u8]>) {
        self.vhost = vhost.clone();
        self.span.record("vhost", display(vhost));
        if let Some(user) = user {
            self.span.record("user", display(user));
        }
        self.user = user.cloned();
        if let Some(name) = name {
            let name = String::from_utf8_lossy(name);
            self.span.record("connection", display(name));
        }
        debug!("session opened");
    }

    fn queue_managed(&self, queue: &ShortStr, taken_over: bool) {
        let mode = if taken_over { "full" } else { "rejects-only" };
        if taken_over {
            self.metrics.declare_left(&self.vhost, queue, None);
        }
        debug!(%queue, mode, "queue is managed");
    }

    fn redeclared(
        &self,
        queue: &ShortStr,
        before: &DeadLettersTo,
        now: &DeadLettersTo,
        own: Option<&DeadLettersTo>,
    ) {
        match own {
            None => about!(self, REDECLARED, queue, "", %queue, %before, %now),
            Some(own) => about!(self, REDECLARED_REJECTS, queue, "", %queue, %before, %now, %own),
        }
    }

    fn fell_back(&self, request: &'static str, queue: &ShortStr, fallback: Fallback) {
        let cause = fallback.as_str();
        self.metrics
            .fallbacks
            .with([request.into(), cause.into()])
            .inc();
        match fallback {
            // Of a channel limit `ProbeOverLimit` has told.
            Fallback::NativeQueue
            | Fallback::NotSupported
            | Fallback::Stale
            | Fallback::Forbidden
            | Fallback::ChannelLimit => {
                about!(self, LEFT_ON_PURPOSE, queue, cause, %queue, request, cause)
            }
            // A matter of the user, whatever it declares.
            Fallback::NoPermission => {
                let user = &self.user.clone().unwrap_or_default();
                about!(self, LEFT_NO_PERMISSION, user, cause, %queue, request, cause);
            }
            Fallback::Undeclared => about!(self, UNDECLARED, queue, cause, %queue),
            _ => about!(self, LEFT, queue, cause, %queue, request, cause),
        }
    }

    fn retried(&self, queue: &ShortStr, delay: Duration, outcome: Outcome) {
        let (ended, cause) = outcome.label();
        self.count_retry(queue, ended);
        match cause.map(Cause::as_str) {
            None => trace!(%queue, ?delay, "message waits for a retry"),
            Some(cause) if outcome == Outcome::Refused(Cause::QueueFull) => {
                about!(self, QUEUE_FULL, queue, cause, %queue, cause);
            }
            Some(cause) => about!(self, NOT_DELAYED, queue, cause, %queue, ?delay, cause),
        }
    }

    fn count_retry(&self, queue: &ShortStr, outcome: &'static str) {
        let (vhost, queue) = self.metrics.inner().names.queue(&self.vhost, queue);
        self.metrics
            .retries
            .with([vhost, queue, outcome.into()])
            .inc();
    }

    fn redriven(&self, queue: &ShortStr, outcome: Outcome) {
        let vhost = self.metrics.inner().names.vhost(&self.vhost);
        let (outcome, cause) = outcome.label();
        self.metrics.redriven.with([vhost, outcome.into()]).inc();
        trace!(%queue, outcome, cause = cause.map(Cause::as_str), "dead letter was sent back");
    }

    fn link_up(&self, role: Role, version: &[u8]) {
        self.link_state(role, 1);
        let broker = String::from_utf8_lossy(version);
        let node = self.node.as_ref().map(display);
        let link = role.as_str();
        plain!(self, LINK_UP, link, link, node, %broker);
        let at = self.node.as_ref().map(Address::to_string);
        self.metrics.broker_is(broker.to_string(), at);
        let version = Version::parse(version);
        if version.is_some_and(Version::is_unknown) {
            let (major, minor) = Version::NEWEST;
            let treated_as = format_args!("{major}.{minor}");
            plain!(self, BROKER_NEWER, "", %broker, %treated_as);
        }
    }

    fn link_down(&self, role: Role, cause: &str) {
        // The careful one is there to be closed, and gone when it is needed no more: it has no state.
        let was_up = role == Role::Careful || self.link_state(role, 0) == 1;
        match role {
            Role::Publisher => drop(self.set(|table| &table.publisher_blocked, 0)),
            Role::Intake => drop(self.set(|table| &table.intake_consuming, 0)),
            Role::Careful | Role::Recorder | Role::Pulse | Role::Walk => {}
        }
        let link = role.as_str();
        let vhost = self.metrics.inner().names.vhost(&self.vhost);
        self.metrics.link_failures.with([vhost, link.into()]).inc();
        if was_up {
            let node = self.node.as_ref().map(display);
            plain!(self, LINK_LOST, link, link, node, cause);
        } else {
            about!(self, LINK_NOT_OPENED, &self.vhost, link, link, cause);
        }
    }

    fn vhost_native(&self, cause: &str) {
        // Each link finds out. Where the proxy is not ready for that, an error says so.
        let is_news = self.set(|table| &table.vhost_native, 1) == 0;
        if is_news && !self.is_awaited {
            plain!(self, VHOST_NATIVE, "", cause);
        }
    }

    fn other_user(&self, user: Option<&ShortStr>) {
        let was_there = self.set(|table| &table.other_user, i64::from(user.is_some())) == 1;
        match user {
            Some(user) => plain!(self, OTHER_USER, "", other = %user),
            None if was_there => plain!(self, OTHER_USER_GONE, ""),
            None => {}
        }
    }

    fn parked_tried(&self, moved: usize, waiting: usize, staying: usize) {
        self.set(|table| &table.parked_waiting, number(waiting));
        self.set(|table| &table.parked_staying, number(staying));
        if moved > 0 {
            plain!(self, PARKED_MOVED, "", moved, waiting, staying);
        } else if waiting + staying > 0 {
            debug!(waiting, staying, "parked messages were tried again");
        }
    }

    fn link_state(&self, role: Role, up: i64) -> i64 {
        let vhost = self.metrics.inner().names.vhost(&self.vhost);
        self.metrics
            .link_up
            .with([vhost, role.as_str().into()])
            .set(up)
    }

    /// Returns the previous value.
    fn set(&self, gauge: impl Fn(&Table) -> &Series<Gauge, 1>, value: i64) -> i64 {
        let vhost = self.metrics.inner().names.vhost(&self.vhost);
        gauge(&self.metrics).with([vhost]).set(value)
    }

    fn place(&self, name: &ShortStr) -> String {
        format!("{}/{name}", self.vhost)
    }
}

#[cfg(test)]
mod tests;
