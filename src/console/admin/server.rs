//! The HTTP server of the admin port. Whoever reaches it may read all of this, which has no credentials and no bodies:
//!
//! - `GET /` lists these, where there are no pages for browsers
//! - `GET /healthz` answers 200 while the process works
//! - `GET /readyz` answers 200 when clients should be sent here, else 503 and the reasons, one a line
//! - `GET /metrics` is for Prometheus
//!
//! All else asks for a login: `api.rs` has what is below `/api`, `web.rs` the pages for browsers.

use std::convert::Infallible;
use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::api::{self, Api, Peer};
use super::elsewhere::OverTls;
use super::newcomers::Newcomers;
use super::pace::time_for;
use super::problem::Problem;
use super::rooms::{LIVE_FOR, Live, Rooms};
use super::web;
use crate::machine::{Limit, LiveLimits};
use crate::net::permits::Permit;
use crate::net::ports::{Came, Ports};
use crate::net::stream::{Plain, Socket};
use crate::net::workers::Workers;
use crate::readiness::Readiness;
use crate::telemetry::Metrics;
use crate::tls::Acceptor;

const ENDPOINTS: &str = "\
dlx-proxy

/healthz      200 while the process works
/readyz       200 when clients should be sent here, else 503 and the reasons
/metrics      for Prometheus

`admin-api = true` adds dead letters, for users of the broker.
";

const OPEN: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Bytes of a connection waiting to be written, and of a request head.
const BUFFER: usize = 64 << 10;

const FULL: &str =
    "as many requests as `max-admin-connections` allows are worked on already; try again soon";

const LAST_ANSWER: Duration = Duration::from_millis(250);

#[derive(Clone)]
pub struct Server {
    pub metrics: Metrics,
    pub readiness: Readiness,
    pub rooms: Rooms,
    pub workers: Workers,
    pub limits: LiveLimits,
    pub api: Option<Api>,
}

/// When a peer is too slow that sends a request or reads an answer. `None`: its answer is worked on.
type Deadline = Option<Instant>;

struct Asked {
    number: u64,
    newcomers: Newcomers,
    rooms: Rooms,
    metrics: Metrics,
    room: OnceLock<OwnedSemaphorePermit>,
    in_time: Duration,
    until: watch::Sender<Deadline>,
}

/// Ready when the connection is cut off, unless its answer is in progress.
async fn goes(cut_off: CancellationToken, until: watch::Receiver<Deadline>) {
    cut_off.cancelled().await;
    // What came at the last moment was read before.
    if until.borrow().is_none() {
        std::future::pending().await
    }
}

// === impl Server ===

impl Server {
    pub async fn serve(self, ports: Ports, stop: impl Future<Output = ()>) {
        let router = self.router();
        let (stopped, connections) = (CancellationToken::new(), TaskTracker::new());
        let newcomers = Newcomers::default();
        let mut stop = pin!(stop);
        for number in 0.. {
            let next = async {
                let came = ports.accept(&self.metrics).await;
                (came, self.room(&newcomers).await)
            };
            let (Came { stream, peer, tls }, permit) = tokio::select! {
                () = &mut stop => break,
                next = next => next,
            };
            // It is there: only clients may come by a Unix socket.
            let address = peer.map_or(Ipv4Addr::LOCALHOST.into(), |peer| peer.ip());
            let cut_off = newcomers.came(number);
            let in_time = self.limits.now().admin_timeout;
            let (until, slow) = watch::channel(Some(Instant::now() + in_time));
            let heard = slow.clone();
            let asked = Asked {
                number,
                newcomers: newcomers.clone(),
                rooms: self.rooms.clone(),
                metrics: self.metrics.clone(),
                room: OnceLock::new(),
                in_time,
                until,
            };
            let (asked, router) = (Arc::new(asked), TowerToHyperService::new(router.clone()));
            let over_tls = tls.is_some();
            let service = service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(Peer(address));
                over_tls.then(|| request.extensions_mut().insert(OverTls));
                let (asked, router) = (asked.clone(), router.clone());
                async move { Ok(asked.answer(request, router).await) }
            });
            let answered = self
                .clone()
                .answer((stream, tls), service, slow, stopped.clone());
            let newcomers = newcomers.clone();
            connections.spawn(async move {
                tokio::select! {
                    biased;
                    () = answered => {}
                    () = goes(cut_off, heard) => {}
                }
                newcomers.left(number);
                drop(permit);
            });
        }
        self.end(&stopped, &connections).await;
    }

    async fn end(&self, stopped: &CancellationToken, connections: &TaskTracker) {
        self.rooms.end();
        stopped.cancel();
        connections.close();
        connections.wait().await;
        if let Some(api) = &self.api {
            api.looks.end().await;
        }
    }

    fn router(&self) -> Router {
        let router = Router::new()
            .route("/healthz", get(works).with_state(self.workers.clone()))
            .route("/readyz", get(readyz).with_state(self.readiness.clone()))
            .route("/metrics", get(exposition).with_state(self.metrics.clone()));
        let Some(api) = self.api.clone() else {
            return router.route("/", get(ENDPOINTS));
        };
        router
            .merge(web::router(api.clone()))
            .merge(api::router(api))
    }

    /// A permit for a new connection. Idle ones make room, so `/healthz` is always answered.
    async fn room(&self, newcomers: &Newcomers) -> Permit {
        let met = || self.metrics.limit_met(Limit::AdminConnections);
        let mut permit = pin!(self.rooms.connection(met));
        tokio::select! {
            biased;
            permit = permit.as_mut() => return permit,
            () = newcomers.one_goes() => {}
        }
        permit.await
    }

    /// One request per connection, so that no peer keeps one. The peer must send and read in time;
    /// the work on an answer has other limits.
    async fn answer<S>(
        self,
        (stream, tls): (Plain, Option<Acceptor>),
        service: S,
        until: watch::Receiver<Deadline>,
        stopped: CancellationToken,
    ) where
        S: Service<Request<Incoming>, Response = Response, Error = Infallible>,
    {
        let dressed = async {
            match tls {
                Some(tls) => tls.accept(stream).await,
                None => Ok(Socket::Left(stream)),
            }
        };
        let served = async {
            let stream = tokio::select! {
                dressed = dressed => match dressed {
                    Ok(stream) => stream,
                    Err(error) => return debug!(%error, "a connection to the admin port did not come about"),
                },
                () = stopped.cancelled() => return,
            };
            let connection = http1::Builder::new()
                .keep_alive(false)
                .header_read_timeout(None)
                // What waits to be written when the last piece was taken is little, and a slow peer reads it in time.
                .max_buf_size(BUFFER)
                .serve_connection(TokioIo::new(stream), service);
            let mut connection = pin!(connection);
            tokio::select! {
                _ = connection.as_mut() => {}
                () = stopped.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    let _ = timeout(LAST_ANSWER, connection).await;
                }
            }
        };
        tokio::select! {
            () = served => {}
            () = too_slow(until) => self.metrics.limit_met(Limit::AdminTimeout),
        }
    }
}

