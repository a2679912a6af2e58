//! A proxy in this process. It can be stopped, and started again at the same address.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use dlx_proxy::app::App;
use dlx_proxy::drain::{Drain, Ended};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::admin;
use super::application::Application;
use super::client::DEADLINE;
use super::value::Fallible;

/// For all proxies and HTTP; clients and scenarios are plain threads.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

/// A proxy, running or stopped.
pub(crate) struct Proxy {
    pub address: SocketAddr,
    application: Application,
    running: Mutex<Option<(Drain, JoinHandle<Ended>)>>,
}

impl Proxy {
    /// Starts one with these settings, and waits until it is ready. `policies`: TOML.
    pub(crate) fn start(
        upstream: &str,
        vhosts: &str,
        settings: &[(String, String)],
        policies: &str,
    ) -> Fallible<Proxy> {
        let file = (!policies.is_empty())
            .then(|| file_of(policies))
            .transpose()?;
        let mut flags = vec![
            ("upstream", upstream.to_owned()),
            ("vhosts", vhosts.to_owned()),
        ];
        // The names of flags are constants; here they come from a script, and there are few.
        let settings = settings
            .iter()
            .map(|(name, text)| (&*name.clone().leak(), text.clone()));
        flags.extend(settings);
        let (application, bound) = RUNTIME.block_on(Application::on_free_ports(&flags, file))?;
        let proxy = Proxy {
            address: application.address,
            application,
            running: Mutex::default(),
        };
        proxy.run(bound)?;
        Ok(proxy)
    }

    /// Starts it again.
    pub(crate) fn resume(&self) -> Fallible<()> {
        self.run(RUNTIME.block_on(self.application.bind())?)
    }

    fn run(&self, (app, drain): (App, Drain)) -> Fallible<()> {
        let run = RUNTIME.spawn(app.run(drain.clone()));
        *self.running.lock().expect("no panic") = Some((drain, run));
        self.until_ready()
    }

    fn until_ready(&self) -> Fallible<()> {
        let end = Instant::now() + DEADLINE;
        while !self.is_ready() {
            if Instant::now() > end {
                return Err("the proxy does not become ready".to_owned());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Ends it as SIGTERM would.
    pub(crate) fn stop(&self) -> Fallible<()> {
        let running = self.running.lock().expect("no panic").take();
        let Some((drain, run)) = running else {
            return Ok(());
        };
        drain.begin();
        let ended = RUNTIME.block_on(async { tokio::time::timeout(2 * DEADLINE, run).await });
        match ended {
            Ok(Ok(Ended::Settled)) => Ok(()),
            other => Err(format!("the proxy did not end as it should: {other:?}")),
        }
    }

    fn is_ready(&self) -> bool {
        let page = RUNTIME.block_on(admin::page(self.application.admin, "/readyz"));
        page.is_ok_and(|(status, _)| status == 200)
    }
}

/// Policies are read from files only.
fn file_of(policies: &str) -> Fallible<PathBuf> {
    static NEXT: Mutex<u32> = Mutex::new(0);
    let mut next = NEXT.lock().expect("no panic");
    *next += 1;
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("policies-{}-{next}.toml", std::process::id()));
    fs::write(&file, policies).map_err(|error| error.to_string())?;
    Ok(file)
}
