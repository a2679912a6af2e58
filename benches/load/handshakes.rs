//! Clients that make a TLS handshake and go, as fast as they can: what do the others notice, whose connections have TLS, too?

use std::fs::File;
use std::io::BufReader;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::Bench;
use crate::encrypted::Ways;
use crate::pass_through::{self, RATE, join};
use crate::process::{Route, haproxy_version};
use crate::report::{self, Table, compare, interleave_ways};
use crate::settings::Scale;

/// A handshake that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);

impl Bench {
    pub(crate) fn handshakes(&mut self) -> anyhow::Result<()> {
        let Some(encrypted) = &self.settings.encrypted else {
            return Ok(());
        };
        if !self.settings.wants("handshakes") || haproxy_version().is_none() {
            return Ok(());
        }
        let ways = Ways::start(encrypted, &self.settings, &self.scratch)?;
        let client = client(&encrypted.certificates.join("ca.pem"))?;
        let scale = self.settings.scale;
        let mut table = Table::new(["", "", "haproxy", "dlx-proxy", "dlx-proxy : haproxy"]);
        for (name, flooded) in [("in peace", false), ("handshakes", true)] {
            let all = interleave_ways(scale.rounds, ways.with_ports(), |(route, port)| {
                run(route, flooded.then_some((*port, &client)), &scale)
            });
            let metrics = ["p50 in µs", "p99 in µs", "handshakes a second"];
            compare(&mut table, name, &metrics, &all);
            self.failures += all.iter().filter(|series| series.failed()).count();
        }
        println!(
            "\nLatency of others under TLS handshakes that end before AMQP begins: {} messages a second, TLS on both legs\n\
             (a proxy's p99 should be at most twice what it is in peace)\n{table}",
            report::number(RATE as f64)
        );
        Ok(())
    }
}

/// Without sessions that are resumed: each handshake is a whole one.
fn client(authority: &Path) -> anyhow::Result<Arc<ClientConfig>> {
    let file = File::open(authority).with_context(|| authority.display().to_string())?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_reader_iter(BufReader::new(file)) {
        roots.add(certificate?)?;
    }
    let mut config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Median and 99th percentile of the others' latency in microseconds, and handshakes a second.
fn run(
    route: &Route,
    flood: Option<(u16, &Arc<ClientConfig>)>,
    scale: &Scale,
) -> anyhow::Result<Vec<f64>> {
    let (over, times) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let begun = Instant::now();
        let flooding = scope.spawn(|| -> anyhow::Result<()> {
            // The flood stands for other machines, so it yields the processor: the others are not to wait for what it computes.
            let _ = rustix::process::nice(19);
            if let Some((port, client)) = flood {
                while !over.load(Relaxed) {
                    handshake(port, client)?;
                    times.fetch_add(1, Relaxed);
                }
            }
            Ok(())
        });
        let latency = pass_through::latency(route, scale);
        let rate = times.load(Relaxed) as f64 / begun.elapsed().as_secs_f64();
        over.store(true, Relaxed);
        join(flooding)?;
        let mut figures = latency?;
        figures.truncate(2);
        figures.push(rate);
        Ok(figures)
    })
}

fn handshake(port: u16, client: &Arc<ClientConfig>) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let name = ServerName::try_from("localhost")?;
    let mut connection = ClientConnection::new(Arc::clone(client), name)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    Ok(())
}
