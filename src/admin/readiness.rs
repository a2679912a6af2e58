//! Whether clients should be sent here: listening, the links of the configured vhosts up *now*, and not draining. A value that is handed to
//! those who know (as linkerd's latches); it writes a line whenever the answer changes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::{info, warn};

use crate::amqp::ids::Vhost;
use crate::machine::{Event, Role};
use crate::net::nodes::Nodes;
use crate::telemetry::Metrics;

/// The readiness of one proxy. Clones are the same.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    listening: bool,
    draining: bool,
    /// Only the vhosts of the settings: one that a client names must not make the proxy unready for the others.
    vhosts: BTreeMap<Vhost, Links>,
    /// Where the links lead, to say why they are down.
    nodes: Option<Nodes>,
    /// How the proxy's own queues are.
    metrics: Option<Metrics>,
    /// What was said last.
    said_ready: Option<bool>,
}

/// The links of one vhost.
#[derive(Debug)]
enum Links {
    /// Ours to keep up.
    Ours { publisher: Link, intake: Link },
    /// Our user has no rights there: its queues are native, and no link is expected.
    Native,
}

#[derive(Debug)]
enum Link {
    Opening,
    Up,
    Down(String),
}

// === impl Readiness ===

impl Readiness {
    /// Not ready: neither listening nor connected. Settings are loaded, or there would be no vhosts to name.
    pub fn new(vhosts: impl IntoIterator<Item = Vhost>) -> Self {
        let vhosts = vhosts
            .into_iter()
            .map(|vhost| (vhost, Links::opening()))
            .collect();
        Self(Arc::new(Mutex::new(State {
            listening: false,
            draining: false,
            vhosts,
            nodes: None,
            metrics: None,
            said_ready: None,
        })))
    }

    /// What is known of these nodes is a part of the reasons, while a link is not up; and what is wrong with the proxy's own queues, which are in
    /// these metrics.
    pub fn behind(&self, nodes: Nodes, metrics: Metrics) {
        self.change(|state| (state.nodes, state.metrics) = (Some(nodes), Some(metrics)));
    }

    /// The listener is bound.
    pub fn listening(&self) {
        self.change(|state| state.listening = true);
    }

    /// The process is ending: new clients should go elsewhere.
    pub fn draining(&self) {
        self.change(|state| state.draining = true);
    }

    /// Learns from a fact of a link of this vhost; other facts change nothing.
    pub fn observe(&self, vhost: &Vhost, event: &Event) {
        let learn = |links: &mut Links| match event {
            Event::LinkUp { role, .. } => links.set(*role, Link::Up),
            Event::LinkDown { role, cause } => links.set(*role, Link::Down(cause.clone())),
            Event::VhostNative { .. } => *links = Links::Native,
            _ => {}
        };
        if matches!(
            event,
            Event::LinkUp { .. }
                | Event::LinkDown { .. }
                | Event::VhostNative { .. }
                | Event::OwnQueue { .. }
                | Event::OwnQueueGone { .. }
        ) {
            self.change(|state| state.vhosts.get_mut(vhost).into_iter().for_each(learn));
        }
    }

    /// Why the proxy is not ready, one sentence each; none when it is.
    pub fn reasons(&self) -> Vec<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .reasons()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let reasons = state.reasons();
        let ready = reasons.is_empty();
        match state.said_ready.replace(ready) {
            Some(said) if said == ready => {}
            // Nothing is up yet at start, which is not worth a warning.
            None if !ready => state.said_ready = None,
            _ if ready => info!("ready"),
            _ if state.draining => info!("not ready: draining"),
            _ => warn!(reasons = reasons.join("; "), "not ready"),
        }
    }
}

// === impl State ===

