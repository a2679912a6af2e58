//! Mistakes in the settings: all are said at once, each with its place and its remedy, none with a password.

use dlx_proxy::config::{Config, DEFAULT_TOML, Sources};

use super::{File, from_environment, mistakes, sources};

fn mistakes_of_file(name: &str, text: &str) -> String {
    let file = File::new(name, text);
    mistakes(Config::load(&sources(Some(&file), &[], &[])), Some(&file))
}

#[test]
fn all_mistakes_are_said_at_once_with_their_places() {
    let file = File::new(
        "all",
        r#"
listen = "localhost"
log_level = "info"
max-connections = "few"
prefix = "a/b"
intake-prefetch = 65536
give-up-after = 60
vhosts = ["/", "", "/"]
retry-for = "60s"
memory = [1]
mode.strict = true

[extra]
key = 1

[[policy]]
name = "a"
pattern = "("
apply-to = "streams"
priority = "high"
colour = "red"

[policy.definition]
dead-letter-exchang = "dlx"

[[policy]]
name = "a"
definition = "dlx"
"#,
    );
    let environment = [
        ("DLX_PROXY_LOG_FORMAT", "yaml"),
        ("DLX_PROXY_LISTN", "x"),
        ("DLX_PROXY_POLICY", "x"),
        ("OTHER", "x"),
    ];
    let loaded = Config::load(&sources(
        Some(&file),
        &environment,
        &[("mode", "take-over"), ("upstream", "localhost")],
    ));
    insta::assert_snapshot!(mistakes(loaded, Some(&file)), @r#"
    dlx-proxy.toml:13: extra: there is no such setting; `dlx-proxy config default` prints all there are
    dlx-proxy.toml:6: intake-prefetch: there is no such setting; its value is fixed, see docs/reference/limits.md: remove it
    dlx-proxy.toml:3: log_level: there is no such setting; did you mean `log-level`?
    dlx-proxy.toml:11: mode: write one value, not a table
    dlx-proxy.toml:9: retry-for: there is no such setting; it is called `give-up-after` now
    environment variable DLX_PROXY_LISTN: there is no such setting; did you mean DLX_PROXY_LISTEN?
    environment variable DLX_PROXY_POLICY: policies are taken from the file only
    dlx-proxy.toml:10: memory = […]: write one value, not a list or a table
    dlx-proxy.toml:2: listen = "localhost": write an IP address and a port, like "127.0.0.1:5673" or "[::]:5673", or the path of a Unix socket, like "unix:/run/dlx-proxy/amqp.sock", or "" for none
    flag --upstream: upstream: not a URL; write it like "amqp://user:password@host:5672"
    dlx-proxy.toml:8: vhosts = "": write 1 to 255 bytes of text
    dlx-proxy.toml:8: vhosts = "/": is there twice
    dlx-proxy.toml:5: prefix = "a/b": write 1 to 64 printable ASCII characters other than space, `'`, `/`, `%` and `+`
    flag --mode: mode = "take-over": write one of "full", "rejects-only", "off"
    environment variable DLX_PROXY_LOG_FORMAT: log-format = "yaml": write one of "text", "json"
    dlx-proxy.toml:7: give-up-after = 60: write a time with its unit, like "500ms", "5s" or "1m 30s", from 1ms to 24h
    dlx-proxy.toml:4: max-connections = "few": write a number from 1 to 1000000, or "auto"
    dlx-proxy.toml:18: policy.pattern = "(": not a regular expression: unclosed group
    dlx-proxy.toml:19: policy.apply-to = "streams": write one of "queues", "classic_queues", "quorum_queues", "all"
    dlx-proxy.toml:20: policy.priority = "high": write a number from -9223372036854775808 to 9223372036854775807
    dlx-proxy.toml:24: policy.definition.dead-letter-exchang: there is no such key; did you mean `dead-letter-exchange`?
    dlx-proxy.toml:21: policy.colour: there is no such key; `dlx-proxy config default` shows a policy
    dlx-proxy.toml:26: policy.pattern: is missing
    dlx-proxy.toml:28: policy.definition = "dlx": write a table
    dlx-proxy.toml:26: policy "a": another policy of its vhost has this name
    "#);
}

#[test]
fn what_is_not_toml_is_said_with_every_line() {
    insta::assert_snapshot!(mistakes_of_file("syntax", "listen = \nadmin = \"127.0.0.1:1\"\nprefix 'x'\n"), @r#"
    dlx-proxy.toml:1: not TOML: string values must be quoted, expected literal string
    dlx-proxy.toml:3: not TOML: key with no value, expected `=`
    "#);
}

#[test]
fn a_file_that_is_missing_is_a_mistake() {
    let missing = Sources {
        file: Some("/nowhere/dlx-proxy.toml".into()),
        ..Sources::default()
    };
    insta::assert_snapshot!(mistakes(Config::load(&missing), None), @r#"/nowhere/dlx-proxy.toml: cannot be read: No such file or directory (os error 2)"#);
}

#[test]
fn settings_that_contradict_each_other_are_mistakes() {
    insta::assert_snapshot!(mistakes_of_file("relations", "admin = \"127.0.0.1:5673\""), @r#"dlx-proxy.toml:1: admin = "127.0.0.1:5673": is the same as `listen`; take another port"#);
    let free = from_environment(&[
        ("DLX_PROXY_LISTEN", "127.0.0.1:0"),
        ("DLX_PROXY_ADMIN", "127.0.0.1:0"),
    ]);
    assert!(free.is_ok(), "port 0 is another port each time");
}

#[test]
fn what_the_broker_cannot_know_is_no_definition_of_a_native_queue() {
    let policy = "[[policy]]\nname = \"a\"\npattern = 'x'\nmode = \"off\"\n";
    let definition = "definition = { dead-letter-exchange = \"dlx\" }\n";
    insta::assert_snapshot!(mistakes_of_file("native", &[policy, definition].concat()), @r#"dlx-proxy.toml:1: policy "a": mode `off` leaves its queues to the broker, which does not know this definition; take another mode, or a policy of the broker"#);
    let without_mode = policy.replace("mode = \"off\"\n", definition);
    let global = ["mode = \"off\"\n", &without_mode].concat();
    assert!(mistakes_of_file("native-global", &global).contains("does not know this definition"));
    let file = File::new("native-good", policy);
    assert!(Config::load(&sources(Some(&file), &[], &[])).is_ok());
}

#[test]
fn delays_that_cannot_be_kept_are_mistakes() {
    let said = |definition: &str| {
        let policy = "[[policy]]\nname = \"a\"\npattern = 'x'\n[policy.definition]\n";
        mistakes_of_file("delays", &[policy, definition].concat())
    };
    let all = [
        "delayed-retry-delays = []",
        "delayed-retry-delays = [\"10s\", 0]",
        "delayed-retry-delays = [[\"10s\"]]",
        "delayed-retry-delays = \"10 parsecs\"",
        "delayed-retry-jitter = 1.5",
        "delayed-retry-delays = [\"10s\"]\ndelayed-retry-max = 1000",
        "ack-timeout = 999",
    ];
    insta::assert_snapshot!(all.map(said).join("\n"), @r#"
    dlx-proxy.toml:5: policy.definition.delayed-retry-delays = "": must be 1 to 32 delays above 0, such as "10s", "1m 30s" or 500 (milliseconds)
    dlx-proxy.toml:5: policy.definition.delayed-retry-delays = "10s,0": must be 1 to 32 delays above 0, such as "10s", "1m 30s" or 500 (milliseconds)
    dlx-proxy.toml:5: policy.definition.delayed-retry-delays = "": must be 1 to 32 delays above 0, such as "10s", "1m 30s" or 500 (milliseconds)
    dlx-proxy.toml:5: policy.definition.delayed-retry-delays = "10 parsecs": must be 1 to 32 delays above 0, such as "10s", "1m 30s" or 500 (milliseconds)
    dlx-proxy.toml:5: policy.definition.delayed-retry-jitter = "1.5": write a number from 0 to 1, like 0.2
    dlx-proxy.toml:4: policy.definition: delayed-retry-delays lists each delay: leave out delayed-retry-min, delayed-retry-max and delayed-retry-multiplier
    dlx-proxy.toml:5: policy.definition.ack-timeout = 999: must be at least a second, such as "30s" or 30000 (milliseconds)
    "#);
}

#[test]
fn names_are_as_long_as_amqp_lets_them_be() {
    let long = "x".repeat(256);
    let of_policy = |key: &str| {
        let policy = "[[policy]]\nname = \"a\"\npattern = 'x'\n";
        mistakes_of_file("long", &format!("{policy}definition.{key} = \"{long}\""))
    };
    for key in ["dead-letter-exchange", "dead-letter-routing-key"] {
        let expected = format!(
            "dlx-proxy.toml:4: policy.definition.{key} = \"{long}\": write 0 to 255 bytes of text"
        );
        assert_eq!(of_policy(key), expected);
    }
    let url = format!("amqp://{long}:secret@host");
    insta::assert_snapshot!(mistakes(from_environment(&[("DLX_PROXY_UPSTREAM", &url)]), None), @r#"environment variable DLX_PROXY_UPSTREAM: upstream: the user is over 255 bytes; write it like "amqp://user:password@host:5672""#);
}

#[test]
fn mistakes_in_tls_are_told_all_at_once_with_their_places() {
    let file = r#"listen = ""
admin = ""
upstream-ca-file = "/nowhere/ca.pem"
upstream-tls-verify = false
tls-key-file = "/nowhere/key.pem"
tls-client-auth = "optional"
"#;
    insta::assert_snapshot!(mistakes_of_file("tls", file), @r#"
    dlx-proxy.toml:3: upstream-ca-file = "/nowhere/ca.pem": is of no use: neither `upstream` begins with `amqps://` nor `management-url` with `https://`
    dlx-proxy.toml:4: upstream-tls-verify = false: is of no use: neither `upstream` begins with `amqps://` nor `management-url` with `https://`
    dlx-proxy.toml:5: tls-key-file = "/nowhere/key.pem": is of no use: neither `listen-tls` nor `admin-tls` is set
    dlx-proxy.toml:6: tls-client-auth = "optional": is of no use: `listen-tls` is not set
    dlx-proxy.toml:3: upstream-ca-file = "/nowhere/ca.pem": cannot be read: No such file or directory (os error 2)
    dlx-proxy.toml:5: tls-key-file = "/nowhere/key.pem": cannot be read: No such file or directory (os error 2)
    dlx-proxy.toml:1: listen: neither `listen` nor `listen-tls` has an address: set one
    dlx-proxy.toml:2: admin: neither `admin` nor `admin-tls` has an address: set one
    "#);
    let file = r#"listen-tls = "127.0.0.1:5671"
admin-tls = "127.0.0.1:5671"
tls-client-auth = "required"
"#;
    insta::assert_snapshot!(mistakes_of_file("tls-more", file), @r#"
    dlx-proxy.toml:1: tls-client-ca-file: set it too: `tls-client-auth` needs to know who signs the certificates of clients
    dlx-proxy.toml:1: tls-cert-file: set it, and `tls-key-file`: `listen-tls` and `admin-tls` need a certificate
    dlx-proxy.toml:2: admin-tls = "127.0.0.1:5671": is the same as `listen-tls`; take another port
    "#);
}

/// Each was read as something else than was written, or not at all.
#[test]
fn a_url_that_cannot_be_meant_is_refused() {
    let (upstream, api, hook) = ("UPSTREAM", "MANAGEMENT_URL", "ON_DEAD_LETTER");
    let escapes = "is written as %40, %2F, %3F, %23 or %25";
    let (host, several) = ("a host or port in it cannot be read", "names several hosts");
    for (setting, url, words) in [
        (upstream, "amqp://me:s3@cret#w/rd@host", escapes),
        (api, "http://me:s3/cret@host:15672", escapes),
        (hook, "https://me:s3#cret@host/dead", escapes),
        (hook, "https://host/dead#s3cret", escapes),
        (upstream, "amqp://me:s3cret@host/orders", "`vhosts` names"),
        (upstream, "amqp://me:s3cret@host/%2F", "`vhosts` names"),
        (
            upstream,
            "amqp://me:s3cret@host?heartbeat=5",
            "no parameters",
        ),
        (
            upstream,
            "amqp://me:s3cret@host/?heartbeat=5",
            "no parameters",
        ),
        (upstream, "amqp://me:s3cret@", host),
        (upstream, "amqp://me:s3cret@host,", host),
        (api, "http://me:s3cret@host:port", host),
        (api, "http://me:s3cret@host/?x=y", "parameters of its own"),
        (api, "http://me:s3cret@a,b", several),
        (hook, "http://me:s3cret@a,b", several),
    ] {
        let variable = format!("DLX_PROXY_{setting}");
        let said = mistakes(from_environment(&[(&variable, url)]), None);
        assert!(said.contains(words), "{url}: {said}");
        assert!(said.contains("; write it like \""), "{url}: {said}");
        assert!(!said.contains("s3") && !said.contains("cret"), "{said}");
    }
}

#[test]
fn a_name_that_comes_near_one_is_asked_after() {
    let file = "managment_url = \"s3cret\"\nmax-conection = 1\npolicies = 1\nfoo = 1\n[[polcy]]\n[[policy]]\nname = \"a\"\npatern = 'x'\nmode = \"rejects-only\"\n";
    insta::assert_snapshot!(mistakes_of_file("near", file), @r"
    dlx-proxy.toml:4: foo: there is no such setting; `dlx-proxy config default` prints all there are
    dlx-proxy.toml:1: managment_url: there is no such setting; did you mean `management-url`?
    dlx-proxy.toml:2: max-conection: there is no such setting; did you mean `max-connections`?
    dlx-proxy.toml:5: polcy: there is no such setting; did you mean `policy`?
    dlx-proxy.toml:3: policies: there is no such setting; `dlx-proxy config default` prints all there are
    dlx-proxy.toml:6: policy.pattern: is missing
    dlx-proxy.toml:8: policy.patern: there is no such key; did you mean `pattern`?
    ");
    let environment = [
        ("DLX_PROXY_PASSWROD", "s3cret"),
        ("DLX_PROXY_CONFG", "x"),
        ("DLX_PROXY_upstream", "x"),
        ("DLX_PROXY_VHOST", "x"),
        ("DLX_PROXY_ADDRESS", "x"),
    ];
    insta::assert_snapshot!(mistakes(from_environment(&environment), None), @r"
    environment variable DLX_PROXY_ADDRESS: there is no such setting; `dlx-proxy config default` prints all there are
    environment variable DLX_PROXY_CONFG: there is no such setting; did you mean DLX_PROXY_CONFIG?
    environment variable DLX_PROXY_PASSWROD: there is no such setting; did you mean DLX_PROXY_PASSWORD?
    environment variable DLX_PROXY_VHOST: there is no such setting; did you mean DLX_PROXY_VHOSTS?
    environment variable DLX_PROXY_upstream: there is no such setting; did you mean DLX_PROXY_UPSTREAM?
    ");
}

#[test]
fn what_is_gone_says_what_to_do_instead() {
    let file = "bcc = \"forget\"\nupstream-order = \"random\"\nupstream-proxy-protocol = \"v1\"\nadmin = \"unix:/a\"\n";
    insta::assert_snapshot!(mistakes_of_file("gone", file), @r#"
    dlx-proxy.toml:1: bcc: there is no such setting; BCC keys always count at a later death: remove it
    dlx-proxy.toml:4: admin = "unix:/a": write an IP address and a port, like "127.0.0.1:5673" or "[::]:5673", or "" for none
    dlx-proxy.toml:3: upstream-proxy-protocol = "v1": write "v2": RabbitMQ reads both
    dlx-proxy.toml:2: upstream-order = "random": write "round-robin": each proxy begins with any node
    "#);
    insta::assert_snapshot!(mistakes(from_environment(&[("DLX_PROXY_BCC", "carry")]), None), @"environment variable DLX_PROXY_BCC: there is no such setting; BCC keys always count at a later death: remove it");
}

#[test]
fn a_url_in_the_wrong_place_is_not_shown() {
    let url = "amqp://me:s3cret@host";
    for (name, _) in DEFAULT_TOML.parse::<toml::Table>().expect("TOML") {
        if name == "error-headers" {
            continue; // such a header may be
        }
        let variable = format!("DLX_PROXY_{}", name.to_uppercase().replace('-', "_"));
        if let Err(mistakes) = from_environment(&[(&variable, url)]) {
            let said = mistakes.to_string();
            assert!(!said.contains("s3cret"), "{said}");
        }
    }
    for file in [
        format!("\"{url}\" = 1"),
        format!("vhosts = [\"{url}\", \"{url}\"]"),
        format!(
            "[[policy]]\npattern = \"x\"\npriority = \"{url}\"\ndefinition.delayed-retry-min = \"{url}\"\ndefinition.delayed-retry-type = \"{url}\""
        ),
    ] {
        let said = mistakes_of_file("pasted", &file);
        assert!(
            said.contains("amqp://***") && !said.contains("s3cret"),
            "{said}"
        );
    }
    let said = mistakes(
        Config::load(&Sources {
            file: Some(url.into()),
            ..Sources::default()
        }),
        None,
    );
    assert!(said.starts_with("amqp://***: cannot be read"), "{said}");
}

#[test]
fn passwords_are_never_printed() {
    let printed = |text: String| assert!(!text.contains("s3cret"), "{text}");
    let urls = [
        ("DLX_PROXY_UPSTREAM", "amqp://user:s3cret@host:5672"),
        ("DLX_PROXY_MANAGEMENT_URL", "http://user:s3cret@host:15672"),
    ];
    let config = from_environment(&urls).expect("no mistake");
    assert!(
        config.to_toml().contains("amqp://user:***@host:5672"),
        "{}",
        config.to_toml()
    );
    printed(config.to_toml());
    printed(format!(
        "{config:?} {config:#?} {} {:?}",
        config.upstream, config.management_url
    ));
    for wrong in [
        "amqp://user:s3cret@host:port",
        "amqps://user:s3cret@host:port",
        "user:s3cret",
        "amqp://host:s3cret",
        "s3cret",
    ] {
        printed(mistakes(
            from_environment(&[("DLX_PROXY_UPSTREAM", wrong)]),
            None,
        ));
        printed(mistakes(
            from_environment(&[("DLX_PROXY_MANAGEMENT_URL", wrong)]),
            None,
        ));
        printed(mistakes(
            from_environment(&[("DLX_PROXY_PASSWORDS", wrong)]),
            None,
        ));
        printed(mistakes_of_file(
            "secret-key",
            &format!("upstraem = \"{wrong}\""),
        ));
        printed(mistakes_of_file(
            "secret-list",
            &format!("upstream = [\"{wrong}\"]"),
        ));
        printed(mistakes_of_file(
            "secret-syntax",
            &format!("upstream = \"{wrong}"),
        ));
        printed(mistakes_of_file(
            "secret-bare",
            &format!("upstream = {wrong}"),
        ));
    }
}
