//! What is in force, and how it is replaced while the proxy runs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::files::{Contents, Problem};
use super::material::{Material, Served, Side, ToBroker, hook};
use super::{Acceptor, Client, Connector, Settings, Uses, words};
use crate::telemetry::Metrics;

const LOOK_EVERY: Duration = Duration::from_secs(5);
pub(crate) const SOON: Duration = Duration::from_secs(30 * DAY.as_secs());
const DAY: Duration = Duration::from_secs(86_400);

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

struct Read {
    /// By side.
    parts: [Part; 2],
    /// Counts changes of settings. Files read before the last one are outdated.
    changes: u64,
}

struct Part {
    settings: Settings,
    /// Last read, accepted or not.
    files: Contents,
    expires: Option<Duration>,
}

/// The files of both sides, as they are now.
pub(super) struct Looked {
    changes: u64,
    parts: [(Settings, Contents); 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certified {
    pub setting: &'static str,
    /// Since 1970.
    pub expires: Duration,
}

// === impl Certificates ===

impl Certificates {
    pub fn load(
        settings: &Settings,
        uses: Uses,
        metrics: Metrics,
    ) -> Result<Certificates, Vec<Problem>> {
        let files = Contents::read(settings);
        let Material {
            upstream,
            hook,
            served,
        } = Material::new(settings, uses, &files)?;
        let [to_broker, to_others] = files.split();
        let part = |side, files, expires| Part {
            settings: settings.of(side),
            files,
            expires,
        };
        let expires = upstream.as_ref().and_then(|it| it.expires);
        let upstream_part = part(Side::Upstream, to_broker, expires);
        let expires = served.as_ref().map(|it| it.expires);
        let read = Read {
            parts: [upstream_part, part(Side::Served, to_others, expires)],
            changes: 0,
        };
        let acceptor = |config| Acceptor(Arc::new(ArcSwap::from_pointee(config)));
        let (clients, admin) = served.map_or((None, None), |it| (it.clients, it.admin));
        let certificates = Certificates(Arc::new(Inner {
            uses,
            upstream: upstream.map(|it| Connector::fixed(counted(it.client, &metrics))),
            hook: hook.map(Connector::fixed),
            clients: clients.map(acceptor),
            admin: admin.map(acceptor),
            read: Mutex::new(read),
            metrics,
        }));
        certificates.count(&certificates.read());
        if uses.upstream {
            warn_of_anybody(settings);
        }
        Ok(certificates)
    }

    pub fn upstream(&self) -> Option<Connector> {
        self.0.upstream.clone()
    }

    pub fn hook(&self) -> Option<Connector> {
        self.0.hook.clone()
    }

    pub fn clients(&self) -> Option<Acceptor> {
        self.0.clients.clone()
    }

    pub fn admin(&self) -> Option<Acceptor> {
        self.0.admin.clone()
    }

    pub fn expire(&self) -> Vec<Certified> {
        self.read().expire().collect()
    }

    /// Applies settings to new connections, with the current files. `uses`: which sides speak TLS
    /// by these settings. The settings of a side that needs a restart wait for it.
    pub fn change(&self, settings: &Settings, uses: Uses) {
        let mut read = self.read();
        read.changes += 1;
        let mut is_news = false;
        for side in Side::ALL {
            let wanted = settings.of(side);
            let part = &mut read.parts[side as usize];
            if side.is_alike(self.0.uses, uses) {
                let files = Contents::read(&wanted);
                is_news |= self.take(side, part, wanted, files, true);
            } else if part.settings != wanted {
                let certificate = side.certificate();
                warn!("the settings of TLS that belong to `{certificate}` wait for a restart");
            }
        }
        if let Some(connector) = &self.0.hook {
            match hook() {
                Ok(client) => connector.0.store(Arc::new(client)),
                Err(problem) => tell_of(vec![problem]),
            }
        }
        self.tell(&read, is_news);
    }

    pub async fn watch(self) {
        self.watch_every(LOOK_EVERY).await;
    }

    pub(super) async fn watch_every(self, pause: Duration) {
        let mut told = None::<Instant>;
        loop {
            if told.is_none_or(|told| told.elapsed() >= DAY) {
                told = Some(Instant::now());
                tell_of_the_end(&self.read());
            }
            sleep(pause).await;
            if let Ok(looked) = spawn_blocking(self.look()).await {
                self.looked(looked);
            }
        }
    }

    /// Reads the files when it is called, which may take a while.
    pub(super) fn look(&self) -> impl FnOnce() -> Looked + Send + use<> {
        let read = self.read();
        let changes = read.changes;
        let settings = read.parts.each_ref().map(|part| part.settings.clone());
        move || Looked {
            changes,
            parts: settings.map(|settings| {
                let files = Contents::read(&settings);
                (settings, files)
            }),
        }
    }

    pub(super) fn looked(&self, looked: Looked) {
        let mut read = self.read();
        if read.changes != looked.changes {
            return;
        }
        let mut is_news = false;
        for (side, (settings, files)) in Side::ALL.into_iter().zip(looked.parts) {
            let part = &mut read.parts[side as usize];
            is_news |= self.take(side, part, settings, files, false);
        }
        self.tell(&read, is_news);
    }

    /// Applies the settings or files of a side. `is_asked`: reads everything, including the
    /// system's CAs. True: they are in force now.
    fn take(
        &self,
        side: Side,
        part: &mut Part,
        settings: Settings,
        files: Contents,
        is_asked: bool,
    ) -> bool {
        let is_new = (&part.settings, &part.files) != (&settings, &files);
        let asks_the_system = is_asked && side == Side::Upstream && settings.trusts_the_system();
        if !is_new && !asks_the_system {
            return false;
        }
        match self.store(side, &settings, &files, part.expires) {
            Ok(expires) => {
                if side == Side::Upstream && self.0.uses.upstream && is_new {
                    warn_of_anybody(&settings);
                }
                *part = Part {
                    settings,
                    files,
                    expires,
                };
                is_new
            }
            Err(problems) => {
                tell_of(problems);
                // Told once. Settings that are of no use are not kept: the files of those in force are looked after.
                if part.settings == settings {
                    part.files = files;
                }
                false
            }
        }
    }

    /// Returns the expiry. `running`: the one in force.
    fn store(
        &self,
        side: Side,
        settings: &Settings,
        files: &Contents,
        running: Option<Duration>,
    ) -> Result<Option<Duration>, Vec<Problem>> {
        let Inner { uses, metrics, .. } = &*self.0;
        let now = now();
        let usable = |expires: Duration| match running {
            Some(running) if running <= now => Ok(()),
            _ if expires > now => Ok(()),
            _ => {
                let what = format!("its certificate expired {} ago", words::days(now - expires));
                Err(vec![Problem::new(side.certificate(), what)])
            }
        };
        let mut problems = Vec::new();
        match side {
            Side::Upstream if uses.upstream => {
                let made = ToBroker::new(settings, *uses, files, &mut problems);
                let Some(ToBroker { client, expires }) = made else {
                    return Err(problems);
                };
                expires.map_or(Ok(()), usable)?;
                if let Some(connector) = &self.0.upstream {
                    connector.0.store(Arc::new(counted(client, metrics)));
                }
                Ok(expires)
            }
            Side::Served if uses.serves() => {
                let made = Served::new(settings, *uses, files, &mut problems);
                let Some(served) = made.filter(|_| problems.is_empty()) else {
                    return Err(problems);
                };
                usable(served.expires)?;
                let configs = [
                    (&self.0.clients, served.clients),
                    (&self.0.admin, served.admin),
                ];
                for (acceptor, config) in configs {
                    if let (Some(acceptor), Some(config)) = (acceptor, config) {
                        acceptor.0.store(Arc::new(config));
                    }
                }
                Ok(Some(served.expires))
            }
            Side::Upstream | Side::Served => Ok(None),
        }
    }

    fn tell(&self, read: &Read, is_news: bool) {
        if is_news {
            info!("certificates are read anew: they count for new connections");
            self.count(read);
            tell_of_the_end(read);
        }
    }

    fn count(&self, read: &Read) {
        for side in Side::ALL {
            let expires = read.parts[side as usize].expires;
            let metrics = &self.0.metrics;
            metrics.certificate_expires(side.certificate(), expires);
        }
    }

    fn read(&self) -> std::sync::MutexGuard<'_, Read> {
        self.0.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Read ===

impl Read {
    fn expire(&self) -> impl Iterator<Item = Certified> {
        let parts = Side::ALL.into_iter().zip(&self.parts);
        parts.filter_map(|(side, part)| {
            Some(Certified {
                setting: side.certificate(),
                expires: part.expires?,
            })
        })
    }
}

fn tell_of_the_end(read: &Read) {
    let now = now();
    for Certified { setting, expires } in read.expire() {
        match expires.checked_sub(now) {
            None => warn!(
                setting,
                ago = words::days(now - expires),
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

fn tell_of(problems: Vec<Problem>) {
    for Problem { setting, what } in problems {
        warn!(
            setting,
            problem = what,
            "certificates are not taken over: those before stay in force"
        );
    }
}

fn warn_of_anybody(settings: &Settings) {
    if !settings.upstream_tls_verify {
        warn!(
            "`upstream-tls-verify` is false: whoever is on the way to the broker can read and change everything"
        );
    }
}

fn counted(client: Client, metrics: &Metrics) -> Client {
    Client {
        metrics: Some(metrics.clone()),
        ..client
    }
}

pub(crate) fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
