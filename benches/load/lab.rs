//! A broker and the ways to it.

use std::fmt;
use std::sync::OnceLock;

use anyhow::Context;

use crate::encrypted;
use crate::process::{PREFIX, Route, Scratch, Site, free_port};
use crate::report;
use crate::settings::{Broker, Settings};

/// What is compared: a column of the tables.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    Haproxy,
    /// A program of the bench's own, see `relay`.
    Relay,
    Proxy,
    /// With TLS on both legs.
    HaproxyTls,
    ProxyTls,
    /// The proxy of another revision.
    Old,
    /// So many connections, or proxies.
    Count(u64),
}

pub(crate) struct Lab<'s> {
    pub(crate) site: Site<'s>,
    pub(crate) settings: &'s Settings,
    pub(crate) broker: &'s Broker,
    routes: Vec<(Way, Route)>,
    encrypted: OnceLock<[(Way, Route); 3]>,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Direct => "direct",
            Way::Haproxy | Way::HaproxyTls => "haproxy",
            Way::Relay => "relay",
            Way::Proxy | Way::ProxyTls => "dlx-proxy",
            Way::Old => "old",
            Way::Count(count) => return f.write_str(&report::number(*count as f64)),
        })
    }
}

// === impl Lab ===

impl<'s> Lab<'s> {
    pub(crate) fn start(settings: &'s Settings, broker: &'s Broker) -> anyhow::Result<Lab<'s>> {
        let scratch = Scratch::new(&broker.version)?;
        let site = Site {
            settings,
            broker,
            scratch,
        };
        let mut routes = vec![(Way::Direct, Route::direct(broker))];
        let proxy = site.dlx_proxy(&settings.binary, PREFIX, &[])?;
        routes.push((Way::Proxy, proxy));
        if let Some(old) = &settings.old {
            // It has an intake queue of its own.
            routes.push((
                Way::Old,
                site.dlx_proxy(old, &format!("{PREFIX}-old"), &[])?,
            ));
        } else {
            let (port, to) = (free_port()?, &broker.address);
            let listener = format!("listen amqp\n  bind 127.0.0.1:{port}\n  server broker {to}\n");
            routes.push((Way::Haproxy, site.haproxy("haproxy", port, &listener)?));
        }
        for process in routes
            .iter()
            .filter_map(|(_, route)| route.process.as_ref())
        {
            process.wait_ready()?;
        }
        Ok(Lab {
            site,
            settings,
            broker,
            routes,
            encrypted: OnceLock::new(),
        })
    }

    /// For the terminal: how many threads the proxies have.
    pub(crate) fn about(&self) -> anyhow::Result<()> {
        for process in self
            .routes
            .iter()
            .filter_map(|(_, route)| route.process.as_ref())
        {
            println!("{}: {}", self.broker.version, process.about()?);
        }
        Ok(())
    }

    /// The relay has none: it speaks to the broker.
    pub(crate) fn route(&self, way: Way) -> anyhow::Result<&Route> {
        let of = if way == Way::Relay { Way::Direct } else { way };
        let mut routes = &self.routes[..];
        if matches!(way, Way::HaproxyTls | Way::ProxyTls) {
            if self.encrypted.get().is_none() {
                let _ = self.encrypted.set(encrypted::start(&self.site)?);
            }
            routes = self.encrypted.get().map_or(&[], |routes| &routes[..]);
        }
        let found = routes.iter().find(|(way, _)| *way == of);
        found
            .map(|(_, route)| route)
            .with_context(|| format!("no way {way}"))
    }
}
