//! The command line of the binary itself: its help, its output and its exit codes.

use std::process::{Command, Output};

use super::text_of;

mod dead_letters;
mod help;

/// Runs the program without the environment of whoever runs the tests.
fn dlx_proxy(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlx-proxy"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("DLX_PROXY_") {
            command.env_remove(name);
        }
    }
    command
        .args(arguments)
        .env("COLUMNS", "120")
        .output()
        .expect("the program runs")
}

fn stdout(arguments: &[&str]) -> String {
    let output = dlx_proxy(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn text(octets: Vec<u8>) -> String {
    String::from_utf8(octets).expect("UTF-8")
}

#[test]
fn the_doctor_names_what_it_cannot_reach_and_what_is_wrong_with_the_settings() {
    let upstream = "amqp://user:s3cret@127.0.0.1:1"; // a port that nobody is given by chance
    let output = dlx_proxy(&["doctor", "--upstream", upstream]);
    assert_eq!(output.status.code(), Some(64));
    let said = text(output.stdout);
    assert!(said.contains("problem  node 127.0.0.1:1 "), "{said}");
    assert!(!said.contains("s3cret"), "{said}");

    let output = dlx_proxy(&["doctor", "--upstream", "rabbit"]);
    assert_eq!(output.status.code(), Some(64));
    let said = text(output.stderr);
    assert!(said.contains("upstream"), "{said}");
}

#[test]
fn without_a_management_url_delays_have_to_be_named() {
    for command in ["list", "release"] {
        let output = dlx_proxy(&["retries", command]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(
            said,
            "dlx-proxy: which delay queues there are is not known: set `management-url`, or name each delay in milliseconds, as in `--delay 1000`\n"
        );
    }
}

#[test]
fn a_broker_that_is_not_there_is_named_without_its_password() {
    let upstream = "amqp://user:s3cret@127.0.0.1:1"; // a port that nobody is given by chance
    let unreachable = "the broker cannot be reached: node 127.0.0.1:1 ";
    for (more, expected) in [
        (["--delay", "1"], unreachable),
        (["--management-url", "http://127.0.0.1:1"], "cannot connect"),
    ] {
        let output = dlx_proxy(&[&["retries", "list", "--upstream", upstream], &more[..]].concat());
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(said.contains(expected), "{said}");
        assert!(!said.contains("s3cret"), "{said}");
    }
}

#[test]
fn the_defaults_are_printed_with_their_meaning() {
    assert_eq!(
        stdout(&["config", "default"]),
        text_of("src/config/default.toml")
    );
}

#[test]
fn check_config_prints_what_is_in_force() {
    let printed = stdout(&[
        "config",
        "check",
        "--upstream",
        "amqp://user:s3cret@rabbit",
        "--mode",
        "rejects-only",
    ]);
    assert!(
        printed.contains("upstream = \"amqp://user:***@rabbit:5672\"\n"),
        "{printed}"
    );
    assert!(printed.contains("mode = \"rejects-only\"\n"), "{printed}");
}

#[test]
fn mistakes_in_settings_have_an_exit_code_of_their_own() {
    for command in [&["config", "check"][..], &["run"], &["healthcheck"]] {
        let output = dlx_proxy(&[command, &["--admin", "here"]].concat());
        assert_eq!(output.status.code(), Some(64), "{command:?}");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(
            said.starts_with("flag --admin: admin = \"here\": write an IP address"),
            "{command:?}: {said}"
        );
    }
}

/// In the place of something else, too.
#[test]
fn the_password_of_a_pasted_url_is_not_shown() {
    let url = "amqp://me:s3@cret@host";
    for words in [
        &["run", url][..],
        &["run", "--listen", url],
        &["run", "--config", url],
        &["healthcheck", "--admin", url],
        &[
            "dead-letters",
            "redrives",
            "list",
            "--admin",
            "https://me:s3@cret@host:1",
        ],
        &[
            "dead-letters",
            "redrives",
            "list",
            "--admin",
            "https://me:s3cret@host:1",
        ],
        &["demo", "--url", url],
        &["demo", "--url", "http://me:s3cret@127.0.0.1:1"],
        &[
            "dead-letters",
            "list",
            "--queue=q",
            &format!("--limit={url}"),
        ],
        &["doctor", "--output", url],
    ] {
        let output = dlx_proxy(words);
        assert!(!output.status.success(), "{words:?}");
        let said = text(output.stderr);
        assert!(!said.is_empty(), "{words:?}");
        assert!(!said.contains("s3") && !said.contains("cret"), "{said}");
    }
    let output = dlx_proxy(&["demo", "--url", url]);
    assert!(text(output.stderr).contains("%40"));
}

#[test]
fn completions_are_those_of_the_shell() {
    for (shell, words) in [
        ("bash", "complete -F _dlx__proxy"),
        ("zsh", "#compdef dlx-proxy"),
        ("fish", "complete -c dlx-proxy"),
    ] {
        let script = stdout(&["completions", shell]);
        assert!(script.contains(words), "{shell}: {script}");
        assert!(script.contains("healthcheck"), "{shell}: {script}");
    }
}

#[test]
fn there_is_a_manual_page_of_each_command() {
    let page = stdout(&["man"]);
    assert!(page.contains(".TH dlx-proxy 1"), "{page}");
    assert!(page.contains("dlx\\-proxy\\-healthcheck(1)"), "{page}");

    let folder = std::env::temp_dir().join(format!("dlx-proxy-{}-man", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let said = dlx_proxy(&["man", folder.to_str().expect("UTF-8")]);
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.map(|entry| entry.file_name());
    let pages = std::fs::read_dir(&folder).and_then(|entries| entries.map(name).collect());
    std::fs::remove_dir_all(&folder).expect("it is there");
    assert!(said.status.success(), "{said:?}");
    let pages: Vec<_> = pages.expect("a folder");
    for name in [
        "dlx-proxy.1",
        "dlx-proxy-run.1",
        "dlx-proxy-dead-letters-redrive.1",
    ] {
        assert!(pages.iter().any(|page| page == name), "{name}: {pages:?}");
    }
}

#[test]
fn a_bare_call_prints_help() {
    let output = dlx_proxy(&[]);
    assert_eq!(output.status.code(), Some(64));
    assert!(text(output.stderr).contains("Usage: dlx-proxy <COMMAND>"));
}

#[test]
fn healthcheck_fails_when_nobody_answers() {
    // A port that nobody is given by chance.
    let address = "127.0.0.1:1";
    let output = dlx_proxy(&["healthcheck", "--admin", address]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(
        said.starts_with(&format!("dlx-proxy: no answer from {address}")),
        "{said}"
    );
}
