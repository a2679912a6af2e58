//! Where a command finds the admin port of a running proxy.

use anyhow::Context;

use crate::admin::client::Client;
use crate::config::{ADMIN_CA_FILE, Config, Mistake, Mistakes, PASSWORD, Sources, USERNAME};
use crate::http::Place;
use crate::tls;

use super::{Admin, Proxy};

/// Who asks, and where.
///
/// # Errors
/// As [`place`].
pub fn client(proxy: &Proxy) -> anyhow::Result<Client> {
    let said = |flag: &Option<String>, variable| flag.clone().or(std::env::var(variable).ok());
    Ok(Client {
        admin: place(&proxy.admin, &proxy.sources(), || of_admin(&proxy.admin))?,
        login: (
            said(&proxy.username, USERNAME)
                .unwrap_or_else(|| "guest".to_owned())
                .into(),
            said(&proxy.password, PASSWORD)
                .unwrap_or_else(|| "guest".to_owned())
                .into(),
        ),
    })
}

/// Where to ask: with TLS if it is told so, or if the settings have nothing else, and then as `own` says.
///
/// # Errors
/// When the settings have a mistake, or no admin port.
pub fn place(
    admin: &Admin,
    sources: &Sources,
    own: impl Fn() -> Result<tls::Client, String>,
) -> anyhow::Result<Place> {
    let mistaken = |subject: &str, problem: &str| {
        Mistakes(vec![Mistake {
            place: format!("flag --{subject}"),
            subject: None,
            problem: problem.to_owned(),
        }])
    };
    if let Some(url) = admin.url() {
        let tls = of_admin(admin).map_err(|problem| mistaken("admin-ca-file", &problem))?;
        return Ok(Place::parse(url, tls).map_err(|problem| mistaken("admin", &problem))?);
    }
    if let Some(place) = admin.named() {
        return Ok(place);
    }
    let config = Config::load(sources)?;
    Ok(match (config.admin, config.admin_tls) {
        (None, Some(address)) => {
            let tls = own().map_err(|problem| mistaken("admin-ca-file", &problem))?;
            Place::of(address, Some(tls))
        }
        (at, _) => Place::of(at.context("there is no admin port")?, None),
    })
}

fn of_admin(admin: &Admin) -> Result<tls::Client, String> {
    let file = admin.admin_ca_file.clone();
    let file = file.or_else(|| std::env::var(ADMIN_CA_FILE).ok());
    tls::Client::of_admin(file.as_deref())
}
