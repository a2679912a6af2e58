//! The one HTTP client of this program: requests on a connection of their own, each within bounds. No pool, no redirects, no proxies. The management
//! API, the server of `on-dead-letter` and admin ports are asked with it.

use std::io;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::http::request::Builder;
use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use thiserror::Error;
use tokio::time::timeout;

use crate::net::dial::connect;

mod place;

pub use place::Place;

/// Escapes everything that could have a meaning in a path or query.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Connect timeout, whatever else is waited for.
const CONNECT: Duration = Duration::from_secs(5);

pub(crate) type BadBody = Box<dyn std::error::Error + Send + Sync>;

pub type Login = (Bytes, Bytes);

pub(crate) struct Requests {
    place: Place,
    login: Option<Login>,
    sender: SendRequest<Full<Bytes>>,
}

#[derive(Debug, Error)]
pub enum Failed {
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    #[error("no answer within {0:?}")]
    TooLate(Duration),
    #[error("the connection failed: {0}")]
    Connection(#[from] hyper::Error),
    #[error("the request cannot be made: {0}")]
    Request(#[from] hyper::http::Error),
}

// === impl Place ===

impl Place {
    /// Makes requests on one connection, and closes it. `patience`: for all of them together.
    pub(crate) async fn ask<T, E: From<Failed>>(
        &self,
        login: Option<&Login>,
        patience: Duration,
        questions: impl AsyncFnOnce(Requests) -> Result<T, E>,
    ) -> Result<T, E> {
        let asking = async {
            let connecting = connect(&self.host, self.port, self.tls.as_ref());
            let connected = timeout(CONNECT, connecting).await;
            let connected = connected.map_err(|_| Failed::TooLate(CONNECT))?;
            let stream = TokioIo::new(connected.map_err(Failed::Connect)?);
            let (sender, connection) = http1::handshake(stream).await.map_err(Failed::from)?;
            let asking = questions(Requests {
                place: self.clone(),
                login: login.cloned(),
                sender,
            });
            tokio::pin!(asking);
            tokio::select! {
                answers = &mut asking => answers,
                // It has ended: whoever asks now is told so.
                _ = connection => asking.await,
            }
        };
        let late = |_| Err(Failed::TooLate(patience).into());
        timeout(patience, asking).await.unwrap_or_else(late)
    }
}

// === impl Requests ===

impl Requests {
    pub(crate) async fn send(
        &mut self,
        request: Builder,
        body: impl Into<Bytes>,
    ) -> Result<Response<Incoming>, Failed> {
        let mut request = request.header(header::HOST, self.place.to_string());
        if let Some((user, password)) = &self.login {
            request = request.header(header::AUTHORIZATION, basic(user, password));
        }
        let request: Request<_> = request.body(Full::new(body.into()))?;
        Ok(self.sender.send_request(request).await?)
    }
}

pub(crate) fn basic(user: &[u8], password: &[u8]) -> String {
    let credentials = BASE64_STANDARD.encode([user, b":", password].concat());
    format!("Basic {credentials}")
}

pub(crate) fn escaped(bytes: &[u8]) -> String {
    percent_encode(bytes, ESCAPED).to_string()
}

pub(crate) async fn body(body: Incoming, longest: usize) -> Result<Vec<u8>, BadBody> {
    let mut body = Limited::new(body, longest);
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        bytes.extend_from_slice(frame?.data_ref().unwrap_or(&Bytes::new()));
    }
    Ok(bytes)
}
