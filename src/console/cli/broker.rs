//! What the commands share that ask the broker and need no proxy.

use std::path::PathBuf;

use clap::Args;

use super::Settings;
use crate::config::Sources;

/// Which broker, and as whom.
#[derive(Args, Debug)]
pub struct Broker {
    /// TOML file of settings [env: DLX_PROXY_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[arg(
        long,
        value_name = "URL",
        help = "The broker, and the user who asks it [default: amqp://guest:guest@127.0.0.1:5672]"
    )]
    upstream: Option<String>,
    /// RabbitMQ's management API, for what AMQP does not tell: http://user:password@host:15672
    #[arg(long, value_name = "URL")]
    management_url: Option<String>,
    /// Only this vhost; may be repeated [default: those of the settings]
    #[arg(short = 'V', long = "vhost", value_name = "NAME")]
    vhosts: Vec<String>,
}

// === impl Broker ===

impl Broker {
    pub fn sources(&self) -> Sources {
        let settings = Settings {
            config: self.config.clone(),
            upstream: self.upstream.clone(),
            ..Settings::default()
        };
        let mut sources = settings.sources();
        let vhosts = (!self.vhosts.is_empty()).then(|| self.vhosts.join(","));
        let flags = [
            ("management-url", self.management_url.clone()),
            ("vhosts", vhosts),
        ];
        let flags = flags.into_iter();
        sources
            .flags
            .extend(flags.filter_map(|(name, text)| Some((name, text?))));
        sources
    }
}
