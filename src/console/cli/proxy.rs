//! What the commands share that ask a running proxy: where it is, as whom to ask, and how to print the answer.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::Settings;
use crate::config::{ADMIN_CA_FILE, Config, Mistake, Mistakes, PASSWORD, USERNAME};
use crate::console::admin::client::Client;
use crate::http::Place;
use crate::tls;

/// Which proxy, and as whom.
#[derive(Args, Debug)]
pub struct Proxy {
    #[command(flatten)]
    port: AdminPort,
    /// A user of the broker [env: DLX_PROXY_USERNAME] [default: guest]
    #[arg(long, value_name = "NAME", global = true)]
    username: Option<String>,
    /// The user's password [env: DLX_PROXY_PASSWORD] [default: guest]
    #[arg(long, value_name = "TEXT", global = true)]
    password: Option<String>,
}

/// Where the admin port is.
#[derive(Args, Debug)]
pub struct AdminPort {
    /// TOML file of settings [env: DLX_PROXY_CONFIG]
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Admin HOST:PORT, or with TLS https://HOST:PORT [default: 127.0.0.1:15673]
    #[arg(long, value_name = "ADDR", global = true)]
    admin: Option<String>,
    /// With TLS: who signs its certificate, if not one whom the system trusts [env: DLX_PROXY_ADMIN_CA_FILE]
    #[arg(long, value_name = "FILE", global = true)]
    admin_ca_file: Option<String>,
}

/// For whom to print.
#[derive(Args, Debug)]
pub struct Printing {
    /// How to print it: table or json
    #[arg(
        long,
        value_name = "FORM",
        default_value = "table",
        hide_possible_values = true,
        global = true
    )]
    pub output: Output,
    /// For scripts: tables without a heading, their cells divided by tabs
    #[arg(long, global = true)]
    pub non_interactive: bool,
    /// Only these columns, in this order; the names are those of the JSON
    #[arg(long, value_name = "NAMES", value_delimiter = ',', global = true)]
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
    pub fn client(&self) -> anyhow::Result<Client> {
        let said = |flag: &Option<String>, variable| {
            let said = flag.clone().or(std::env::var(variable).ok());
            said.unwrap_or_else(|| "guest".to_owned()).into()
        };
        Ok(Client {
            admin: self.port.place(|| self.port.trusted())?,
            login: (
                said(&self.username, USERNAME),
                said(&self.password, PASSWORD),
            ),
        })
    }
}

// === impl AdminPort ===

impl AdminPort {
    /// Where to ask. TLS if requested, or if the settings have only a TLS port; then `own` provides
    /// the client.
    ///
    /// # Errors
    /// Invalid settings, or no admin port.
    pub fn place(&self, own: impl Fn() -> Result<tls::Client, String>) -> anyhow::Result<Place> {
        let mistaken = |subject: &str, problem: &str| {
            Mistakes(vec![Mistake {
                place: format!("flag --{subject}"),
                subject: None,
                problem: problem.to_owned(),
            }])
        };
        let admin = self.admin.as_deref();
        if let Some(url) = admin.filter(|admin| admin.starts_with("https://")) {
            let tls = self.trusted();
            let tls = tls.map_err(|problem| mistaken("admin-ca-file", &problem))?;
            return Ok(Place::parse(url, tls).map_err(|problem| mistaken("admin", &problem))?);
        }
        // An address is a setting, and checked as one.
        let name = admin.filter(|admin| admin.parse::<SocketAddr>().is_err());
        if let Some(place) = name.and_then(Place::named) {
            return Ok(place);
        }
        let settings = Settings {
            config: self.config.clone(),
            admin: self.admin.clone(),
            ..Settings::default()
        };
        let config = Config::load(&settings.sources())?;
        Ok(match (config.admin, config.admin_tls) {
            (None, Some(address)) => {
                let tls = own().map_err(|problem| mistaken("admin-ca-file", &problem))?;
                Place::of(address, Some(tls))
            }
            (at, _) => Place::of(at.context("there is no admin port")?, None),
        })
    }

    fn trusted(&self) -> Result<tls::Client, String> {
        let file = self.admin_ca_file.clone();
        let file = file.or_else(|| std::env::var(ADMIN_CA_FILE).ok());
        tls::Client::of_admin(file.as_deref())
    }
}
