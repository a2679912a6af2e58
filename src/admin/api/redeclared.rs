//! The queues with another target than their arguments say (`declares = "lenient"`). A user sees those that the user may read.

use axum::Extension;
use axum::extract::{Request, State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::super::login::Credentials;
use super::super::parameters::{OfVhost, Parameters};
use super::super::redeclared::{Redeclared, RedeclaredQueue};
use super::rights::not_asked;
use super::{Answered, Peer, Queues, json};

/// The answer.
#[derive(Serialize, ToSchema)]
struct RedeclaredQueues {
    redeclared: Vec<RedeclaredQueue>,
    notes: Vec<String>,
}

pub(super) fn router(queues: Queues, redeclared: Redeclared) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(list_redeclared))
        .with_state((queues, redeclared))
}

/// Lists the queues that have another target than their arguments say.
#[utoipa::path(get, path = "/api/v1/vhosts/{vhost}/redeclared", tag = "queues", params(("vhost" = String, Path, description = "The vhost")), responses((status = OK, body = RedeclaredQueues)))]
async fn list_redeclared(
    State((queues, redeclared)): State<(Queues, Redeclared)>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Answered {
    Parameters::of(request.uri()).end()?;
    let credentials = Credentials::of(request.headers(), peer.0)?;
    let OfVhost { vhost, .. } = OfVhost::of(request.uri())?;
    let rights = &queues.rights;
    rights.enter(credentials.clone(), peer, &vhost).await?;
    let mut listed = redeclared.of(&vhost);
    let names = listed.iter().map(|one| &one.queue);
    let readable = rights.readable(&credentials, peer, &vhost, names);
    let (readable, unasked) = readable.await?;
    listed.retain(|one| readable.contains(&one.queue));
    json(&RedeclaredQueues {
        redeclared: listed,
        notes: not_asked(unasked),
    })
}
