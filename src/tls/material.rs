//! What the settings and their files say, checked: all mistakes at once, each with the setting that it is in.

use std::time::Duration;

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::client::{Client, roots_of_the_system};
use super::files::{Contents, Problem};
use super::words::Advice;
use super::{ClientAuth, Settings, Uses, server};

/// All that handshakes need.
#[derive(Debug)]
pub struct Material {
    /// For the broker.
    pub(super) upstream: Option<Client>,
    /// For the server of `on-dead-letter`.
    pub(super) hook: Option<Client>,
    /// For clients.
    pub(super) clients: Option<ServerConfig>,
    /// For the admin port.
    pub(super) admin: Option<ServerConfig>,
    /// Settings with the end of their certificates, since 1970.
    pub(super) expire: Vec<(&'static str, Duration)>,
}

// === impl Settings ===

impl Settings {
    /// What contradicts itself, whatever is in the files.
    fn contradictions(&self, uses: Uses) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut no_use = |setting, is_set: bool, why: &str| {
            if is_set {
                problems.push(Problem::new(setting, format!("is of no use: {why}")));
            }
        };
        let plain =
            "neither `upstream` begins with `amqps://` nor `management-url` with `https://`";
        let is_upstream_set = [
            ("upstream-ca-file", self.upstream_ca_file.is_some()),
            ("upstream-tls-name", self.upstream_tls_name.is_some()),
            ("upstream-cert-file", self.upstream_cert_file.is_some()),
            ("upstream-key-file", self.upstream_key_file.is_some()),
            ("upstream-tls-verify", !self.upstream_tls_verify),
        ];
        for (setting, is_set) in is_upstream_set {
            no_use(setting, is_set && !uses.upstream, plain);
        }
        let unverified = uses.upstream && !self.upstream_tls_verify;
        let why =
            "`upstream-tls-verify` is false, so that nobody looks at the broker's certificate";
        no_use(
            "upstream-ca-file",
            unverified && self.upstream_ca_file.is_some(),
            why,
        );

        let why = "neither `listen-tls` nor `admin-tls` is set";
        no_use(
            "tls-cert-file",
            !uses.serves() && self.tls_cert_file.is_some(),
            why,
        );
        no_use(
            "tls-key-file",
            !uses.serves() && self.tls_key_file.is_some(),
            why,
        );
        let is_asked = self.tls_client_auth != ClientAuth::Off;
        let roots = self.tls_client_ca_file.is_some();
        let why = "`listen-tls` is not set";
        no_use("tls-client-ca-file", !uses.clients && roots, why);
        no_use("tls-client-auth", !uses.clients && is_asked, why);
        let why = "`tls-client-auth` is `off`, so that no client shows a certificate";
        no_use(
            "tls-client-ca-file",
            uses.clients && roots && !is_asked,
            why,
        );
        if uses.clients && is_asked && !roots {
            let what =
                "set it too: `tls-client-auth` needs to know who signs the certificates of clients";
            problems.push(Problem::new("tls-client-ca-file", what));
        }
        problems
    }
}

// === impl Material ===

impl Material {
    /// Checks everything. `now` is since 1970.
    ///
    /// # Errors
    /// All that is wrong.
    pub fn new(
        settings: &Settings,
        uses: Uses,
        files: &Contents,
        now: Duration,
    ) -> Result<Material, Vec<Problem>> {
        let mut problems = settings.contradictions(uses);
        let mut expire = Vec::new();
        let mut noted =
            |done: Result<(), Vec<Problem>>| problems.extend(done.err().unwrap_or_default());

        let (mut upstream, mut hook, mut clients, mut admin) = (None, None, None, None);
        noted((|| {
            let identity = files.identity("upstream-cert-file", "upstream-key-file", now);
            let roots = files.roots("upstream-ca-file");
            let name = settings
                .upstream_tls_name
                .clone()
                .map(ServerName::try_from)
                .transpose();
            let name = name.map_err(|_| {
                Problem::new(
                    "upstream-tls-name",
                    "write the name of a host, or an address",
                )
            });
            let (identity, roots, name) = match (identity, roots, name) {
                (Ok(identity), Ok(roots), Ok(name)) => (identity, roots, name),
                (identity, roots, name) => {
                    let mut problems = identity.err().unwrap_or_default();
                    problems.extend(roots.err());
                    problems.extend(name.err());
                    return Err(problems);
                }
            };
            if !uses.upstream {
                return Ok(());
            }
            expire.extend(
                identity
                    .as_ref()
                    .map(|it| ("upstream-cert-file", it.expires)),
            );
            let roots = match roots {
                _ if !settings.upstream_tls_verify => None,
                Some(roots) => Some(roots),
                None => {
                    Some(roots_of_the_system("upstream-ca-file").map_err(|problem| vec![problem])?)
                }
            };
            let client = match roots {
                Some(roots) => Client::new(roots, identity, name, Advice::Upstream),
                None => Client::unverified(identity, name),
            };
            upstream =
                Some(client.map_err(|error| vec![Problem::new("upstream-cert-file", error)])?);
            Ok(())
        })());
        noted((|| {
            let identity = files.identity("tls-cert-file", "tls-key-file", now);
            let roots = files.roots("tls-client-ca-file");
            let (identity, roots) = match (identity, roots) {
                (Ok(identity), Ok(roots)) => (identity, roots),
                (identity, roots) => {
                    let mut problems = identity.err().unwrap_or_default();
                    problems.extend(roots.err());
                    return Err(problems);
                }
            };
            if !uses.serves() {
                return Ok(());
            }
            let Some(identity) = identity else {
                let what =
                    "set it, and `tls-key-file`: `listen-tls` and `admin-tls` need a certificate";
                return Err(vec![Problem::new("tls-cert-file", what)]);
            };
            expire.push(("tls-cert-file", identity.expires));
            let config = |auth, roots| {
                server::config(&identity, auth, roots).map_err(|problem| vec![problem])
            };
            if uses.admin {
                let mut config = config(ClientAuth::Off, None)?;
                config.alpn_protocols = vec![b"http/1.1".to_vec()];
                admin = Some(config);
            }
            if uses.clients {
                clients = Some(config(settings.tls_client_auth, roots)?);
            }
            Ok(())
        })());
        noted((|| {
            if uses.hook {
                let roots =
                    roots_of_the_system("on-dead-letter").map_err(|problem| vec![problem])?;
                let client = Client::new(roots, None, None, Advice::System);
                hook = Some(client.map_err(|error| vec![Problem::new("on-dead-letter", error)])?);
            }
            Ok(())
        })());
        match problems.is_empty() {
            false => Err(problems),
            true => Ok(Material {
                upstream,
                hook,
                clients,
                admin,
                expire,
            }),
        }
    }
}
