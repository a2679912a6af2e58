//! Asks the API of a proxy that runs, and whether it is ready.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::http::request::Builder;
use hyper::{Method, Request, StatusCode, header};
use memchr::memmem;
use serde_json::Value;
use thiserror::Error;

use super::OWN_HEADER;
use crate::http::{self, BadBody, Failed, Login, Place};

/// A little less than the default timeout of Kubernetes probes.
const PROBE: Duration = Duration::from_millis(900);
/// The proxy itself limits API answers by `browse-timeout`.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);
const LONGEST_ANSWER: usize = 256 << 20;

pub struct Client {
    pub admin: Place,
    pub login: Login,
    /// Of paths below `/api/v1/vhosts/`.
    pub vhost: Vec<u8>,
}

#[derive(Debug, Error)]
pub enum NoAnswer {
    #[error("no answer from {admin}")]
    None { admin: String, source: Failed },
    #[error("{admin} does not answer as an admin port does")]
    Broken { admin: String, source: BadBody },
    #[error("{detail}")]
    Problem { status: StatusCode, detail: String },
}

/// Asks whether the proxy is ready. The answer is empty, or has one reason per line.
///
/// # Errors
/// No answer in time, or not from an admin port.
pub async fn readiness(admin: &Place) -> Result<String, NoAnswer> {
    let request = Request::get("/readyz");
    let (status, answer) = exchange(admin, None, PROBE, request, Bytes::new()).await?;
    match status {
        StatusCode::OK => Ok(String::new()),
        StatusCode::SERVICE_UNAVAILABLE => Ok(String::from_utf8_lossy(&answer).into_owned()),
        status => Err(broken(admin, status.to_string())),
    }
}

async fn exchange(
    admin: &Place,
    login: Option<&Login>,
    patience: Duration,
    request: Builder,
    body: Bytes,
) -> Result<(StatusCode, Vec<u8>), NoAnswer> {
    let answer = admin.ask(login, patience, async |mut requests| {
        let answer = requests.send(request, body).await?;
        let status = answer.status();
        Ok::<_, Failed>((status, http::body(answer.into_body(), LONGEST_ANSWER).await))
    });
    let (status, body) = answer.await.map_err(|source| none(admin, source))?;
    Ok((status, body.map_err(|error| broken(admin, error))?))
}

fn none(admin: &Place, source: Failed) -> NoAnswer {
    NoAnswer::None {
        admin: admin.to_string(),
        source,
    }
}

fn broken(admin: &Place, source: impl Into<BadBody>) -> NoAnswer {
    NoAnswer::Broken {
        admin: admin.to_string(),
        source: source.into(),
    }
}

// === impl NoAnswer ===

impl NoAnswer {
    pub fn may_pass(&self) -> bool {
        match self {
            NoAnswer::None { .. } | NoAnswer::Broken { .. } => true,
            NoAnswer::Problem { status, .. } => matches!(
                *status,
                StatusCode::TOO_MANY_REQUESTS
                    | StatusCode::BAD_GATEWAY
                    | StatusCode::SERVICE_UNAVAILABLE
                    | StatusCode::GATEWAY_TIMEOUT
            ),
        }
    }
}

// === impl Client ===

impl Client {
    /// The JSON answer for this path, which begins with `/`.
    ///
    /// # Errors
    /// When there is none, and why.
    pub async fn json(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Value, NoAnswer> {
        let answer = self.ask(method, path, body.into()).await?;
        serde_json::from_slice(&answer).map_err(|error| broken(&self.admin, error))
    }

    pub async fn get(&self, path: &str) -> Result<Value, NoAnswer> {
        self.json(Method::GET, path, "").await
    }

    /// The raw answer for this path.
    ///
    /// # Errors
    /// When there is none, and why.
    pub async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Vec<u8>, NoAnswer> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::ACCEPT, "application/json")
            .header(OWN_HEADER, "1");
        let answer = exchange(&self.admin, Some(&self.login), PATIENCE, request, body);
        let (status, body) = answer.await?;
        match status.is_success() {
            true => Ok(body),
            false => Err(problem(status, &body)),
        }
    }

    /// Follows server-sent events. `see`: each one, whole; false ends it.
    ///
    /// # Errors
    /// When there is no answer, or it breaks off.
    pub async fn events(
        &self,
        path: &str,
        mut see: impl FnMut(&str) -> bool,
    ) -> Result<(), NoAnswer> {
        let request = Request::get(path).header(header::ACCEPT, "text/event-stream");
        let following = async |mut requests: http::Requests| {
            let answer = requests.send(request, Bytes::new()).await?;
            let status = answer.status();
            let mut body = answer.into_body();
            if !status.is_success() {
                return Ok(Some((status, http::body(body, LONGEST_ANSWER).await)));
            }
            let mut begun = Vec::new();
            while let Some(frame) = body.frame().await {
                begun.extend_from_slice(frame?.data_ref().unwrap_or(&Bytes::new()));
                while let Some(end) = memmem::find(&begun, b"\n\n") {
                    let event: Vec<u8> = begun.drain(..end + 2).collect();
                    if !see(&String::from_utf8_lossy(&event)) {
                        return Ok(None);
                    }
                }
            }
            Ok::<_, Failed>(None)
        };
        let followed = self.admin.ask(Some(&self.login), PATIENCE, following);
        match followed.await.map_err(|source| none(&self.admin, source))? {
            None => Ok(()),
            Some((status, body)) => Err(problem(status, &body.unwrap_or_default())),
        }
    }
}

fn problem(status: StatusCode, body: &[u8]) -> NoAnswer {
    let problem = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let detail = match problem["detail"].as_str() {
        Some(detail) => detail.to_owned(),
        None if status == StatusCode::NOT_FOUND => {
            "this proxy has no API: `admin-api` is false, or it is older".to_owned()
        }
        None => format!("the proxy answers {status}"),
    };
    NoAnswer::Problem { status, detail }
}
