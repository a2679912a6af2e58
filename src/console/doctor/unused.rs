//! The intake exchanges that no queue and no policy of the broker names: each stays when its last queue is gone. And those that are missing
//! though a policy of the proxy names them.

use crate::management::{Api, ListedPolicy};

use super::{Patient, Report, quoted};
use crate::amqp::ids::Vhost;
use crate::objects::Names;

const NAMED: usize = 10;

pub(super) async fn examine(
    patient: &Patient,
    api: &Api,
    policies: &[ListedPolicy],
    report: &mut Report,
) {
    for vhost in &patient.vhosts {
        let about = format!("intake exchanges, vhost {vhost}");
        let (exchanges, mut used) = match api.exchanges_and_targets(vhost).await {
            Ok(found) => found,
            Err(error) => {
                let says = format!("Whether each is used is not known: {error}.");
                report.note(about, says, "See that the user has rights in the vhost.");
                continue;
            }
        };
        adopted(vhost, &patient.names, policies, &exchanges, report);
        let targets = policies
            .iter()
            .filter_map(|policy| policy.definition.get("dead-letter-exchange")?.as_str());
        used.extend(targets.map(str::to_owned));
        let unused = exchanges.iter().filter(|name| {
            patient.names.is_intake_exchange(name.as_bytes()) && !used.contains(*name)
        });
        let unused: Vec<&str> = unused.map(String::as_str).collect();
        if unused.is_empty() {
            report.ok(about, "A queue or a policy names each of them.");
            continue;
        }
        let more = if unused.len() > NAMED { ", …" } else { "" };
        let says = format!(
            "{} that no queue and no policy names: {}{more}.",
            unused.len(),
            unused[..unused.len().min(NAMED)].join(", ")
        );
        let advice = "They count for `max-intake-exchanges`. While no client declares queues, delete them in the management UI, and restart the proxies.";
        report.note(about, says, advice);
    }
}

pub(super) fn adopted(
    vhost: &Vhost,
    names: &Names,
    policies: &[ListedPolicy],
    exchanges: &[String],
    report: &mut Report,
) {
    let here = policies
        .iter()
        .filter(|policy| policy.vhost.as_bytes() == vhost.as_bytes() && policy.is_ours(names));
    let here: Vec<_> = here.collect();
    for policy in &here {
        let intake = policy.intake(names).map(|name| name.to_string());
        let Some(missing) = intake.filter(|name| !exchanges.contains(name)) else {
            continue;
        };
        let about = format!("policy {}, vhost {vhost}", policy.name);
        let says = format!(
            "It names the intake exchange {missing}, which is missing: the broker discards what dies in its queues."
        );
        let command = format!(
            "rabbitmqctl clear_policy -p {} {}",
            quoted(&vhost.to_string()),
            quoted(&policy.name)
        );
        let advice =
            format!("Start a proxy with a `management-url`, which declares it; or {command}");
        report.problem(about, says, advice);
    }
    if !here.is_empty() {
        let says = format!(
            "Policies of the proxy: {}. Before you remove the proxies: dlx-proxy queues release --all .",
            here.len()
        );
        report.ok(format!("adopted queues, vhost {vhost}"), says);
    }
}
