//! What only the management API tells: policies, feature flags, and what time it is there.

use std::time::{Duration, SystemTime};

use crate::management::{Api, ListedPolicy};

use super::policies::{Acts, acting};
use super::{Patient, Report, pattern, quoted};

/// A `Date` has whole seconds, and the answer takes a moment.
const APART: Duration = Duration::from_secs(5);

pub(super) async fn examine(patient: &Patient, report: &mut Report) {
    let about = "management API";
    let Some(api) = &patient.management else {
        let says =
            "It was not asked for policies, feature flags and clocks: `management-url` is not set.";
        let advice =
            "Set it, for this command at least: --management-url http://user:password@host:15672";
        report.note(about, says, advice);
        return;
    };
    let policies = match api.listed_policies().await {
        Ok(policies) => policies,
        Err(error) => {
            let says = format!("It cannot be read: {error}.");
            report.problem(
                about,
                says,
                "Is `management-url` right, and has its user the tag `management`?",
            );
            return;
        }
    };
    report.ok(about, "It answers.");
    of_policies(patient, "policy", &policies, report);
    match api.listed_operator_policies().await {
        Ok(policies) => of_policies(patient, "operator policy", &policies, report),
        Err(error) => {
            let says = format!("Operator policies cannot be read: {error}.");
            report.note(
                about,
                says,
                "rabbitmqctl list_operator_policies, for each vhost",
            );
        }
    }
    flags(api, report).await;
    clock(api, report).await;
}

fn of_policies(patient: &Patient, kind: &str, policies: &[ListedPolicy], report: &mut Report) {
    for vhost in &patient.vhosts {
        let (found, unreadable) =
            acting(policies, vhost, &patient.names, patient.intake_queue_type);
        for name in unreadable {
            let about = format!("{kind} {name}, vhost {vhost}");
            report.note(
                about,
                "Its pattern cannot be read here.",
                format!(
                    "See that it does not fit queues that begin with {}.",
                    patient.names.prefix()
                ),
            );
        }
        if found.is_empty() {
            report.ok(
                format!("policies, vhost {vhost}"),
                format!("No {kind} harms the proxy's queues."),
            );
        }
        for Acts {
            policy,
            queues,
            keys,
        } in found
        {
            let advice = match kind {
                "policy" => {
                    let (vhost, prefix) = (
                        quoted(&vhost.to_string()),
                        patient.names.prefix().to_string(),
                    );
                    let pattern = pattern(&prefix);
                    format!(
                        "rabbitmqctl set_policy -p {vhost} --priority 999 --apply-to queues {prefix} '^{pattern}' '{{\"max-length\":2000000000}}'"
                    )
                }
                _ => "Operator policies act beside others: change its pattern.".to_owned(),
            };
            let says = format!("It acts on {}. {}.", queues.join(", "), keys.join("; "));
            report.problem(format!("{kind} {policy}, vhost {vhost}"), says, advice);
        }
    }
}

async fn flags(api: &Api, report: &mut Report) {
    let about = "feature flags";
    match api.disabled_feature_flags().await {
        Ok(flags) if flags.is_empty() => report.ok(about, "All stable ones are enabled."),
        Ok(flags) => {
            let says = format!("Some are disabled: {}.", flags.join(", "));
            report.note(about, says, "rabbitmqctl enable_feature_flag all, when all nodes are upgraded: the next upgrade needs them");
        }
        // Only administrators may see them.
        Err(_) => report.note(
            about,
            "The user of the management API may not see them.",
            "rabbitmqctl list_feature_flags",
        ),
    }
}

async fn clock(api: &Api, report: &mut Report) {
    let about = "clocks";
    match api.date().await.map(|date| apart(date, SystemTime::now())) {
        Ok(apart) if apart < APART => {
            report.ok(about, "The broker's and that of this machine agree.")
        }
        Ok(apart) => {
            let says = format!(
                "The broker's and that of this machine are {} s apart.",
                apart.as_secs()
            );
            report.problem(about, says, "Let NTP set both: times in `x-death` and the ends of TTLs in retries come from both.");
        }
        Err(error) => report.note(
            about,
            format!("The broker's is not known: {error}."),
            "timedatectl status, on both",
        ),
    }
}

fn apart(a: SystemTime, b: SystemTime) -> Duration {
    a.duration_since(b).unwrap_or_else(|error| error.duration())
}
