//! Whether clients should be sent here: listening, dead letters of the configured vhosts handled *now*, and not draining. A value that is handed
//! to those who know (as linkerd's latches); it writes a line whenever the answer changes, and an error when the broker refuses the proxy's user:
//! somebody has to end that, at the broker or in the settings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::{error, info, warn};

use crate::amqp::ids::{ShortStr, Vhost};
use crate::amqp::reply_code::ACCESS_REFUSED;
use crate::machine::{Event, Role};
use crate::net::nodes::Nodes;
use crate::own_user::OwnUser;
use crate::telemetry::Metrics;

#[derive(Clone, Debug)]
pub struct Readiness(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    listening: bool,
    draining: bool,
    /// Only vhosts of the settings: a vhost named by a client must not make the proxy unready for
    /// others.
    vhosts: BTreeMap<Vhost, Links>,
    own_user: Option<OwnUser>,
    ready_when_refused: bool,
    /// For reasons of a link that is down.
    nodes: Option<Nodes>,
    /// For problems of the proxy's own queues.
    metrics: Option<Metrics>,
    said_ready: Option<bool>,
}

#[derive(Debug)]
struct Links {
    publisher: Link,
    intake: Link,
    other_user: Option<Option<ShortStr>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Link {
    Opening,
    Up,
    Down(String),
    Refused(Refusal),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Refusal {
    cause: String,
    /// The user lacks a permission: lasts until somebody changes it.
    is_of_user: bool,
}

// === impl Readiness ===

impl Readiness {
    pub fn new(vhosts: impl IntoIterator<Item = Vhost>) -> Self {
        let vhosts = vhosts
            .into_iter()
            .map(|vhost| (vhost, Links::OPENING))
            .collect();
        Self(Arc::new(Mutex::new(State {
            listening: false,
            draining: false,
            vhosts,
            own_user: None,
            ready_when_refused: false,
            nodes: None,
            metrics: None,
            said_ready: None,
        })))
    }

    /// Adds these nodes to the reasons while a link is down, and problems of own queues from these
    /// metrics.
    pub fn behind(&self, nodes: Nodes, metrics: Metrics) {
        self.change(|state| (state.nodes, state.metrics) = (Some(nodes), Some(metrics)));
    }

    /// `ready_when_refused`: ready although the broker refuses this user.
    pub fn logs_in_as(&self, own_user: OwnUser, ready_when_refused: bool) {
        self.change(|state| {
            (state.own_user, state.ready_when_refused) = (Some(own_user), ready_when_refused);
        });
    }

    pub fn awaits(&self, vhost: &Vhost) -> bool {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !state.ready_when_refused && state.vhosts.contains_key(vhost)
    }

    pub fn listening(&self) {
        self.change(|state| state.listening = true);
    }

    pub fn draining(&self) {
        self.change(|state| state.draining = true);
    }

    pub fn observe(&self, vhost: &Vhost, event: &Event) {
        let learn = |links: &mut Links| match event {
            // It works once it says so.
            Event::LinkUp {
                role: Role::Intake, ..
            } => links.intake = Link::Opening,
            Event::LinkUp { role, .. } => links.set(*role, Link::Up),
            Event::LinkDown { role, cause } => links.set(*role, Link::Down(cause.clone())),
            Event::VhostNative { cause } => {
                links.publisher = Link::refused(cause, true);
                links.intake = Link::refused(cause, true);
            }
            Event::IntakeWorks => links.intake = Link::Up,
            Event::IntakeRefused { code, cause } => {
                links.intake = Link::refused(cause, *code == ACCESS_REFUSED);
            }
            Event::OtherUser(user) => links.other_user = Some(user.clone()),
            _ => {}
        };
        let is_news = matches!(
            event,
            Event::LinkUp { .. }
                | Event::LinkDown { .. }
                | Event::VhostNative { .. }
                | Event::IntakeWorks
                | Event::IntakeRefused { .. }
                | Event::OtherUser(_)
                | Event::OwnQueue { .. }
                | Event::OwnQueueGone { .. }
        );
        if is_news {
            self.change(|state| {
                let Some(links) = state.vhosts.get_mut(vhost) else {
                    return;
                };
                let before = links.refusals();
                learn(links);
                let now = links.refusals();
                now.difference(&before)
                    .for_each(|refusal| state.refused(vhost, refusal));
            });
        }
    }

    /// One sentence each; empty when ready.
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
            let refusals = links.refusals();
            let counting = refusals.iter().filter(|refusal| self.counts(refusal));
            reasons.extend(counting.map(|refusal| self.words(vhost, refusal)));
            for (role, link) in [
                (Role::Publisher, &links.publisher),
                (Role::Intake, &links.intake),
            ] {
                if !matches!(link, Link::Up | Link::Refused(_)) {
                    let role = role.as_str();
                    reasons.push(format!("the {role} link of vhost {vhost} is {link}"));
                    is_away = true;
                }
            }
            match &links.other_user {
                None if refusals.is_empty() && !is_away => {
                    reasons.push(format!(
                        "it is not known yet with which user proxies work in vhost {vhost}"
                    ));
                }
                Some(Some(user)) if !self.ready_when_refused => {
                    reasons.push(format!("proxies with another user, {user}, work in vhost {vhost}: give all of them the same user, or each user a `prefix`"));
                }
                _ => {}
            }
            if refusals.iter().all(|refusal| self.counts(refusal)) {
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

    fn counts(&self, refusal: &Refusal) -> bool {
        !(refusal.is_of_user && self.ready_when_refused)
    }

    fn words(&self, vhost: &Vhost, Refusal { cause, .. }: &Refusal) -> String {
        let (user, todo) = self.remedy(vhost, cause);
        let todo = todo.map_or_else(String::new, |todo| format!(": {todo}"));
        format!(
            "the broker refuses what the proxy's user {user} needs in vhost {vhost}: {cause}{todo}"
        )
    }

    fn remedy(&self, vhost: &Vhost, cause: &str) -> (String, Option<String>) {
        let own_user = self.own_user.as_ref();
        let name = own_user.map_or_else(String::new, |own_user| own_user.name.to_string());
        (
            name,
            own_user.and_then(|own_user| own_user.remedy(vhost, cause)),
        )
    }

    fn refused(&self, vhost: &Vhost, refusal: &Refusal) {
        if self.counts(refusal) {
            let cause = &refusal.cause;
            let (user, todo) = self.remedy(vhost, cause);
            error!(%vhost, user, cause, todo, "the broker refuses what the proxy needs: dead letters of the vhost are left to the broker, and the proxy is not ready");
        }
    }
}

// === impl Links ===

impl Links {
    const OPENING: Links = Links {
        publisher: Link::Opening,
        intake: Link::Opening,
        other_user: None,
    };

    fn set(&mut self, role: Role, link: Link) {
        match role {
            Role::Publisher => self.publisher = link,
            Role::Intake => self.intake = link,
            // Without the pulse nobody knows how the queues are: they are as they were.
            Role::Pulse if matches!(link, Link::Down(_)) => {
                self.other_user.get_or_insert(None);
            }
            // Without it dead letters go where the queues' own arguments, or the last declares here, say.
            Role::Careful | Role::Recorder | Role::Pulse | Role::Walk => {}
        }
    }

    fn refusals(&self) -> BTreeSet<Refusal> {
        let links = [&self.publisher, &self.intake].into_iter();
        let refusals = links.filter_map(|link| match link {
            Link::Refused(refusal) => Some(refusal.clone()),
            Link::Opening | Link::Up | Link::Down(_) => None,
        });
        refusals.collect()
    }
}

// === impl Link ===

impl Link {
    fn refused(cause: &str, is_of_user: bool) -> Link {
        Link::Refused(Refusal {
            cause: cause.replace('\n', " "),
            is_of_user,
        })
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Link::Opening => f.write_str("not open yet"),
            Link::Up => f.write_str("up"),
            Link::Down(cause) => write!(f, "down: {}", cause.replace('\n', " ")),
            Link::Refused(refusal) => write!(f, "refused: {}", refusal.cause),
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

    fn refused(cause: &str) -> Event {
        Event::VhostNative {
            cause: cause.to_owned(),
        }
    }

    fn vhost(name: &str) -> Vhost {
        Vhost::copy(name.as_bytes()).expect("short")
    }

    fn ready() -> Readiness {
        let readiness = Readiness::new([Vhost::ROOT]);
        readiness.listening();
        readiness.observe(&vhost("/"), &up(Role::Publisher));
        readiness.observe(&vhost("/"), &up(Role::Intake));
        readiness.observe(&vhost("/"), &Event::IntakeWorks);
        readiness.observe(&vhost("/"), &Event::OtherUser(None));
        assert_eq!(readiness.reasons(), [""; 0]);
        readiness
    }

    fn as_user(readiness: &Readiness, ready_when_refused: bool) {
        let own_user = OwnUser {
            name: ShortStr::copy(b"proxy").expect("short"),
            prefix: "dlx-proxy".to_owned(),
        };
        readiness.logs_in_as(own_user, ready_when_refused);
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
        assert_eq!(
            readiness.reasons(),
            ["the intake link of vhost / is not open yet"]
        );
        readiness.observe(&vhost("/"), &Event::IntakeWorks);
        assert_eq!(readiness.reasons(), [""; 0]);
    }

    #[test]
    fn a_user_that_is_refused_makes_it_unready_until_it_is_let_in() {
        let readiness = ready();
        as_user(&readiness, false);
        let cause = "530 NOT_ALLOWED - access to vhost '/' refused for user 'proxy'";
        readiness.observe(&vhost("/"), &refused(cause));
        readiness.observe(&vhost("/"), &refused(cause));
        let todo = "give it the permissions: rabbitmqctl set_permissions -p / proxy '^dlx-proxy' '.*' '^dlx-proxy'";
        assert_eq!(
            readiness.reasons(),
            [format!(
                "the broker refuses what the proxy's user proxy needs in vhost /: {cause}: {todo}"
            )]
        );
        readiness.observe(&vhost("/"), &up(Role::Publisher));
        readiness.observe(&vhost("/"), &up(Role::Intake));
        readiness.observe(&vhost("/"), &Event::IntakeWorks);
        assert_eq!(readiness.reasons(), [""; 0]);
    }

    #[test]
    fn an_intake_that_is_refused_counts_until_it_works() {
        let readiness = ready();
        let refused = |code| Event::IntakeRefused {
            code,
            cause: format!("{code} no"),
        };
        for code in [403, 404] {
            readiness.observe(&vhost("/"), &refused(code));
            assert_eq!(readiness.reasons().len(), 1);
        }
        // What is not for want of a right is nobody's wish.
        as_user(&readiness, true);
        assert_eq!(readiness.reasons().len(), 1);
        readiness.observe(&vhost("/"), &refused(403));
        assert_eq!(readiness.reasons(), [""; 0]);
        as_user(&readiness, false);
        readiness.observe(&vhost("/"), &Event::IntakeWorks);
        assert_eq!(readiness.reasons(), [""; 0]);
    }

    #[test]
    fn who_wants_it_served_all_the_same_has_it_so() {
        let readiness = Readiness::new([Vhost::ROOT, vhost("theirs")]);
        assert!(readiness.awaits(&Vhost::ROOT));
        as_user(&readiness, true);
        assert!(!readiness.awaits(&Vhost::ROOT));
        readiness.listening();
        readiness.observe(&vhost("/"), &up(Role::Publisher));
        readiness.observe(&vhost("/"), &up(Role::Intake));
        readiness.observe(&vhost("/"), &Event::IntakeWorks);
        readiness.observe(&vhost("/"), &Event::OtherUser(Some(vhost("eve"))));
        readiness.observe(&vhost("theirs"), &refused("ACCESS_REFUSED"));
        assert_eq!(readiness.reasons(), [""; 0]);
    }

    #[test]
    fn a_vhost_of_a_client_does_not_count() {
        let readiness = ready();
        readiness.observe(&vhost("other"), &refused("ACCESS_REFUSED"));
        assert_eq!(readiness.reasons(), [""; 0]);
    }

    #[test]
    fn proxies_with_another_user_make_it_unready_until_they_are_gone() {
        let readiness = ready();
        readiness.observe(&vhost("/"), &Event::OtherUser(Some(vhost("eve"))));
        let reasons = readiness.reasons();
        assert!(
            reasons[0].starts_with("proxies with another user, eve, work in vhost /"),
            "{reasons:?}"
        );
        readiness.observe(&vhost("/"), &Event::OtherUser(None));
        assert_eq!(readiness.reasons(), [""; 0]);
    }

    #[test]
    fn whether_there_are_others_is_asked_before_it_is_ready_if_it_can_be() {
        let readiness = Readiness::new([Vhost::ROOT]);
        readiness.listening();
        readiness.observe(&vhost("/"), &up(Role::Publisher));
        readiness.observe(&vhost("/"), &up(Role::Intake));
        readiness.observe(&vhost("/"), &Event::IntakeWorks);
        assert_eq!(
            readiness.reasons(),
            ["it is not known yet with which user proxies work in vhost /"]
        );
        let (role, cause) = (Role::Pulse, "limit".to_owned());
        readiness.observe(&vhost("/"), &Event::LinkDown { role, cause });
        assert_eq!(readiness.reasons(), [""; 0]);
    }

    #[test]
    fn a_drain_ends_readiness() {
        let readiness = ready();
        readiness.draining();
        assert_eq!(readiness.reasons(), ["draining"]);
    }
}
