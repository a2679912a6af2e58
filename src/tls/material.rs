//! What the settings and their files say, checked: all mistakes at once, each with the setting that it is in.

use std::time::Duration;

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::client::{Client, roots_of_the_system};
use super::files::{Contents, Problem, noted};
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
        let plain =
            "neither `upstream` begins with `amqps://` nor `management-url` with `https://`";
        let unverified =
            "`upstream-tls-verify` is false, so that nobody looks at the broker's certificate";
        let unserved = "neither `listen-tls` nor `admin-tls` is set";
        let no_clients = "`listen-tls` is not set";
        let unasked = "`tls-client-auth` is `off`, so that no client shows a certificate";
        let (verifies, asks) = (
            self.upstream_tls_verify,
            self.tls_client_auth != ClientAuth::Off,
        );
        let (to_broker, serves, clients) = (uses.upstream, uses.serves(), uses.clients);
        let ca = self.upstream_ca_file.is_some();
        let client_ca = self.tls_client_ca_file.is_some();
        let of_no_use = [
            ("upstream-ca-file", ca, !to_broker, plain),
            (
                "upstream-tls-name",
                self.upstream_tls_name.is_some(),
                !to_broker,
                plain,
            ),
            (
                "upstream-cert-file",
                self.upstream_cert_file.is_some(),
                !to_broker,
                plain,
            ),
            (
                "upstream-key-file",
                self.upstream_key_file.is_some(),
                !to_broker,
                plain,
            ),
            ("upstream-tls-verify", !verifies, !to_broker, plain),
            ("upstream-ca-file", ca, to_broker && !verifies, unverified),
            (
                "tls-cert-file",
                self.tls_cert_file.is_some(),
                !serves,
                unserved,
            ),
            (
                "tls-key-file",
                self.tls_key_file.is_some(),
                !serves,
                unserved,
            ),
            ("tls-client-ca-file", client_ca, !clients, no_clients),
            ("tls-client-auth", asks, !clients, no_clients),
            ("tls-client-ca-file", client_ca, clients && !asks, unasked),
        ];
        let of_no_use = of_no_use.into_iter();
        let wrong = of_no_use.filter(|(_, is_set, is_useless, _)| *is_set && *is_useless);
        wrong
            .map(|(setting, _, _, why)| Problem::new(setting, format!("is of no use: {why}")))
            .collect()
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
        let mut problems = settings.contradictions(uses);
        let upstream = ToBroker::new(settings, uses, files, &mut problems);
        let served = Served::new(settings, uses, files, &mut problems);
        let hook = uses.hook.then(hook);
        let hook = hook.and_then(|hook| noted(hook, &mut problems));
        match problems.is_empty() {
            true => Ok(Material {
                upstream,
                hook,
                served,
            }),
            false => Err(problems),
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
    /// `None`: unused, or with new problems.
    pub(super) fn new(
        settings: &Settings,
        uses: Uses,
        files: &Contents,
        problems: &mut Vec<Problem>,
    ) -> Option<ToBroker> {
        let before = problems.len();
        let identity = files.identity("upstream-cert-file", "upstream-key-file", problems);
        let roots = noted(files.roots("upstream-ca-file"), problems).flatten();
        let name = settings.upstream_tls_name.clone();
        let name = name.map(ServerName::try_from).transpose().map_err(|_| {
            let what = "write the name of a host, or an address";
            Problem::new("upstream-tls-name", what)
        });
        let name = noted(name, problems).flatten();
        if !uses.upstream || problems.len() > before {
            return None;
        }
        let expires = identity.as_ref().map(|it| it.expires);
        let client = match roots {
            _ if !settings.upstream_tls_verify => Client::unverified(identity, name),
            Some(roots) => Client::new(roots, identity, name, Advice::Upstream),
            None => {
                let roots = noted(roots_of_the_system("upstream-ca-file"), problems)?;
                Client::new(roots, identity, name, Advice::Upstream)
            }
        };
        let client = client.map_err(|error| Problem::new("upstream-cert-file", error));
        let client = noted(client, problems)?;
        Some(ToBroker { client, expires })
    }
}

// === impl Served ===

impl Served {
    /// `None`: unused, or with new problems.
    pub(super) fn new(
        settings: &Settings,
        uses: Uses,
        files: &Contents,
        problems: &mut Vec<Problem>,
    ) -> Option<Served> {
        let (before, auth) = (problems.len(), settings.tls_client_auth);
        let roots = noted(files.roots("tls-client-ca-file"), problems).flatten();
        if uses.clients && auth != ClientAuth::Off && settings.tls_client_ca_file.is_none() {
            let what =
                "set it too: `tls-client-auth` needs to know who signs the certificates of clients";
            problems.push(Problem::new("tls-client-ca-file", what));
        }
        let identity = files.identity("tls-cert-file", "tls-key-file", problems);
        if uses.serves() && settings.tls_cert_file.is_none() && settings.tls_key_file.is_none() {
            let what =
                "set it, and `tls-key-file`: `listen-tls` and `admin-tls` need a certificate";
            problems.push(Problem::new("tls-cert-file", what));
        }
        let identity = identity.filter(|_| uses.serves() && problems.len() == before)?;
        let mut config = |is_used: bool, auth, roots| {
            let config = is_used.then(|| server::config(&identity, auth, roots));
            config.and_then(|config| noted(config, problems))
        };
        let mut admin = config(uses.admin, ClientAuth::Off, None);
        if let Some(config) = &mut admin {
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
        }
        Some(Served {
            admin,
            clients: config(uses.clients, auth, roots),
            expires: identity.expires,
        })
    }
}
