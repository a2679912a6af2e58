//! `--client-user`: the command by which a user may do what clients of the proxy need, beside all that the user may do already. `rabbitmqctl
//! set_permissions` replaces all three patterns of a user, so that the command has to repeat them.

use hyper::StatusCode;
use regex::Regex;

use crate::amqp::ids::Vhost;
use crate::management::{ListedPermission, NoAnswer};

use super::{Patient, Report, pattern, quoted, set_permissions};

/// Only administrators may see permissions.
const SET_URL: &str = "Name an administrator, for this command at least: --management-url http://admin:password@host:15672";

pub(super) async fn examine(patient: &Patient, report: &mut Report) {
    let Some(user) = &patient.client_user else {
        return;
    };
    let about = format!("user {user}");
    let Some(api) = &patient.management else {
        let says = "Its permissions cannot be read: `management-url` is not set.";
        return report.problem(about, says, SET_URL);
    };
    match api.permissions_of(user).await {
        Ok(permissions) => {
            for vhost in &patient.vhosts {
                of_vhost(patient, user, vhost, &permissions, report);
            }
        }
        Err(error) => unreadable(about, &error, report),
    }
}

pub(super) fn unreadable(about: String, error: &NoAnswer, report: &mut Report) {
    match error {
        NoAnswer::Status {
            status: StatusCode::NOT_FOUND,
            ..
        } => report.problem(
            about,
            "There is no such user.",
            "Is the name right? rabbitmqctl list_users",
        ),
        error if error.is_refusal() => {
            let says = "The user of the management API may not see its permissions: it is no administrator.";
            report.problem(about, says, SET_URL);
        }
        error => report.problem(
            about,
            format!("Its permissions cannot be read: {error}."),
            SET_URL,
        ),
    }
}

pub(super) fn of_vhost(
    patient: &Patient,
    user: &str,
    vhost: &Vhost,
    permissions: &[ListedPermission],
    report: &mut Report,
) {
    let about = format!("user {user}, vhost {vhost}");
    let command = set_permissions(user, vhost);
    let prefix = &patient.names.prefix().to_string();
    let mut permissions = permissions.iter();
    let here = permissions.find(|listed| listed.vhost.as_bytes() == vhost.as_bytes());
    let Some(has) = here else {
        let says = "It has no permissions there, so that it is not let in.";
        let write = quoted(&with_intake("…", prefix));
        let advice = format!(
            "{command} … {write} …, with patterns for its own queues and exchanges in the place of `…`"
        );
        return report.problem(about, says, advice);
    };
    let write = with_intake(&has.write, prefix);
    let [configure, write, read] = [&has.configure, &write, &has.read].map(|it| quoted(it));
    let advice = format!("{command} {configure} {write} {read}");
    match writes_to_intake(&has.write, prefix) {
        Some(true) => report.ok(about, "The client may write to the intake exchanges."),
        Some(false) => {
            let says = "The client may not write to the intake exchanges: the queues that it declares stay native.";
            report.problem(about, says, advice);
        }
        None => {
            let says = "Whether the client may write to the intake exchanges is not known: its pattern cannot be read here.";
            report.note(about, says, advice);
        }
    }
}

/// Whether this write pattern matches the intake exchanges. `None`: a pattern that this program
/// cannot read.
fn writes_to_intake(write: &str, prefix: &str) -> Option<bool> {
    // RabbitMQ takes an empty pattern for one that fits nothing.
    let write = Regex::new(if write.is_empty() { "^$" } else { write }).ok()?;
    let mut names = ["", "/nowhere", "+/nowhere", "++/nowhere"].into_iter();
    Some(names.all(|end| write.is_match(&format!("{prefix}{end}"))))
}

/// Adds the intake exchanges to a pattern. They come first and without a group, so `(?i)` does not
/// affect them and `\1` keeps its meaning.
fn with_intake(write: &str, prefix: &str) -> String {
    let own = pattern(prefix);
    let own = format!("^{own}$|^{own}[+/]");
    match write {
        "" | "^$" => own,
        write => format!("{own}|{write}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is removed, and nothing else is added.
    #[test]
    fn what_is_missing_is_added_to_what_is_there() {
        let names = "orders ORDERS amq.default dlx it's aa dlx-proxy.parked dlx-proxy.intake \
            dlx-proxyx DLX-PROXY/x dlx-proxy/x x/dlx-proxy/x";
        for write in [
            "",
            "^$",
            "^orders",
            r"^(orders.*|amq\.default)$",
            "a|b",
            "(?i)orders",
            "(?x) orders # a comment",
            "^it's",
            "^dlx-proxy/x$",
            "^dlx-proxy$",
            r"^dlx-proxy\.",
        ] {
            assert_eq!(writes_to_intake(write, "dlx-proxy"), Some(false), "{write}");
            let added = with_intake(write, "dlx-proxy");
            assert_eq!(writes_to_intake(&added, "dlx-proxy"), Some(true), "{added}");
            let before = if write.is_empty() { "^$" } else { write };
            let [before, after] = [before, &added].map(|it| Regex::new(it).expect("a pattern"));
            for name in names.split(' ') {
                let expected = before.is_match(name) || name == "dlx-proxy/x";
                assert_eq!(after.is_match(name), expected, "{write} → {added}: {name}");
            }
        }
    }
}
