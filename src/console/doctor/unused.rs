//! The intake exchanges that no queue and no policy of the broker names: each stays when its last queue is gone.

use crate::management::{Api, ListedPolicy};

use super::{Patient, Report};

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
