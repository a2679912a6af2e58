//! What an operator does at a node: programs in Erlang for `rabbitmqctl eval`, and how to run one.

use std::process::{Command, Stdio};

/// Runs a program. Returns what it said.
pub(crate) async fn run(mut command: Command) -> Result<String, String> {
    let name = format!("{command:?}");
    command.stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await;
    let output = output.map_err(|error| error.to_string())?;
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() {
        return Ok(said);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name}: {said} {complaint}"))
}

/// Makes a vhost with all rights for these users; one that a run has left is emptied.
pub(crate) fn make_vhost(vhost: &str, users: &[&str]) -> String {
    let mut program = format!(
        "catch rabbit_vhost:delete(<<\"{vhost}\">>, <<\"tests\">>), rabbit_vhost:add(<<\"{vhost}\">>, <<\"tests\">>)"
    );
    for user in users {
        program += &format!(
            ", rabbit_auth_backend_internal:set_permissions(<<\"{user}\">>, <<\"{vhost}\">>, <<\".*\">>, <<\".*\">>, <<\".*\">>, <<\"tests\">>)"
        );
    }
    program + "."
}

pub(crate) fn delete_vhost(vhost: &str) -> String {
    format!("rabbit_vhost:delete(<<\"{vhost}\">>, <<\"tests\">>).")
}
