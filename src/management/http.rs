//! `GET` of JSON from the management API, and few changes, several on one connection, each within bounds.

use std::io::{self, Read};
use std::time::{Duration, SystemTime};

use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::http::request::Builder;
use hyper::{Request, Response, StatusCode, header};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::http::{self, BadBody, Failed, Login, Place, Requests};

/// For all answers of one connection together.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of one answer: a hundred thousand bindings.
const LONGEST_ANSWER: usize = 32 << 20;
/// Bytes of a health check: two alarms per node.
const LONGEST_CHECK: usize = 1 << 20;
const PIECES: usize = 4;

#[derive(Clone)]
pub struct Api {
    pub place: Place,
    /// RabbitMQ's `management.path_prefix`, which precedes `/api`. No slash at its end.
    pub path: String,
    /// The user needs the tag `management`.
    pub login: Login,
}

pub(super) struct Connection {
    prefix: String,
    requests: Requests,
    /// Has answered as the management API does, so that a 404 is its own.
    is_the_api: bool,
}

pub(super) struct Pieces {
    from: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

#[derive(Debug, Error)]
pub enum NoAnswer {
    #[error(transparent)]
    Failed(#[from] Failed),
    #[error("{path} is answered with {status}{}", hint(*.status))]
    Status { path: String, status: StatusCode },
    #[error("the answer to {path} cannot be read: {source}")]
    Body { path: String, source: BadBody },
    #[error("the answer to {path} is not RabbitMQ's: {source}")]
    Json {
        path: String,
        source: serde_json::Error,
    },
}

fn hint(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => {
            ": a wrong password, or a user without the tag `management` or without rights in the vhost"
        }
        StatusCode::NOT_FOUND => {
            ": is this the management API, and has its user rights in the vhost?"
        }
        _ => "",
    }
}

// === impl NoAnswer ===

impl NoAnswer {
    /// The API works, but this user may not read that.
    pub fn is_refusal(&self) -> bool {
        matches!(self, NoAnswer::Status { status, .. } if [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(status))
    }
}

// === impl Api ===

impl Api {
    pub(super) async fn ask<T>(
        &self,
        questions: impl AsyncFnOnce(Connection) -> Result<T, NoAnswer>,
    ) -> Result<T, NoAnswer> {
        self.ask_within(PATIENCE, questions).await
    }

    pub(super) async fn ask_within<T>(
        &self,
        patience: Duration,
        questions: impl AsyncFnOnce(Connection) -> Result<T, NoAnswer>,
    ) -> Result<T, NoAnswer> {
        let questions = async |requests| {
            questions(Connection {
                prefix: self.path.clone(),
                requests,
                is_the_api: false,
            })
            .await
        };
        self.place.ask(Some(&self.login), patience, questions).await
    }
}

// === impl Connection ===

impl Connection {
    pub(super) async fn get<T: DeserializeOwned + Send + 'static>(
        &mut self,
        path: String,
    ) -> Result<T, NoAnswer> {
        let body = self.body(&path).await?;
        // Many bindings take a while, and sessions run on these threads.
        let parsed = tokio::task::spawn_blocking(move || serde_json::from_slice(&body)).await;
        match parsed {
            Ok(parsed) => parsed.map_err(|source| NoAnswer::Json { path, source }),
            Err(_) => Err(Failed::TooLate(PATIENCE).into()), // the process is ending
        }
    }

    /// `None`: there is no such thing. Behind a wrong path everything is missing: that is an error.
    pub(super) async fn find<T: DeserializeOwned + Send + 'static>(
        &mut self,
        path: String,
    ) -> Result<Option<T>, NoAnswer> {
        match self.get(path).await {
            Err(NoAnswer::Status { status, .. }) if status == StatusCode::NOT_FOUND => {
                if !self.is_the_api {
                    let _: IgnoredAny = self.get("whoami".to_owned()).await?;
                    self.is_the_api = true;
                }
                Ok(None)
            }
            found => found.map(Some),
        }
    }

