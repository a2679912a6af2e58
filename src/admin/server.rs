//! The HTTP server of the admin port. Whoever reaches it may read everything it shows: no credentials, no bodies.
//!
//! - `GET /` lists the endpoints
//! - `GET /healthz` answers 200 while the process works
//! - `GET /readyz` answers 200 when clients shall be sent here, else 503 and the reasons, one a line
//! - `GET /metrics` is for Prometheus
//! - `GET /redeclared` lists the queues with another target than their arguments say (`declares = "lenient"`)

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
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Readiness;
use crate::machine::{Limit, LiveLimits};
use crate::net::permits::{Permits, accept};
use crate::registry::intake_name::Names;
use crate::registry::live::LivePolicies;
use crate::telemetry::Metrics;

const ENDPOINTS: &str = "\
dlx-proxy

/healthz      200 while the process works
/readyz       200 when clients shall be sent here, else 503 and the reasons
/metrics      for Prometheus
/redeclared   queues with another target than their arguments say (`declares`: lenient)
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
                let (stream, _) = accept(&listener).await;
                (stream, self.permits.acquire(met).await)
            };
            let (stream, permit) = tokio::select! {
                () = &mut stop => break,
                next = next => next,
            };
            let cut_off = silent.came(number);
            let heard = silent.clone();
            let router = TowerToHyperService::new(router.clone());
            let service = service_fn(move |request| {
                heard.spoke(number);
                router.call(request)
            });
            let answered = self.clone().answer(stream, service, stopped.clone());
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
    }

    /// One request, one answer, and the end, all in time: so no peer holds a connection. How it ends is its client's own affair.
    async fn answer<S>(self, stream: TcpStream, service: S, stopped: CancellationToken)
    where
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
            () = tokio::time::sleep(in_time) => self.metrics.limit_met(Limit::AdminTimeout),
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
mod tests {
    use std::io::{self, Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::time::Instant;

    use tokio::task::JoinHandle;

    use super::super::ask;
    use super::*;
    use crate::machine::Limits;

    const LONG: Duration = Duration::from_secs(3600);

    /// A server on a free port that ends with the test's runtime, or when it is told.
    struct Served {
        address: SocketAddr,
        metrics: Metrics,
        stop: CancellationToken,
        task: JoinHandle<()>,
    }

    /// `permits`: how many may ask at once, `patience`: for how long.
    async fn start(permits: usize, patience: Duration, readiness: Readiness) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (metrics, stop) = (Metrics::new(), CancellationToken::new());
        let server = Server {
            metrics: metrics.clone(),
            readiness,
            redeclared: Default::default(),
            permits: Permits::new(permits),
            limits: LiveLimits::new(Limits {
                admin_timeout: patience,
                ..Limits::of_tests()
            }),
        };
        let task = tokio::spawn(server.serve(listener, stop.clone().cancelled_owned()));
        Served {
            address,
            metrics,
            stop,
            task,
        }
    }

    impl Served {
        fn has_met(&self, limit: &str) -> bool {
            let sample = format!("dlx_proxy_limits_met_total{{limit=\"{limit}\"}} 1\n");
            self.metrics.encode().contains(&sample)
        }
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

    /// Waits until the server lets somebody go, without an answer; what it has not read makes that a reset.
    fn is_cut_off(mut stream: TcpStream) {
        let mut answer = String::new();
        if let Err(error) = stream.read_to_string(&mut answer) {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
        assert!(!answer.contains("200"), "{answer}");
    }

    /// What is answered, as soon as anything is: [`ask`] has not much patience, and a machine may be busy.
    fn answer(address: SocketAddr) -> String {
        let begun = Instant::now();
        loop {
            match ask(address) {
                Ok(answer) => return answer,
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
            }
        }
    }

    #[tokio::test]
    async fn readiness_is_asked_over_http() {
        let readiness = Readiness::new([]);
        let Served { address, .. } = start(1, LONG, readiness.clone()).await;
        let asked = async || beside(move || answer(address)).await;
        assert_eq!(asked().await, "not listening yet\n");
        readiness.listening();
        assert_eq!(asked().await, "");
    }

    #[tokio::test]
    async fn whoever_does_not_end_a_request_is_cut_off() {
        let soon = Duration::from_millis(50);
        let served = start(1, soon, Readiness::new([])).await;
        let address = served.address;
        beside(move || is_cut_off(half(address))).await;
        assert!(served.has_met("admin-timeout"));
    }

    #[tokio::test]
    async fn the_end_does_not_wait_for_half_a_request() {
        let served = start(2, LONG, Readiness::new([])).await;
        let address = served.address;
        let waiting = beside(move || {
            let waiting = half(address);
            answer(address); // so the one before is accepted
            waiting
        })
        .await;
        served.stop.cancel();
        let ended = timeout(Duration::from_secs(20), served.task).await;
        ended.expect("in time").expect("no panic");
        beside(move || is_cut_off(waiting)).await;
    }

    #[tokio::test]
    async fn one_too_many_takes_the_place_of_the_oldest_that_has_not_asked() {
        let served = start(2, LONG, Readiness::new([])).await;
        let address = served.address;
        beside(move || {
            let (oldest, mut newer) = (half(address), half(address));
            answer(address);
            is_cut_off(oldest);
            newer.write_all(b"dyz HTTP/1.0\r\n\r\n").expect("sent");
            let mut told = String::new();
            newer.read_to_string(&mut told).expect("an answer");
            assert!(told.contains("503"), "{told}");
        })
        .await;
        assert!(served.has_met("max-admin-connections"));
    }

    /// Whoever asked is not cut off: it is answered, and the next one waits for that. (So it is with all that silent ones do not hold up.)
    #[test]
    fn whoever_has_asked_is_not_cut_off() {
        let silent = Silent::default();
        let (first, second) = (silent.came(1), silent.came(2));
        silent.spoke(1);
        silent.let_the_oldest_go();
        silent.let_the_oldest_go();
        assert!(!first.is_cancelled());
        assert!(second.is_cancelled());
    }
}
