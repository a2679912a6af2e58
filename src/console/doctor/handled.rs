//! How the proxy that runs handles the queues of its clients: what `dlx-proxy queues` lists, by cause. Asked as the proxy's user, who sees all.

use bytes::Bytes;
use serde_json::Value;

use crate::amqp::ids::Vhost;
use crate::console::admin::client::{Client, NoAnswer};
use crate::console::count::count;
use crate::http::escaped;

use super::{Patient, Report};

const NAMED: usize = 3;

pub(super) async fn examine(patient: &Patient, report: &mut Report) {
    let Some(admin) = patient.admin.clone() else {
        return;
    };
    let client = Client {
        admin,
        login: (
            Bytes::copy_from_slice(&patient.access.user),
            patient.access.password.clone().into(),
        ),
        vhost: Vec::new(),
    };
    for vhost in &patient.vhosts {
        let path = format!("/api/v1/vhosts/{}/queues?limit=1000", escaped(vhost));
        match client.get(&path).await {
            Ok(answer) => of_vhost(vhost, &answer, report),
            Err(NoAnswer::Problem { detail, .. }) => {
                let says = format!("The proxy does not tell how it handles them: {detail}.");
                report.note(
                    about(vhost),
                    says,
                    "dlx-proxy queues, as a user who may read them",
                );
            }
            // That no proxy answers there is found elsewhere.
            Err(NoAnswer::None { .. } | NoAnswer::Broken { .. }) => {}
        }
    }
}

fn about(vhost: &Vhost) -> String {
    format!("queues, vhost {vhost}")
}

pub(super) fn of_vhost(vhost: &Vhost, answer: &Value, report: &mut Report) {
    let queues = answer["queues"].as_array().map_or(&[][..], |list| list);
    let mut by_cause: Vec<(_, Vec<&Value>)> = Vec::new();
    for queue in queues {
        let place = (text(&queue["state"]), text(&queue["cause"]));
        match by_cause.iter_mut().find(|(other, _)| *other == place) {
            Some((_, queues)) => queues.push(queue),
            None => by_cause.push((place, vec![queue])),
        }
    }
    for ((state, cause), queues) in by_cause {
        let told = &answer["causes"][cause];
        let (says, advice) = (text(&told["says"]), text(&told["advice"]));
        let says = format!("{state}: {}. {says}", counted(&queues));
        match advice {
            "" => report.ok(about(vhost), says),
            advice => report.note(about(vhost), says, advice),
        }
    }
    let nowhere = |queue: &&Value| ["no-queue", "no-exchange"].contains(&text(&queue["leads-to"]));
    let nowhere: Vec<_> = queues.iter().filter(nowhere).collect();
    if !nowhere.is_empty() {
        let says = format!(
            "no queue behind the target: {}. What dies there is parked, or discarded by the broker.",
            counted(&nowhere)
        );
        let advice =
            "Declare the exchange and the queue that `dlx-proxy queues` shows as the target.";
        report.note(about(vhost), says, advice);
    }
    if let Some(left_out @ 1..) = answer["left-out"].as_u64() {
        report.ok(about(vhost), format!("{left_out} more were not looked at."));
    }
    if queues.is_empty() {
        report.ok(
            about(vhost),
            "The proxy knows none with dead letters or retries yet.",
        );
    }
}

fn counted(queues: &[&Value]) -> String {
    let names = queues.iter().take(NAMED).map(|queue| text(&queue["queue"]));
    let names = names.collect::<Vec<_>>().join(", ");
    let more = if queues.len() > NAMED { ", …" } else { "" };
    format!("{} ({names}{more})", count(queues.len() as u64, "queue"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
