//! The queues that dead letters went to, or may go to: `GET /api/v1/vhosts/{vhost}/dead-letter-queues`. A user sees those that the user may read, and the
//! targets of which nobody knows to which queues they lead.

use std::cmp::Reverse;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::super::problem::Problem;
use super::super::wanted::Named;
use super::rights::not_asked;
use super::{Answered, Api, Asked, json};
use crate::amqp::ids::ShortStr;
use crate::known::{DeadLetterQueue, Target};

/// The answer.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::console::admin) struct DeadLetterQueues {
    pub(in crate::console::admin) dead_letter_queues: Vec<DeadLetterQueue>,
    /// Targets of which it is not known to which queues they lead.
    pub(in crate::console::admin) elsewhere: Vec<Elsewhere>,
    /// Dead letters that went to queues beyond those that are remembered.
    pub(in crate::console::admin) left_out: u64,
    /// Messages in the queues that are shown, as far as they were counted; none: in none of them.
    pub(in crate::console::admin) messages: Option<u64>,
    /// What is parked, as of the last try and what this proxy has parked since, for users who may read it.
    pub(in crate::console::admin) parked: Vec<Parked>,
    /// Which resources of the broker are short, with a `management-url`: meanwhile it takes no messages.
    pub(in crate::console::admin) alarms: Vec<String>,
    pub(in crate::console::admin) notes: Vec<String>,
    /// The user sees what is of the whole vhost: the proxy's own, and those who may read the parking queue.
    #[serde(skip)]
    pub(super) is_operator: bool,
    /// Queues without the parking queue, and their messages. For users who may read the parking queue also those that the broker was not asked
    /// about.
    #[serde(skip)]
    pub(in crate::console::admin) totals: (usize, Option<u64>),
}

/// Parked messages with one cause.
#[derive(Clone, Serialize, ToSchema)]
pub(in crate::console::admin) struct Parked {
    /// As in `x-parked-cause`; empty: the messages say none.
    #[schema(value_type = String)]
    pub(in crate::console::admin) cause: ShortStr,
    pub(in crate::console::admin) messages: usize,
}

/// A target of which it is not known to which queues it leads.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::console::admin) struct Elsewhere {
    #[serde(flatten)]
    pub(in crate::console::admin) target: Target,
    pub(in crate::console::admin) dead_letters: u64,
}

// === impl Api ===

impl Api {
    /// Queues of the vhost that the user may see, the fullest first; the broker has already admitted the user. `rows`: how many a user needs
    /// who gets the totals of the vhost anyway. The broker writes two lines into its log for each queue that it is asked for.
    pub(in crate::console::admin) async fn queues(
        &self,
        asked: &Asked,
        rows: usize,
    ) -> Result<DeadLetterQueues, Problem> {
        let known = self.known.watch(&asked.place.vhost);
        // Nobody can say whose dead letters went elsewhere, so only those hear of it who may read what nobody took.
        let parking = self.known.parking();
        let is_own = *asked.who.user() == self.known.handlings.user;
        let is_operator = is_own
            || self
                .looks
                .readable(asked, [parking])
                .await?
                .0
                .contains(parking);
        let mut shown = known.queues;
        shown.sort_by_key(|of| Reverse((of.messages, of.dead_letters)));
        let mut totals = in_all(&shown);
        let mut unasked = 0;
        if !is_own {
            let rows = if is_operator { rows } else { shown.len() };
            let names = shown.iter().map(|of| &of.queue).take(rows);
            let (readable, more) = self.looks.readable(asked, names).await?;
            unasked = more;
            let are_left = more > 0 || shown.len() > rows;
            shown.retain(|of| readable.contains(&of.queue));
            if !(is_operator && are_left) {
                totals = in_all(&shown);
            }
        }
        let parked = known.parked.into_iter().filter(|_| is_operator);
        let parked = parked.map(|(cause, messages)| Parked { cause, messages });
        let mut notes = not_asked(unasked);
        if known.uncounted > 0 {
            let more = known.uncounted;
            notes.push(format!(
                "Dead letters may go to {more} more queues and exchanges than the proxy counts."
            ));
        }
        let elsewhere = known.unknown.into_iter().filter(|_| is_operator);
        let elsewhere = elsewhere.map(|(target, dead_letters)| Elsewhere {
            target,
            dead_letters,
        });
        Ok(DeadLetterQueues {
            messages: sum(&shown),
            dead_letter_queues: shown,
            parked: parked.collect(),
            elsewhere: elsewhere.collect(),
            left_out: known.left_out,
            alarms: self.looks.metrics().alarms_in_effect(),
            is_operator,
            notes,
            totals,
        })
    }
}

fn sum<'a>(queues: impl IntoIterator<Item = &'a DeadLetterQueue>) -> Option<u64> {
    let messages = queues.into_iter().filter_map(|queue| queue.messages);
    messages.reduce(|a, b| a + b)
}

fn in_all(queues: &[DeadLetterQueue]) -> (usize, Option<u64>) {
    let others = queues.iter().filter(|of| !of.parking);
    (others.clone().count(), sum(others))
}

/// Lists the queues that dead letters of this process went to, or of known queues may go to, and what is known of them.
#[utoipa::path(get, path = "/api/v1/vhosts/{vhost}/dead-letter-queues", tag = "dead letters", params(("vhost" = String, Path, description = "The vhost"), Named), responses((status = OK, body = DeadLetterQueues)))]
pub(super) async fn list_queues(State(api): State<Api>, mut asked: Asked) -> Answered {
    let is_meant = asked.parameters.pattern("name")?;
    asked.end()?;
    api.looks.enter(&asked).await?;
    let mut queues = api.queues(&asked, usize::MAX).await?;
    let shown = &mut queues.dead_letter_queues;
    shown.retain(|queue| is_meant(&queue.queue));
    queues.messages = sum(&*shown);
    json(&queues)
}
