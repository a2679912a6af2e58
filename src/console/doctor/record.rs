//! Who could forge the record of redeclared queues. The proxy knows its own entries by their `user-id`, which RabbitMQ checks; but not where
//! somebody publishes by the protocol of streams, for which it takes the right to write to the stream.

use regex::Regex;

use crate::management::{Api, ListedPermission, NoAnswer};

use super::{Patient, Report};

pub(super) async fn examine(patient: &Patient, api: &Api, report: &mut Report) {
    let permissions = match api.speaks_streams().await {
        Ok(true) => api.listed_permissions().await.map(Some),
        Ok(false) => Ok(None),
        Err(error) => Err(error),
    };
    writers(patient, permissions, report);
}

pub(super) fn writers(
    patient: &Patient,
    permissions: Result<Option<Vec<ListedPermission>>, NoAnswer>,
    report: &mut Report,
) {
    let stream = patient.names.redeclared().to_string();
    let about = format!("record {stream}");
    let permissions = match permissions {
        Ok(Some(permissions)) => permissions,
        Ok(None) => {
            return report.ok(
                about,
                "No node takes clients that speak the protocol of streams.",
            );
        }
        Err(error) => {
            let says = format!("Whether clients can forge it is not known: {error}.");
            let advice = "If the plugin rabbitmq_stream is enabled: rabbitmqctl list_permissions, for each vhost. Only the proxy should be allowed to write to it.";
            return report.note(about, says, advice);
        }
    };
    for vhost in &patient.vhosts {
        let may_write = |of: &&ListedPermission| {
            of.vhost.as_bytes() == vhost.as_bytes()
                && of.user.as_bytes() != patient.access.user.as_bytes()
                // What cannot be read here may fit.
                && Regex::new(&of.write).map_or(true, |write| write.is_match(&stream))
        };
        let writers = permissions.iter().filter(may_write);
        let writers: Vec<_> = writers.map(|of| of.user.as_str()).collect();
        let about = format!("{about}, vhost {vhost}");
        if writers.is_empty() {
            report.ok(about, "Only the proxy's user may write to it.");
        } else {
            let says = format!(
                "By the protocol of streams, which the broker takes, these users can forge it: {}.",
                writers.join(", ")
            );
            let advice = format!(
                "Unless they are administrators: rabbitmqctl set_permissions, with a pattern for writing that does not fit {stream}"
            );
            report.note(about, says, advice);
        }
    }
}
