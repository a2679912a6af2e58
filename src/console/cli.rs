//! The command line: what may be typed, and its help. No logic: settings stay text here, so that their mistakes are reported together with
//! those of the file and the environment.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::config::Sources;

mod broker;
mod dead_letters;
mod doctor;
pub mod papers;
mod proxy;
mod retries;

pub use broker::Broker;
pub use dead_letters::{DeadLetters, Handled, Moving, OneRedrive, Place, Redrives, What};
pub use doctor::Doctor;
pub use proxy::{AdminPort, Output, Printing, Proxy};
pub use retries::{List, Purge, Release, Retries, Waiting};

const AFTER_HELP: &str = "\
Examples:
  dlx-proxy run --upstream amqp://proxy:secret@rabbit    proxy on 127.0.0.1:5673
  dlx-proxy config default > dlx-proxy.toml              every setting, explained
  dlx-proxy config check --config dlx-proxy.toml         what is in force, or every mistake
  dlx-proxy doctor --config dlx-proxy.toml               what to change at the broker
  dlx-proxy demo --url amqp://guest:guest@127.0.0.1:5673 retries and late targets, checked
  dlx-proxy queues                                       which queues it handles, wholly or in part, and why
  dlx-proxy dead-letters groups --queue dead             dead letters of a queue, by source, reason and error
  dlx-proxy dead-letters redrive --queue dead            send them back to the queues that they died in
  dlx-proxy retries list --delay 1000                    what waits for a retry, and until when

A setting is taken from a flag, else from the environment (DLX_PROXY_LISTEN, DLX_PROXY_RETAINED_BYTES, …), else from the file, \
else from the defaults.";

/// A sidecar for RabbitMQ that takes over dead-lettering.
///
/// AMQP 0-9-1 clients connect to it instead of to the broker. All they do passes as if it were not there, but dead letters are the proxy's:
/// it publishes them with confirms, parks what nothing routes, and acknowledges a rejected message only when its dead letter is confirmed.
#[derive(Debug, Parser)]
#[command(name = "dlx-proxy", version, after_help = AFTER_HELP)]
pub struct Cli {
    /// What it is to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program is to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the proxy
    Run(Settings),
    /// Check the settings, or print the defaults
    #[command(subcommand)]
    Config(Config),
    /// Print what makes a shell complete the commands and options of this program
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page of this program
    Man {
        /// Write it into this folder instead, with one of each command
        folder: Option<PathBuf>,
    },
    /// Examine the broker, the permissions of users and this machine, and say what to change (exit code 64)
    #[command(after_help = doctor::AFTER_DOCTOR)]
    Doctor(Doctor),
    /// Let messages fail through a proxy in ways that RabbitMQ alone would not survive, and check that none is lost
    Demo(Demo),
    /// Ask a running proxy whether it is ready (exit code 0 or 1)
    Healthcheck(AdminPort),
    /// List the queues with dead letters or retries: how the proxy handles them, why, and what to do about it
    #[command(after_help = dead_letters::AFTER_HELP_OF_HANDLED)]
    Queues(Handled),
    /// Look at the dead letters in a queue, send them back or remove them, through a running proxy
    DeadLetters(DeadLetters),
    /// Show what waits for a retry, let it go now, or remove it
    #[command(subcommand)]
    Retries(Retries),
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
        return;
    }
    let said = said.render().to_string();
    let hide = |said: String, behind: &String| said.replace(behind, "***");
    eprint!("{}", behind.iter().fold(said, hide));
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
