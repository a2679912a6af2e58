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
    use crate::amqp::ids::name;
    use crate::tests::lines_hold;

    fn event(words: &str) -> Event {
        let (verb, rest) = words.split_once(' ').unwrap_or((words, ""));
        let (first, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let cause = || text.replace("\\n", "\n");
        let role = || match first {
            "publisher" => Role::Publisher,
            "intake" => Role::Intake,
            "pulse" => Role::Pulse,
            other => panic!("{other}"),
        };
        match verb {
            "up" => Event::LinkUp {
                role: role(),
                version: "4.3.6".into(),
            },
            "down" => Event::LinkDown {
                role: role(),
                cause: cause(),
            },
            "native" => Event::VhostNative {
                cause: rest.to_owned(),
            },
            "works" => Event::IntakeWorks,
            "refused" => Event::IntakeRefused {
                code: first.parse().expect("a code"),
                cause: cause(),
            },
            "other-user" => Event::OtherUser((!rest.is_empty()).then(|| name(rest))),
            other => panic!("{other}"),
        }
    }

    #[tokio::test]
    async fn it_is_ready_when_the_table_says_so() {
        let mut readiness = Readiness::new([]);
        lines_hold("testdata/readiness.txt", async |line| {
            let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
            match first {
                "" => {}
                "vhosts" => readiness = Readiness::new(rest.split(' ').map(name)),
                "listening" => readiness.listening(),
                "draining" => readiness.draining(),
                "user" => {
                    let own_user = OwnUser {
                        name: name("proxy"),
                        prefix: "dlx-proxy".to_owned(),
                    };
                    readiness.logs_in_as(own_user, rest == "ready-when-refused");
                }
                "reasons" => return readiness.reasons().join(" | "),
                "awaits" => return readiness.awaits(&name(rest)).to_string(),
                vhost => readiness.observe(&name(vhost), &event(rest)),
            }
            String::new()
        })
        .await;
    }
}
