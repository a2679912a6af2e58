//! How the API says that it has no answer: a problem as in RFC 9457, in the broker's own words where the broker refused.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::login::NoCredentials;
use super::slow_down::ComeBackAfter;
use crate::walk::Failure;

const JSON: &str = "application/problem+json";
const CHALLENGE: &str = "Basic realm=\"RabbitMQ\", charset=\"UTF-8\"";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
    retry_after: Option<Duration>,
    about_the_vhost: bool,
}

/// Why there is no answer (RFC 9457).
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct Written<'a> {
    /// `about:blank`: there is no more to say than the status and the detail do.
    r#type: &'static str,
    /// The name of the status.
    title: &'a str,
    status: u16,
    /// Why, in the broker's own words where it was the broker that said no.
    detail: &'a str,
}

// === impl Problem ===

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        Problem {
            status,
            detail: detail.into(),
            retry_after: None,
            about_the_vhost: false,
        }
    }

    pub(super) fn busy(detail: impl Into<String>) -> Problem {
        Problem {
            retry_after: Some(Duration::ZERO),
            ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        }
    }

    pub(super) fn too_often(
        ComeBackAfter(wait): ComeBackAfter,
        detail: impl Into<String>,
    ) -> Problem {
        Problem {
            retry_after: Some(wait),
            ..Problem::new(StatusCode::TOO_MANY_REQUESTS, detail)
        }
    }

    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    /// The vhost was accepted; the queue was refused or is missing.
    pub(super) fn is_about_the_queue(&self) -> bool {
        let of_queues = [
            StatusCode::FORBIDDEN,
            StatusCode::NOT_FOUND,
            StatusCode::CONFLICT,
        ];
        of_queues.contains(&self.status)
    }

    /// The vhost was refused or is missing.
    pub(super) fn is_about_the_vhost(&self) -> bool {
        self.about_the_vhost
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// A retry may succeed.
    pub(super) fn is_to_wait(&self) -> bool {
        self.retry_after.is_some() || self.status.is_server_error()
    }

    pub(super) fn answer(&self, kind: &'static str, body: String) -> Response {
        let mut answer = (self.status, body).into_response();
        let mut put = |name: HeaderName, value| {
            answer.headers_mut().insert(name, value);
        };
        put(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if self.status == StatusCode::UNAUTHORIZED {
            put(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static(CHALLENGE),
            );
        }
        if let Some(wait) = self.retry_after {
            // Whole seconds, and no second too early.
            put(header::RETRY_AFTER, (wait.as_secs() + 1).into());
        }
        answer
    }

    /// The status closest to the broker's refusal. The codes for connections are unspecific, so
    /// this reads the text (the same on 3.10.8, 4.0.5 and 4.3.6).
    fn of_refusal(code: u16, text: &str) -> StatusCode {
        match code {
            403 if text.ends_with("in exclusive use") => StatusCode::CONFLICT,
            403 => StatusCode::FORBIDDEN,
            404 => StatusCode::NOT_FOUND,
            405 => StatusCode::CONFLICT,
            530 if text.starts_with("NOT_ALLOWED - access to vhost ") => StatusCode::FORBIDDEN,
            530 if text.ends_with(" not found") => StatusCode::NOT_FOUND,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl From<NoCredentials> for Problem {
    fn from(why: NoCredentials) -> Problem {
        Problem::new(StatusCode::UNAUTHORIZED, why.to_string())
    }
}

impl From<ComeBackAfter> for Problem {
    fn from(wait: ComeBackAfter) -> Problem {
        Problem::too_often(wait, "too many failed logins from this address")
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        let status = match &failure {
            Failure::Connection(_) => StatusCode::BAD_GATEWAY,
            Failure::Login(_) => StatusCode::UNAUTHORIZED,
            Failure::Refused { code, text } => Problem::of_refusal(*code, text),
            Failure::Stream => StatusCode::CONFLICT,
            Failure::Silent | Failure::Blocked => StatusCode::GATEWAY_TIMEOUT,
        };
        Problem {
            about_the_vhost: matches!(failure, Failure::Refused { code: 530, .. }),
            ..Problem::new(status, failure.to_string())
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let written = Written {
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or_default(),
            status: self.status.as_u16(),
            detail: &self.detail,
        };
        let body = serde_json::to_string(&written).unwrap_or_default();
        let mut answer = self.answer(JSON, body);
        // The pages show it in their own form.
        answer.extensions_mut().insert(self);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of 3.10.8, 4.0.5 and 4.3.6.
    #[test]
    fn a_refusal_of_the_broker_has_the_status_that_it_comes_near_to() {
        for line in [
            "403 ACCESS_REFUSED - access to queue 'q' in vhost '/' refused for user 'u' -> 403",
            "403 ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use -> 409",
            "404 NOT_FOUND - no queue 'q' in vhost '/' -> 404",
            "405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' -> 409",
            "530 NOT_ALLOWED - vhost nope not found -> 404",
            "530 NOT_ALLOWED - access to vhost '/' refused for user 'u' -> 403",
            "530 NOT_ALLOWED - access to vhost 'x' refused for user ' not found -> 403",
            "530 NOT_ALLOWED - connection refused for user 'u': user connection limit (0) is reached -> 503",
            "540 NOT_IMPLEMENTED - the moon -> 503",
        ] {
            let (said, status) = line.split_once(" -> ").expect("a status");
            let (code, text) = said.split_once(' ').expect("a text");
            let code = code.parse().expect("a code");
            assert_eq!(Problem::of_refusal(code, text).as_str(), status, "{line}");
        }
    }

    #[test]
    fn a_broker_that_is_away_is_not_one_that_is_silent_or_refuses_the_login() {
        for (failure, status) in [
            (Failure::Connection("cut".to_owned()), 502),
            (Failure::Silent, 504),
            (Failure::Blocked, 504),
            (Failure::Stream, 409),
            (Failure::Login("no".to_owned()), 401),
        ] {
            assert_eq!(Problem::from(failure).status, status);
        }
    }

    #[tokio::test]
    async fn a_problem_is_written_as_the_standard_says() {
        let problem = Problem::from(Failure::Login("ACCESS_REFUSED - \"<b>\"".to_owned()));
        let answer = problem.into_response();
        assert_eq!(answer.headers()[header::CONTENT_TYPE], JSON);
        assert_eq!(answer.headers()[header::WWW_AUTHENTICATE], CHALLENGE);
        let body = axum::body::to_bytes(answer.into_body(), 4096).await;
        assert_eq!(
            body.expect("short"),
            r#"{"type":"about:blank","title":"Unauthorized","status":401,"detail":"ACCESS_REFUSED - \"<b>\""}"#
        );
    }

    #[test]
    fn who_has_to_wait_is_told_how_long() {
        let answer = Problem::from(ComeBackAfter(Duration::from_millis(1200))).into_response();
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.headers()[header::RETRY_AFTER], "2");
        let busy = Problem::busy("busy").into_response();
        assert_eq!(busy.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(busy.headers().contains_key(header::RETRY_AFTER));
    }
}
