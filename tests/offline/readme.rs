//! README.md and ARCHITECTURE.md name only what there is: settings, commands, metrics, files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Parser;
use dlx_proxy::cli::Cli;
use dlx_proxy::config::DEFAULT_TOML;
use dlx_proxy::machine::Bound;
use dlx_proxy::telemetry::Metrics;
use regex::Regex;

use super::{repository, text_of};

const DOCUMENTS: [&str; 2] = ["README.md", "ARCHITECTURE.md"];

#[test]
fn the_readme_has_every_setting_with_its_default_and_environment_name() {
    let defaults: toml::Table = DEFAULT_TOML.parse().expect("TOML");
    let expected: Vec<_> = settings_in_order()
        .into_iter()
        .map(|name| {
            let environment = format!("DLX_PROXY_{}", name.to_uppercase().replace('-', "_"));
            format!("| `{name}` | `{}` | `{environment}` |", defaults[&name])
        })
        .collect();
    let readme = text_of("README.md");
    let rows: Vec<_> = readme
        .lines()
        .filter(|line| line.contains("| `DLX_PROXY_"))
        .collect();
    for (row, expected) in rows.iter().zip(&expected) {
        assert!(row.starts_with(expected), "{row}\nis not\n{expected}");
        let meaning = row[expected.len()..].trim_matches([' ', '|']);
        assert!(!meaning.is_empty(), "{row} says nothing");
    }
    assert_eq!(rows.len(), expected.len(), "{expected:#?}");
}

#[test]
fn commands_in_the_documents_exist() {
    let targets: BTreeSet<_> = found(r"(?m)^([a-z-]+):", &text_of("Makefile"));
    for document in DOCUMENTS {
        let text = text_of(document);
        for target in found(r"(?:`|\$ )make ([a-z-]+)", &text) {
            assert!(targets.contains(&target), "{document}: make {target}");
        }
        for command in found(
            r"`dlx-proxy ((?:run|demo|check-config|print-|health)[^`]*)`",
            &text,
        ) {
            let words = command.split_whitespace();
            let parsed = Cli::try_parse_from(std::iter::once("dlx-proxy").chain(words));
            assert!(parsed.is_ok(), "{document}: dlx-proxy {command}");
        }
    }
}

#[test]
fn metrics_in_the_documents_exist() {
    let metrics = Metrics::new();
    let names: BTreeSet<_> = metrics
        .descriptions()
        .iter()
        .map(|metric| metric.name.clone())
        .collect();
    for document in DOCUMENTS {
        for name in found(r"\b(dlx_proxy_[a-z_]+)", &text_of(document)) {
            assert!(names.contains(&name), "{document}: {name}");
        }
    }
}

/// Whoever meets a limit finds its setting, its metric and its line: each limit that is counted stands in the table, and what the table names
/// there is.
#[test]
fn the_table_of_bounds_is_that_of_the_code() {
    let architecture = text_of("ARCHITECTURE.md");
    let (_, table) = architecture.split_once("\n## Bounds\n").expect("the table");
    let (table, _) = table.split_once("\n## ").expect("its end");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| what "))
        .map(|line| line.trim_matches('|').split('|').collect())
        .collect();
    let settings = settings_in_order();
    let mut limits = BTreeSet::new();
    let mut bounded = BTreeSet::new();
    for row in &rows {
        let [what, bound, _, seen] = row[..] else {
            unreachable!("{row:?}")
        };
        assert!(!seen.trim().is_empty(), "{what}");
        let names = found("`([^`]+)`", bound);
        let names = names.into_iter().filter(|name| name.contains('-'));
        for name in names {
            assert!(settings.contains(&name), "{what}: {name}");
            bounded.insert(name);
        }
        for list in found("limits? (`[^;]+)", seen) {
            limits.extend(found("`([^`]+)`", &list));
        }
        for list in found("causes? (`[^;]+)", seen) {
            for cause in found("`([^`]+)`", &list) {
                let known = text_of("src/telemetry/names.rs") + &text_of("src/machine.rs");
                assert!(known.contains(&format!("\"{cause}\"")), "{what}: {cause}");
            }
        }
    }
    let counted: BTreeSet<_> = Bound::ALL.map(|bound| bound.as_str().to_owned()).into();
    assert_eq!(limits, counted);
    // Each setting that is a number or a time bounds something.
    let others = "listen admin upstream management-url vhosts prefix mode history bcc on-unroutable intake-queue-type worker-threads log-format log-level";
    let others: BTreeSet<_> = others.split(' ').map(str::to_owned).collect();
    let all: BTreeSet<_> = settings.into_iter().collect();
    assert_eq!(bounded, all.difference(&others).cloned().collect());
}

#[test]
fn files_in_the_documents_exist() {
    let sources = [sources(&repository("src")), sources(&repository("tests"))].concat();
    for document in DOCUMENTS {
        let text = text_of(document);
        let links = found(r"\]\(([^)#:]+)\)", &text);
        let paths = found(r"`((?:src|tests|deploy|benches)/[^` *]*)`", &text);
        for path in links.union(&paths) {
            assert!(repository(path).exists(), "{document}: {path}");
        }
        // `peer.rs` where the folder is clear from what stands before it.
        for name in found(r"`([a-z_/]+\.rs)`", &text) {
            let known = sources.iter().any(|path| path.ends_with(&name));
            assert!(known, "{document}: {name}");
        }
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                sources(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// Names of settings as `default.toml` lists them: a table has forgotten their order.
fn settings_in_order() -> Vec<String> {
    let setting = Regex::new(r"(?m)^([a-z-]+) = ").expect("a pattern");
    let names = setting.captures_iter(DEFAULT_TOML);
    names.map(|name| name[1].to_owned()).collect()
}

/// What the first group of the pattern found.
fn found(pattern: &str, text: &str) -> BTreeSet<String> {
    let pattern = Regex::new(pattern).expect("a pattern");
    pattern
        .captures_iter(text)
        .map(|found| found[1].to_owned())
        .collect()
}
