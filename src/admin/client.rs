//! Asks the API of a proxy that runs.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use thiserror::Error;
use tokio::time::timeout;

use super::{OWN_HEADER, Place};
use crate::http::{self, BadBody};
use crate::net::dial::connect;

/// How long the proxy may take to accept. The answer it bounds itself, by `look-timeout`.
const CONNECT: Duration = Duration::from_secs(5);
/// Octets of one answer.
const LONGEST_ANSWER: usize = 256 << 20;

/// Where the admin port is, and as whom to ask.
pub struct Client {
    pub admin: Place,
    pub user: String,
    pub password: String,
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum NoAnswer {
    #[error("no answer from {admin}")]
    Connect {
        admin: String,
        /// What the system says, or TLS.
        source: io::Error,
    },
    /// The connection ended, or what came is not HTTP.
    #[error("{admin} does not answer as an admin port does")]
    Broken { admin: String, source: BadBody },
    /// The proxy says why there is none.
    #[error("{detail}")]
    Problem { status: StatusCode, detail: String },
}

// === impl NoAnswer ===

impl NoAnswer {
    /// Whether there may be an answer if the same is asked again.
    pub fn may_pass(&self) -> bool {
        match self {
            NoAnswer::Connect { .. } | NoAnswer::Broken { .. } => true,
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
    /// The JSON that this path, which begins with `/`, is answered with.
    ///
    /// # Errors
    /// When there is none, and why.
    pub async fn get(&self, path: &str) -> Result<Value, NoAnswer> {
        let answer = self.ask(Method::GET, path, Bytes::new()).await?;
        self.json(&answer)
    }

    /// What this path is answered with, whatever it is.
    ///
    /// # Errors
    /// When there is no answer, and why.
    pub async fn file(&self, path: &str) -> Result<Vec<u8>, NoAnswer> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// The same of a request that changes something.
    ///
    /// # Errors
    /// When there is no answer, and why.
    pub async fn post(&self, path: &str) -> Result<Value, NoAnswer> {
        self.send(path, Bytes::new()).await
    }

    /// The same of a request with a file.
    ///
    /// # Errors
    /// When there is no answer, and why.
    pub async fn send(&self, path: &str, file: Bytes) -> Result<Value, NoAnswer> {
        let answer = self.ask(Method::POST, path, file).await?;
        self.json(&answer)
    }

    fn json(&self, answer: &[u8]) -> Result<Value, NoAnswer> {
        serde_json::from_slice(answer).map_err(|error| self.broken(error))
    }

    async fn ask(&self, method: Method, path: &str, file: Bytes) -> Result<Vec<u8>, NoAnswer> {
        let (status, body) = self.exchange(method, path, file).await?;
        if status.is_success() {
            return Ok(body);
        }
        let problem = serde_json::from_slice::<Value>(&body).ok();
        let detail = problem
            .as_ref()
            .and_then(|problem| problem["detail"].as_str());
        let detail = match detail {
            Some(detail) => detail.to_owned(),
            None if status == StatusCode::NOT_FOUND => {
                "this proxy has no API: `admin-api` is false, or it is older".to_owned()
            }
            None => format!("the proxy answers {status}"),
        };
        Err(NoAnswer::Problem { status, detail })
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        file: Bytes,
    ) -> Result<(StatusCode, Vec<u8>), NoAnswer> {
        let Place { host, port, tls } = &self.admin;
        let connected = timeout(CONNECT, connect(host, *port, tls.as_ref())).await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let stream = connected.map_err(|source| NoAnswer::Connect {
            admin: self.admin.to_string(),
            source,
        })?;
        let broken = |error: hyper::Error| self.broken(error);
        let opened = http1::handshake(TokioIo::new(stream)).await;
        let (mut requests, connection) = opened.map_err(broken)?;
        tokio::spawn(connection);
        let (user, password) = (self.user.as_bytes(), self.password.as_bytes());
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, http::host(host, *port))
            .header(header::AUTHORIZATION, http::basic(user, password))
            .header(header::ACCEPT, "application/json")
            .header(OWN_HEADER, "1")
            .body(Full::new(file))
            .map_err(|error| self.broken(error))?;
        let answer = requests.send_request(request).await.map_err(broken)?;
        let status = answer.status();
        let body = http::body(answer.into_body(), LONGEST_ANSWER).await;
        Ok((status, body.map_err(|error| self.broken(error))?))
    }

    fn broken(&self, source: impl Into<BadBody>) -> NoAnswer {
        NoAnswer::Broken {
            admin: self.admin.to_string(),
            source: source.into(),
        }
    }
}
