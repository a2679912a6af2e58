//! What each finding says, as a table: without a broker. (That it is found at a broker, and that the advice helps: tests/clients.)

use std::io;
use std::time::SystemTime;

use hyper::StatusCode;
use serde_json::json;

use super::*;
use crate::amqp::ids::name;
use crate::http::Failed;
use crate::management::{ListedPermission, ListedPolicy, NoAnswer};
use crate::net::dial::Way;
use crate::net::nodes::{Address, resolver};
use crate::net::proxy_protocol::Told;
use crate::tests::lines_hold;

/// The proxy's user `u` in the vhost `/`.
pub(super) fn anybody() -> Patient {
    let way = Way {
        tls: None,
        told: Told::Off,
    };
    Patient {
        nodes: vec![],
        resolver: resolver(),
        access: Access {
            user: name("u"),
            password: String::new(),
            way,
        },
        client: None,
        client_user: None,
        vhosts: vec![Vhost::ROOT],
        names: Names::new("dlx-proxy").expect("a prefix"),
        has_record: true,
        intake_queue_type: QueueType::Quorum,
        management: None,
        admin: None,
        certificates: vec![],
        max_connections: Clients::Auto,
        max_admin_connections: 1,
    }
}

#[tokio::test]
async fn findings_are_what_the_table_says() {
    let mut listed = Vec::new();
    lines_hold("console/doctor/testdata/findings.txt", async |line| {
        let mut report = Report::default();
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "" => listed.clear(),
            "policy" => listed.push(policy(rest)),
            verb => examined(verb, rest, &listed, &mut report),
        }
        let findings = report.findings.iter().map(|it| {
            let advice = it.advice.iter().map(|advice| format!(" → {advice}"));
            let kind = format!("{:?}", it.kind).to_lowercase();
            format!(
                "{kind} {}: {}{}",
                it.about,
                it.says,
                advice.collect::<String>()
            )
        });
        findings.collect::<Vec<_>>().join(" | ")
    })
    .await;
}

fn examined(verb: &str, rest: &str, listed: &[ListedPolicy], report: &mut Report) {
    let patient = anybody();
    match verb {
        "policies" => api::of_policies(&patient, "policy", listed, report),
        "operator-policies" => api::of_policies(&patient, "operator policy", listed, report),
        "adopted" => {
            let exchanges: Vec<_> = rest.split(' ').map(str::to_owned).collect();
            unused::adopted(&Vhost::ROOT, &patient.names, listed, &exchanges, report);
        }
        "flags" => api::of_flags(no_answer(rest, vec![]), report),
        "disabled" => api::of_flags(Ok(vec![rest.to_owned()]), report),
        "writes" => {
            let (vhost, write) = rest.split_once(' ').expect("a pattern");
            let permissions = [permission("orders", vhost, write)];
            grant::of_vhost(&patient, "orders", &Vhost::ROOT, &permissions, report);
        }
        "permissions" => {
            let error = no_answer(rest, ()).expect_err("no answer");
            grant::unreadable("user orders".to_owned(), &error, report);
        }
        "record" => {
            let permissions = rest.split("; ").filter_map(|of| {
                let [user, vhost, write] = of.split(' ').collect::<Vec<_>>().try_into().ok()?;
                Some(permission(user, vhost, write))
            });
            record::writers(&patient, Ok(Some(permissions.collect())), report);
        }
        "record-of" => record::writers(&patient, no_answer(rest, None), report),
        "version" => nodes::version_of("node", rest, Duration::from_millis(2), report),
        "silent" => nodes::no_node(
            &address(rest),
            "refused",
            &[address("localhost 127.0.0.1:1")],
            report,
        ),
        "certificate" => {
            let days = |days: u64| Duration::from_secs(days * 86_400);
            own::certificate(
                "the broker's",
                days(rest.parse().expect("days")),
                days(60),
                report,
            );
        }
        "handled" => {
            let answer = serde_json::from_str(rest).expect("JSON");
            handled::of_vhost(&Vhost::ROOT, &answer, report);
        }
        "parked" => report.ok("parked", queues::parked(rest.parse().expect("a number"))),
        "waiting" => report.ok("waiting", queues::waiting(rest.parse().expect("a number"))),
        "clock" => {
            let at = |seconds: &str| {
                SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.parse().expect("a number"))
            };
            let [date, begun, ended] = rest.split(' ').map(at).collect::<Vec<_>>()[..] else {
                panic!("{rest}");
            };
            report.ok("apart", format!("{:?}", api::apart(date, begun..=ended)));
        }
        other => panic!("{other}"),
    }
}

/// `NAME PATTERN APPLY-TO PRIORITY DEFINITION`; the pattern `''` is empty.
fn policy(line: &str) -> ListedPolicy {
    let words: Vec<&str> = line.splitn(5, ' ').collect();
    let definition: serde_json::Value = serde_json::from_str(words[4]).expect("JSON");
    let priority: f64 = words[3].parse().expect("a number");
    let listed = json!({
        "vhost": "/", "name": words[0], "pattern": words[1].replace("''", ""), "apply-to": words[2], "priority": priority, "definition": definition,
    });
    serde_json::from_value(listed).expect("a policy")
}

fn permission(user: &str, vhost: &str, write: &str) -> ListedPermission {
    ListedPermission {
        user: user.to_owned(),
        vhost: vhost.to_owned(),
        configure: "^orders".to_owned(),
        write: write.replace("''", ""),
        read: String::new(),
    }
}

/// What the management API answers, or why it does not.
fn no_answer<T>(what: &str, answer: T) -> Result<T, NoAnswer> {
    Err(match what {
        "answer" => return Ok(answer),
        "late" => Failed::TooLate(Duration::default()).into(),
        "away" => Failed::Connect(io::Error::other("refused")).into(),
        status => NoAnswer::Status {
            path: "it".to_owned(),
            status: StatusCode::from_bytes(status.as_bytes()).expect("a status"),
        },
    })
}

/// `HOST IP:PORT`
fn address(text: &str) -> Address {
    let (host, at) = text.split_once(' ').expect("an address");
    Address {
        node: Node {
            host: host.to_owned(),
            port: 5672,
        },
        at: at.parse().expect("an address"),
    }
}

#[test]
fn the_advice_is_that_of_the_documents() {
    let command = "rabbitmqctl set_policy -p / --priority 999 --apply-to queues dlx-proxy '^dlx-proxy' '{\"max-length\":2000000000}'";
    for text in [
        include_str!("../../../docs/how-to/permissions.md"),
        include_str!("testdata/findings.txt"),
    ] {
        assert!(text.contains(command));
    }
}
