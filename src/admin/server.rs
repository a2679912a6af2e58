//! The HTTP server of the admin port. Whoever reaches it may read everything it shows: no credentials, no bodies.
//!
//! - `GET /` lists the endpoints
//! - `GET /healthz` answers 200 while the process works
//! - `GET /readyz` answers 200 when clients shall be sent here, else 503 and the reasons, one a line
//! - `GET /metrics` is for Prometheus

use std::future::Future;
use std::io;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

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

/// Serves until `stop`.
///
/// # Errors
/// The listener fails for good.
pub async fn serve(
    listener: TcpListener,
    metrics: Metrics,
    readiness: Readiness,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let router = Router::new()
        .route("/", get(ENDPOINTS))
        .route("/healthz", get("ok\n"))
        .route("/readyz", get(readyz).with_state(readiness))
        .route("/metrics", get(exposition).with_state(metrics));
    axum::serve(listener, router)
        .with_graceful_shutdown(stop)
        .await
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
    use std::net::SocketAddr;

    use super::super::ask;
    use super::*;

    /// A server on a free port that ends with the test's runtime.
    async fn start(readiness: Readiness) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(serve(
            listener,
            Metrics::new(),
            readiness,
            std::future::pending(),
        ));
        address
    }

    #[tokio::test]
    async fn readiness_is_asked_over_http() {
        let readiness = Readiness::new([]);
        let address = start(readiness.clone()).await;
        let asked = async || {
            tokio::task::spawn_blocking(move || ask(address))
                .await
                .expect("no panic")
        };
        assert_eq!(asked().await.expect("answered"), "not listening yet\n");
        readiness.listening();
        assert_eq!(asked().await.expect("answered"), "");
    }
}
