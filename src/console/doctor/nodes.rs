//! Whether each node of the broker answers, what it is, and into which vhosts it lets the proxy's user.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lapin::Connection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::either::Either;

use crate::amqp::frame::{Front, front};
use crate::amqp::ids::Vhost;
use crate::amqp::method::Start;
use crate::amqp::table::{Table, Value};
use crate::amqp::version::Version;
use crate::net::dial::Way;
use crate::net::nodes::{Address, Node, Resolver};
use crate::tls::{ends, now};

use super::{NAME, PATIENCE, Patient, Report, own};

/// AMQP 0-9-1, section 4.2.2.
const PROTOCOL_HEADER: &[u8] = b"AMQP\0\0\x09\x01";
/// `connection.start` has some hundred bytes.
const LONGEST_GREETING: usize = 64 * 1024;

pub(super) struct Entered {
    pub(super) address: Address,
    pub(super) vhost: Vhost,
    pub(super) connection: Connection,
}

struct Greeting {
    version: String,
    expires: Option<Duration>,
    took: Duration,
}

/// Returns a connection for each vhost that the proxy's user may enter.
pub(super) async fn examine(patient: &Patient, report: &mut Report) -> Vec<Entered> {
    let (mut answering, mut silent, mut versions) = (Vec::new(), Vec::new(), Vec::new());
    for address in addresses(patient, report).await {
        let about = format!("node {address}");
        match timeout(PATIENCE, greet(&address, &patient.access.way)).await {
            Ok(Ok(greeting)) => {
                let Greeting {
                    version,
                    expires,
                    took,
                } = &greeting;
                version_of(&about, version, *took, report);
                if let Some(expires) = expires {
                    own::certificate(&about, *expires, now(), report);
                }
                versions.push(greeting.version);
                answering.push(address);
            }
            Ok(Err(error)) => silent.push((address, error.to_string())),
            Err(_) => silent.push((address, "no answer in time".to_owned())),
        }
    }
    for (address, error) in silent {
        no_node(&address, &error, &answering, report);
    }
    versions.sort();
    versions.dedup();
    if versions.len() > 1 {
        let says = format!(
            "The nodes have different versions: {}.",
            versions.join(", ")
        );
        report.note(
            "the cluster",
            says,
            "Finish the upgrade: some dead letters look as the older version writes them.",
        );
    }
    let mut entered = Vec::new();
    for vhost in &patient.vhosts {
        let mut first = None;
        for address in &answering {
            let found = enter(address, vhost, patient, report).await;
            first = first.or(found);
        }
        entered.extend(first);
    }
    entered
}

pub(super) fn version_of(about: &str, text: &str, took: Duration, report: &mut Report) {
    let says = format!("RabbitMQ {text} answers after {} ms.", took.as_millis());
    match Version::parse(text.as_bytes()) {
        Some(version) if version < Version::OLDEST => {
            report.problem(
                about,
                says,
                "The proxy works from RabbitMQ 3.10 on: upgrade the broker.",
            );
        }
        Some(version) if !version.is_unknown() => report.ok(about, says),
        _ => report.note(
            about,
            says,
            "The proxy was not tested with this version: see whether a newer one was.",
        ),
    }
}

/// All addresses of all names: the proxy uses each of them.
async fn addresses(patient: &Patient, report: &mut Report) -> Vec<Address> {
    let mut found: Vec<Address> = Vec::new();
    for node in &patient.nodes {
        match look_up(&patient.resolver, node).await {
            Ok(addresses) => {
                for at in addresses {
                    let address = Address {
                        node: node.clone(),
                        at,
                    };
                    if !found.contains(&address) {
                        found.push(address);
                    }
                }
            }
            Err(error) => report.problem(
                format!("node {node}"),
                format!("Its name leads nowhere: {error}."),
                "Is the name in `upstream` right, and does this machine ask the right server for names?",
            ),
        }
    }
    found
}

async fn look_up(resolver: &Resolver, node: &Node) -> io::Result<Vec<SocketAddr>> {
    let found = timeout(PATIENCE, resolver(node.clone())).await;
    let found = found.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    match found.is_empty() {
        true => Err(io::Error::other("it has no address")),
        false => Ok(found),
    }
}

pub(super) fn no_node(address: &Address, error: &str, answering: &[Address], report: &mut Report) {
    let about = format!("node {address}");
    let says = format!("It cannot be reached: {error}.");
    let is_other_family =
        |other: &&Address| other.node == address.node && other.at.is_ipv4() != address.at.is_ipv4();
    // `localhost` is such a name.
    if let Some(other) = answering.iter().find(is_other_family) {
        let advice = format!(
            "If that is the same node as {other}, which answers, name that address: the proxy tries both."
        );
        return report.note(about, says, advice);
    }
    let advice = "Is the address in `upstream` right, does the node run, and is the port open?";
    match answering {
        [] => report.problem(about, says, advice),
        _ => report.problem(
            about,
            says,
            format!("{advice} Meanwhile the proxy uses the others."),
        ),
    }
}

