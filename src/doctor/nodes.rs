//! Whether each node of the broker answers, what it is, and into which vhosts it lets the proxy's user.

use std::io;
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
use crate::connection::Access;
use crate::net::dial::Way;
use crate::net::nodes::Node;
use crate::tls::{ends, now};

use super::{NAME, PATIENCE, Patient, Report, own, quoted};

/// The versions that the proxy is tested with: from this one on, to below that one.
const FROM: Version = Version(3, 10, 0);
const BELOW: Version = Version(4, 4, 0);
/// AMQP 0-9-1, section 4.2.2.
const PROTOCOL_HEADER: &[u8] = b"AMQP\0\0\x09\x01";
/// `connection.start` is some hundred octets.
const LONGEST_GREETING: usize = 64 * 1024;

/// A connection as the proxy's user.
pub(super) struct Entered {
    pub(super) node: Node,
    pub(super) vhost: Vhost,
    pub(super) connection: Connection,
}

/// What a node says of itself before anybody has logged in.
struct Greeting {
    version: String,
    /// When the first of its certificates ends, if it has shown any.
    expires: Option<Duration>,
    took: Duration,
}

/// Returns one connection to each vhost that lets the proxy's user in.
pub(super) async fn examine(patient: &Patient, report: &mut Report) -> Vec<Entered> {
    let (mut answering, mut versions) = (Vec::new(), Vec::new());
    for node in &patient.nodes {
        let about = format!("node {node}");
        match timeout(PATIENCE, greet(node, &patient.access.way)).await {
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
                answering.push(node);
            }
            Ok(Err(error)) => no_node(&about, &error.to_string(), patient, report),
            Err(_) => no_node(&about, "no answer in time", patient, report),
        }
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
        for node in &answering {
            let found = enter(node, vhost, &patient.access, report).await;
            first = first.or(found);
        }
        entered.extend(first);
    }
    entered
}

fn version_of(about: &str, text: &str, took: Duration, report: &mut Report) {
    let says = format!("RabbitMQ {text} answers after {} ms.", took.as_millis());
    match Version::parse(text.as_bytes()) {
        Some(version) if version < FROM => {
            report.problem(
                about,
                says,
                "The proxy works from RabbitMQ 3.10 on: upgrade the broker.",
            );
        }
        Some(version) if version < BELOW => report.ok(about, says),
        _ => report.note(
            about,
            says,
            "The proxy was not tested with this version: see whether a newer one was.",
        ),
    }
}

fn no_node(about: &str, error: &str, patient: &Patient, report: &mut Report) {
    let says = format!("It cannot be reached: {error}.");
    let advice = "Is the address in `upstream` right, does the node run, and is the port open?";
    match patient.nodes.len() {
        1 => report.problem(about, says, advice),
        _ => report.problem(
            about,
            says,
            format!("{advice} The proxy uses the others as long."),
        ),
    }
}

/// The first words of a node.
async fn greet(node: &Node, way: &Way) -> io::Result<Greeting> {
    let begun = Instant::now();
    let mut socket = way.to(node).await?;
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
    node: &Node,
    vhost: &Vhost,
    access: &Access,
    report: &mut Report,
) -> Option<Entered> {
    let about = format!("node {node}, vhost {vhost}");
    let user = &access.user;
    let connected = timeout(PATIENCE, access.connect(node, vhost, NAME)).await;
    let error = match connected {
        Ok(Ok(connection)) => {
            report.ok(about, format!("The proxy's user {user} is let in."));
            return Some(Entered {
                node: node.clone(),
                vhost: vhost.clone(),
                connection,
            });
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no answer in time".to_owned(),
    };
    let advice = format!(
        "Is the password right, and is there the vhost? rabbitmqctl set_permissions -p {} {} …",
        quoted(&vhost.to_string()),
        quoted(&user.to_string())
    );
    report.problem(
        about,
        format!("The proxy's user {user} is not let in: {error}."),
        advice,
    );
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Kind;

    #[test]
    fn versions_that_were_not_tested_are_told() {
        for (version, kind) in [
            ("3.9.29", Kind::Problem),
            ("3.10.8", Kind::Ok),
            ("4.3.6", Kind::Ok),
            ("4.4.0-beta.1", Kind::Note),
            ("next", Kind::Note),
        ] {
            let mut report = Report::default();
            version_of("node", version, Duration::from_millis(2), &mut report);
            assert_eq!(report.count(kind), 1, "{version}");
        }
    }
}
