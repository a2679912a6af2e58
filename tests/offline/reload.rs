//! SIGHUP: what changes in a running proxy, what needs a restart, and what is said about it.

use dlx_proxy::config::{Config, DEFAULT_TOML};

use super::config::{File, sources};
use super::proxy::Proxy;
use super::running::dlx_proxy;

/// Starts a proxy that reads this file.
fn start(file: &File) -> Proxy {
    let mut proxy = Proxy::start(
        dlx_proxy()
            .args(["run", "--config", file.0.to_str().expect("UTF-8")])
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]),
    );
    proxy.line("listening leg=\"admin\"");
    proxy
}

/// SIGHUP, after the file has got this text.
fn reload(proxy: &Proxy, file: &File, text: &str) {
    std::fs::write(&file.0, text).expect("our file");
    proxy.signal("HUP");
}

/// The next line that contains this, without its time.
fn line(proxy: &mut Proxy, words: &str) -> String {
    let line = proxy.line(words);
    let (_time, said) = line.split_once(' ').expect("a time");
    said.trim_start().to_owned()
}

#[test]
fn a_good_file_applies_and_one_line_says_what_changed() {
    let upstream = "upstream = \"amqp://guest:guest@127.0.0.1:1\"\n";
    let file = File::new("reload", &format!("{upstream}nack-retries = 3"));
    let mut proxy = start(&file);
    let mut said = |text: &str| {
        reload(&proxy, &file, &format!("{upstream}{text}"));
        line(&mut proxy, "settings reloaded")
    };
    assert_eq!(
        said("nack-retries = 5\nlisten = \"127.0.0.1:1\"\nclose-wait = \"7s\""),
        r#"INFO settings reloaded changed="close-wait \"5s\" → \"7s\", nack-retries 3 → 5""#
    );
    let policy = "[[policy]]\nname = \"p\"\npattern = \"^a\"\ndefinition.dead-letter-exchange = \"";
    assert_eq!(
        said(&format!(
            "nack-retries = 5\nprefix = \"other\"\n{policy}x\""
        )),
        r#"INFO settings reloaded changed="close-wait \"7s\" → \"5s\", policy \"p\" of vhost \"/\" added" needs_restart="prefix \"dlx-proxy\" → \"other\"""#
    );
    // What needs a restart is not in force, so it is said again; and quieter lines begin behind this one.
    assert_eq!(
        said(&format!(
            "log-level = \"error\"\nprefix = \"other\"\n{policy}y\""
        )),
        r#"INFO settings reloaded changed="log-level \"info\" → \"error\", nack-retries 5 → 3, policy \"p\" of vhost \"/\" changed" needs_restart="prefix \"dlx-proxy\" → \"other\"""#
    );
    assert_eq!(
        said(""),
        r#"INFO settings reloaded changed="log-level \"error\" → \"info\", policy \"p\" of vhost \"/\" removed""#
    );
    assert_eq!(said(""), r#"INFO settings reloaded changed="nothing""#);
}

#[test]
fn a_file_with_mistakes_changes_nothing_and_says_them_all() {
    let file = File::new("reload-mistakes", "nack-retries = 3");
    let mut proxy = start(&file);
    reload(
        &proxy,
        &file,
        "nack-retries = 5\nclose-wait = \"soon\"\nmax-conections = 7",
    );
    assert_eq!(
        line(&mut proxy, "settings not reloaded"),
        "ERROR settings not reloaded: nothing has changed mistakes=2"
    );
    let mut mistakes = [(); 2].map(|()| line(&mut proxy, "a mistake in the settings"));
    mistakes.sort();
    assert!(
        mistakes[0].contains("dlx-proxy.toml:2: close-wait"),
        "{mistakes:?}"
    );
    assert!(
        mistakes[1].contains("dlx-proxy.toml:3: max-conections"),
        "{mistakes:?}"
    );
    // The good part of it was not taken over either.
    reload(&proxy, &file, "nack-retries = 4");
    assert_eq!(
        line(&mut proxy, "settings reloaded"),
        r#"INFO settings reloaded changed="nack-retries 3 → 4""#
    );
}

#[test]
fn exactly_those_settings_are_taken_over_that_say_so() {
    let old = Config::default();
    for (name, value) in DEFAULT_TOML.parse::<toml::Table>().expect("TOML") {
        // None of them is good without others and their files: the tests of `src/tls` and of `tests/clients/test_tls.py` reload them.
        if name.contains("tls") || name.ends_with("-file") {
            continue;
        }
        let other = match value {
            toml::Value::Integer(number) => (number + 1).to_string(),
            toml::Value::Boolean(yes) => (!yes).to_string(),
            toml::Value::Array(_) if name == "listen-proxy-protocol" => {
                "[\"10.0.0.0/8\"]".to_owned()
            }
            toml::Value::Array(_) if name == "delayed-publish" => "[\"x-delay\"]".to_owned(),
            toml::Value::Array(_) if name == "lenient" => "[\"durable\"]".to_owned(),
            toml::Value::Array(_) => "[\"/\", \"other\"]".to_owned(),
            toml::Value::String(text) => format!("{:?}", other(&name, &text)),
            value => unreachable!("{name} = {value}"),
        };
        let file = File::new(&format!("other-{name}"), &format!("{name} = {other}"));
        let new = Config::load(&sources(Some(&file), &[], &[])).expect("no mistake");
        let changes = old.changes(&new);
        assert_eq!(changes.len(), 1, "{name}");
        assert_eq!(changes[0].name, name);
        let expected = match changes[0].is_reloaded() {
            true => &new,
            false => &old,
        };
        assert_eq!(&old.reloaded(&new), expected, "{name}");
    }
}

/// Another good value of a setting that is written as text.
fn other(name: &str, text: &str) -> String {
    let words = [
        ("full", "rejects-only"),
        ("strict", "lenient"),
        ("continue", "broker"),
        ("park", "drop"),
        ("quorum", "classic"),
        ("round-robin", "first"),
        ("text", "json"),
        ("info", "warn"),
        ("auto", "77"),
        ("off", "v2"),
        ("", "http://host:15672"),
    ];
    let other = words.iter().find(|(word, _)| *word == text);
    match other {
        Some((_, other)) => (*other).to_owned(),
        None if name == "prefix" => "other".to_owned(),
        None if text.contains(':') => text.replace("127.0.0.1", "127.0.0.7"),
        None => format!("1{text}"),
    }
}

#[test]
fn a_password_that_changed_is_said_but_not_shown() {
    let load = |password: &str| {
        let url = format!("amqp://user:{password}@host:5672");
        Config::load(&sources(None, &[], &[("upstream", &url)])).expect("no mistake")
    };
    let changes = load("s3cret").changes(&load("n3w"));
    let said: Vec<_> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["upstream has another password"]);
}

#[test]
fn so_is_what_is_not_shown_of_the_hook() {
    let load = |path: &str| {
        let url = format!("http://host/{path}");
        Config::load(&sources(None, &[], &[("on-dead-letter", &url)])).expect("no mistake")
    };
    let changes = load("s3cret").changes(&load("n3w"));
    let said: Vec<_> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["on-dead-letter has another password, path or query"]);
}
