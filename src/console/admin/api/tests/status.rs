//! How a vhost stands, in front of a broker that lets everybody in and to the queue `mine`.

use super::*;
use crate::machine::{Cause, DeadLetter, Event, Outcome, Reason, Role, Trouble, Witness};
use crate::telemetry::Alarm;

fn dead(exchange: &str, key: &str, cause: &str) -> DeadLetter {
    let cause = Cause::ALL.into_iter().find(|it| it.as_str() == cause);
    DeadLetter {
        queue: name("mine"),
        reason: Reason::Rejected,
        exchange: name(exchange),
        routing_key: name(key),
        bytes: 3,
        outcome: Outcome::Parked(cause.expect("one of these")),
        by: None,
    }
}

/// Changes the scene, or asks for the document as a user.
#[tokio::test]
async fn what_is_wrong_is_said_with_what_to_do() {
    let config = lenient().await;
    let (mut all, mut metrics) = api(&config);
    lines_hold("console/admin/testdata/status.txt", async |line| {
        let words: Vec<_> = line.split(' ').collect();
        let root = &Vhost::ROOT;
        match words[..] {
            [""] => (all, metrics) = api(&config),
            ["ready"] => {
                all.readiness.listening();
                for role in [Role::Publisher, Role::Intake] {
                    let version = "4.3.6".into();
                    all.readiness
                        .observe(root, &Event::LinkUp { role, version });
                }
                all.readiness.observe(root, &Event::IntakeWorks);
                all.readiness.observe(root, &Event::OtherUser(None));
            }
            ["alarm", node, resource] => {
                let (node, resource) = (node.to_owned(), resource.to_owned());
                metrics.alarms(vec![Alarm { node, resource }]);
            }
            ["overdue", messages] => metrics.overdue(root, messages.parse().expect("a number")),
            ["delayed", waiting, due] => {
                let number = |count: &str| count.parse().expect("a number");
                metrics.delayed(root, Some([number(waiting), number(due)]));
            }
            ["deleted", queue] => {
                let gone = Some(Trouble::Deleted);
                metrics.own_queue(root, &name(queue), Witness::Amqp, gone);
            }
            ["parked", cause, messages] => {
                let causes = [(name(cause), messages.parse().expect("a number"))];
                all.known.book().parked(root, &causes);
            }
            ["died", exchange, key, cause] => {
                let dead = dead(exchange.trim_matches('-'), key, cause);
                all.known.hear(root, all.looks.now(), &dead.into());
            }
            [user, ref fields @ ..] => {
                let request = by(user, "/api/v1/vhosts/%2F/status");
                let (status, body) = json_of(&alone(all.clone()), request).await;
                assert_eq!(status, 200, "{body}");
                let shown = fields.iter().map(|field| body[field].to_string());
                return shown.collect::<Vec<_>>().join(" ");
            }
            [] => {}
        }
        String::new()
    })
    .await;
}
