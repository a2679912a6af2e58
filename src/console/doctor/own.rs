//! What can be told without asking anybody: certificates of the proxy's own, and how many clients have room.

use std::time::Duration;

use crate::console::admin::client::readiness;
use crate::console::count::count;
use crate::descriptors;
use crate::http::Place;
use crate::tls::{Certified, SOON, now, words};

use super::{Patient, Report};

pub(super) async fn examine(patient: &Patient, report: &mut Report) {
    for Certified { setting, expires } in &patient.certificates {
        certificate(&format!("`{setting}`"), *expires, now(), report);
    }
    if let Some(admin) = &patient.admin {
        running(admin, report).await;
    }
    let (limit, room) = descriptors::room(patient.max_admin_connections);
    let about = "file descriptors";
    let clients = count(room as u64, "client");
    if let Some(asked) = patient.max_connections.without_room(room) {
        let says =
            format!("A limit of {limit} has room for {clients}; `max-connections` is {asked}.");
        let advice = "If the proxy runs with this limit: raise it (`ulimit -n`, LimitNOFILE of systemd, `ulimits` of an engine), or lower `max-connections`.";
        report.note(about, says, advice);
    } else {
        report.ok(about, format!("A limit of {limit} has room for {clients}."));
    }
}

async fn running(admin: &Place, report: &mut Report) {
    let about = format!("proxy at {admin}");
    match readiness(admin).await {
        Ok(reasons) if reasons.is_empty() => report.ok(about, "It runs, and is ready."),
        Ok(reasons) => {
            let reasons = reasons.trim_end().replace('\n', "; ");
            let says = format!("It runs, and is not ready: {reasons}.");
            report.problem(about, says, "See what is found below, and its log.");
        }
        Err(_) => report.note(
            about,
            "No proxy answers there.",
            "Start it, if it should run.",
        ),
    }
}

/// How long it remains valid; both times are since 1970.
pub(super) fn certificate(about: &str, expires: Duration, now: Duration, report: &mut Report) {
    match expires.checked_sub(now) {
        None => {
            let says = format!(
                "The certificate expired {} ago.",
                words::days(now - expires)
            );
            report.problem(
                about,
                says,
                "Replace it; the proxy takes a new file over by itself.",
            );
        }
        Some(left) if left < SOON => {
            let says = format!("The certificate expires in {}.", words::days(left));
            report.note(about, says, "Replace it in time.");
        }
        Some(left) => {
            let says = format!("The certificate is good for {}.", words::days(left));
            report.ok(about, says);
        }
    }
}