async fn greet(address: &Address, way: &Way) -> io::Result<Greeting> {
    let begun = Instant::now();
    let mut socket = way.to_address(address).await?;
    let expires = match &socket {
        Either::Left(_) => None,
        Either::Right(stream) => stream.get_ref().1.peer_certificates().and_then(ends),
    };
    socket.write_all(PROTOCOL_HEADER).await?;
    let mut said = Vec::new();
    while socket.read_buf(&mut said).await? > 0 {
        let version = match front(&said) {
            Front::Whole(_, payload, _) => Start::parse(payload).ok().and_then(version),
            Front::Short => continue,
            Front::Part(head) if head.size <= LONGEST_GREETING => continue,
            Front::Part(_) | Front::Unterminated(_) => None,
        };
        let version =
            version.ok_or_else(|| io::Error::other("what answers there is not RabbitMQ"))?;
        let took = begun.elapsed();
        return Ok(Greeting {
            version,
            expires,
            took,
        });
    }
    Err(io::Error::other(
        "it accepts, and ends the connection without a word",
    ))
}

fn version(start: Start<'_>) -> Option<String> {
    let version = Table(start.server_properties).get(b"version").ok()?;
    let version = version.and_then(Value::as_longstr)?;
    Some(String::from_utf8_lossy(version).into_owned())
}

async fn enter(
    address: &Address,
    vhost: &Vhost,
    patient: &Patient,
    report: &mut Report,
) -> Option<Entered> {
    let about = format!("node {address}, vhost {vhost}");
    let user = &patient.access.user;
    let connected = timeout(PATIENCE, patient.access.connect_at(address, vhost, NAME)).await;
    let error = match connected {
        Ok(Ok(connection)) => {
            report.ok(about, format!("The proxy's user {user} is let in."));
            return Some(Entered {
                address: address.clone(),
                vhost: vhost.clone(),
                connection,
            });
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no answer in time".to_owned(),
    };
    let own = patient.own_user();
    let advice = own.remedy(vhost, &error).unwrap_or_else(|| {
        format!(
            "Is the password right, and is there the vhost? {}",
            own.grant(vhost)
        )
    });
    report.problem(
        about,
        format!("The proxy's user {user} is not let in: {error}."),
        advice,
    );
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::net::TcpListener;

    use super::*;
    use crate::console::admin::api::tests::broker;
    use crate::console::doctor::Kind;
    use crate::console::doctor::tests::anybody;

    async fn closed() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        listener.and_then(|it| it.local_addr()).expect("free")
    }

    async fn examined(names: &[(&'static str, &[SocketAddr])]) -> Report {
        let names: Vec<_> = names
            .iter()
            .map(|(name, at)| (*name, at.to_vec()))
            .collect();
        let nodes = names.iter().map(|(name, _)| Node {
            host: (*name).to_owned(),
            port: 5672,
        });
        let nodes = nodes.collect();
        let resolver: Resolver = Arc::new(move |node: Node| {
            let found = names.iter().find(|(name, _)| *name == node.host);
            let found = found.map(|(_, at)| at.clone());
            Box::pin(async move { found.ok_or_else(|| io::Error::other("no such name")) })
        });
        let patient = Patient {
            nodes,
            resolver,
            vhosts: vec![],
            ..anybody()
        };
        let mut report = Report::default();
        assert!(examine(&patient, &mut report).await.is_empty(), "no vhost");
        report
    }

    fn kinds(report: &Report) -> Vec<(Kind, &str)> {
        let findings = report.findings.iter();
        findings
            .map(|found| (found.kind, found.about.as_str()))
            .collect()
    }

    #[tokio::test]
    async fn each_address_of_a_name_is_examined() {
        let (up, other) = (broker(vec![]).await, broker(vec![]).await);
        let at = [up, closed().await, other, closed().await];
        let report = examined(&[("cluster", &at), ("empty", &[])]).await;
        let (ok, problem) = (Kind::Ok, Kind::Problem);
        assert_eq!(
            kinds(&report),
            [
                (problem, "node empty:5672"),
                (ok, "node cluster:5672(127.0.0.1)"),
                (ok, "node cluster:5672(127.0.0.1)"),
                (problem, "node cluster:5672(127.0.0.1)"),
                (problem, "node cluster:5672(127.0.0.1)"),
            ]
        );
        let advice = report.findings[3].advice.as_deref().unwrap_or_default();
        let words = "Meanwhile the proxy uses the others.";
        assert!(advice.ends_with(words), "{advice}");
    }
}
