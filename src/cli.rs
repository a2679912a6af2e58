//! The command line: what may be typed, and its help. No logic: settings stay text here, so that their mistakes are reported together with
//! those of the file and the environment.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::Sources;

/// What a new user types first.
const AFTER_HELP: &str = "\
Examples:
  dlx-proxy --upstream amqp://proxy:secret@rabbit:5672   proxy on 127.0.0.1:5673
  dlx-proxy print-default-config > dlx-proxy.toml        every setting, explained
  dlx-proxy check-config --config dlx-proxy.toml         what is in force, or every mistake
  dlx-proxy demo --url amqp://guest:guest@127.0.0.1:5673 three dead letters, checked
  dlx-proxy retries list --delay 1000                    what waits for a retry, and until when

A setting is taken from a flag, else from the environment (DLX_PROXY_LISTEN, DLX_PROXY_RETAINED_BYTES, …), else from the file, \
else from the defaults.";

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

/// A sidecar for RabbitMQ that takes over dead-lettering.
///
/// AMQP 0-9-1 clients connect to it instead of to the broker. All they do passes as if it were not there, but dead letters are the proxy's:
/// it publishes them with confirms, parks what nothing routes, and acknowledges a rejected message only when its dead letter is confirmed.
#[derive(Debug, Parser)]
#[command(name = "dlx-proxy", version, after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    settings: Settings,
}

/// What the program is to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the proxy (the default command)
    Run(Settings),
    /// Print the settings in force, passwords hidden; or every mistake in them (exit code 64)
    CheckConfig(Settings),
    /// Print every setting with its default and its meaning, as a file of settings
    PrintDefaultConfig,
    /// Let three messages die through a proxy, show their dead letters, and check them
    Demo(Demo),
    /// Ask a running proxy whether it is ready (exit code 0 or 1)
    Healthcheck(AdminPort),
    /// List the queues that have another target than their arguments say
    Redeclared(AdminPort),
    /// Show what waits for a retry, or let it go now
    #[command(subcommand)]
    Retries(Retries),
}

/// Settings that users change most; all others are set in the file or the environment.
#[derive(Args, Debug, Default)]
pub struct Settings {
    /// TOML file of settings [env: DLX_PROXY_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    // Not a doc comment: rustdoc would take the brackets for a link.
    #[arg(
        long,
        value_name = "URL",
        help = "The broker, and the user of the proxy's own connections [default: amqp://guest:guest@127.0.0.1:5672]"
    )]
    upstream: Option<String>,
    /// Where AMQP clients connect; port 0 takes a free one [default: 127.0.0.1:5673]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Where /healthz, /readyz and /metrics are served [default: 127.0.0.1:15673]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// takeover: all dead letters; keep: only rejects; native: none [default: takeover]
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

/// Where the demonstration runs.
#[derive(Args, Debug)]
pub struct Demo {
    /// The proxy (or, to compare, the broker itself); its user must be allowed to declare, in the URL's vhost
    #[arg(
        long,
        value_name = "URL",
        default_value = "amqp://guest:guest@127.0.0.1:5673"
    )]
    pub url: String,
    /// Print one JSON object a dead letter instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Where the admin port is.
#[derive(Args, Debug)]
pub struct AdminPort {
    /// TOML file of settings [env: DLX_PROXY_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Admin address of the proxy [default: 127.0.0.1:15673]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
}

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

// === impl Cli ===

impl Cli {
    /// The command; without one, `run`.
    pub fn command(self) -> Command {
        self.command.unwrap_or(Command::Run(self.settings))
    }
}

// === impl Settings ===

impl Settings {
    /// All sources of settings of this process.
    pub fn sources(self) -> Sources {
        let flags = [
            ("upstream", self.upstream),
            ("listen", self.listen),
            ("admin", self.admin),
            ("mode", self.mode),
            ("log-format", self.log_format),
            ("log-level", self.log_level),
        ];
        Sources {
            file: self.config,
            environment: std::env::vars_os().collect(),
            flags: flags
                .into_iter()
                .filter_map(|(name, text)| Some((name, text?)))
                .collect(),
        }
    }
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

// === impl AdminPort ===

impl AdminPort {
    /// All sources of settings of this process.
    pub fn sources(self) -> Sources {
        let Self { config, admin } = self;
        Settings {
            config,
            admin,
            ..Settings::default()
        }
        .sources()
    }
}
