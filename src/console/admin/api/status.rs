//! How a vhost stands, in one document: `GET /api/v1/vhosts/{vhost}/status`. The first page shows it, too. All of it is what the proxy knows
//! already: the broker is asked only who the user is, and what the user may read.

use std::collections::BTreeMap;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::super::problem::Problem;
use super::queues::{DeadLetterQueues, Parked};
use super::rights::not_asked;
use super::{Answered, Api, Asked, json};
use crate::amqp::ids::{ShortStr, Vhost};
use crate::console::count::count;
use crate::console::redrives::Shown;
use crate::known::{MOST_DEATHS, Rate, RecentDeath, Target};
use crate::letter::rfc_3339;
use crate::machine::{Cause, Outcome};
use crate::registry::handling::{Handling, State as Handled};

const DOCTOR: &str = "`dlx-proxy doctor` checks the setup and says what to do.";

mod parked;

/// None: not known, or not for this user.
pub(in crate::console::admin) type Counts = BTreeMap<&'static str, Option<u64>>;

/// How a vhost stands.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::console::admin) struct Status {
    /// There are no problems.
    pub healthy: bool,
    /// The worst first.
    pub problems: Vec<Trouble>,
    /// When this was so.
    pub as_of: String,
    pub proxy: ThisProxy,
    pub broker: Broker,
    /// Handled queues: `full`, `rejects-only`, `off`, `unknown`. For users who may read the parking queue.
    pub queues: Counts,
    /// `queues` that the user may read, without the parking queue, their `messages`, and how many died in the `last-hour`.
    pub dead_letters: Counts,
    /// As of the last try, with what this proxy has parked since, for users who may read the parking queue.
    pub parked: Vec<Parked>,
    /// Messages in delay queues, retries and delayed publishes: `waiting`, or `due` and being moved out, for users who may read the parking queue.
    pub retries: Counts,
    /// `running`.
    pub redrives: Counts,
    pub notes: Vec<String>,
}

/// What is wrong, and what to do.
#[derive(Serialize, ToSchema)]
pub(in crate::console::admin) struct Trouble {
    pub says: String,
    pub advice: String,
}

/// The proxy that answers.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::console::admin) struct ThisProxy {
    /// Its host.
    pub name: String,
    pub version: &'static str,
    /// As `/readyz` says.
    pub ready: bool,
    pub uptime_seconds: u64,
}

/// The broker.
#[derive(Serialize, ToSchema)]
pub(in crate::console::admin) struct Broker {
    pub version: Option<String>,
    /// The address of the last connection.
    pub node: Option<String>,
    /// Which resources are short, with a `management-url`.
    pub alarms: Vec<String>,
}

/// The document, and what it is made of.
pub(in crate::console::admin) struct Overview {
    pub status: Status,
    pub queues: DeadLetterQueues,
    pub rates: Vec<Rate>,
    pub redrives: Vec<Shown>,
    /// Where the dead letters of queues go.
    pub targets: BTreeMap<ShortStr, Target>,
}

/// Tells how the vhost stands: what is wrong, what to do, and how much there is.
#[utoipa::path(get, path = "/api/v1/vhosts/{vhost}/status", tag = "status", params(("vhost" = String, Path, description = "The vhost")), responses((status = OK, body = Status)))]
pub(super) async fn show(State(api): State<Api>, asked: Asked) -> Answered {
    asked.end()?;
    api.looks.enter(&asked).await?;
    json(&api.overview(&asked, 0).await?.status)
}

// === impl Api ===

