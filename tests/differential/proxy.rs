//! A proxy in this process: the real application. It can be stopped, and started again at the same address.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, Once};
use std::time::{Duration, Instant};

use dlx_proxy::app::App;
use dlx_proxy::config::{Config, LogFormat, LogLevel, Sources};
use dlx_proxy::drain::{Drain, Ended};
use dlx_proxy::telemetry::logging;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::client::DEADLINE;
use super::value::Fallible;

/// For all proxies; clients and scenarios are plain threads.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

/// A proxy, running or stopped.
pub(crate) struct Proxy {
    pub address: SocketAddr,
    admin: SocketAddr,
    sources: Sources,
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
        log_if_asked();
        let file = (!policies.is_empty())
            .then(|| file_of(policies))
            .transpose()?;
        let mut problem = String::new();
        for _ in 0..20 {
            let [address, admin] = free_addresses();
            let (listen, admin_text) = (address.to_string(), admin.to_string());
            let mut flags = vec![
                ("upstream", upstream.to_owned()),
                ("listen", listen),
                ("admin", admin_text),
                ("vhosts", vhosts.to_owned()),
            ];
            // The names of flags are constants; here they come from a script, and there are few.
            let settings = settings
                .iter()
                .map(|(name, text)| (&*name.clone().leak(), text.clone()));
            flags.extend(settings);
            let sources = Sources {
                file: file.clone(),
                flags,
                ..Sources::default()
            };
            let proxy = Proxy {
                address,
                admin,
                sources,
                running: Mutex::default(),
            };
            let config = proxy.config()?;
            // Somebody else may have taken a port meanwhile.
            match proxy.run(&config) {
                Ok(()) => return proxy.until_ready().map(|()| proxy),
                Err(other) => problem = other,
            }
        }
        Err(problem)
    }

    /// Starts it again.
    pub(crate) fn resume(&self) -> Fallible<()> {
        self.run(&self.config()?)?;
        self.until_ready()
    }

    fn config(&self) -> Fallible<Config> {
        Config::load(&self.sources).map_err(|mistakes| mistakes.to_string())
    }

    fn run(&self, config: &Config) -> Fallible<()> {
        let drain = Drain::new(Duration::from_secs(20));
        let app = RUNTIME
            .block_on(App::bind(config, &drain))
            .map_err(|error| error.to_string())?;
        let run = RUNTIME.spawn(app.run(drain.clone()));
        *self.running.lock().expect("no panic") = Some((drain, run));
        Ok(())
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
        let ask = || {
            let mut socket = TcpStream::connect(self.admin)?;
            socket.write_all(b"GET /readyz HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            socket.read_to_string(&mut answer).map(|_| answer)
        };
        ask().is_ok_and(|answer| answer.contains(" 200 "))
    }
}

/// Different ones: both are taken at the same time.
fn free_addresses() -> [SocketAddr; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("bound"))
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
        let _ = logging::start(LogFormat::Text, level);
    });
}
