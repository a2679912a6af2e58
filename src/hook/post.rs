//! The little of HTTP that a hook needs: one POST on a connection of its own, within a bound. No pool, no redirects, no proxies.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::time::timeout;

use crate::http;
use crate::net::dial::connect;
use crate::tls;

/// For so long one POST may take, from the connect to the status of the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where dead letters are posted.
#[derive(Clone)]
pub struct Server {
    pub host: String,
    pub port: u16,
    /// How TLS is spoken with it, if it is.
    pub tls: Option<tls::Connector>,
    pub target: String,
    /// Name and password for HTTP Basic.
    pub user: Option<(Bytes, Bytes)>,
}

/// Why the server has not taken a batch, or nobody knows.
#[derive(Debug, Error)]
pub(super) enum Failed {
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    #[error("no answer within {PATIENCE:?}")]
    TooLate,
    #[error("the connection failed: {0}")]
    Connection(#[from] hyper::Error),
    #[error("it answers with {0}")]
    Status(StatusCode),
    #[error("the request cannot be made: {0}")]
    Request(#[from] hyper::http::Error),
}

// === impl Server ===

impl Server {
    /// Done when the server has said that all is well.
    pub(super) async fn post(&self, body: Bytes) -> Result<(), Failed> {
        match timeout(PATIENCE, self.post_at_leisure(body)).await {
            Ok(posted) => posted,
            Err(_) => Err(Failed::TooLate),
        }
    }

    async fn post_at_leisure(&self, body: Bytes) -> Result<(), Failed> {
        let mut request = Request::post(&self.target)
            .header(header::HOST, http::host(&self.host, self.port))
            .header(header::CONTENT_TYPE, "application/json");
        if let Some((user, password)) = &self.user {
            request = request.header(header::AUTHORIZATION, http::basic(user, password));
        }
        let request = request.body(Full::new(body))?;
        let stream = connect(&self.host, self.port, self.tls.as_ref())
            .await
            .map_err(Failed::Connect)?;
        let (mut requests, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let answer = requests.send_request(request);
        tokio::pin!(answer);
        let answer = tokio::select! {
            answer = &mut answer => answer,
            // It has ended: whoever waits is told so.
            _ = connection => answer.await,
        };
        match answer?.status() {
            status if status.is_success() => Ok(()),
            status => Err(Failed::Status(status)),
        }
    }
}
