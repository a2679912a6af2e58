//! What the API says of itself: OpenAPI, made from the handlers and from the types of their answers.

use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{self, Content, PathItem, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoParams, Modify, OpenApi};

use super::super::problem::Written;

const PROBLEM: &str = "application/problem+json";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "dlx-proxy",
        description = "Dead letters in the queues of a RabbitMQ broker: look at them, send them back, remove them.\n\n\
                       Each request is done in the name of a user of the broker, who says what that user may do. Names in paths and parameters are \
                       percent-encoded bytes: the vhost `/` is `%2F`. A request that changes something needs the header `X-Dlx-Proxy-Request` \
                       with any value.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    components(schemas(Written)),
    modifiers(&Login),
    security(("broker" = [])),
)]
pub(super) struct Description;

struct Login;

/// Which queue.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it is only described; `Place` reads it")]
pub(super) struct OfQueue {
    /// The vhost of the queue.
    vhost: String,
    /// The queue.
    queue: String,
}

pub(super) fn finished(mut api: openapi::OpenApi) -> openapi::OpenApi {
    api.paths.paths.values_mut().for_each(with_problems);
    api
}

fn with_problems(path: &mut PathItem) {
    let schema = RefOr::Ref(Ref::from_schema_name("Problem"));
    let problem = ResponseBuilder::new()
        .description("Why there is no answer")
        .content(PROBLEM, Content::new(Some(schema)))
        .build();
    let add = |operation: &mut Operation| {
        let responses = &mut operation.responses.responses;
        responses.insert("default".to_owned(), problem.clone().into());
    };
    [&mut path.get, &mut path.post]
        .into_iter()
        .flatten()
        .for_each(add);
}

// === impl Login ===

impl Modify for Login {
    fn modify(&self, api: &mut openapi::OpenApi) {
        let basic = SecurityScheme::Http(Http::new(HttpAuthScheme::Basic));
        let components = api.components.get_or_insert_default();
        components.add_security_scheme("broker", basic);
    }
}
