//! Every metric is exported with its labels, and counts what it says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dlx_proxy::amqp::ids::ShortStr;
use dlx_proxy::machine::{
    Cause, DeadLetter, Event, Fallback, Leg, Limit, Outcome, Reason, Role, Trouble, Witness,
};
use dlx_proxy::net::nodes::{Address, Node};
use dlx_proxy::telemetry::{Metrics, Reporter};

/// So that the labels in docs/reference/metrics.md are true, and every metric is counted by something.
#[test]
fn every_metric_is_exported_with_the_labels_that_it_says() {
    let metrics = Metrics::new();
    let _open = metrics.connection();
    let mut session = Reporter::session(metrics.clone(), "127.0.0.1:1");
    let mut link = Reporter::link(metrics.clone(), name("/"));
    for event in every_event() {
        session.report(&event);
        link.report(&event);
    }
    let node = Node {
        host: "127.0.0.1".to_owned(),
        port: 5672,
    };
    let at = ([127, 0, 0, 1], 5672).into();
    let address = Address { node, at };
    metrics.upstream_connections(&address, Some(1));
    metrics.upstream_failed(&address, true, "refused");
    session.handshake_failed(&std::io::ErrorKind::TimedOut.into());
    metrics.upstream_tls_failed(&std::io::ErrorKind::TimedOut.into());
    metrics.certificate_expires("tls-cert-file", Some(Duration::from_secs(1)));
    metrics.delayed(&name("/"), Some([5, 1]));
    metrics.overdue(&name("/"), 1);
    metrics.alarms(vec![]);
    metrics.hook_dead_letters.with(["taken".into()]).inc();
    let oldest = Some(Duration::from_secs(5));
    metrics.dead_letter_queue(&name("/"), &name("dead"), Some(3), oldest);
    let mut exported = BTreeMap::new();
    for sample in metrics
        .encode()
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let (series, _) = sample.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels
            .trim_end_matches('}')
            .split(',')
            .filter_map(|label| Some(label.split_once('=')?.0));
        exported.insert(
            name.to_owned(),
            labels.map(str::to_owned).collect::<Vec<_>>(),
        );
    }
    let described = metrics.descriptions().iter();
    let described: BTreeMap<_, Vec<_>> = described
        .map(|metric| {
            (
                metric.name.clone(),
                metric
                    .labels
                    .iter()
                    .map(|&label| label.to_owned())
                    .collect(),
            )
        })
        .collect();
    assert_eq!(exported, described);
}

#[test]
fn a_dead_letter_is_counted_once_with_its_queue_reason_and_outcome() {
    let metrics = Metrics::new();
    let mut link = Reporter::link(metrics.clone(), name("/"));
    link.report(&dead_letter(Outcome::Confirmed));
    link.report(&dead_letter(Outcome::Confirmed));
    link.report(&dead_letter(Outcome::Parked(Cause::Unroutable)));
    let encoded = metrics.encode();
    let lines: Vec<_> = encoded
        .lines()
        .filter(|line| line.contains("dead_letter") && !line.starts_with('#'))
        .collect();
    for wanted in [
        r#"dlx_proxy_messages_dead_lettered_total{vhost="/",queue="orders",reason="rejected",outcome="confirmed"} 2"#,
        r#"dlx_proxy_messages_dead_lettered_total{vhost="/",queue="orders",reason="rejected",outcome="parked"} 1"#,
        r#"dlx_proxy_dead_letters_undelivered_total{vhost="/",outcome="parked",cause="unroutable"} 1"#,
    ] {
        assert!(lines.contains(&wanted), "{wanted} in {lines:#?}");
    }
    assert_eq!(lines.len(), 3);
}

#[test]
fn what_is_not_known_of_a_dead_letter_queue_is_absent() {
    let metrics = Metrics::new();
    let tell = |messages, oldest: Option<u64>| {
        let oldest = oldest.map(Duration::from_secs);
        metrics.dead_letter_queue(&name("/"), &name("dead"), messages, oldest);
        let encoded = metrics.encode();
        let values = encoded
            .lines()
            .filter(|line| line.starts_with("dlx_proxy_dead_letter_queue_"))
            .map(|line| line.rsplit_once(' ').expect("a value").1.to_owned());
        values.collect::<Vec<_>>()
    };
    assert_eq!(tell(Some(3), Some(60)), ["3", "60"]);
    assert_eq!(tell(Some(0), None), ["0"]);
    assert!(tell(None, None).is_empty());
}

