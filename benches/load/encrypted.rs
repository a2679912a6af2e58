//! TLS on both legs: clients speak it, and the broker is spoken to with it, as haproxy does the same.
//!
//! The clients of this bench speak plain AMQP. A haproxy of their own puts TLS on it, for each way the same; it costs time for both, so that the
//! processor seconds tell the two apart better than the rate does.

use std::fs;

use anyhow::Context;

use crate::pass_through;
use crate::process::{Route, Scratch, free_port};
use crate::report::{Series, Table, compare, interleave};
use crate::settings::{Encrypted, Settings};

/// The ways, and what puts TLS on their clients' connections.
pub(crate) struct Ways {
    routes: Vec<Route>,
    /// Where their proxies take TLS.
    ports: Vec<u16>,
    /// Ends with them.
    _clients: Route,
}

// === impl Ways ===

impl Ways {
    /// Starts all of it.
    pub(crate) fn start(
        encrypted: &Encrypted,
        settings: &Settings,
        scratch: &Scratch,
    ) -> anyhow::Result<Ways> {
        let ports = [(); 5].map(|()| free_port());
        let [plain, to_haproxy, to_proxy, of_haproxy, of_proxy] = ports;
        let (to_haproxy, to_proxy) = (to_haproxy?, to_proxy?);
        let (plain, of_haproxy, of_proxy) = (plain?, of_haproxy?, of_proxy?);
        let wraps = |name: &str, port: u16, to: u16| {
            format!(
                "listen {name}\n  bind 127.0.0.1:{port}\n  server way 127.0.0.1:{to} ssl verify none\n"
            )
        };
        let listeners = [
            format!(
                "listen plain\n  bind 127.0.0.1:{plain}\n  server broker {}\n",
                settings.broker
            ),
            wraps("haproxy", to_haproxy, of_haproxy),
            wraps("dlx-proxy", to_proxy, of_proxy),
        ];
        let clients =
            Route::haproxy_with("clients", plain, &listeners.concat(), settings, scratch)?;

        let folder = &encrypted.certificates;
        let read = |name: &str| {
            let file = folder.join(name);
            fs::read_to_string(&file).with_context(|| file.display().to_string())
        };
        let both = scratch.file("server.pem");
        fs::write(&both, read("server.pem")? + &read("server.key")?)?;
        let authority = folder.join("ca.pem");
        let listener = format!(
            "listen amqp\n  bind 127.0.0.1:{of_haproxy} ssl crt {}\n  server broker 127.0.0.1:{} ssl verify required ca-file {} sni str(localhost)\n",
            both.display(),
            encrypted.broker,
            authority.display(),
        );
        let routes = vec![
            Route::haproxy_with("haproxy", to_haproxy, &listener, settings, scratch)?,
            Route::dlx_proxy_at(
                "dlx-proxy",
                to_proxy,
                &[
                    ("DLX_PROXY_UPSTREAM", encrypted.url.clone()),
                    (
                        "DLX_PROXY_UPSTREAM_CA_FILE",
                        authority.display().to_string(),
                    ),
                    ("DLX_PROXY_LISTEN", String::new()),
                    ("DLX_PROXY_LISTEN_TLS", format!("127.0.0.1:{of_proxy}")),
                    ("DLX_PROXY_TLS_CERT_FILE", both.display().to_string()),
                    (
                        "DLX_PROXY_TLS_KEY_FILE",
                        folder.join("server.key").display().to_string(),
                    ),
                ],
                settings,
                scratch,
            )?,
        ];
        Ok(Ways {
            routes,
            ports: vec![of_haproxy, of_proxy],
            _clients: clients,
        })
    }

    /// The proxy that all this is about.
    pub(crate) fn dlx_proxy(&self) -> anyhow::Result<&Route> {
        self.routes.last().context("no proxy")
    }

    /// Each way, with the port of its proxy.
    pub(crate) fn with_ports(&self) -> Vec<(&'static str, (&Route, u16))> {
        let routes = self.routes.iter().zip(&self.ports);
        routes
            .map(|(route, port)| (route.name, (route, *port)))
            .collect()
    }

    /// A table, and how many series failed.
    pub(crate) fn measure(&self, settings: &Settings) -> (Table, usize) {
        let scale = settings.scale;
        let mut table = Table::new(["", "", "haproxy", "dlx-proxy", "dlx-proxy : haproxy"]);
        let mut failed = 0;
        for (name, confirms) in [("no confirms", false), ("confirms", true)] {
            for route in &self.routes {
                if let Err(error) = pass_through::throughput(route, scale.messages / 10, confirms) {
                    eprintln!("{}: warm-up: {error:#}", route.name);
                }
            }
            let all = interleave(scale.rounds, &self.routes, |route| {
                pass_through::throughput(route, scale.messages, confirms)
            });
            compare(&mut table, name, &["messages/s", "CPU s per million"], &all);
            failed += all.iter().filter(|series| Series::failed(series)).count();
        }
        (table, failed)
    }
}