impl Api {
    /// The broker has already admitted the user. `rows`: as of `queues`.
    pub(in crate::console::admin) async fn overview(
        &self,
        asked: &Asked,
        rows: usize,
    ) -> Result<Overview, Problem> {
        let (vhost, metrics) = (&asked.place.vhost, self.looks.metrics());
        let queues = self.queues(asked, rows).await?;
        let (now, rates, no_rates) = self.rates(asked, &None).await?;
        let (redrives, no_moves) = self.moves(asked).await?;
        let is_operator = queues.is_operator;
        let handled = self.known.handlings.of(vhost);
        let reasons = self.readiness.reasons();
        let problems = self.problems(vhost, &reasons, &queues.parked);
        let mut notes = [queues.notes.clone(), not_asked(no_rates + no_moves)].concat();
        let by_half = |(_, of): &&(ShortStr, Handling)| !of.why.advice.is_empty();
        let by_half = handled.iter().filter(by_half).count();
        if is_operator && by_half > 0 {
            notes.push(format!("In {by_half} of the handled queues RabbitMQ handles some or all dead letters itself."));
        }
        let (version, node) = metrics.broker();
        let (others, messages) = queues.totals;
        let died = rates.iter().flat_map(|rate| rate.per_minute).map(u64::from);
        let delayed = metrics.standing(vhost).delayed;
        let delayed = delayed.map(|(state, count)| (state, count.filter(|_| is_operator)));
        let running = redrives.iter().filter(|it| it.ended.is_none()).count();
        let status = Status {
            healthy: problems.is_empty(),
            problems,
            as_of: rfc_3339(now),
            proxy: ThisProxy {
                name: host_name(),
                version: env!("CARGO_PKG_VERSION"),
                ready: reasons.is_empty(),
                uptime_seconds: self.known.now().0 / 1_000_000,
            },
            broker: Broker {
                version,
                node,
                alarms: queues.alarms.clone(),
            },
            queues: by_state(&handled, is_operator),
            dead_letters: Counts::from([
                ("queues", Some(others as u64)),
                ("messages", messages),
                ("last-hour", Some(died.sum())),
            ]),
            parked: queues.parked.clone(),
            retries: delayed.into(),
            redrives: [("running", Some(running as u64))].into(),
            notes,
        };
        let target = |(queue, of): (_, Handling)| Some((queue, of.target?.into()));
        Ok(Overview {
            targets: handled.into_iter().filter_map(target).collect(),
            status,
            queues,
            rates,
            redrives,
        })
    }

    fn problems(&self, vhost: &Vhost, reasons: &[String], parked: &[Parked]) -> Vec<Trouble> {
        let metrics = self.looks.metrics();
        let standing = metrics.standing(vhost);
        let own = metrics.own_queues_in_trouble(vhost).into_iter();
        let own = own.filter(|own| !reasons.contains(own));
        let mut problems: Vec<_> = own.map(|own| trouble("", own, "")).collect();
        let why = "This proxy is not ready: ";
        problems.extend(reasons.iter().map(|it| trouble(why, it.clone(), DOCTOR)));
        if standing.is_native && problems.is_empty() {
            let why = "The proxy's user has no rights in this vhost: RabbitMQ handles all dead letters here itself";
            problems.push(trouble(why, String::new(), DOCTOR));
        }
        let alarms = metrics.alarms_in_effect().join(", ");
        if standing.is_blocked || !alarms.is_empty() {
            let why =
                "RabbitMQ takes no messages, so dead letters and retries wait. It has an alarm: ";
            let advice = "Free memory or disk space: `rabbitmq-diagnostics alarms` shows where.";
            problems.push(trouble(why, alarms, advice));
        }
        if standing.overdue > 0 {
            let why = "RabbitMQ holds back retries that should be in their queues again: ";
            let advice = "`dlx-proxy retries release` sends them back now.";
            problems.push(trouble(why, count(standing.overdue, "message"), advice));
        }
        problems.extend(parked.iter().map(|one| self.of_parked(vhost, one)));
        problems
    }

    fn of_parked(&self, vhost: &Vhost, parked: &Parked) -> Trouble {
        let mut causes = Cause::ALL.into_iter();
        let cause = causes.find(|it| it.as_str().as_bytes() == &*parked.cause);
        let recent = self.known.recent().newest(vhost, MOST_DEATHS);
        let of_it = |death: &&RecentDeath| match death.dead.outcome {
            Outcome::Parked(of) => Some(of) == cause,
            _ => false,
        };
        let newest = recent.deaths.iter().rev().find(of_it);
        let said = cause.and_then(|cause| parked::says(cause, newest.map(|death| &*death.dead)));
        let (why, advice) = said.unwrap_or_else(|| parked::of_others(&parked.cause));
        let held = count(parked.messages as u64, "message");
        trouble(&format!("The parking queue holds {held}: "), why, &advice)
    }
}

fn by_state(handled: &[(ShortStr, Handling)], is_shown: bool) -> Counts {
    let counted = Handled::ALL.map(|state| {
        let queues = handled.iter().filter(|(_, of)| of.state == state).count();
        (state.as_str(), is_shown.then_some(queues as u64))
    });
    counted.into()
}

/// A sentence, and what to do.
fn trouble(why: &str, what: String, advice: &str) -> Trouble {
    let says = format!("{why}{what}");
    let mut rest = says.trim_end_matches([':', '.', ' ']).chars();
    let first = rest.next().into_iter().flat_map(char::to_uppercase);
    Trouble {
        says: first.chain(rest).chain(['.']).collect(),
        advice: advice.to_owned(),
    }
}

fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
