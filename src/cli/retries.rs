//! `dlx-proxy retries`: what may be typed, and its help.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Settings;
use crate::config::Sources;

/// Below the help of `retries list`.
const AFTER_LIST: &str = "\
No proxy has to run. WAITING are messages that wait, LEAVING those whose time is over and that the broker has not moved into the intake queue yet \
(the management API knows them, up to 5 s late). OVERDUE are messages that wait though they should be back by now.

To look at a message is to get it and to put it back, in its place. It counts as delivered, which means nothing in a delay queue.";

/// Below the help of `retries release`.
const AFTER_RELEASE: &str = "\
What is there when the command begins is released; what comes meanwhile stays. The broker itself moves each message into the intake queue, and \
nothing is lost if this command is killed. If no proxy runs, what was released waits there. The messages of other queues are put back \
in their places at the end, so that some may come back late by the time that the command takes.";

/// What to do with what waits for a retry.
#[derive(Debug, Subcommand)]
pub enum Retries {
    /// Show how many messages wait, in which delay queues, for which queues, and until when
    #[command(after_help = AFTER_LIST)]
    List(List),
    /// Let messages go now that wait for a retry: they come back to their queues as soon as a proxy is there
    #[command(after_help = AFTER_RELEASE)]
    Release(Release),
}

/// Where messages wait.
#[derive(Args, Debug)]
pub struct Waiting {
    /// TOML file of settings [env: DLX_PROXY_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[arg(
        long,
        value_name = "URL",
        help = "The broker, and a user who may read the delay queues [default: amqp://guest:guest@127.0.0.1:5672]"
    )]
    upstream: Option<String>,
    /// RabbitMQ's management API, which knows the delay queues: http://user:password@host:15672
    #[arg(long, value_name = "URL")]
    management_url: Option<String>,
    /// Only this vhost; may be repeated [default: those of the settings]
    #[arg(long = "vhost", value_name = "NAME")]
    vhosts: Vec<String>,
    /// Only the delay queue of so many milliseconds; may be repeated. Without a management URL it is needed
    #[arg(long = "delay", value_name = "MS")]
    pub delays: Vec<u64>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

/// What to show.
#[derive(Args, Debug)]
pub struct List {
    /// Where.
    #[command(flatten)]
    pub place: Waiting,
    /// Look at the first N messages of each delay queue, to say for which queues they wait; 0: at none
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub messages: u16,
}

/// What to let go.
#[derive(Args, Debug)]
pub struct Release {
    /// Where.
    #[command(flatten)]
    pub place: Waiting,
    /// Only messages that come back to this queue
    #[arg(long, value_name = "NAME")]
    pub queue: Option<String>,
}

// === impl Waiting ===

impl Waiting {
    /// All sources of settings of this process.
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