    /// For answers of any length: `read` runs on a blocking thread while the answer arrives.
    pub(super) async fn get_in_pieces<T: Send + 'static>(
        &mut self,
        path: String,
        read: impl FnOnce(Pieces) -> serde_json::Result<T> + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let mut body = self.answer(&path).await?.into_body();
        let (pieces, from) = mpsc::channel(PIECES);
        let piece = Bytes::new();
        let reading = tokio::task::spawn_blocking(move || read(Pieces { from, piece }));
        while let Some(frame) = body.frame().await {
            let piece = frame.map(|frame| frame.into_data().unwrap_or_default());
            if pieces.send(piece.map_err(io::Error::other)).await.is_err() {
                break; // it cannot be read, or is more than is wanted
            }
        }
        drop(pieces);
        match reading.await {
            Ok(read) => read.map_err(|source| NoAnswer::Json { path, source }),
            Err(_) => Err(Failed::TooLate(PATIENCE).into()), // the process is ending
        }
    }

    /// For health checks, which answer 503 for problems.
    pub(super) async fn check<T>(
        &mut self,
        path: &str,
        read: fn(&[u8]) -> serde_json::Result<T>,
    ) -> Result<T, NoAnswer> {
        let answer = self.any_answer(path).await?;
        let status = answer.status();
        let path = path.to_owned();
        if ![StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE].contains(&status) {
            return Err(NoAnswer::Status { path, status });
        }
        match http::body(answer.into_body(), LONGEST_CHECK).await {
            Ok(body) => read(&body).map_err(|source| NoAnswer::Json { path, source }),
            Err(source) => Err(NoAnswer::Body { path, source }),
        }
    }

    pub(super) async fn date(&mut self, path: &str) -> Result<SystemTime, NoAnswer> {
        let answer = self.answer(path).await?;
        let date = answer.headers().get(header::DATE);
        let date = date.and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
        date.ok_or_else(|| NoAnswer::Body {
            path: path.to_owned(),
            source: "it has no date".into(),
        })
    }

    pub(super) async fn put(&mut self, path: &str, json: &Value) -> Result<(), NoAnswer> {
        let body = json.to_string();
        self.change(Request::put(self.url(path)), path, body).await
    }

    /// Also when there is no such thing.
    pub(super) async fn delete(&mut self, path: &str) -> Result<(), NoAnswer> {
        let deleted = self
            .change(Request::delete(self.url(path)), path, String::new())
            .await;
        match deleted {
            Err(NoAnswer::Status { status, .. }) if status == StatusCode::NOT_FOUND => Ok(()),
            deleted => deleted,
        }
    }

    async fn change(&mut self, request: Builder, path: &str, body: String) -> Result<(), NoAnswer> {
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let answer = self.requests.send(request, body).await?;
        let status = answer.status();
        // The connection takes the next request when this one is read to its end.
        let _ = http::body(answer.into_body(), LONGEST_CHECK).await;
        let path = path.to_owned();
        match status.is_success() {
            true => Ok(()),
            false => Err(NoAnswer::Status { path, status }),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}/api/{path}", self.prefix)
    }

    async fn body(&mut self, path: &str) -> Result<Vec<u8>, NoAnswer> {
        let answer = self.answer(path).await?;
        let body = http::body(answer.into_body(), LONGEST_ANSWER).await;
        body.map_err(|source| NoAnswer::Body {
            path: path.to_owned(),
            source,
        })
    }

    async fn answer(&mut self, path: &str) -> Result<Response<Incoming>, NoAnswer> {
        let answer = self.any_answer(path).await?;
        match answer.status() {
            StatusCode::OK => Ok(answer),
            status => Err(NoAnswer::Status {
                path: path.to_owned(),
                status,
            }),
        }
    }

    async fn any_answer(&mut self, path: &str) -> Result<Response<Incoming>, NoAnswer> {
        let request = Request::get(self.url(path)).header(header::ACCEPT, "application/json");
        Ok(self.requests.send(request, Bytes::new()).await?)
    }
}

// === impl Pieces ===

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.from.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None => return Ok(0),
            }
        }
        let bytes = (&*self.piece).read(into)?;
        self.piece.advance(bytes);
        Ok(bytes)
    }
}
