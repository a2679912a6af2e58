//! The HTTP server of the admin port. Whoever reaches it may read everything it shows: no credentials, no bodies.
//!
//! - `GET /` lists the endpoints
//! - `GET /healthz` answers 200 while the process works
//! - `GET /readyz` answers 200 when clients shall be sent here, else 503 and the reasons, one a line
//! - `GET /metrics` is for Prometheus

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::Readiness;
use crate::telemetry::Metrics;

const ENDPOINTS: &str = "\
dlx-proxy

/healthz   200 while the process works
/readyz    200 when clients shall be sent here, else 503 and the reasons
/metrics   for Prometheus
";

/// As Prometheus asks for it.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What those who ask may take. Whatever is beyond waits in the kernel's queue, or is let go.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Connections at once: probes, scrapers, people.
    connections: usize,
    /// How long the head of a request may take, counted from the end of the one before.
    head: Duration,
    /// How long a connection may last, so that one whose answer is never read ends too.
    life: Duration,
    /// How long an answer may still be written after that, or when the process ends.
    last_answer: Duration,
}

const LIMITS: Limits = Limits {
    connections: 64,
    head: Duration::from_secs(10),
    life: Duration::from_secs(60),
    last_answer: Duration::from_millis(250),
};

/// After an accept that failed (no file descriptors left), others get time to close some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop`.
pub async fn serve(
    listener: TcpListener,
    metrics: Metrics,
    readiness: Readiness,
    stop: impl Future<Output = ()>,
) {
    serve_within(LIMITS, listener, metrics, readiness, stop).await;
}

async fn serve_within(
    limits: Limits,
    listener: TcpListener,
    metrics: Metrics,
    readiness: Readiness,
    stop: impl Future<Output = ()>,
) {
    let router = Router::new()
        .route("/", get(ENDPOINTS))
        .route("/healthz", get("ok\n"))
        .route("/readyz", get(readyz).with_state(readiness))
        .route("/metrics", get(exposition).with_state(metrics));
    let permits = Arc::new(Semaphore::new(limits.connections));
    let (stopped, connections) = (CancellationToken::new(), TaskTracker::new());
    let mut stop = pin!(stop);
    loop {
        let accepted = async {
            let permit = permits.clone().acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            () = &mut stop => break,
            accepted = accepted => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let answered = answer(limits, stream, router.clone(), stopped.clone());
                connections.spawn(async move {
                    answered.await;
                    drop(permit);
                });
            }
            Err(error) => {
                warn!(%error, "cannot accept at the admin port");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    stopped.cancel();
    connections.close();
    connections.wait().await;
}

/// One connection. How it ends is its client's own affair.
async fn answer(limits: Limits, stream: TcpStream, router: Router, stopped: CancellationToken) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stopped.cancelled() => {}
        () = tokio::time::sleep(limits.life) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(limits.last_answer, connection).await;
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
mod tests {
    use std::io::{self, Read, Write};
    use std::net::{SocketAddr, TcpStream};

    use tokio::task::JoinHandle;

    use super::super::ask;
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);
    const PATIENT: Limits = Limits {
        head: LONG,
        life: LONG,
        ..LIMITS
    };

    /// A server on a free port that ends with the test's runtime, or when it is told.
    async fn start(
        limits: Limits,
        readiness: Readiness,
    ) -> (SocketAddr, CancellationToken, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let server = serve_within(limits, listener, Metrics::new(), readiness, stopped);
        (address, stop, tokio::spawn(server))
    }

    /// What a test has to say to the server from beside the runtime.
    async fn beside<T: Send + 'static>(talk: impl FnOnce() -> T + Send + 'static) -> T {
        tokio::task::spawn_blocking(talk).await.expect("no panic")
    }

    /// Somebody who has asked half a question.
    fn half(address: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(address).expect("accepted");
        stream.write_all(b"GET /rea").expect("sent");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("an option");
        stream
    }

    /// Waits until the server lets somebody go, without an answer.
    fn is_let_go(mut stream: TcpStream) {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an end");
        assert!(!answer.contains("200"), "{answer}");
    }

    #[tokio::test]
    async fn readiness_is_asked_over_http() {
        let readiness = Readiness::new([]);
        let (address, ..) = start(LIMITS, readiness.clone()).await;
        let asked = async || beside(move || ask(address)).await;
        assert_eq!(asked().await.expect("answered"), "not listening yet\n");
        readiness.listening();
        assert_eq!(asked().await.expect("answered"), "");
    }

    #[tokio::test]
    async fn whoever_does_not_end_a_request_is_let_go() {
        let soon = Duration::from_millis(50);
        for limits in [
            Limits {
                head: soon,
                ..PATIENT
            },
            Limits {
                life: soon,
                ..PATIENT
            },
        ] {
            let (address, ..) = start(limits, Readiness::new([])).await;
            beside(move || is_let_go(half(address))).await;
        }
    }

    #[tokio::test]
    async fn the_end_does_not_wait_for_half_a_request() {
        let (address, stop, server) = start(PATIENT, Readiness::new([])).await;
        let waiting = beside(move || {
            let waiting = half(address);
            ask(address).expect("answered, so the one before is accepted");
            waiting
        })
        .await;
        stop.cancel();
        let ended = timeout(Duration::from_secs(20), server).await;
        ended.expect("in time").expect("no panic");
        beside(move || is_let_go(waiting)).await;
    }

    #[tokio::test]
    async fn one_too_many_waits_until_another_has_gone() {
        let one = Limits {
            connections: 1,
            ..PATIENT
        };
        let (address, ..) = start(one, Readiness::new([])).await;
        let first = beside(move || half(address)).await;
        let early = beside(move || ask(address)).await.expect_err("no room");
        assert_eq!(early.kind(), io::ErrorKind::WouldBlock);
        drop(first);
        beside(move || ask(address)).await.expect("answered");
    }
}
