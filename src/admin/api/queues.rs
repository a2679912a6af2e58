//! The queues that dead letters went to: `GET /api/v1/vhosts/{vhost}/dead-letter-queues`. A user sees those that the user may read, and the
//! targets of which nobody knows to which queues they lead.

use std::collections::BTreeSet;

use axum::Extension;
use axum::extract::{Request, State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::super::login::Credentials;
use super::super::looks::Looks;
use super::super::parameters::{OfVhost, Parameters, Place};
use super::super::problem::Problem;
use super::remembered::Remembered;
use super::rights::may_read;
use super::{Answered, Peer, enter, json};
use crate::amqp::ids::{ShortStr, Vhost};
use crate::known::{DeadLetterQueue, KnownQueues, Target};

/// For one answer the broker is asked for the right to read so many queues, each by a connection.
const MOST_ASKED: usize = 50;

/// What the handler needs.
#[derive(Clone)]
pub(in crate::admin) struct Queues {
    pub(super) looks: Looks,
    known: KnownQueues,
    rights: Remembered,
}

/// The answer.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::admin) struct DeadLetterQueues {
    pub(in crate::admin) dead_letter_queues: Vec<ListedQueue>,
    /// Targets of which it is not known to which queues they lead.
    pub(in crate::admin) elsewhere: Vec<Elsewhere>,
    /// Dead letters that went to queues beyond those that are remembered.
    pub(in crate::admin) left_out: u64,
    pub(in crate::admin) notes: Vec<String>,
}

/// A queue, and what is known of it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::admin) struct ListedQueue {
    /// Its name.
    #[schema(value_type = String)]
    pub(in crate::admin) queue: ShortStr,
    /// What nothing takes is parked there.
    pub(in crate::admin) parking: bool,
    /// By which dead letters came there.
    pub(in crate::admin) targets: Vec<ListedTarget>,
    /// All messages there; none: that is not known.
    pub(in crate::admin) messages: Option<u64>,
    /// How long the oldest has been there at least; none: that is not known.
    pub(in crate::admin) oldest_seconds: Option<u64>,
    /// How many this process has published there.
    pub(in crate::admin) dead_letters: u64,
}

/// An exchange, and a key.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::admin) struct ListedTarget {
    /// Empty is the default exchange.
    #[schema(value_type = String)]
    pub(in crate::admin) exchange: ShortStr,
    /// None: many keys.
    #[schema(value_type = Option<String>)]
    pub(in crate::admin) routing_key: Option<ShortStr>,
}

/// A target of which it is not known to which queues it leads.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::admin) struct Elsewhere {
    #[serde(flatten)]
    pub(in crate::admin) target: ListedTarget,
    pub(in crate::admin) dead_letters: u64,
}

// === impl Queues ===

impl Queues {
    pub(in crate::admin) fn new(looks: Looks, known: KnownQueues) -> Queues {
        Queues {
            looks,
            known,
            rights: Remembered::default(),
        }
    }

    /// Those of these queues that the user may read; and of how many that was not asked, since there are too many of them.
    ///
    /// # Errors
    /// When the broker does not even let the user in.
    pub(in crate::admin) async fn readable<'a>(
        &self,
        credentials: Credentials,
        peer: Peer,
        vhost: &Vhost,
        queues: impl IntoIterator<Item = &'a ShortStr>,
    ) -> Result<(BTreeSet<ShortStr>, usize), Problem> {
        let (mut asked, mut unasked) = (0, 0);
        let mut readable = BTreeSet::new();
        let queues: BTreeSet<&ShortStr> = queues.into_iter().collect();
        for queue in queues {
            let may = match self.rights.known(&credentials, vhost, queue) {
                Some(may) => may,
                None if asked >= MOST_ASKED => {
                    unasked += 1;
                    continue;
                }
                None => {
                    asked += 1;
                    let place = Place::new(vhost.clone(), queue.clone());
                    let may = may_read(&self.looks, credentials.clone(), peer, &place).await?;
                    self.rights.learn(&credentials, vhost, queue, may);
                    may
                }
            };
            if may {
                readable.insert(queue.clone());
            }
        }
        Ok((readable, unasked))
    }

    /// Those of a vhost that the user may see.
    pub(in crate::admin) async fn list(
        &self,
        credentials: Credentials,
        peer: Peer,
        vhost: &Vhost,
    ) -> Result<DeadLetterQueues, Problem> {
        // Each time: what is remembered of rights is not for those who have lost their login.
        enter(&self.looks, credentials.clone(), peer, vhost).await?;

        let known = self.known.of(vhost);
        // Nobody can say whose dead letters went elsewhere, so only those hear of it who may read what nobody took.
        let parking = self.known.parking();
        let names = known.queues.iter().map(|queue| &queue.queue);
        let names = names.chain([parking]);
        let (readable, unasked) = self.readable(credentials, peer, vhost, names).await?;
        let is_operator = readable.contains(parking);
        let shown = known.queues.into_iter();
        let shown = shown.filter(|shown| readable.contains(&shown.queue));
        let elsewhere = known.unknown.into_iter().filter(|_| is_operator);
        Ok(DeadLetterQueues {
            dead_letter_queues: shown.map(ListedQueue::from).collect(),
            elsewhere: elsewhere
                .map(|(target, dead_letters)| Elsewhere {
                    target: target.into(),
                    dead_letters,
                })
                .collect(),
            left_out: known.left_out,
            notes: not_asked(unasked),
        })
    }
}

/// What to say of queues of which the broker was not asked whether the user may read them.
pub(super) fn not_asked(queues: usize) -> Vec<String> {
    let note = format!(
        "whether you may read {queues} more queues was not asked yet: ask again within a minute"
    );
    (queues > 0).then_some(note).into_iter().collect()
}

pub(super) fn router(queues: Queues) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(list_queues))
        .with_state(queues)
}

/// Lists the queues that dead letters of this process went to, and what is known of them.
#[utoipa::path(get, path = "/api/v1/vhosts/{vhost}/dead-letter-queues", tag = "dead letters", params(("vhost" = String, Path, description = "The vhost")), responses((status = OK, body = DeadLetterQueues)))]
async fn list_queues(
    State(queues): State<Queues>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Answered {
    Parameters::of(request.uri()).end()?;
    let Peer(address) = peer;
    let credentials = Credentials::of(request.headers(), address)?;
    let OfVhost { vhost, .. } = OfVhost::of(request.uri())?;
    json(&queues.list(credentials, peer, &vhost).await?)
}

impl From<DeadLetterQueue> for ListedQueue {
    fn from(queue: DeadLetterQueue) -> ListedQueue {
        ListedQueue {
            queue: queue.queue,
            parking: queue.is_parking,
            targets: queue.targets.into_iter().map(ListedTarget::from).collect(),
            messages: queue.messages,
            oldest_seconds: queue.oldest.map(|oldest| oldest.as_secs()),
            dead_letters: queue.dead_letters,
        }
    }
}

impl From<Target> for ListedTarget {
    fn from(target: Target) -> ListedTarget {
        let Target {
            exchange,
            routing_key,
        } = target;
        ListedTarget {
            exchange,
            routing_key,
        }
    }
}
