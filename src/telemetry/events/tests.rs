//! The lines that facts become.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tracing::{Level, info};

use super::super::logging;
use super::*;
use crate::amqp::ids::name;
use crate::machine::{DeadLetter, Reason, Role};
use crate::net::nodes::Node;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no test panics").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lines_of(act: impl FnOnce()) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::TRACE)
        .with_writer(move || writer.clone())
        .fmt_fields(logging::fields())
        .with_ansi(false)
        .with_target(false)
        .without_time();
    tracing::subscriber::with_default(subscriber.finish(), act);
    let bytes = lines.0.lock().expect("no test panics").clone();
    String::from_utf8(bytes).expect("UTF-8")
}

fn dead_letter(queue: &str, outcome: Outcome) -> Event {
    Event::DeadLetter(Arc::new(DeadLetter {
        queue: name(queue),
        reason: Reason::Expired,
        exchange: name("dlx"),
        routing_key: name("key"),
        bytes: 1,
        outcome,
        by: None,
    }))
}

#[test]
fn a_session_is_named_in_its_lines() {
    let lines = lines_of(|| {
        let peer = "10.0.0.7:50000";
        let mut reporter = Reporter::session(Metrics::new(), peer);
        reporter.report(&Event::ProtocolFault {
            leg: Leg::Client,
            what: "wrong end byte",
        });
        reporter.report(&Event::SessionOpened {
            vhost: name("/"),
            user: Some(name("app")),
            name: Some("worker 1".into()),
        });
        reporter.report(&Event::RejectForwarded {
            queue: name("orders"),
            cause: Fallback::Budget,
        });
    });
    insta::assert_snapshot!(lines, @r#"
     INFO session{peer=10.0.0.7:50000}: a client violated the protocol what="wrong end byte"
    DEBUG session{peer=10.0.0.7:50000 vhost=/ user=app connection="worker 1"}: session opened
     WARN session{peer=10.0.0.7:50000 vhost=/ user=app connection="worker 1"}: left to the broker queue=orders request="reject" cause="budget"
    "#);
}

#[test]
fn what_peers_say_stays_in_its_line() {
    let lines = lines_of(|| {
        let peer = "10.0.0.7:50000";
        let mut reporter = Reporter::session(Metrics::new(), peer);
        let name = "worker vhost=/ user=root}: all is well\n INFO ok \u{1b}[31m\u{9b}1m\u{2028}\u{7f}\u{202e}\"ü";
        reporter.report(&Event::SessionOpened {
            vhost: self::name("/"),
            user: Some(self::name("app user=root")),
            name: Some(name.into()),
        });
        reporter.report(&Event::QueueManaged {
            queue: self::name("orders mode=\"none\""),
            taken_over: true,
        });
        reporter.report(&Event::LinkDown {
            role: Role::Intake,
            cause: "403 no\r\n\u{1b}[2J".to_owned(),
        });
    });
    insta::assert_snapshot!(lines, @r#"
    DEBUG session{peer=10.0.0.7:50000 vhost=/ user="app user=root" connection="worker vhost=/ user=root}: all is well\n INFO ok \u{1b}[31m\u{9b}1m\u{2028}\u{7f}\u{202e}\"ü"}: session opened
    DEBUG session{peer=10.0.0.7:50000 vhost=/ user="app user=root" connection="worker vhost=/ user=root}: all is well\n INFO ok \u{1b}[31m\u{9b}1m\u{2028}\u{7f}\u{202e}\"ü"}: queue is managed queue="orders mode=\"none\"" mode="full"
     WARN session{peer=10.0.0.7:50000 vhost=/ user="app user=root" connection="worker vhost=/ user=root}: all is well\n INFO ok \u{1b}[31m\u{9b}1m\u{2028}\u{7f}\u{202e}\"ü"}: link cannot be opened link="intake" cause="403 no\r\n\u{1b}[2J"
    "#);
}

/// Looks quoted already; and other escapes from a value.
#[test]
fn no_value_ends_before_its_end() {
    for (name, written) in [
        ("worker-1", "worker-1"),
        ("", r#""""#),
        ("a\" user=\"root", r#""a\" user=\"root""#),
        ("\"a\" user=\"root\"", r#""\"a\" user=\"root\"""#),
        ("\"a\\\" user=\"", r#""a\" user=""#),
        ("a}:b", r#""a}:b""#),
        ("a=b", r#""a=b""#),
        ("a\u{3000}b", r#""a\u{3000}b""#),
    ] {
        let lines = lines_of(|| info!(%name, "said"));
        assert_eq!(lines, format!(" INFO said name={written}\n"), "{name}");
    }
}

#[test]
fn the_level_says_who_must_act() {
    let lines = lines_of(|| {
        let mut reporter = Reporter::link(Metrics::new(), name("/"));
        for outcome in [
            Outcome::Confirmed,
            Outcome::Parked(Cause::Unroutable),
            Outcome::Dropped(Cause::Cycle),
            Outcome::Refused(Cause::PublisherAway),
            Outcome::Refused(Cause::Poison),
        ] {
            reporter.report(&dead_letter("orders", outcome));
        }
    });
    insta::assert_snapshot!(lines, @r#"
    TRACE link{vhost=/}: dead letter confirmed queue=orders reason="expired" exchange=dlx
     WARN link{vhost=/}: dead letter parked queue=orders reason="expired" exchange=dlx cause="unroutable"
     WARN link{vhost=/}: dead letter dropped queue=orders reason="expired" exchange=dlx cause="cycle"
     WARN link{vhost=/}: dead letter not published queue=orders reason="expired" exchange=dlx cause="publisher_away"
    ERROR link{vhost=/}: dead letter not published queue=orders reason="expired" exchange=dlx cause="poison"
    "#);
}

#[test]
fn what_repeats_is_written_once_a_minute() {
    let lines = lines_of(|| {
        let mut reporter = Reporter::link(Metrics::new(), name("/"));
        for queue in ["a", "b", "a", "a"] {
            reporter.report(&dead_letter(queue, Outcome::Parked(Cause::NoExchange)));
        }
    });
    assert_eq!(lines.lines().count(), 2, "{lines}");
}

#[test]
fn clients_that_come_while_the_broker_is_away_are_said_once() {
    let lines = lines_of(|| {
        let metrics = Metrics::new();
        for port in 50_000..50_100 {
            let peer = SocketAddr::from(([10, 0, 0, 7], port));
            let refused = Refused {
                node: Some(Node {
                    host: "rabbit".to_owned(),
                    port: 5672,
                }),
                error: io::Error::from(io::ErrorKind::ConnectionRefused),
            };
            Reporter::session(metrics.clone(), peer).client_refused(&refused);
        }
    });
    insta::assert_snapshot!(lines, @r#" WARN session{peer=10.0.0.7:50000}: client refused: the broker cannot be reached broker=rabbit:5672 error="connection refused""#);
}

#[test]
fn a_broker_that_is_newer_than_those_tested_is_told_of_once() {
    let (major, minor) = crate::amqp::version::Version::NEWEST;
    let up = |version: String| Event::LinkUp {
        role: Role::Intake,
        version: version.into(),
    };
    let lines = lines_of(|| {
        let mut reporter = Reporter::link(Metrics::new(), name("/"));
        reporter.report(&up(format!("{major}.{minor}.99")));
        reporter.report(&up(format!("{major}.{}.0", minor + 1)));
        reporter.report(&up(format!("{major}.{}.0", minor + 1)));
    });
    let warned: Vec<_> = lines.lines().filter(|line| line.contains("WARN")).collect();
    let [warned] = warned[..] else {
        panic!("{lines}")
    };
    assert!(
        warned.ends_with(&format!(
            "broker={major}.{}.0 treated_as={major}.{minor}",
            minor + 1
        )),
        "{warned}"
    );
}

#[test]
fn a_link_that_stays_away_is_said_once_and_its_loss_each_time() {
    let up = || Event::LinkUp {
        role: Role::Intake,
        version: "4.3.6".into(),
    };
    let down = || Event::LinkDown {
        role: Role::Intake,
        cause: "connection refused".to_owned(),
    };
    let lines = lines_of(|| {
        let mut reporter = Reporter::link(Metrics::new(), name("/"));
        for event in [down(), down(), down(), up(), down(), down(), up(), down()] {
            reporter.report(&event);
        }
    });
    insta::assert_snapshot!(lines, @r#"
    WARN link{vhost=/}: link cannot be opened link="intake" cause="connection refused"
    INFO link{vhost=/}: link is up link="intake" broker=4.3.6
    WARN link{vhost=/}: link lost link="intake" cause="connection refused"
    INFO link{vhost=/}: link is up link="intake" broker=4.3.6
    WARN link{vhost=/}: link lost link="intake" cause="connection refused"
    "#);
}

/// In JSON, the connection's name must not collide with the span's.
#[test]
fn a_program_reads_who_the_client_is() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(Level::DEBUG);
    let subscriber = subscriber
        .with_writer(move || logging::Json(writer.clone()))
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        Reporter::session(Metrics::new(), "10.0.0.7:50000").report(&Event::SessionOpened {
            vhost: name("/"),
            user: Some(name("app")),
            name: Some("a\",\"user\":\"root\u{9b}2J\u{202e}\u{1b}".into()),
        });
    });
    let bytes = lines.0.lock().expect("no test panics").clone();
    let text = std::str::from_utf8(&bytes).expect("UTF-8").trim_end();
    assert!(text.chars().all(crate::letter::is_harmless), "{text}");
    let line: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    assert_eq!(
        line["span"]["connection"],
        "a\",\"user\":\"root\u{9b}2J\u{202e}\u{1b}"
    );
    assert_eq!(
        (&line["span"]["user"], &line["span"]["name"]),
        (&"app".into(), &"session".into())
    );
}
