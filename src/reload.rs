//! SIGHUP: the settings are read again, and what can change in a running proxy does, all or nothing.

use tokio::signal::unix::Signal;
use tokio::task::spawn_blocking;
use tracing::{error, info};

use crate::app::Live;
use crate::config::{Change, Config, Sources};
use crate::service;
use crate::telemetry::logging::Level;

pub struct Reload {
    pub sources: Sources,
    pub config: Config,
    pub live: Live,
    pub level: Level,
}

// === impl Reload ===

impl Reload {
    pub async fn at(mut self, mut signals: Signal) {
        while signals.recv().await.is_some() {
            service::reloading();
            let sources = self.sources.clone();
            match spawn_blocking(move || Config::load(&sources)).await {
                Ok(Ok(config)) => self.apply(&config),
                Ok(Err(mistakes)) => {
                    let number = mistakes.0.len();
                    error!(
                        mistakes = number,
                        "settings not reloaded: nothing has changed"
                    );
                    for mistake in &mistakes.0 {
                        error!(%mistake, "a mistake in the settings");
                    }
                }
                Err(error) => error!(%error, "settings not reloaded: nothing has changed"),
            }
            service::reloaded();
        }
    }

    fn apply(&mut self, new: &Config) {
        let (changed, restart): (Vec<_>, Vec<_>) = self
            .config
            .changes(new)
            .into_iter()
            .partition(Change::is_reloaded);
        let reloaded = self.config.reloaded(new);
        self.live.apply(&reloaded, new.tls_uses());
        // At the louder level of the two, so that the line is seen if either lets it through.
        let louder = self
            .config
            .reloadable
            .log_level
            .max(reloaded.reloadable.log_level);
        self.level.set(louder);
        let changed = listed(&changed).unwrap_or_else(|| "nothing".to_owned());
        info!(
            changed,
            needs_restart = listed(&restart),
            "settings reloaded"
        );
        self.level.set(reloaded.reloadable.log_level);
        self.config = reloaded;
    }
}

fn listed(changes: &[Change]) -> Option<String> {
    let all: Vec<_> = changes.iter().map(Change::to_string).collect();
    (!all.is_empty()).then(|| all.join(", "))
}
