//! The settings: defaults, layers, values; `mistakes` has what is refused.

mod mistakes;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dlx_proxy::config::{Config, DEFAULT_TOML, LogLevel, Mistakes, Sources};
use dlx_proxy::net::nodes::Node;
use dlx_proxy::registry::policy::{ApplyTo, Mode};

/// A file of settings that is deleted with the value.
pub(super) struct File(pub(super) PathBuf);

impl File {
    pub(super) fn new(name: &str, text: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("dlx-proxy-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("temporary folder");
        let path = folder.join("dlx-proxy.toml");
        std::fs::write(&path, text).expect("temporary file");
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().unwrap_or(Path::new("")));
    }
}

pub(super) fn sources(
    file: Option<&File>,
    environment: &[(&str, &str)],
    flags: &[(&'static str, &str)],
) -> Sources {
    Sources {
        file: file.map(|file| file.0.clone()),
        environment: environment
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        flags: flags
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect(),
        may_fix: false,
    }
}

fn from_environment(environment: &[(&str, &str)]) -> Result<Config, Mistakes> {
    Config::load(&sources(None, environment, &[]))
}

/// All mistakes, one a line, with the file's name instead of its path.
fn mistakes(loaded: Result<Config, Mistakes>, file: Option<&File>) -> String {
    let text = loaded.expect_err("there are mistakes").to_string();
    match file {
        Some(File(path)) => text.replace(&*path.to_string_lossy(), "dlx-proxy.toml"),
        None => text,
    }
}

fn keys(toml: &str) -> BTreeSet<String> {
    toml.parse::<toml::Table>()
        .expect("TOML")
        .keys()
        .cloned()
        .collect()
}

#[test]
fn the_defaults_name_every_setting_and_no_other() {
    assert_eq!(keys(&Config::default().to_toml()), keys(DEFAULT_TOML));
}

#[test]
fn the_file_of_defaults_is_the_defaults() {
    let file = File::new("defaults", DEFAULT_TOML);
    assert_eq!(
        Config::load(&sources(Some(&file), &[], &[])),
        Ok(Config::default())
    );
}

#[test]
fn the_policy_shown_in_the_defaults_is_accepted() {
    let (_, example) = DEFAULT_TOML.split_once("# [[policy]]").expect("an example");
    let example: String = example
        .lines()
        .map(|line| line.trim_start_matches("# ").to_owned() + "\n")
        .collect();
    let file = File::new("example", &format!("[[policy]]{example}"));
    let config = Config::load(&sources(Some(&file), &[], &[])).expect("no mistake");
    assert_eq!(config.reloadable.policies.len(), 1);
    let policy = &config.reloadable.policies[0];
    assert_eq!(
        (&*policy.name, &*policy.vhost, policy.apply_to),
        (&b"retries"[..], &b"/"[..], ApplyTo::Queues)
    );
    assert_eq!((policy.priority, policy.mode), (0, Some(Mode::Full)));
    assert_eq!(
        policy.definition.dead_letter_exchange.as_deref(),
        Some(&b"dlx"[..])
    );
    assert_eq!(
        policy.definition.dead_letter_routing_key.as_deref(),
        Some(&b"orders.dead"[..])
    );
}

/// What `config check` says of each policy, and of the settings, in their order.
#[test]
fn what_does_less_than_it_seems_to_is_said() {
    const REJECTS: &str = "acts on rejects only";
    let notes = |text: &str| {
        let text = text.replace("[[policy]]", "[[policy]]\nname = \"a\"\npattern = 'x'\n");
        let file = File::new("notes", &text);
        let config = Config::load(&sources(Some(&file), &[], &[])).expect("no mistake");
        config.notes()
    };
    let definition =
        |of: &str, set: &str| notes(&format!("[[policy]]\n{of}\n[policy.definition]\n{set}"));
    for (of, set, expected) in [
        (
            "mode = \"rejects-only\"",
            "dead-letter-exchange = \"dlx\"",
            REJECTS,
        ),
        (
            "mode = \"rejects-only\"",
            "dead-letter-routing-key = \"k\"",
            REJECTS,
        ),
        ("", "delayed-retry-max = 9", "without a delayed-retry-min"),
        (
            "",
            "delayed-retry-multiplier = 2",
            "without a delayed-retry-min",
        ),
        (
            "",
            "delayed-retry-jitter = 0.2",
            "without a delayed-retry-min",
        ),
        (
            "",
            "delayed-retry-delays = [\"1s\"]\ndelayed-retry-jitter = 0.2",
            "too small",
        ),
        ("", "on-crash = \"count-all\"", "count nothing without"),
    ] {
        let said = definition(of, set);
        assert_eq!(said.len(), 1, "{set}: {said:?}");
        assert_eq!(said[0].0, "policy \"a\"");
        assert!(said[0].1.contains(expected), "{said:?}");
    }
    for (of, set) in [
        ("", "dead-letter-exchange = \"dlx\""),
        // Retries are the proxy's in this mode, too.
        ("mode = \"rejects-only\"", "delayed-retry-min = 9"),
        ("", "on-crash = \"count-all\"\ndelivery-limit = 3"),
        (
            "",
            "delayed-retry-delays = \"1m,500\"\ndelayed-retry-jitter = 0.5",
        ),
        ("mode = \"rejects-only\"\nlenient = [\"x-message-ttl\"]", ""),
    ] {
        assert_eq!(definition(of, set), [], "{of} {set}");
    }
    for (text, about) in [
        (
            "mode = \"rejects-only\"\nlenient = [\"x-dead-letter-exchange\"]",
            "lenient",
        ),
        (
            "mode = \"rejects-only\"\n[[policy]]\nlenient = [\"x-dead-letter-exchange\"]",
            "policy \"a\"",
        ),
        (
            "lenient = [\"x-dead-letter-exchange\"]\n[[policy]]\nmode = \"rejects-only\"",
            "policy \"a\"",
        ),
    ] {
        let said = notes(text);
        assert_eq!(said.len(), 1, "{text}: {said:?}");
        assert_eq!(said[0].0, about);
        assert!(said[0].1.contains(REJECTS) && said[0].1.contains("lenient"));
    }
    assert_eq!(notes("lenient = [\"x-dead-letter-exchange\"]"), []);
}

#[test]
fn what_is_printed_reads_back_as_the_same() {
    let file = File::new(
        "printed",
        "memory = \"2GiB\"\nvhosts = [\"a\\nmode = 3\", \"/\"]\ngive-up-after = \"1m 30s\"\nmanagement-url = \"http://host:15672\"\n[[policy]]\nname = \"a\"\npattern = 'x'\nmode = \"rejects-only\"\n[policy.definition]\ndelayed-retry-delays = [\"90s\", 7, \"8 days\"]\ndelayed-retry-jitter = 0.25\n",
    );
    let config = Config::load(&sources(
        Some(&file),
        &[],
        &[("upstream", "amqp://u:***@h:1")],
    ))
    .expect("no mistake");
    let printed = File::new("again", &config.to_toml());
    assert_eq!(Config::load(&sources(Some(&printed), &[], &[])), Ok(config));
}

#[test]
fn a_flag_is_stronger_than_the_environment_than_the_file_than_the_default() {
    let file = File::new(
        "layers",
        "listen = \"127.0.0.1:1\"\nadmin = \"127.0.0.1:1\"\nmode = \"rejects-only\"\n",
    );
    let environment = [
        ("DLX_PROXY_LISTEN", "127.0.0.1:2"),
        ("DLX_PROXY_ADMIN", "127.0.0.1:2"),
    ];
    let config = Config::load(&sources(
        Some(&file),
        &environment,
        &[("listen", "127.0.0.1:3")],
    ))
    .expect("no mistake");
    assert_eq!(
        (
            config.listen.map(|it| it.to_string()).as_deref(),
            config.admin.map(|it| it.to_string()).as_deref(),
            config.mode
        ),
        (Some("127.0.0.1:3"), Some("127.0.0.1:2"), Mode::RejectsOnly)
    );
    assert_eq!(config.reloadable.log_level, LogLevel::Info);
}

#[test]
fn the_environment_names_the_file_and_the_flag_overrules_it() {
    let (one, other) = (
        File::new("env-file", "drain-timeout = \"1s\""),
        File::new("flag-file", "drain-timeout = \"2s\""),
    );
    let environment = [("DLX_PROXY_CONFIG", one.0.to_str().expect("UTF-8"))];
    let grace = |file| {
        Config::load(&sources(file, &environment, &[]))
            .expect("no mistake")
            .reloadable
            .drain_timeout
            .as_secs()
    };
    assert_eq!((grace(None), grace(Some(&other))), (1, 2));
}

#[test]
fn every_setting_has_an_environment_variable() {
    for (name, value) in DEFAULT_TOML.parse::<toml::Table>().expect("TOML") {
        let variable = format!("DLX_PROXY_{}", name.to_uppercase().replace('-', "_"));
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Array(items) => {
                let items = items.iter().filter_map(toml::Value::as_str);
                items.collect::<Vec<_>>().join(",")
            }
            other => other.to_string(),
        };
        assert_eq!(
            from_environment(&[(&variable, &text)]),
            Ok(Config::default()),
            "{variable}={text}"
        );
        let wrong = mistakes(
            from_environment(&[(&variable, "\u{1}".repeat(300).as_str())]),
            None,
        );
        assert!(
            wrong.starts_with(&format!("environment variable {variable}: {name}")),
            "{wrong}"
        );
    }
}

#[test]
fn values_carry_units_and_lists_are_separated_by_commas() {
    let config = from_environment(&[
        ("DLX_PROXY_GIVE_UP_AFTER", "1m 30s"),
        ("DLX_PROXY_DRAIN_TIMEOUT", "500ms"),
        ("DLX_PROXY_MEMORY", "64MiB"),
        ("DLX_PROXY_VHOSTS", "/,orders"),
    ])
    .expect("no mistake");
    assert_eq!(
        (
            config.reloadable.limits.retry_for,
            config.reloadable.drain_timeout
        ),
        (Duration::from_secs(90), Duration::from_millis(500))
    );
    assert_eq!(
        (
            config.reloadable.retained_bytes,
            config.reloadable.limits.retained_bytes_per_connection
        ),
        (16 << 20, 2 << 20)
    );
    let vhosts: Vec<_> = config.vhosts.iter().map(ToString::to_string).collect();
    assert_eq!(vhosts, ["/", "orders"]);
}

/// Nobody tunes them but tests, which meet a limit sooner so.
#[test]
fn what_is_fixed_is_no_setting() {
    let sources = sources(None, &[("DLX_PROXY_MAX_BROWSES", "1")], &[]);
    insta::assert_snapshot!(mistakes(Config::load(&sources), None), @"environment variable DLX_PROXY_MAX_BROWSES: there is no such setting; its value is fixed, see docs/reference/limits.md: remove it");
    let sources = Sources {
        may_fix: true,
        ..sources
    };
    let config = Config::load(&sources).expect("no mistake");
    assert_eq!(config.reloadable.max_browses, 1);
    assert!(!config.to_toml().contains("max-browses"));
}

#[test]
fn variables_that_kubernetes_makes_of_a_service_are_left_alone() {
    let of_kubernetes = [
        ("DLX_PROXY_SERVICE_HOST", "10.0.0.1"),
        ("DLX_PROXY_SERVICE_PORT", "5672"),
        ("DLX_PROXY_SERVICE_PORT_AMQP", "5672"),
        ("DLX_PROXY_PORT", "tcp://10.0.0.1:5672"),
        ("DLX_PROXY_PORT_5672_TCP", "tcp://10.0.0.1:5672"),
        ("DLX_PROXY_PORT_5672_TCP_PROTO", "tcp"),
        ("DLX_PROXY_ADMIN_PORT_15673_TCP_ADDR", "10.0.0.1"),
    ];
    assert_eq!(from_environment(&of_kubernetes), Ok(Config::default()));
}

#[test]
fn the_upstream_is_taken_apart() {
    let upstream = |url: &str| {
        let upstream = Config::load(&sources(None, &[], &[("upstream", url)]))
            .expect("no mistake")
            .upstream;
        let nodes: Vec<_> = upstream.nodes.iter().map(Node::to_string).collect();
        (
            nodes.join(" "),
            upstream.user.to_string(),
            upstream.password.reveal().to_owned(),
        )
    };
    let parts = |nodes: &str, user: &str, password: &str| {
        (nodes.to_owned(), user.to_owned(), password.to_owned())
    };
    assert_eq!(
        upstream("amqp://rabbit"),
        parts("rabbit:5672", "guest", "guest")
    );
    assert_eq!(
        upstream("amqp://a:b@rabbit:1/"),
        parts("rabbit:1", "a", "b")
    );
    assert_eq!(
        upstream("amqp://a:b:c@rabbit:1\n"),
        parts("rabbit:1", "a", "b:c")
    );
    assert_eq!(
        upstream("amqps://a@rabbit"),
        parts("rabbit:5671", "a", "guest")
    );
    assert_eq!(
        upstream("amqp://a%40b:c%2Fd@[::1]:5673"),
        parts("[::1]:5673", "a@b", "c/d")
    );
    assert_eq!(
        upstream("amqp://a:b@rabbit-1,rabbit-2:5673,[::1]"),
        parts("rabbit-1:5672 rabbit-2:5673 [::1]:5672", "a", "b")
    );
}

#[test]
fn the_url_of_the_hook_is_taken_apart_and_its_secrets_are_not_shown() {
    let load = |url: &str| Config::load(&sources(None, &[], &[("on-dead-letter", url)]));
    let hook = |url: &str| load(url).expect("no mistake").on_dead_letter;
    assert_eq!(hook(""), None);
    let url = hook("http://me:s3cret@[::1]:8080/dead/s3cret?token=s3cret").expect("a URL");
    assert_eq!(url.node.to_string(), "[::1]:8080");
    assert_eq!(url.path, "/dead/s3cret?token=s3cret");
    assert_eq!(url.to_string(), "http://me:***@[::1]:8080/***");
    assert!(!format!("{url:?}").contains("s3cret"));
    let plain = hook("http://host").expect("a URL");
    assert_eq!((plain.node.port, plain.path.as_str()), (80, "/"));
    assert_eq!(plain.to_string(), "http://host:80");
    let secure = hook("https://host/dead").expect("a URL");
    assert_eq!((secure.tls, secure.node.port), (true, 443));
    assert_eq!(secure.to_string(), "https://host:443/***");
    for (wrong, why) in [
        ("s3cret", "not a URL"),
        ("ftp://host/s3cret", "not an HTTP URL"),
    ] {
        let said = load(wrong).expect_err("a mistake").to_string();
        assert!(said.contains(why) && !said.contains("s3cret"), "{said}");
    }
}

#[test]
fn the_management_url_is_taken_apart() {
    let parts = |url: &str| {
        let config = Config::load(&sources(None, &[], &[("management-url", url)]));
        let url = config.expect("no mistake").management_url?;
        let user = url
            .user
            .map(|(user, password)| (user, password.reveal().to_owned()));
        Some((url.node.host, url.node.port, url.path, user))
    };
    let at = |host: &str, port, path: &str| Some((host.to_owned(), port, path.to_owned(), None));
    assert_eq!(parts(""), None);
    assert_eq!(parts("http://rabbit"), at("rabbit", 80, ""));
    assert_eq!(parts("http://[::1]:15672/"), at("::1", 15672, ""));
    assert_eq!(parts("http://rabbit:15672/mq/"), at("rabbit", 15672, "/mq"));
    let (_, _, _, user) = parts("http://a%40b:c%2Fd%25@rabbit:1").expect("a URL");
    assert_eq!(user, Some(("a@b".to_owned(), "c/d%".to_owned())));
    let (_, _, _, user) = parts("http://a@rabbit").expect("a URL");
    assert_eq!(user, Some(("a".to_owned(), String::new())));
}
