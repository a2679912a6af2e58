//! The HTTP server of the admin port. Whoever reaches it may read all of this, which has no credentials and no bodies:
//!
//! - `GET /` lists these, where there are no pages for browsers
//! - `GET /healthz` answers 200 while the process works
//! - `GET /readyz` answers 200 when clients shall be sent here, else 503 and the reasons, one a line
//! - `GET /metrics` is for Prometheus
//!
//! All else asks for a login: `api.rs` has what is below `/api`, `web.rs` the pages for browsers.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::Readiness;
use super::api::{self, Api, Moves, Peer, Queues};
use super::watches::{LIVE_FOR, Live};
use super::web::{self, Pages};
use crate::machine::{Limit, LiveLimits};
use crate::net::permits::Permits;
use crate::net::ports::{Came, Ports};
use crate::net::stream::{Plain, Socket, plain};
use crate::telemetry::Metrics;
use crate::tls::Acceptor;

const ENDPOINTS: &str = "\
dlx-proxy

/healthz      200 while the process works
/readyz       200 when clients shall be sent here, else 503 and the reasons
/metrics      for Prometheus

`admin-api = true` adds dead letters, for users of the broker.
";

/// As Prometheus asks for it.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// When the process ends, an answer that has begun may still be written for so long.
const LAST_ANSWER: Duration = Duration::from_millis(250);

/// All that an answer needs, and the bounds for those who ask.
#[derive(Clone)]
pub struct Server {
    /// The counters.
    pub metrics: Metrics,
    /// Whether clients shall be sent here.
    pub readiness: Readiness,
    /// How many may ask at once.
    pub permits: Permits,
    /// How long each may take.
    pub limits: LiveLimits,
    /// The API, if it is to be there.
    pub api: Option<Api>,
}

/// How far the answer of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The peer has to send its request, or to read its answer.
    Waits,
    /// It is worked on.
    Works,
    /// It goes on.
    Live,
}

/// Connections that have not sent a whole request yet, the oldest first. Clones are the same.
#[derive(Clone, Default)]
struct Silent(Arc<Mutex<BTreeMap<u64, CancellationToken>>>);

// === impl Server ===

impl Server {
    /// Serves until `stop`.
    pub async fn serve(self, ports: Ports, stop: impl Future<Output = ()>) {
        let router = Router::new()
            .route("/healthz", get("ok\n"))
            .route("/readyz", get(readyz).with_state(self.readiness.clone()))
            .route("/metrics", get(exposition).with_state(self.metrics.clone()));
        let router = match self.api.clone() {
            Some(api) => {
                let queues = Queues::new(api.looks.clone(), api.known.clone());
                router
                    .merge(web::router(self.pages(&api, queues.clone())))
                    .merge(api::router(api, queues))
            }
            None => router.route("/", get(ENDPOINTS)),
        };
        let (stopped, connections) = (CancellationToken::new(), TaskTracker::new());
        let silent = Silent::default();
        let mut stop = pin!(stop);
        for number in 0.. {
            // Whoever says nothing makes room for somebody who comes: so the question whether the process works is always answered.
            let met = || {
                self.metrics.limit_met(Limit::AdminConnections);
                silent.let_the_oldest_go();
            };
            let next = async {
                let came = ports.accept().await;
                (came, self.permits.acquire(met).await)
            };
            let (Came { stream, peer, tls }, permit) = tokio::select! {
                () = &mut stop => break,
                next = next => next,
            };
            let cut_off = silent.came(number);
            let heard = silent.clone();
            let router = TowerToHyperService::new(router.clone());
            let (working, works) = watch::channel(Stage::Waits);
            let service = service_fn(move |mut request: Request<Incoming>| {
                heard.spoke(number);
                working.send_replace(Stage::Works);
                request.extensions_mut().insert(Peer(peer.ip()));
                let (answer, working) = (router.call(request), working.clone());
                async move {
                    let answer = answer.await;
                    let is_live = |answer: &Response| answer.extensions().get::<Live>().is_some();
                    working.send_replace(match answer.as_ref().is_ok_and(is_live) {
                        true => Stage::Live,
                        false => Stage::Waits,
                    });
                    answer
                }
            });
            let answered =
                self.clone()
                    .answer((plain(stream), tls), service, works, stopped.clone());
            let silent = silent.clone();
            connections.spawn(async move {
                cut_off.run_until_cancelled(answered).await;
                silent.spoke(number);
                drop(permit);
            });
        }
        if let Some(api) = &self.api {
            api.watches.end();
        }
        stopped.cancel();
        connections.close();
        connections.wait().await;
        if let Some(api) = &self.api {
            api.looks.end().await;
        }
    }

    fn pages(&self, api: &Api, queues: Queues) -> Pages {
        Pages {
            moves: Moves {
                looks: api.looks.clone(),
                redrives: api.redrives.clone(),
            },
            queues,
            watches: api.watches.clone(),
            metrics: self.metrics.clone(),
            readiness: self.readiness.clone(),
            vhosts: api.vhosts.clone(),
        }
    }

    /// One request, one answer, and the end: so no peer holds a connection. The peer has to send and to read in time; how long an answer is worked
    /// on has bounds of its own. How it ends is its client's own affair.
    async fn answer<S>(
        self,
        (stream, tls): (Plain, Option<Acceptor>),
        service: S,
        works: watch::Receiver<Stage>,
        stopped: CancellationToken,
    ) where
        S: Service<Request<Incoming>, Response = Response, Error = Infallible>,
    {
        let in_time = self.limits.now().admin_timeout;
        let dressed = async {
            match tls {
                Some(tls) => tls.accept(stream).await,
                None => Ok(Socket::Left(stream)),
            }
        };
        let dressed = tokio::select! {
            dressed = timeout(in_time, dressed) => dressed,
            () = stopped.cancelled() => return,
        };
        let stream = match dressed {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                return debug!(%error, "the handshake of TLS on the admin port failed");
            }
            Err(_) => return self.metrics.limit_met(Limit::AdminTimeout),
        };
        let connection = http1::Builder::new()
            .keep_alive(false)
            .header_read_timeout(None)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => {}
            () = too_slow(works, in_time) => self.metrics.limit_met(Limit::AdminTimeout),
            () = stopped.cancelled() => {
                connection.as_mut().graceful_shutdown();
                let _ = timeout(LAST_ANSWER, connection).await;
            }
        }
    }
}

// === impl Silent ===

impl Silent {
    /// Somebody came, with the highest number so far; the token says when it has to go.
    fn came(&self, number: u64) -> CancellationToken {
        let cut_off = CancellationToken::new();
        self.all().insert(number, cut_off.clone());
        cut_off
    }

    /// It has sent a request, or has gone.
    fn spoke(&self, number: u64) {
        self.all().remove(&number);
    }

    fn let_the_oldest_go(&self) {
        if let Some((_, cut_off)) = self.all().pop_first() {
            cut_off.cancel();
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Done when the peer had so much time: to send its request, and once more from when there was an answer, or from when a live one has to end.
async fn too_slow(mut works: watch::Receiver<Stage>, in_time: Duration) {
    loop {
        let begun = works.wait_for(|stage| *stage != Stage::Waits);
        if timeout(in_time, begun).await.is_err() {
            return;
        }
        let answered = works.wait_for(|stage| *stage != Stage::Works).await;
        match answered.map(|stage| *stage) {
            Ok(Stage::Live) => return sleep(LIVE_FOR + in_time).await,
            Ok(_) => {}
            // The sender goes with the connection, and this future with it.
            Err(_) => return std::future::pending().await,
        }
    }
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
