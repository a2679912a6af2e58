//! The HTTP server of the admin port. Whoever reaches it may read all of this, which has no credentials and no bodies:
//!
//! - `GET /` lists the endpoints
//! - `GET /healthz` answers 200 while the process works
//! - `GET /readyz` answers 200 when clients shall be sent here, else 503 and the reasons, one a line
//! - `GET /metrics` is for Prometheus
//! - `GET /redeclared` lists the queues with another target than their arguments say (`declares = "lenient"`)
//!
//! Below `/api` it asks for a login: see `api.rs`.

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
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Readiness;
use super::api::{self, Peer};
use super::looks::Looks;
use crate::machine::{Limit, LiveLimits};
use crate::net::permits::{Permits, accept};
use crate::redrives::Redrives;
use crate::registry::intake_name::Names;
use crate::registry::live::LivePolicies;
use crate::telemetry::Metrics;

const ENDPOINTS: &str = "\
dlx-proxy

/healthz      200 while the process works
/readyz       200 when clients shall be sent here, else 503 and the reasons
/metrics      for Prometheus
/redeclared   queues with another target than their arguments say (`declares`: lenient)
/api/v1       dead letters, for users of the broker (`admin-api`)
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
    /// Where queues with another target stand, and how the names of intake exchanges are read.
    pub redeclared: (LivePolicies, Names),
    /// How many may ask at once.
    pub permits: Permits,
    /// How long each may take.
    pub limits: LiveLimits,
    /// Looks into queues, and what goes out of them, if the API is there.
    pub api: Option<(Looks, Redrives)>,
}

/// Connections that have not sent a whole request yet, the oldest first. Clones are the same.
#[derive(Clone, Default)]
struct Silent(Arc<Mutex<BTreeMap<u64, CancellationToken>>>);

// === impl Server ===

impl Server {
    /// Serves until `stop`.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let router = Router::new()
            .route("/", get(ENDPOINTS))
            .route("/healthz", get("ok\n"))
            .route("/readyz", get(readyz).with_state(self.readiness.clone()))
            .route("/metrics", get(exposition).with_state(self.metrics.clone()))
            .route(
                "/redeclared",
                get(redeclared).with_state(self.redeclared.clone()),
            );
        let router = match self.api.clone() {
            Some((looks, redrives)) => router.merge(api::router(looks, redrives)),
            None => router,
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
                let (stream, peer) = accept(&listener).await;
                (stream, peer, self.permits.acquire(met).await)
            };
            let (stream, peer, permit) = tokio::select! {
                () = &mut stop => break,
                next = next => next,
            };
            let cut_off = silent.came(number);
            let heard = silent.clone();
            let router = TowerToHyperService::new(router.clone());
            let (working, works) = watch::channel(false);
            let service = service_fn(move |mut request: Request<Incoming>| {
                heard.spoke(number);
                working.send_replace(true);
                request.extensions_mut().insert(Peer(peer.ip()));
                let (answer, working) = (router.call(request), working.clone());
                async move {
                    let answer = answer.await;
                    working.send_replace(false);
                    answer
                }
            });
            let answered = self.clone().answer(stream, service, works, stopped.clone());
            let silent = silent.clone();
            connections.spawn(async move {
                cut_off.run_until_cancelled(answered).await;
                silent.spoke(number);
                drop(permit);
            });
        }
        stopped.cancel();
        connections.close();
        connections.wait().await;
        if let Some((looks, _)) = &self.api {
            looks.end().await;
        }
    }

    /// One request, one answer, and the end: so no peer holds a connection. The peer has to send and to read in time; how long an answer is worked
    /// on has bounds of its own. How it ends is its client's own affair.
    async fn answer<S>(
        self,
        stream: TcpStream,
        service: S,
        works: watch::Receiver<bool>,
        stopped: CancellationToken,
    ) where
        S: Service<Request<Incoming>, Response = Response, Error = Infallible>,
    {
        let connection = http1::Builder::new()
            .keep_alive(false)
            .header_read_timeout(None)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let in_time = self.limits.now().admin_timeout;
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

/// Done when the peer had so much time: to send its request, and once more from when there was an answer.
async fn too_slow(mut works: watch::Receiver<bool>, in_time: Duration) {
    loop {
        let begun = works.wait_for(|works| *works);
        if timeout(in_time, begun).await.is_err() {
            return;
        }
        // The sender goes with the connection, and this future with it.
        if works.wait_for(|works| !*works).await.is_err() {
            return std::future::pending().await;
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

async fn redeclared(State((policies, names)): State<(LivePolicies, Names)>) -> String {
    super::redeclared::list(&policies, &names)
}

#[cfg(test)]
mod tests;
