//! What the commands share that ask a running proxy: where it is, as whom to ask, and how to print the answer.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Settings;
use crate::config::Sources;
use crate::http::Place;

/// Which proxy, and as whom.
#[derive(Args, Debug)]
pub struct Proxy {
    /// TOML file of settings [env: DLX_PROXY_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    pub admin: Admin,
    /// A user of the broker [env: DLX_PROXY_USERNAME] [default: guest]
    #[arg(long, value_name = "NAME")]
    pub username: Option<String>,
    /// The user's password [env: DLX_PROXY_PASSWORD] [default: guest]
    #[arg(long, value_name = "TEXT")]
    pub password: Option<String>,
}

/// Where its admin port is.
#[derive(Args, Clone, Debug)]
pub struct Admin {
    /// Admin HOST:PORT, or with TLS https://HOST:PORT [default: 127.0.0.1:15673]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// With TLS: who signs its certificate, if not one whom the system trusts [env: DLX_PROXY_ADMIN_CA_FILE]
    #[arg(long, value_name = "FILE")]
    pub admin_ca_file: Option<String>,
}

/// For whom to print.
#[derive(Args, Debug)]
pub struct Printing {
    /// How to print it: table or json
    #[arg(
        long,
        value_name = "FORM",
        default_value = "table",
        hide_possible_values = true
    )]
    pub output: Output,
    /// For scripts: tables without a heading, their cells divided by tabs
    #[arg(long)]
    pub non_interactive: bool,
    /// Only these columns, in this order; the names are those of the JSON
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub columns: Vec<String>,
}

/// How to print what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// What the proxy answers.
    Json,
}

// === impl Proxy ===

impl Proxy {
    /// All sources of settings of this process.
    pub fn sources(&self) -> Sources {
        Settings {
            config: self.config.clone(),
            admin: self.admin.address(),
            ..Settings::default()
        }
        .sources()
    }
}

// === impl Admin ===

impl Admin {
    /// The address of a port without TLS.
    pub(super) fn address(&self) -> Option<String> {
        let is_elsewhere = self.url().is_some() || self.named().is_some();
        self.admin.clone().filter(|_| !is_elsewhere)
    }

    /// One without TLS that has a name.
    pub fn named(&self) -> Option<Place> {
        let admin = self.admin.as_deref()?;
        match admin.parse::<SocketAddr>() {
            Ok(_) => None,
            Err(_) => Place::named(admin),
        }
    }

    /// The URL of one with TLS.
    pub fn url(&self) -> Option<&str> {
        let admin = self.admin.as_deref()?;
        admin.starts_with("https://").then_some(admin)
    }
}
