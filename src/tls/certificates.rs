//! What is in force, and how it is replaced while the proxy runs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::files::{Contents, Problem};
use super::material::Material;
use super::{Acceptor, Connector, Settings, Uses, words};
use crate::telemetry::Metrics;

/// How often the files are read.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A certificate that ends within this time is told of.
const SOON: Duration = Duration::from_secs(30 * DAY.as_secs());
/// How often.
const DAY: Duration = Duration::from_secs(86_400);

/// The certificates of a running proxy. Clones are the same.
#[derive(Clone)]
pub struct Certificates(Arc<Inner>);

struct Inner {
    uses: Uses,
    metrics: Metrics,
    upstream: Option<Connector>,
    hook: Option<Connector>,
    clients: Option<Acceptor>,
    admin: Option<Acceptor>,
    read: Mutex<Read>,
}

/// What was read last, whether it was taken over or not.
struct Read {
    settings: Settings,
    files: Contents,
    expire: Vec<Certified>,
}

/// A certificate of the proxy's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certified {
    /// The setting that names its file.
    pub setting: &'static str,
    /// Since 1970, when it ends.
    pub expires: Duration,
}

// === impl Certificates ===

impl Certificates {
    /// Reads and checks everything.
    ///
    /// # Errors
    /// All that is wrong.
    pub fn load(
        settings: &Settings,
        uses: Uses,
        metrics: Metrics,
    ) -> Result<Certificates, Vec<Problem>> {
        let files = Contents::read(settings);
        let material = Material::new(settings, uses, &files, now())?;
        let acceptor = |config| Acceptor(Arc::new(ArcSwap::from_pointee(config)));
        let certificates = Certificates(Arc::new(Inner {
            uses,
            upstream: material.upstream.map(|client| Connector {
                metrics: Some(metrics.clone()),
                ..Connector::fixed(client)
            }),
            hook: material.hook.map(Connector::fixed),
            clients: material.clients.map(acceptor),
            admin: material.admin.map(acceptor),
            read: Mutex::new(Read {
                settings: settings.clone(),
                files,
                expire: certified(&material.expire),
            }),
            metrics,
        }));
        certificates.count();
        if uses.upstream && !settings.upstream_tls_verify {
            warn!(
                "`upstream-tls-verify` is false: whoever is on the way to the broker can read and change everything"
            );
        }
        Ok(certificates)
    }

    /// For connections to the broker.
    pub fn upstream(&self) -> Option<Connector> {
        self.0.upstream.clone()
    }

    /// For connections to the server of `on-dead-letter`.
    pub fn hook(&self) -> Option<Connector> {
        self.0.hook.clone()
    }

    /// For clients.
    pub fn clients(&self) -> Option<Acceptor> {
        self.0.clients.clone()
    }

    /// For the admin port.
    pub fn admin(&self) -> Option<Acceptor> {
        self.0.admin.clone()
    }

    /// The certificates of the proxy's own.
    pub fn expire(&self) -> Vec<Certified> {
        self.read().expire.clone()
    }

    /// Makes these settings count for new connections, with what is in their files now.
    pub fn change(&self, settings: &Settings) {
        self.take(settings.clone(), Contents::read(settings));
    }

    /// Looks after the files, for as long as it is polled.
    pub async fn watch(self) {
        self.watch_every(LOOK_EVERY).await;
    }

    pub(super) async fn watch_every(self, pause: Duration) {
        let mut told = None::<Instant>;
        loop {
            if told.is_none_or(|told| told.elapsed() >= DAY) {
                told = Some(Instant::now());
                self.tell_of_the_end();
            }
            sleep(pause).await;
            let settings = self.read().settings.clone();
            let looked = settings.clone();
            if let Ok(files) = spawn_blocking(move || Contents::read(&looked)).await
                && self.read().settings == settings
            {
                self.take(settings, files);
            }
        }
    }

    /// New files, or none.
    fn take(&self, settings: Settings, files: Contents) {
        let mut read = self.read();
        if (&read.settings, &read.files) == (&settings, &files) {
            return;
        }
        let material = Material::new(&settings, self.0.uses, &files, now());
        (read.settings, read.files) = (settings, files);
        let material = match material {
            Ok(material) => material,
            Err(problems) => {
                for Problem { setting, what } in problems {
                    warn!(
                        setting,
                        problem = what,
                        "certificates are not taken over: those before stay in force"
                    );
                }
                return;
            }
        };
        read.expire = certified(&material.expire);
        drop(read);
        let Inner {
            upstream,
            hook,
            clients,
            admin,
            ..
        } = &*self.0;
        for (connector, client) in [(upstream, material.upstream), (hook, material.hook)] {
            if let (Some(connector), Some(client)) = (connector, client) {
                connector.client.store(Arc::new(client));
            }
        }
        for (acceptor, config) in [(clients, material.clients), (admin, material.admin)] {
            if let (Some(acceptor), Some(config)) = (acceptor, config) {
                acceptor.0.store(Arc::new(config));
            }
        }
        info!("certificates are read anew: they count for new connections");
        self.count();
        self.tell_of_the_end();
    }

    fn count(&self) {
        for Certified { setting, expires } in &self.read().expire {
            self.0.metrics.certificate_expires(setting, *expires);
        }
    }

    fn tell_of_the_end(&self) {
        let now = now();
        for Certified { setting, expires } in &self.read().expire {
            match expires.checked_sub(now) {
                None => warn!(
                    setting,
                    "the certificate has expired: whoever checks it connects no more"
                ),
                Some(left) if left < SOON => {
                    let left = words::days(left);
                    warn!(setting, left, "the certificate expires soon");
                }
                Some(_) => {}
            }
        }
    }

    fn read(&self) -> std::sync::MutexGuard<'_, Read> {
        self.0.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn certified(expire: &[(&'static str, Duration)]) -> Vec<Certified> {
    let all = expire.iter();
    all.map(|&(setting, expires)| Certified { setting, expires })
        .collect()
}

/// Since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
