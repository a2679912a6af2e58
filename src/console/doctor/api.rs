//! What only the management API tells: policies, feature flags, and what time it is there.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use crate::management::{Api, ListedPolicy, NoAnswer};

use super::policies::{Acts, Policies};
use super::{Patient, Report, delayed, record, unused};

/// A `Date` has whole seconds.
const RESOLUTION: Duration = Duration::from_secs(1);
/// Smaller differences are harmless.
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
    unused::examine(patient, api, &policies, report).await;
    delayed::examine(api, report).await;
    if patient.has_record {
        record::examine(patient, api, report).await;
    }
    flags(api, report).await;
    clock(api, report).await;
}

pub(super) fn of_policies(
    patient: &Patient,
    kind: &str,
    policies: &[ListedPolicy],
    report: &mut Report,
) {
    for vhost in &patient.vhosts {
        let here = Policies::of(policies, vhost, &patient.names, patient.intake_queue_type);
        let (found, unreadable) = (here.acting(), here.unreadable());
        for name in &unreadable {
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
        if found.is_empty() && unreadable.is_empty() {
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
                "policy" => here.shield().command(vhost),
                _ => "Operator policies act beside others: change its pattern.".to_owned(),
            };
            let says = format!("It acts on {}. {}.", queues.join(", "), keys.join("; "));
            report.problem(format!("{kind} {policy}, vhost {vhost}"), says, advice);
        }
    }
}

async fn flags(api: &Api, report: &mut Report) {
    of_flags(api.disabled_feature_flags().await, report);
}

pub(super) fn of_flags(disabled: Result<Vec<String>, NoAnswer>, report: &mut Report) {
    let (about, list) = ("feature flags", "rabbitmqctl list_feature_flags");
    match disabled {
        Ok(flags) if flags.is_empty() => report.ok(about, "All stable ones are enabled."),
        Ok(flags) => {
            let says = format!("Some are disabled: {}.", flags.join(", "));
            report.note(about, says, "rabbitmqctl enable_feature_flag all, when all nodes are upgraded: the next upgrade needs them");
        }
        Err(error) if error.is_refusal() => {
            let says = "The user of the management API may not see them: it is no administrator.";
            report.note(about, says, list);
        }
        Err(error) => report.note(about, format!("They cannot be read: {error}."), list),
    }
}

async fn clock(api: &Api, report: &mut Report) {
    let about = "clocks";
    match api.date().await.map(|(date, asked)| apart(date, asked)) {
        Ok(apart) if apart < APART => {
            report.ok(about, "The broker's and that of this machine agree.")
        }
        Ok(apart) => {
            let says = format!(
                "The broker's and that of this machine are {} s apart at least.",
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

/// Minimum difference of the clocks: the broker read its clock during the request, and sends whole
/// seconds.
pub(super) fn apart(date: SystemTime, asked: RangeInclusive<SystemTime>) -> Duration {
    let ahead = date.duration_since(*asked.end());
    let behind = asked.start().duration_since(date + RESOLUTION);
    ahead.or(behind).unwrap_or_default()
}
