//! What the settings and their files say, checked: all mistakes at once, each with the setting that it is in.

use std::time::Duration;

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::client::{Client, roots_of_the_system};
use super::files::{Contents, Problem};
use super::words::Advice;
use super::{ClientAuth, Settings, Uses, server};

#[derive(Debug)]
pub struct Material {
    pub(super) upstream: Option<ToBroker>,
    pub(super) hook: Option<Client>,
    pub(super) served: Option<Served>,
}

#[derive(Debug)]
pub(super) struct ToBroker {
    pub(super) client: Client,
    /// Of our client certificate, if any; since 1970.
    pub(super) expires: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Served {
    pub(super) clients: Option<ServerConfig>,
    pub(super) admin: Option<ServerConfig>,
    /// Of the certificate; since 1970.
    pub(super) expires: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Upstream,
    Served,
}

// === impl Side ===

impl Side {
    pub(super) const ALL: [Side; 2] = [Side::Upstream, Side::Served];

    pub(super) fn certificate(self) -> &'static str {
        match self {
            Side::Upstream => "upstream-cert-file",
            Side::Served => "tls-cert-file",
        }
    }

    pub(super) fn is_alike(self, a: Uses, b: Uses) -> bool {
        match self {
            Side::Upstream => a.upstream == b.upstream,
            Side::Served => (a.clients, a.admin) == (b.clients, b.admin),
        }
    }
}

// === impl Settings ===

impl Settings {
    pub(super) fn of(&self, side: Side) -> Settings {
        match side {
            Side::Upstream => Settings {
                tls_cert_file: None,
                tls_key_file: None,
                tls_client_ca_file: None,
                tls_client_auth: ClientAuth::Off,
                ..self.clone()
            },
            Side::Served => Settings {
                upstream_ca_file: None,
                upstream_tls_name: None,
                upstream_cert_file: None,
                upstream_key_file: None,
                upstream_tls_verify: true,
                ..self.clone()
            },
        }
    }

    /// Whether the broker's certificate must be signed by a CA of the system.
    pub(super) fn trusts_the_system(&self) -> bool {
        self.upstream_tls_verify && self.upstream_ca_file.is_none()
    }

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
        problems
    }
}

// === impl Material ===

impl Material {
    /// An expired certificate is no mistake: clients that do not verify it still work.
    ///
    /// # Errors
    /// All mistakes.
    pub fn new(
        settings: &Settings,
        uses: Uses,
        files: &Contents,
    ) -> Result<Material, Vec<Problem>> {
        let problems = settings.contradictions(uses);
        let upstream = ToBroker::new(settings, uses, files);
        let served = Served::new(settings, uses, files);
        let hook = uses.hook.then(hook).transpose();
        match (upstream, served, hook) {
            (Ok(upstream), Ok(served), Ok(hook)) if problems.is_empty() => Ok(Material {
                upstream,
                hook,
                served,
            }),
            (upstream, served, hook) => {
                let wrong = [upstream.err(), served.err(), hook.err().map(|it| vec![it])];
                Err(problems
                    .into_iter()
                    .chain(wrong.into_iter().flatten().flatten())
                    .collect())
            }
        }
    }
}

pub(super) fn hook() -> Result<Client, Problem> {
    let roots = roots_of_the_system("on-dead-letter")?;
    Client::new(roots, None, None, Advice::System)
        .map_err(|error| Problem::new("on-dead-letter", error))
}

// === impl ToBroker ===

impl ToBroker {
    /// `None`: valid, but unused.
    pub(super) fn new(
        settings: &Settings,
        uses: Uses,
        files: &Contents,
    ) -> Result<Option<ToBroker>, Vec<Problem>> {
        let identity = files.identity("upstream-cert-file", "upstream-key-file");
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
            return Ok(None);
        }
        let expires = identity.as_ref().map(|it| it.expires);
        let roots = match roots {
            _ if !settings.upstream_tls_verify => None,
            Some(roots) => Some(roots),
            None => Some(roots_of_the_system("upstream-ca-file").map_err(|problem| vec![problem])?),
        };
        let client = match roots {
            Some(roots) => Client::new(roots, identity, name, Advice::Upstream),
            None => Client::unverified(identity, name),
        };
        let client = client.map_err(|error| vec![Problem::new("upstream-cert-file", error)])?;
        Ok(Some(ToBroker { client, expires }))
    }
}

// === impl Served ===

impl Served {
    pub(super) fn new(
        settings: &Settings,
        uses: Uses,
        files: &Contents,
    ) -> Result<Option<Served>, Vec<Problem>> {
        let auth = settings.tls_client_auth;
        let identity = match files.identity("tls-cert-file", "tls-key-file") {
            Ok(None) if uses.serves() => {
                let what =
                    "set it, and `tls-key-file`: `listen-tls` and `admin-tls` need a certificate";
                Err(vec![Problem::new("tls-cert-file", what)])
            }
            identity => identity,
        };
        let roots = match files.roots("tls-client-ca-file") {
            Ok(None) if uses.clients && auth != ClientAuth::Off => {
                let what = "set it too: `tls-client-auth` needs to know who signs the certificates of clients";
                Err(Problem::new("tls-client-ca-file", what))
            }
            roots => roots,
        };
        let (identity, roots) = match (identity, roots) {
            (Ok(identity), Ok(roots)) => (identity, roots),
            (identity, roots) => {
                let mut problems = Vec::from_iter(roots.err());
                problems.extend(identity.err().unwrap_or_default());
                return Err(problems);
            }
        };
        let Some(identity) = identity.filter(|_| uses.serves()) else {
            return Ok(None);
        };
        let config =
            |auth, roots| server::config(&identity, auth, roots).map_err(|problem| vec![problem]);
        let mut admin = None;
        if uses.admin {
            let mut config = config(ClientAuth::Off, None)?;
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            admin = Some(config);
        }
        let clients = match uses.clients {
            true => Some(config(auth, roots)?),
            false => None,
        };
        Ok(Some(Served {
            clients,
            admin,
            expires: identity.expires,
        }))
    }
}
