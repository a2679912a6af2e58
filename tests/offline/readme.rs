//! README.md and ARCHITECTURE.md name only what there is: settings, commands, metrics, files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Parser;
use dlx_proxy::cli::Cli;
use dlx_proxy::config::DEFAULT_TOML;
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