impl State {
    fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if !self.listening {
            reasons.push("not listening yet".to_owned());
        }
        if self.draining {
            reasons.push("draining".to_owned());
        }
        let mut is_away = false;
        for (vhost, links) in &self.vhosts {
            if let Links::Ours { publisher, intake } = links {
                for (role, link) in [(Role::Publisher, publisher), (Role::Intake, intake)] {
                    if !matches!(link, Link::Up) {
                        reasons.push(format!(
                            "the {} link of vhost {vhost} is {link}",
                            role.as_str()
                        ));
                        is_away = true;
                    }
                }
                let metrics = self.metrics.iter();
                reasons.extend(metrics.flat_map(|it| it.own_queues_in_trouble(vhost)));
            }
        }
        if let Some(nodes) = self.nodes.as_ref().filter(|_| is_away) {
            let failing = nodes.failing().into_iter();
            reasons.extend(failing.map(|node| format!("node {node} did not answer")));
        }
        reasons
    }
}

// === impl Links ===

impl Links {
    fn opening() -> Self {
        Links::Ours {
            publisher: Link::Opening,
            intake: Link::Opening,
        }
    }

    fn set(&mut self, role: Role, link: Link) {
        if matches!(self, Links::Native) {
            // A link that comes up shows that the rights were given; one that does not changes nothing.
            if !matches!(link, Link::Up) {
                return;
            }
            *self = Links::opening();
        }
        if let Links::Ours { publisher, intake } = self {
            match role {
                Role::Publisher => *publisher = link,
                Role::Intake => *intake = link,
                // Without it dead letters go where the queues' own arguments, or the last declares here, say.
                // Without the pulse nobody knows how the queues are: they are as they were.
                Role::Recorder | Role::Pulse | Role::Walk => {}
            }
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Link::Opening => f.write_str("not open yet"),
            Link::Up => f.write_str("up"),
            Link::Down(cause) => write!(f, "down: {}", cause.replace('\n', " ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(role: Role) -> Event {
        Event::LinkUp {
            role,
            version: "4.3.6".into(),
        }
    }

    fn vhost(name: &str) -> Vhost {
        Vhost::copy(name.as_bytes()).expect("short")
    }

    /// One vhost, all well.
    fn ready() -> Readiness {
        let readiness = Readiness::new([Vhost::ROOT]);
        readiness.listening();
        readiness.observe(&vhost("/"), &up(Role::Publisher));
        readiness.observe(&vhost("/"), &up(Role::Intake));
        assert_eq!(readiness.reasons(), [""; 0]);
        readiness
    }

    #[test]
    fn each_missing_part_is_a_reason() {
        let readiness = Readiness::new([Vhost::ROOT]);
        let reasons = [
            "not listening yet",
            "the publisher link of vhost / is not open yet",
            "the intake link of vhost / is not open yet",
        ];
        assert_eq!(readiness.reasons(), reasons);
    }

    #[test]
    fn a_link_counts_only_while_it_is_up() {
        let readiness = ready();
        readiness.observe(
            &vhost("/"),
            &Event::LinkDown {
                role: Role::Intake,
                cause: "connection reset".to_owned(),
            },
        );
        assert_eq!(
            readiness.reasons(),
            ["the intake link of vhost / is down: connection reset"]
        );
        readiness.observe(&vhost("/"), &up(Role::Intake));
        assert_eq!(readiness.reasons(), [""; 0]);
    }

    #[test]
    fn a_vhost_without_rights_does_not_count() {
        let readiness = Readiness::new([Vhost::ROOT, vhost("theirs")]);
        readiness.listening();
        readiness.observe(&vhost("/"), &up(Role::Publisher));
        readiness.observe(&vhost("/"), &up(Role::Intake));
        readiness.observe(
            &vhost("theirs"),
            &Event::VhostNative {
                cause: "ACCESS_REFUSED".to_owned(),
            },
        );
        assert_eq!(readiness.reasons(), [""; 0]);
    }

    #[test]
    fn a_vhost_of_a_client_does_not_count() {
        let readiness = ready();
        readiness.observe(
            &vhost("other"),
            &Event::LinkDown {
                role: Role::Publisher,
                cause: "away".to_owned(),
            },
        );
        assert_eq!(readiness.reasons(), [""; 0]);
    }

    #[test]
    fn a_drain_ends_readiness() {
        let readiness = ready();
        readiness.draining();
        assert_eq!(readiness.reasons(), ["draining"]);
    }
}
