//! What the commands share that ask a running proxy: where it is, as whom to ask, and how to print the answer.

use std::ffi::OsString;
use std::io::{IsTerminal, stdin};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ColorChoice, ValueEnum};

use super::Settings;
use super::profiles::Profile;
use crate::config::{ADMIN_CA_FILE, Config, Mistake, Mistakes, PASSWORD, URL, USERNAME};
use crate::console::admin::client::Client;
use crate::console::admin::wanted::bytes;
use crate::http::Place;
use crate::tls;
use crate::url::{Url, User};

/// Which proxy, as which user, and in which vhost.
#[derive(Args, Debug)]
pub struct Proxy {
    /// The proxy, as in https://user:password@host:15673 [env: DLX_PROXY_URL] [default: the admin port of the settings]
    #[arg(short = 'U', long, value_name = "URL", global = true)]
    url: Option<String>,
    /// A profile of ~/.config/dlx-proxy/profiles.toml: url, username, password, vhost [default: "default", if it exists]
    #[arg(
        short = 'P',
        long,
        value_name = "NAME",
        global = true,
        conflicts_with = "url"
    )]
    profile: Option<String>,
    /// A user of the broker [env: DLX_PROXY_USERNAME] [default: guest]
    #[arg(short, long, value_name = "NAME", global = true)]
    username: Option<String>,
    /// The user's password [env: DLX_PROXY_PASSWORD] [default: guest for guest; others are asked on a terminal]
    #[arg(short, long, value_name = "TEXT", global = true)]
    password: Option<String>,
    /// The vhost [default: /]
    #[arg(short = 'V', long, value_name = "NAME", global = true, value_parser = bytes())]
    vhost: Option<OsString>,
    /// With TLS: CA certificates that the proxy's certificate must chain to, beside those of the system [env: DLX_PROXY_ADMIN_CA_FILE]
    #[arg(long, value_name = "FILE", global = true)]
    admin_ca_file: Option<String>,
    /// TOML file of settings, for the admin port [env: DLX_PROXY_CONFIG]
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

/// Where the admin port is.
#[derive(Args, Debug)]
pub struct AdminPort {
    /// TOML file of settings [env: DLX_PROXY_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Admin HOST:PORT, or with TLS https://HOST:PORT [default: 127.0.0.1:15673]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// With TLS: CA certificates that the proxy's certificate must chain to, beside those of the system [env: DLX_PROXY_ADMIN_CA_FILE]
    #[arg(long, value_name = "FILE")]
    admin_ca_file: Option<String>,
}

/// How to print.
#[derive(Args, Debug)]
pub struct Printing {
    /// How to print: table, tsv (for scripts: no heading, tabs between cells, nothing cut) or json
    #[arg(
        short,
        long,
        value_name = "FORM",
        default_value = "table",
        hide_possible_values = true,
        global = true
    )]
    pub output: Output,
    /// Only these columns, in this order; the names are those of the JSON
    #[arg(
        short,
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        global = true
    )]
    pub columns: Vec<String>,
    /// When to use colors: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true,
        global = true
    )]
    pub color: ColorChoice,
}

/// How to print what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For scripts.
    Tsv,
    /// What the proxy answers.
    Json,
}

// === impl Proxy ===

impl Proxy {
    /// Flags count first, then the URL's user, then the environment or a profile: the one that was named, else the default one.
    ///
    /// # Errors
    /// Invalid settings, no admin port, or no password.
    pub fn client(&self) -> anyhow::Result<Client> {
        let variable = |name| std::env::var(name).ok();
        let url = self
            .url
            .clone()
            .or_else(|| variable(URL).filter(|_| self.profile.is_none()));
        let is_chosen = self.profile.is_some();
        // The credentials of a profile are for its own proxy.
        let profile = match &url {
            Some(_) => Profile::default(),
            None => Profile::find(self.profile.as_deref())?,
        };
        let url = url.or(profile.url);
        let (admin, user) = match url.as_deref() {
            Some(url) => self.at(url)?,
            None => (self.of_settings().place(|| self.trusted())?, None),
        };
        let (username, password) = user.unzip();
        let other = |name, of_profile: Option<String>| match is_chosen {
            true => of_profile.or(variable(name)),
            false => variable(name).or(of_profile),
        };
        let username = self.username.clone().or(username);
        let username = username.or(other(USERNAME, profile.username));
        let username = username.unwrap_or_else(|| "guest".to_owned());
        let password = self.password.clone().or(password.flatten());
        let password = password.or(other(PASSWORD, profile.password));
        let password = match password {
            Some(password) => password,
            None if username == "guest" => "guest".to_owned(),
            None if stdin().is_terminal() => {
                let question = format!("Password of {}: ", crate::plain::line(&username));
                rpassword::prompt_password(question).context("cannot read the password")?
            }
            None => anyhow::bail!("the password is missing: set {PASSWORD}, or use a profile"),
        };
        let vhost = self.vhost.clone().or(profile.vhost.map(OsString::from));
        Ok(Client {
            admin,
            login: (username.into(), password.into()),
            vhost: vhost.unwrap_or_else(|| "/".into()).into_vec(),
        })
    }

    fn at(&self, text: &str) -> anyhow::Result<(Place, Option<User>)> {
        let parsed = Url::parse(text).map_err(|problem| mistaken("url", problem))?;
        let tls = match parsed.scheme {
            "https" => Some(
                self.trusted()
                    .map_err(|problem| mistaken("admin-ca-file", &problem))?,
            ),
            _ => None,
        };
        let place = Place::at(&parsed, tls).map_err(|problem| mistaken("url", &problem))?;
        Ok((place, parsed.user))
    }

    fn of_settings(&self) -> AdminPort {
        AdminPort {
            config: self.config.clone(),
            admin: None,
            admin_ca_file: self.admin_ca_file.clone(),
        }
    }

    fn trusted(&self) -> Result<tls::Client, String> {
        trusted(self.admin_ca_file.clone())
    }
}

fn mistaken(flag: &str, problem: &str) -> Mistakes {
    Mistakes(vec![Mistake {
        place: format!("flag --{flag}"),
        subject: None,
        problem: problem.to_owned(),
    }])
}

fn trusted(file: Option<String>) -> Result<tls::Client, String> {
    let file = file.or_else(|| std::env::var(ADMIN_CA_FILE).ok());
    tls::Client::of_admin(file.as_deref())
}

// === impl AdminPort ===

impl AdminPort {
    /// Where to ask. TLS if requested, or if the settings have only a TLS port; then `own` provides
    /// the client.
    ///
    /// # Errors
    /// Invalid settings, or no admin port.
    pub fn place(&self, own: impl Fn() -> Result<tls::Client, String>) -> anyhow::Result<Place> {
        let admin = self.admin.as_deref();
        if let Some(url) = admin.filter(|admin| admin.starts_with("https://")) {
            let tls = trusted(self.admin_ca_file.clone());
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
}
