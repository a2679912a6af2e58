//! The command line: what may be typed, and its help. No logic: settings stay text here, so that their mistakes are reported together with
//! those of the file and the environment.

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::config::Sources;

mod broker;
mod dead_letters;
mod doctor;
pub mod papers;
mod profiles;
mod proxy;
mod retries;

pub use broker::Broker;
pub use dead_letters::{
    Adopted, Adoption, Altered, DeadLetters, Handled, Moving, OneRedrive, Place, Redrives, Watch,
    What,
};
pub use doctor::Doctor;
pub use proxy::{AdminPort, Output, Printing, Proxy};
pub use retries::{List, Purge, Release, Retries, Waiting};

const AFTER_HELP: &str = "\
Examples:
  dlx-proxy run --upstream amqp://proxy:secret@rabbit    proxy on 127.0.0.1:5673
  dlx-proxy status                                       is something wrong? exit code 1 if so
  dlx-proxy watch                                        show messages as they die
  dlx-proxy dead-letters groups orders.dead              dead letters by source, reason and error
  dlx-proxy dead-letters redrive orders.dead             send them back to the queues where they died
  dlx-proxy queues 'orders.*'                            how the proxy handles these queues, and why
  dlx-proxy queues adopt orders                          hand all dead letters of this queue to the proxy, by a policy
  dlx-proxy retries list --delay 1000                    what waits for a retry, and until when
  dlx-proxy doctor --config dlx-proxy.toml               check the setup
  dlx-proxy config default > dlx-proxy.toml              every setting, explained

Settings come from flags, then environment variables (DLX_PROXY_LISTEN, DLX_PROXY_MEMORY, …), then the file, then the defaults.";

/// Flags that are gone, and what to write instead.
const GONE: [(&str, &str); 3] = [
    (
        "--queue",
        "write the queue without a flag: `dlx-proxy dead-letters groups orders.dead`, `dlx-proxy dead-letters show orders.dead ID`",
    ),
    ("--non-interactive", "write `--output tsv`"),
    ("--admin", "write `--url http://HOST:PORT`"),
];

/// Handles dead letters and retries of RabbitMQ, as a proxy between clients and the broker.
///
/// AMQP 0-9-1 clients connect to it instead of to the broker. Everything passes through unchanged except dead letters and retries. The proxy
/// publishes dead letters with confirms, parks those that nothing routes, and acknowledges a rejected message only when its dead letter is confirmed.
#[derive(Debug, Parser)]
#[command(name = "dlx-proxy", version, after_help = AFTER_HELP)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands, those used most first.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the proxy
    Run(Settings),
    /// Show whether something is wrong, and what to do (exit code 0: healthy, 1: not)
    Status(Place),
    /// Show the status and each message that dies, as it happens
    Watch(Watch),
    /// Browse dead letters, send them back or delete them
    #[command(visible_alias = "dl")]
    DeadLetters(DeadLetters),
    /// List the queues with dead letters or retries: how the proxy handles them, why, and what to do
    #[command(after_help = dead_letters::AFTER_HELP_OF_HANDLED)]
    Queues(Handled),
    /// Show, release or delete messages that wait for a retry
    #[command(subcommand)]
    Retries(Retries),
    /// Check the broker, the permissions and this machine, and say what to change (exit code 64)
    #[command(after_help = doctor::AFTER_DOCTOR)]
    Doctor(Doctor),
    /// Check the settings, or print the defaults
    #[command(subcommand)]
    Config(Config),
    /// Let messages fail through a proxy in ways that RabbitMQ alone would not survive, and check that none is lost
    Demo(Demo),
    /// Ask a running proxy whether it is ready (exit code 0 or 1)
    Healthcheck(AdminPort),
    /// Print a script that makes a shell complete commands and options
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page
    Man {
        /// Write the manual pages of all commands into this folder
        folder: Option<PathBuf>,
    },
}

/// What to do with settings.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Print the settings in force, passwords hidden; or every mistake in them (exit code 64)
    Check(Settings),
    /// Print every setting with its default and its meaning, as a file of settings
    Default,
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
    /// full: all dead letters; rejects-only: those of rejects; off: none [default: full]
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
    /// Leave its queues and dead letters in the broker, to look at
    #[arg(long)]
    pub keep: bool,
}

/// Prints help or the usage error. A misplaced URL is shown without its password.
pub fn print(said: &clap::Error) {
    let typed: Vec<_> = std::env::args_os().collect();
    let typed = typed.iter().map(|typed| typed.to_string_lossy());
    let behind = typed.filter_map(|typed| Some(typed.split_once("://")?.1.to_owned()));
    let behind: Vec<_> = behind.filter(|behind| !behind.is_empty()).collect();
    if !said.use_stderr() || behind.is_empty() {
        drop(said.print()); // nobody is there to read it
    } else {
        let said = said.render().to_string();
        let hide = |said: String, behind: &String| said.replace(behind, "***");
        eprint!("{}", behind.iter().fold(said, hide));
    }
    if let Some(ContextValue::String(flag)) = said.get(ContextKind::InvalidArg)
        && let Some((_, instead)) = GONE.iter().find(|(gone, _)| gone == flag)
    {
        eprintln!("\n`{flag}` is gone: {instead}");
    }
}

// === impl Settings ===

impl Settings {
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
            may_fix: cfg!(debug_assertions),
        }
    }
}
