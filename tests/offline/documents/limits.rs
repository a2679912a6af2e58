//! The tables of limits: whoever meets one finds its setting, its metric and its line there.

use std::collections::BTreeSet;

use dlx_proxy::config::{DEFAULT_TOML, FIXED_TOML};
use dlx_proxy::machine::Limit;

use super::super::text_of;
use super::found;

/// Settings that bound nothing.
const OTHERS: [&str; 36] = [
    "listen",
    "listen-proxy-protocol",
    "admin",
    "admin-api",
    "admin-edit",
    "upstream",
    "upstream-proxy-protocol",
    "upstream-order",
    "management-url",
    "vhosts",
    "ready-when-refused",
    "prefix",
    "mode",
    "lenient",
    "delayed-publish",
    "history",
    "on-unroutable",
    "on-dead-letter",
    "error-headers",
    "stamp",
    "intake-queue-type",
    "worker-threads",
    // By its shares.
    "memory",
    "listen-tls",
    "log-format",
    "log-level",
    "tls-cert-file",
    "tls-client-auth",
    "tls-client-ca-file",
    "tls-key-file",
    "upstream-ca-file",
    "upstream-cert-file",
    "upstream-key-file",
    "upstream-tls-name",
    "upstream-tls-verify",
    "admin-tls",
];

#[test]
fn the_tables_have_each_limit_that_is_counted_and_name_only_what_there_is() {
    let settings = found(r"(?m)^([a-z-]+) = ", &format!("{DEFAULT_TOML}{FIXED_TOML}"));
    let causes = text_of("crates/core/src/machine/event.rs")
        + &text_of("crates/core/src/machine/outcome.rs");
    let (mut bounding, mut limits) = (BTreeSet::new(), BTreeSet::new());
    for row in rows() {
        let [what, bound, _, seen] = &row[..] else {
            unreachable!("not a row of four: {row:?}")
        };
        assert!(!seen.trim().is_empty(), "{what}");
        let spans = found("`([^`]+)`", bound).into_iter();
        bounding.extend(spans.filter(|span| span.contains('-')));
        for list in found("limits? (`[^;]+)", seen) {
            limits.extend(found("`([^`]+)`", &list));
        }
        for list in found("causes? (`[^;]+)", seen) {
            for cause in found("`([^`]+)`", &list) {
                assert!(causes.contains(&format!("\"{cause}\"")), "{what}: {cause}");
            }
        }
    }
    assert_eq!(
        limits,
        Limit::ALL.map(|bound| bound.as_str().to_owned()).into()
    );
    // Each setting that is a number or a time bounds something.
    let others = OTHERS.map(str::to_owned).into();
    assert_eq!(bounding, settings.difference(&others).cloned().collect());
}

/// The cells of the tables below the heading "Limits".
fn rows() -> Vec<Vec<String>> {
    let document = text_of("docs/reference/limits.md");
    let (_, tables) = document.split_once("\n## Limits\n").expect("the heading");
    // Behind the values.
    let (_, tables) = tables.split_once("| what | ").expect("a table");
    let rows = tables.lines().skip(1).filter(|line| line.starts_with("| "));
    let rows = rows.filter(|line| !line.starts_with("| what | "));
    let cells = |row: &str| {
        row.trim_matches('|')
            .split('|')
            .map(str::to_owned)
            .collect()
    };
    rows.map(cells).collect()
}