// === impl Asked ===

impl Asked {
    async fn answer(
        &self,
        request: Request<Incoming>,
        router: TowerToHyperService<Router>,
    ) -> Response {
        if OPEN.contains(&request.uri().path()) {
            self.newcomers.reads(self.number);
        } else {
            self.newcomers.left(self.number);
            let Some(room) = self.rooms.request() else {
                self.metrics.limit_met(Limit::AdminConnections);
                return Problem::busy(FULL).into_response();
            };
            let _ = self.room.set(room);
        }
        self.until.send_replace(None);
        let Ok(answer) = router.call(request).await;
        let now = Instant::now();
        if answer.extensions().get::<Live>().is_some() {
            let until = now + LIVE_FOR + self.in_time;
            self.until.send_replace(Some(until));
            return answer;
        }
        self.until.send_replace(Some(now + self.in_time));
        self.watched(answer, now)
    }

    /// Each piece taken for writing gives the peer more time. A body with a length is one piece.
    fn watched(&self, answer: Response, answered: Instant) -> Response {
        if answer.body().size_hint().exact().is_some() {
            return answer;
        }
        let (until, in_time, mut read) = (self.until.clone(), self.in_time, 0);
        let told = move |piece: Frame<Bytes>| {
            read += piece.data_ref().map_or(0, |bytes| bytes.len() as u64);
            until.send_replace(Some(next_piece(read, answered, in_time)));
            piece
        };
        answer.map(|body| Body::new(body.map_frame(told)))
    }
}

/// When the next piece must be taken. Nobody reads for ever, a piece at a time.
fn next_piece(read: u64, answered: Instant, in_time: Duration) -> Instant {
    let slowest = (in_time + time_for(read)).min(LIVE_FOR);
    (Instant::now() + in_time).min(answered + slowest)
}

async fn too_slow(mut until: watch::Receiver<Deadline>) {
    loop {
        let deadline = *until.borrow_and_update();
        let changed = match deadline {
            Some(deadline) => match timeout_at(deadline, until.changed()).await {
                Ok(changed) => changed,
                Err(_) => return,
            },
            None => until.changed().await,
        };
        // The sender goes with the connection, and this future with it.
        if changed.is_err() {
            return std::future::pending().await;
        }
    }
}

async fn works(State(workers): State<Workers>) -> &'static str {
    workers.answer().await;
    "ok\n"
}

async fn readyz(State(readiness): State<Readiness>) -> impl IntoResponse {
    match readiness.reasons() {
        reasons if reasons.is_empty() => (StatusCode::OK, "ready\n".to_owned()),
        reasons => (StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n") + "\n"),
    }
}

async fn exposition(State(metrics): State<Metrics>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, OPENMETRICS)], metrics.encode())
}

#[cfg(test)]
mod tests;