#[test]
fn an_address_that_a_name_no_longer_has_is_absent() {
    let metrics = Metrics::new();
    let node = Node {
        host: "rabbit".to_owned(),
        port: 5672,
    };
    let at = ([10, 0, 0, 7], 5672).into();
    let address = Address { node, at };
    let told = || {
        let encoded = metrics.encode();
        let lines = encoded.lines();
        let told = lines.filter(|line| line.contains("10.0.0.7"));
        told.map(str::to_owned).collect::<Vec<_>>()
    };
    metrics.upstream_connections(&address, Some(2));
    metrics.upstream_failed(&address, true, "refused");
    let labels = r#"{node="rabbit:5672",address="10.0.0.7:5672"}"#;
    let lines = [
        format!("dlx_proxy_upstream_connections{labels} 2"),
        format!("dlx_proxy_upstream_failures_total{labels} 1"),
        format!("dlx_proxy_upstream_up{labels} 0"),
    ];
    assert_eq!(told(), lines);
    metrics.upstream_answered(&address, true);
    assert!(told().contains(&format!("dlx_proxy_upstream_up{labels} 1")));
    metrics.upstream_connections(&address, None);
    assert_eq!(told(), [""; 0]);
}

#[test]
fn a_connection_takes_its_numbers_with_it() {
    let metrics = Metrics::new();
    let value = |name: &str| {
        let encoded = metrics.encode();
        let line = encoded
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")))
            .expect("exported")
            .to_owned();
        line.rsplit_once(' ').expect("a value").1.to_owned()
    };
    let (mut one, mut other) = (metrics.connection(), metrics.connection());
    let levels = |retained_bytes| dlx_proxy::telemetry::metrics::Levels {
        channels: 1,
        retained_bytes,
        withheld_rejects: 2,
    };
    one.levels(levels(100));
    one.levels(levels(70));
    other.levels(levels(5));
    assert_eq!(value("dlx_proxy_retained_bytes"), "75");
    drop(one);
    assert_eq!(value("dlx_proxy_retained_bytes"), "5");
    assert_eq!(value("dlx_proxy_withheld_rejects"), "2");
    assert_eq!(
        (
            value("dlx_proxy_connections_open"),
            value("dlx_proxy_connections_total")
        ),
        ("1".to_owned(), "2".to_owned())
    );
}

fn name(text: &str) -> ShortStr {
    ShortStr::copy(text.as_bytes()).expect("short")
}

fn dead_letter(outcome: Outcome) -> Event {
    Event::DeadLetter(Arc::new(DeadLetter {
        queue: name("orders"),
        reason: Reason::Rejected,
        exchange: name("dlx"),
        routing_key: name("key"),
        bytes: 1,
        outcome,
        by: None,
    }))
}

/// One of each kind that is counted.
fn every_event() -> Vec<Event> {
    let queue = name("orders");
    vec![
        Event::SessionOpened {
            vhost: name("/"),
            user: Some(name("guest")),
            name: None,
        },
        Event::Kept {
            queue: queue.clone(),
            returned: true,
            cause: Fallback::Budget,
        },
        Event::OtherUser(Some(name("eve"))),
        Event::KeptReturned {
            queue: queue.clone(),
        },
        Event::Redriven {
            queue: name("orders"),
            outcome: Outcome::Confirmed,
        },
        Event::Published {
            delay: None,
            outcome: Outcome::Confirmed,
        },
        Event::TakenBack {
            queue: name("orders"),
            timeout: Duration::from_secs(30),
        },
        Event::CameBack {
            queue: queue.clone(),
        },
        Event::QueueManaged {
            queue: queue.clone(),
            taken_over: true,
        },
        Event::DeclareLeft {
            queue: queue.clone(),
            cause: Fallback::NoIntake,
        },
        Event::RejectForwarded {
            queue: queue.clone(),
            cause: Fallback::Budget,
        },
        Event::NameRefused {
            name: name("dlx-proxy.intake"),
        },
        Event::ExternalRefused,
        dead_letter(Outcome::Parked(Cause::Unroutable)),
        Event::EditDropped,
        Event::DeliveryTimeDropped {
            queue: queue.clone(),
        },
        Event::LinkUp {
            role: Role::Intake,
            version: "4.3.6".into(),
        },
        Event::LinkDown {
            role: Role::Intake,
            cause: "reset".to_owned(),
        },
        Event::VhostNative {
            cause: "ACCESS_REFUSED".to_owned(),
        },
        Event::Blocked(true),
        Event::ChannelClosed {
            role: Role::Publisher,
            cause: "NOT_FOUND".to_owned(),
        },
        Event::Consuming(true),
        Event::IntakeExchanges(3),
        Event::OwnQueue {
            queue: queue.clone(),
            witness: Witness::Amqp,
            trouble: Some(Trouble::Dead),
        },
        Event::ParkedTried {
            moved: 1,
            waiting: 1,
            staying: 1,
            causes: vec![],
        },
        Event::ProbeOverLimit,
        Event::LimitMet(Limit::Tickets),
        Event::ProtocolFault {
            leg: Leg::Client,
            what: "wrong end byte",
        },
    ]
}
