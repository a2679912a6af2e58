//! A proxy in this process: the real application with its ports, links and tasks. Nothing in it is global, so there may be many.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Once;
use std::time::Duration;

use dlx_proxy::app::App;
use dlx_proxy::config::{Config, LogFormat, LogLevel, Sources};
use dlx_proxy::drain::Drain;
use dlx_proxy::telemetry::logging;

use super::port::Port;

/// A proxy that may run: where it listens, and its settings.
pub(crate) struct Application {
    pub address: SocketAddr,
    pub admin: SocketAddr,
    config: Config,
    _ports: [Port; 2],
}

/// What runs, and what ends it.
type Bound = (App, Drain);

// === impl Application ===

impl Application {
    /// Binds the application to free ports, with these settings, and those of a file.
    pub(crate) async fn on_free_ports(
        settings: &[(&'static str, String)],
        file: Option<PathBuf>,
    ) -> Result<(Application, Bound), String> {
        log_if_asked();
        let port = || Port::free().map_err(|error| error.to_string());
        let ports = [port()?, port()?];
        let [address, admin] = ports.each_ref().map(|port| port.address);
        let mut flags = vec![
            ("listen", address.to_string()),
            ("admin", admin.to_string()),
            ("parked-retry", "0".to_owned()),
        ];
        flags.extend_from_slice(settings);
        let sources = Sources {
            file,
            flags,
            may_fix: true,
            ..Sources::default()
        };
        let application = Application {
            address,
            admin,
            config: Config::load(&sources).map_err(|mistakes| mistakes.to_string())?,
            _ports: ports,
        };
        let bound = application.bind().await?;
        Ok((application, bound))
    }

    /// Binds it once more.
    pub(crate) async fn bind(&self) -> Result<Bound, String> {
        let drain = Drain::new(Duration::from_secs(20));
        let app = App::bind(&self.config, None, &drain).await;
        let app = app.map_err(|error| error.to_string())?;
        Ok((app, drain))
    }
}

/// With DLX_TEST_LOG=debug the proxies write what they do.
fn log_if_asked() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let level = match std::env::var("DLX_TEST_LOG").as_deref() {
            Ok("trace") => LogLevel::Trace,
            Ok("debug") => LogLevel::Debug,
            Ok(_) => LogLevel::Info,
            Err(_) => return,
        };
        logging::start(LogFormat::Text, level).expect("nobody else logs");
    });
}
