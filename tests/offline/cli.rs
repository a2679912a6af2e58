//! The command line of the binary itself: its output and its exit codes.

use std::process::{Command, Output};

use clap::CommandFactory;
use dlx_proxy::console::cli::Cli;

use super::text_of;

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
        .env("XDG_CONFIG_HOME", "/nowhere")
        .stdin(std::process::Stdio::null())
        .output()
        .expect("the program runs")
}

fn stdout(arguments: &[&str]) -> String {
    let output = dlx_proxy(arguments);
    assert!(output.status.success(), "{output:?}");
    text(output.stdout)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn commands_and_flags_fit_together() {
    Cli::command().debug_assert();
}

/// Arguments, exit code, and what is said. Port 1 is given to nobody by chance.
const SAID: &[(&str, i32, &str)] = &[
    ("", 64, "Usage: dlx-proxy <COMMAND>"),
    ("--no-such-flag", 64, "Usage: dlx-proxy"),
    ("dead-letters redrive", 64, "Usage: dlx-proxy"),
    ("dead-letters redrives cancel", 64, "Usage: dlx-proxy"),
    // What was typed before 0.3.0 is answered with what to type now.
    (
        "dead-letters groups --queue q",
        64,
        "`dlx-proxy dead-letters groups orders.dead`",
    ),
    ("queues --non-interactive", 64, "write `--output tsv`"),
    (
        "queues --admin 127.0.0.1:1",
        64,
        "write `--url http://HOST:PORT`",
    ),
    ("queues --url 127.0.0.1:1", 64, "flag --url: not a URL"),
    (
        "queues --url http://me:s3cret@127.0.0.1:1/x",
        64,
        "it is more than a host and a port",
    ),
    ("queues --url http://me:s3cret@127.0.0.1:1", 1, NOBODY),
    (
        "queues --url http://me@127.0.0.1:1",
        1,
        "dlx-proxy: the password is missing",
    ),
    ("queues --profile night", 64, "there is no profile `night`"),
    ("status --url http://127.0.0.1:1", 1, NOBODY),
    ("watch --url http://127.0.0.1:1", 1, NOBODY),
    ("config check --admin here", 64, ADMIN),
    ("run --admin here", 64, ADMIN),
    ("healthcheck --admin here", 64, ADMIN),
    ("doctor --upstream rabbit", 64, "upstream"),
    (
        "doctor --upstream amqp://user:s3cret@127.0.0.1:1",
        64,
        "problem  node 127.0.0.1:1 ",
    ),
    ("retries list", 1, NO_DELAYS),
    ("retries release", 1, NO_DELAYS),
    (
        "retries list --upstream amqp://user:s3cret@127.0.0.1:1 --delay 1",
        1,
        "the broker cannot be reached: node 127.0.0.1:1 ",
    ),
    (
        "retries list --upstream amqp://user:s3cret@127.0.0.1:1 --management-url http://127.0.0.1:1",
        1,
        "cannot connect",
    ),
    ("healthcheck --admin 127.0.0.1:1", 1, NOBODY),
    ("dead-letters groups q --url http://127.0.0.1:1", 1, NOBODY),
    // Nothing is moved without a yes: the proxy is not even asked.
    (
        "dead-letters redrive q --url http://127.0.0.1:1",
        64,
        NO_YES,
    ),
    ("dead-letters purge q --url http://127.0.0.1:1", 64, NO_YES),
    (
        "dead-letters redrive q --url http://127.0.0.1:1 --approve",
        1,
        NOBODY,
    ),
    (
        "dead-letters purge q --url http://127.0.0.1:1 --dry-run",
        1,
        NOBODY,
    ),
    ("dead-letters list q --reason rejcted", 64, REASONS),
    ("dead-letters export q --reason rejcted", 64, REASONS),
    ("dead-letters redrive q --reason rejcted", 64, "similar"),
];
const ADMIN: &str = "flag --admin: admin = \"here\": write an IP address";
const NOBODY: &str = "dlx-proxy: no answer from 127.0.0.1:1: ";
const NO_DELAYS: &str = "dlx-proxy: which delay queues there are is not known: set `management-url`, or name each delay in milliseconds, as in `--delay 1000`\n";
const NO_YES: &str = "dlx-proxy: this moves messages, and nobody can be asked here: add --approve, or --dry-run to only count them\n";
const REASONS: &str = "rejected, expired, maxlen, delivery_limit";

#[test]
fn without_anybody_there_each_command_says_why_it_fails() {
    for (arguments, code, words) in SAID {
        let output = dlx_proxy(&arguments.split_whitespace().collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(*code), "{arguments}");
        let said = text(output.stdout) + &text(output.stderr);
        assert!(said.contains(words), "{arguments}: {said}");
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
    let url = "amqp://user:s3cret@rabbit";
    let words = [
        "config",
        "check",
        "--upstream",
        url,
        "--mode",
        "rejects-only",
    ];
    let printed = stdout(&words);
    assert!(
        printed.contains("upstream = \"amqp://user:***@rabbit:5672\"\n"),
        "{printed}"
    );
    assert!(printed.contains("mode = \"rejects-only\"\n"), "{printed}");
}

/// In the place of something else, too.
#[test]
fn the_password_of_a_pasted_url_is_not_shown() {
    let url = "amqp://me:s3@cret@host";
    let limit = format!("--limit={url}");
    let redrives = ["dead-letters", "redrives", "list", "--url"];
    for words in [
        &["run", url][..],
        &["run", "--listen", url],
        &["run", "--config", url],
        &["healthcheck", "--admin", url],
        &[&redrives[..], &["https://me:s3@cret@host:1"]].concat(),
        &[&redrives[..], &["https://me:s3cret@host:1"]].concat(),
        &["demo", "--url", url],
        &["demo", "--url", "http://me:s3cret@127.0.0.1:1"],
        &["dead-letters", "list", "q", &limit],
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
    let pages = [
        "dlx-proxy.1",
        "dlx-proxy-run.1",
        "dlx-proxy-dead-letters-redrive.1",
    ];
    let written = pages.map(|name| folder.join(name).exists());
    std::fs::remove_dir_all(&folder).expect("it is there");
    assert!(said.status.success(), "{said:?}");
    assert_eq!(written, [true; 3], "{pages:?}");
}
