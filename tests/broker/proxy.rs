//! A proxy in this process.

use std::net::SocketAddr;

use dlx_proxy::drain::{Drain, Ended};
use dlx_proxy::registry::policy::Mode;
use tokio::task::JoinHandle;

use super::admin;
use super::application::Application;
use super::lab::within;

/// A running proxy.
pub(crate) struct Proxy {
    pub address: SocketAddr,
    pub admin: Admin,
    drain: Drain,
    run: JoinHandle<Ended>,
}

/// The admin port of a proxy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admin(pub SocketAddr);

// === impl Proxy ===

impl Proxy {
    /// Starts one. It need not be ready yet.
    pub(crate) async fn start(
        upstream: &str,
        mode: Mode,
        vhosts: &str,
        settings: &[(&'static str, &str)],
    ) -> Proxy {
        let mode = match mode {
            Mode::Full => "full",
            Mode::RejectsOnly => "rejects-only",
            Mode::Off => "off",
        };
        let mut flags = vec![("upstream", upstream), ("mode", mode), ("vhosts", vhosts)];
        flags.extend_from_slice(settings);
        let flags: Vec<_> = flags
            .into_iter()
            .map(|(name, text)| (name, text.to_owned()))
            .collect();
        let found = Application::on_free_ports(&flags, None).await;
        let (application, (app, drain)) = found.expect("good settings and free ports");
        Proxy {
            address: application.address,
            admin: Admin(application.admin),
            run: tokio::spawn(app.run(drain.clone())),
            drain,
        }
    }

    /// Ends it as SIGTERM would; all its tasks must end by themselves.
    pub(crate) async fn stop(self) {
        self.drain.begin();
        let ended = within("the proxy ends", self.run).await.expect("no panic");
        assert_eq!(ended, Ended::Settled);
    }
}

// === impl Admin ===

impl Admin {
    /// Status and text of a page.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let page = within(path, admin::page(self.0, path)).await;
        page.expect("the admin port answers")
    }

    pub(crate) async fn is_ready(&self) -> bool {
        self.get("/readyz").await.0 == 200
    }

    /// The sum of all samples of a metric whose labels contain all of these.
    pub(crate) async fn metric(&self, name: &str, labels: &[&str]) -> u64 {
        admin::sum(&self.get("/metrics").await.1, name, labels)
    }
}
