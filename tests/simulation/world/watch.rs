//! What is looked at after each step, and when it is over.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use dlx_proxy::machine::{Cause, DeadLetter, Event, Fallback, Limit, Outcome};
use dlx_proxy::objects::OwnObject;
use regex::{Captures, Regex};

use super::super::accounts::alterations::is_its_own;
use super::super::accounts::id;
use super::super::client::PUBLISHING;
use super::super::codec::frame::Frame;
use super::super::codec::value::{Bytes, Value};
use super::super::model::Broker;
use super::super::net::Micros;
use super::super::plan;
use super::super::proxy::{Proxy, Which, names};
use super::{HEALED_WITHIN, Phase, STEPS_AT_MOST, World};

impl World {
    /// What a client saw is what the broker sent, in its order; only what the proxy asked for itself is missing.
    pub(super) fn compare(&mut self, at: usize) -> Result<(), String> {
        let client = &mut self.clients[at];
        let conn = self.behind.get(&client.id);
        for said in client.said.drain(..) {
            if let Some(conn) = conn {
                self.accounts.said(*conn, said, self.at)?;
            }
        }
        let peer = self
            .peers
            .values_mut()
            .find(|peer| peer.client == Some(client.id));
        let Some(peer) = peer else { return Ok(()) };
        for (channel, frame, looked) in client.seen.drain(..) {
            if let Some(conn) = conn.filter(|_| looked && is_delivery(&frame)) {
                self.accounts.saw((*conn, channel), &frame, self.at)?;
            }
            if let (Some(conn), "queue.declare-ok") = (conn, &*frame.name) {
                let queue = frame.arg("queue").map(|queue| queue.text().to_vec());
                let queue = queue.unwrap_or_default();
                self.accounts.answered(*conn, channel, &queue, self.at)?;
                if channel == PUBLISHING {
                    self.accounts.saw_declared(*conn, &queue, self.at);
                }
            }
            if let (Some(conn), "queue.unbind-ok") = (conn, &*frame.name) {
                self.accounts.is_extended(*conn, channel, self.at);
            }
            if frame.name.starts_with("connection.close") && self.dismissed.contains(&client.id) {
                continue;
            }
            // They have the client's own numbers, then: the accounts judge them.
            let delays = !self.plan.delays.is_empty();
            if delays && frame.confirms().is_some() {
                continue;
            }
            let hidden = |name: &str| {
                may_be_hidden(name) || delays && matches!(name, "basic.ack" | "basic.nack")
            };
            let wanted = gist(&frame);
            let sent = peer.sent.entry(channel).or_default();
            loop {
                match sent.pop_front() {
                    Some(gist) if gist == wanted => break,
                    // Of a verdict, which the broker does not see.
                    Some((name, ..))
                        if name == "channel.flow-ok" && wanted.0 == "queue.unbind-ok" =>
                    {
                        break;
                    }
                    Some((name, ..)) if hidden(&name) => {}
                    other => {
                        return Err(format!(
                            "client {} saw {} on channel {channel}, the broker sent {other:?}",
                            client.id, wanted.0
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn look(&mut self) -> Result<(), String> {
        for at in 0..self.clients.len() {
            self.compare(at)?;
        }
        let proxies = self.proxies.iter_mut().enumerate();
        let events = proxies.flat_map(|(at, proxy)| {
            let events = proxy.as_mut().map(Proxy::take_events);
            let events = events.into_iter().flatten();
            events.map(move |(which, event)| (at, which, event))
        });
        for (at, which, event) in events.collect::<Vec<_>>() {
            self.note(|| format!("    {which:?}: {event:?}"));
            self.parked(which, &event)?;
            match event {
                Event::Published { outcome, .. } => self.published(outcome),
                Event::NotRecorded { queue } => self.accounts.not_recorded(&queue),
                Event::RecordUnread { .. } => self.accounts.does_without_record(at),
                Event::DeadLetter(dead) => match dead.outcome {
                    Outcome::Dropped(Cause::NoTarget) => {
                        self.accounts.unroutable += 1;
                        let (accounts, now) = (&mut self.accounts, self.at);
                        accounts.dropped_without_target(at, &dead.queue, now)?;
                    }
                    Outcome::Dropped(Cause::Cycle) => self.accounts.cycles += 1,
                    Outcome::Dropped(_) => self.accounts.unroutable += 1,
                    // It may be at its target too.
                    Outcome::Parked(Cause::TargetBusy | Cause::TimedOut) => {
                        self.accounts.fault(self.at);
                    }
                    _ => {}
                },
                Event::LimitMet(Limit::ConfirmTimeout) => {
                    self.troubles.late_confirm();
                    self.accounts.fault(self.at);
                }
                Event::LimitMet(Limit::CloseWait) => self.accounts.impatient = true,
                Event::NotRetained { queue, .. } => {
                    self.accounts.forwarded(&queue);
                    self.accounts.leaves(&queue);
                }
                Event::ReturnForwarded { queue, cause } => {
                    self.accounts.forwarded(&queue);
                    if matches!(cause, Fallback::CloseWait | Fallback::Refused(_)) {
                        self.accounts.fault(self.at);
                    }
                }
                Event::Kept {
                    queue,
                    returned: true,
                    ..
                } => self.accounts.keeps(&queue),
                Event::KeptReturned { queue } => {
                    self.accounts.forwarded(&queue);
                    self.accounts.fault(self.at);
                }
                Event::Retried {
                    outcome: Outcome::Refused(Cause::QueueFull),
                    ..
                } => self.accounts.fault(self.at),
                Event::RejectForwarded { queue, cause } => {
                    self.accounts.leaves(&queue);
                    if matches!(cause, Fallback::CloseWait | Fallback::Refused(_)) {
                        self.accounts.fault(self.at);
                    }
                }
                Event::DeclareLeft { queue, cause } => {
                    self.accounts.does_not_know(at, &queue, cause);
                    // What nobody declared here was not left as it was.
                    self.accounts.declares_left |= cause != Fallback::Undeclared;
                }
                Event::LimitMet(Limit::ProbeTimeout) => {
                    self.accounts.declares_left = true;
                }
                _ => {}
            }
        }
        self.look_for_crashes();
        for proxy in self.proxies.iter().flatten() {
            let wrong = proxy.over_a_bound().or(proxy.sleeps_through(self.at));
            if let Some(what) = wrong {
                return Err(what);
            }
        }
        for fact in self.broker.facts() {
            self.note(|| format!("    {}", readable(&format!("{fact:?}"))));
            self.is_not_lost(&fact)?;
            self.accounts.fact(&fact, self.at)?;
        }
        self.look_at_walks()?;
        self.look_at_alterations()?;
        self.clear_the_way();
        self.consumers_let_go()?;
        self.consumers_go_on()
    }

    /// A delayed publish on its way.
    fn published(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Dropped(_) => self.accounts.unroutable += 1,
            Outcome::Parked(Cause::TargetBusy | Cause::TimedOut) => self.accounts.fault(self.at),
            // What the intake has is parked then.
            Outcome::Refused(_) => self.accounts.given_up += 1,
            Outcome::Parked(_) | Outcome::Confirmed => {}
        }
    }

    /// Clients that their sessions may know to be lost.
    pub(super) fn look_for_crashes(&mut self) {
        for client in &self.clients {
            if (client.is_gone() || self.net.is_cut(client.tcp))
                && let Some(conn) = self.behind.get(&client.id)
            {
                let broker = &self.broker;
                // One that the broker has closed may be open to the session for a while.
                let open = |(conn, channel, tag)| {
                    let there = broker.has_channel(conn, channel);
                    !there || broker.unacked(conn, channel).contains(&tag)
                };
                self.accounts.crashed(*conn, open, self.at);
            }
        }
    }

    /// What is parked has a reason; and where nothing is wrong but what passes by itself, that is not one.
    fn parked(&mut self, which: Which, event: &Event) -> Result<(), String> {
        if let Event::Retried {
            queue,
            outcome: Outcome::Refused(cause),
            ..
        } = event
        {
            match cause {
                Cause::PublisherAway => self.accounts.publisher_away(queue),
                _ => self.accounts.given_up += 1,
            }
            self.accounts.count.refused += 1;
        }
        let Event::DeadLetter(dead) = event else {
            return Ok(());
        };
        let DeadLetter {
            outcome,
            queue,
            exchange,
            ..
        } = &**dead;
        let is_missing = **exchange == *plan::MISSING.as_bytes();
        match (which, outcome) {
            (Which::Intake, Outcome::Parked(_)) => self.accounts.given_up += 1,
            (Which::Publisher, Outcome::Refused(Cause::PublisherAway)) => {
                self.accounts.publisher_away(queue);
            }
            (Which::Publisher, Outcome::Refused(_)) => self.accounts.given_up += 1,
            (
                Which::Publisher,
                Outcome::Parked(
                    Cause::Unroutable
                    | Cause::NoExchange
                    | Cause::NoTarget
                    | Cause::TargetUnknown
                    | Cause::Forbidden
                    | Cause::Cycle,
                ),
            ) => {}
            // While others that are parked for it wait for their confirms.
            (Which::Publisher, Outcome::Parked(Cause::TargetBusy)) if is_missing => {}
            (Which::Publisher, Outcome::Parked(Cause::TargetBusy | Cause::TimedOut))
                if self.troubles.is_slow() => {}
            (Which::Publisher, Outcome::Parked(cause))
                if self.troubles.only_outages() && !self.plan.refuses() =>
            {
                return Err(format!("{cause:?}: parked from {queue} without a cause"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Over, when nothing is under way any more; in time.
    pub(super) fn judge_end(&mut self) -> Result<(), String> {
        let Phase::WindingUp { since } = self.phase else {
            return Ok(());
        };
        if !self.steps.is_multiple_of(64) {
            return Ok(());
        }
        let quiet = self.is_quiet(since + HEALED_WITHIN);
        let is_altering = !self.has_no_alterations();
        self.pace = match quiet {
            true if is_altering => 5_000,
            true if self.waits_for_walks() => 100_000,
            _ => 1_000,
        };
        if quiet && self.has_no_walks() && !is_altering {
            self.settled_after = self.at - since;
            self.phase = Phase::Over;
            return self.accounts.balance(&self.copies());
        }
        if self.at - since > HEALED_WITHIN || self.steps > STEPS_AT_MOST {
            return Err(format!(
                "not settled {} s after the last fault: {}",
                (self.at - since) / 1_000_000,
                self.open()
            ));
        }
        Ok(())
    }

    /// What is to come back later than that is not waited for.
    fn is_quiet(&mut self, until: Micros) -> bool {
        let intake = names().intake_queue().to_string();
        let empty =
            |broker: &Broker, queue: &str| broker.queue(queue).is_none_or(|queue| queue.is_empty());
        self.broker.jobs() == 0
            && self.proxies.iter().flatten().all(Proxy::is_quiet)
            && empty(&self.broker, &intake)
            && self.broker.queue_names().iter().all(|queue| {
                let queue = String::from_utf8_lossy(queue);
                let mut held = self.broker.queue(&queue).into_iter().flatten();
                !queue.starts_with("dlx-proxy.delay.")
                    || held.all(|message| self.accounts.stays_away(message.copy, until))
            })
            && !self.is_parked_in_vain()
            && self.proxies_agree()
            && self
                .plan
                .sources
                .iter()
                .all(|queue| empty(&self.broker, queue))
            && self
                .clients
                .iter()
                .all(|client| client.unanswered().is_empty())
    }

    /// What the last declares said counts in all proxies.
    fn proxies_agree(&self) -> bool {
        let mut all = self.proxies.iter().flatten().map(Proxy::redeclared);
        let first = all.next();
        all.all(|redeclared| Some(redeclared) == first)
    }

    /// Something is parked that the proxy could bring to its target. After the broker closed a connection on which it was fetching, it does not try
    /// for an hour.
    fn is_parked_in_vain(&self) -> bool {
        let never = self.settings[0].parked_retry.is_zero();
        if never || self.plan.refuses() || self.troubles.has_closed_connections() {
            return false;
        }
        let parked = self.broker.queue(&names().parking().to_string());
        let bindings = self.broker.bindings();
        let mut parked = parked.into_iter().flatten();
        parked.any(|message| {
            let said = |name| match message.headers().and_then(|of| of.get(name)) {
                Some(Value::Text(text)) => Some(text.as_slice()),
                _ => None,
            };
            let proven = message.property("user-id") == Some(&b"dlx-proxy"[..]);
            let heals = !matches!(
                said("x-parked-cause"),
                Some(b"cycle" | b"poison" | b"implausible" | b"no_target" | b"target_unknown")
            );
            let (exchange, key) = (said("x-parked-exchange"), &message.routing_key);
            let routes = match exchange {
                Some(b"") => self.broker.queue_names().contains(key),
                // What was to come back to its queue alone.
                Some(exchange)
                    if matches!(names().parse(exchange), Some(OwnObject::ReturnExchange(_))) =>
                {
                    bindings.iter().any(|of| of.source == exchange)
                }
                Some(b"fan") => bindings.iter().any(|of| of.source == b"fan"),
                Some(exchange) => bindings
                    .iter()
                    .any(|of| of.source == exchange && of.key == *key),
                None => false,
            };
            proven && heals && routes
        })
    }

    /// What is still under way, for people.
    fn open(&mut self) -> String {
        let mut open = format!(
            "jobs {}, parked in vain {}, proxies agree {}",
            self.broker.jobs(),
            self.is_parked_in_vain(),
            self.proxies_agree()
        );
        for proxy in self.proxies.iter().flatten() {
            let (publisher, intake, sessions) = proxy.held();
            open += &format!(", publisher {publisher}, intake {intake}, sessions {sessions:?}");
        }
        for queue in self
            .plan
            .sources
            .iter()
            .chain([&names().intake_queue().to_string()])
        {
            open += &format!(
                ", {queue} {}",
                self.broker.queue(queue).map_or(0, |queue| queue.len())
            );
        }
        for client in &self.clients {
            open += &format!(
                ", client {} {:?} {:?}",
                client.id,
                client.unanswered(),
                client.open_items()
            );
        }
        open
    }

    fn copies(&self) -> BTreeSet<u64> {
        let mut names = self.broker.queue_names();
        names.retain(|name| !is_its_own(name));
        let queue = |name: &Bytes| self.broker.queue(&String::from_utf8_lossy(name));
        let copies = names.iter().filter_map(queue).flatten();
        copies.map(|message| message.copy).collect()
    }
}

/// What tells a frame from its neighbours.
pub(super) fn gist(frame: &Frame) -> (String, u64, Bytes) {
    let body = frame
        .arg("body")
        .map(|body| id(body.text()))
        .unwrap_or_default();
    (frame.name.clone(), frame.number("delivery-tag"), body)
}

/// Replies to what the proxy asks in a client's stead, or in its own channel's interest.
fn may_be_hidden(name: &str) -> bool {
    name.ends_with("-ok") && name != "basic.get-ok"
}

/// Lists of bytes as the text that they mostly are.
fn readable(debug: &str) -> String {
    static BYTES: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\[([0-9]{1,3}(, [0-9]{1,3})*)\]").expect("a pattern"));
    let text = |found: &Captures<'_>| {
        let bytes = found[1].split(", ").filter_map(|byte| byte.parse().ok());
        let text: Vec<u8> = bytes.take(120).collect();
        format!(
            "\"{}\"",
            String::from_utf8_lossy(&text).trim_end_matches('.')
        )
    };
    BYTES.replace_all(debug, text).into_owned()
}

pub(super) fn gist_line(frame: &Frame) -> String {
    let line = frame.to_string();
    line.chars().take(400).collect()
}

fn is_delivery(frame: &Frame) -> bool {
    matches!(&*frame.name, "basic.deliver" | "basic.get-ok")
}
