//! The documents: links lead somewhere, commands exist, and so does what code spans name. Prose is for people: no test reads it.
//!
//! - `made`: tables that are made from the code stand in the documents as the code makes them
//! - `limits`: the table of limits has each limit that is counted

mod limits;
mod made;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Parser;
use dlx_proxy::amqp::version::Version;
use dlx_proxy::config::Config;
use dlx_proxy::console::cli::Cli;
use dlx_proxy::telemetry::Metrics;
use regex::Regex;

use super::config::{self, File};
use super::{repository, text_of};

/// Programs that a reader has, or does not need; nothing is checked of them but the files that they name.
const FOREIGN: [&str; 18] = [
    "cargo",
    "cosign",
    "curl",
    "docker",
    "dpkg",
    "gh",
    "helm",
    "install",
    "kill",
    "kubectl",
    "rabbitmqctl",
    "rustup",
    "sha256sum",
    "skopeo",
    "systemctl",
    "tar",
    "venv/bin/pip",
    "venv/bin/python",
];

/// The documents of the repository, by path.
fn documents() -> Vec<String> {
    let mut documents = vec!["tests/languages/README.md".to_owned()];
    for folder in ["", "docs/", "docs/how-to/", "docs/reference/", "tests/"] {
        for entry in std::fs::read_dir(repository(folder)).expect("a folder") {
            let name = entry.expect("an entry").file_name();
            let name = name.to_str().expect("UTF-8");
            if name.ends_with(".md") {
                documents.push(format!("{folder}{name}"));
            }
        }
    }
    documents.sort();
    documents
}

#[test]
fn policies_in_the_documents_are_without_mistakes() {
    let block = Regex::new(r"(?s)```toml\n(.*?)```").expect("a pattern");
    let mut policies = 0;
    for path in documents() {
        let text = text_of(&path);
        let blocks = block.captures_iter(&text).map(|found| found[1].to_owned());
        for toml in blocks.filter(|toml| toml.starts_with("[[policy]]")) {
            let file = File::new("documents", &toml);
            let config = Config::load(&config::sources(Some(&file), &[], &[]));
            let config = config.unwrap_or_else(|mistakes| panic!("{path}: {mistakes}\n{toml}"));
            assert_eq!(config.notes(), [], "{path}:\n{toml}");
            policies += config.reloadable.policies.len();
        }
    }
    assert!(policies > 10, "{policies} policies");
}

#[test]
fn the_readme_is_short() {
    assert!(text_of("README.md").lines().count() <= 120);
}

/// One constant says which RabbitMQ was tested; the documents say the same.
#[test]
fn the_versions_of_rabbitmq_are_the_same_everywhere() {
    let (Version(oldest, of_oldest, _), (major, minor)) = (Version::OLDEST, Version::NEWEST);
    let known = format!("{oldest}.{of_oldest} to {major}.{minor}");
    let mut files = documents();
    files.push("Cargo.toml".to_owned());
    let pattern = r"(?:RabbitMQ|every version from)\s+(\d+\.\d+ to \d+\.\d+)";
    let mut named = 0;
    for file in files {
        let found = found(pattern, &text_of(&file));
        named += found.len();
        assert!(
            found.iter().all(|range| *range == known),
            "{file}: {found:?}, not {known}"
        );
    }
    assert!(named > 3, "README.md, Cargo.toml and others name them");
}

#[test]
fn the_version_is_the_same_everywhere() {
    let version = env!("CARGO_PKG_VERSION");
    let newest = |text: &str| found(r"(?m)\A(?s:.*?)^## (\S+)", text);
    assert_eq!(
        newest(&text_of("CHANGELOG.md")),
        [version.to_owned()].into()
    );
    for (file, pattern) in [
        (
            "deploy/helm/dlx-proxy/Chart.yaml",
            r"(?m)^(?:appV|v)ersion: (\S+)$",
        ),
        (
            "deploy/kubernetes/sidecar.yaml",
            r"dlx-proxy:(\d+\.[\w.-]+)",
        ),
        (
            "deploy/kubernetes/standalone.yaml",
            r"dlx-proxy:(\d+\.[\w.-]+)",
        ),
        ("docs/how-to/kubernetes.md", r"dlx-proxy:(\d+\.\S*)"),
        ("docs/how-to/install.md", r"dlx-proxy[-_:](\d+\.\d+\.\d+)"),
    ] {
        assert_eq!(
            found(pattern, &text_of(file)),
            [version.to_owned()].into(),
            "{file}"
        );
    }
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for document in documents() {
        let folder = Path::new(&document).parent().expect("a folder");
        let text = without_blocks(&text_of(&document));
        let links = found(r"\]\(([^)\s]+)\)", &text);
        let pictures = found(r#"(?:src|srcset|href)="([^"]+)""#, &text);
        for link in links.union(&pictures).filter(|link| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => PathBuf::from(&document),
                path => folder.join(path),
            };
            let target = target.to_str().expect("UTF-8");
            let leads = repository(target).exists()
                && (anchor.is_empty() || anchors(&text_of(target)).contains(anchor));
            if !leads {
                broken.push(format!("{document}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "broken links\n{}", broken.join("\n"));
}

#[test]
fn commands_exist() {
    let mut wrong = Vec::new();
    for document in documents() {
        let text = text_of(&document);
        let spans = found(r"`((?:make|dlx-proxy) [^`]+)`", &without_blocks(&text));
        for command in commands_of_blocks(&text).iter().chain(&spans) {
            if let Err(why) = check(command) {
                wrong.push(format!("{document}: {command}: {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What `sh` blocks say, and what stands behind the prompt of `console` blocks.
fn commands_of_blocks(text: &str) -> Vec<String> {
    let block = Regex::new(r"(?ms)^```(sh|console)\n(.*?)^```").expect("a pattern");
    let mut commands = Vec::new();
    for block in block.captures_iter(text) {
        for line in block[2].replace("\\\n", " ").lines() {
            match (&block[1], line.strip_prefix("$ ")) {
                ("console", Some(command)) => commands.push(command.to_owned()),
                ("sh", _) if !line.is_empty() && !line.starts_with('#') => {
                    commands.push(line.to_owned());
                }
                _ => {}
            }
        }
    }
    commands
}

fn check(command: &str) -> Result<(), String> {
    let words: Vec<_> = command
        .split_whitespace()
        .take_while(|word| !word.starts_with(['#', '>', '|']))
        .collect();
    let variable = |word: &&&str| word.contains('=');
    let words: Vec<_> = words.iter().skip_while(variable).copied().collect();
    match words[..] {
        ["make", ref targets @ ..] => {
            let known = found(r"(?m)^([a-z-]+):", &text_of("Makefile"));
            let mut targets = targets.iter().filter(|word| !word.contains('='));
            match targets.find(|target| !known.contains(**target)) {
                Some(target) => Err(format!("there is no target {target}")),
                None => Ok(()),
            }
        }
        ["dlx-proxy", ..] => {
            let parsed = Cli::try_parse_from(words);
            parsed.map(drop).map_err(|error| error.to_string())
        }
        ["python3", "-m", "venv", _] => Ok(()),
        ["python3", script, ..] if repository(script).exists() => Ok(()),
        [program, ..] if FOREIGN.contains(&program) => Ok(()),
        _ => Err("nothing is known of this program".to_owned()),
    }
}

#[test]
fn metrics_in_the_documents_exist() {
    let metrics = Metrics::new();
    let names = metrics.descriptions().iter();
    let names: BTreeSet<_> = names.map(|metric| metric.name.clone()).collect();
    for document in documents() {
        for name in found(r"\b(dlx_proxy_[a-z_]+)", &text_of(&document)) {
            assert!(names.contains(&name), "{document}: {name}");
        }
    }
}

#[test]
fn files_in_the_documents_exist() {
    let sources = [sources(), files(&repository("tests"))].concat();
    for document in documents() {
        let text = without_blocks(&text_of(&document));
        for path in found(
            r"`((?:crates|src|tests|deploy|benches|docs)/[^` *…]*)`",
            &text,
        ) {
            assert!(repository(&path).exists(), "{document}: {path}");
        }
        // `peer.rs` where the folder is clear from what stands before it.
        for name in found(r"`([a-z_/]+\.rs)`", &text) {
            let known = sources.iter().any(|path| path.ends_with(&name));
            assert!(known, "{document}: {name}");
        }
    }
}

/// `(S9.2)` in the source is rule 9.2 of docs/rabbitmq-semantics.md.
#[test]
fn rules_of_rabbitmq_that_the_source_cites_are_written_down() {
    let rules = text_of("docs/rabbitmq-semantics.md");
    let known = &found(r"(?m)^(\d+\.\d+) ", &rules) | &found(r"(?m)^## (\d+)\.", &rules);
    let mut cited = BTreeSet::new();
    for file in sources() {
        let text = std::fs::read_to_string(&file).expect("UTF-8");
        cited.extend(found(r"\bS(\d+(?:\.\d+)?)\b", &text));
    }
    assert!(cited.len() > 20, "{cited:?}");
    assert_eq!(cited.difference(&known).collect::<Vec<_>>(), [""; 0]);
}

/// As GitHub makes them of headings; of those that are there twice the first.
fn anchors(text: &str) -> BTreeSet<String> {
    let slug = |heading: String| -> String {
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let kept: String = heading.to_lowercase().chars().filter(kept).collect();
        kept.replace(' ', "-")
    };
    let headings = found(r"(?m)^#+ (.+)$", &without_blocks(text));
    headings.into_iter().map(slug).collect()
}

fn without_blocks(text: &str) -> String {
    let block = Regex::new(r"(?ms)^```.*?^```$").expect("a pattern");
    block.replace_all(text, "").into_owned()
}

/// The product, and its unit tests.
fn sources() -> Vec<PathBuf> {
    let folders = ["src", "crates/amqp/src", "crates/core/src"];
    folders
        .iter()
        .flat_map(|folder| files(&repository(folder)))
        .collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let below = |path: PathBuf| match path.is_dir() {
        true => files(&path),
        false => vec![path],
    };
    paths.flat_map(below).collect()
}

/// What the first group of the pattern found.
fn found(pattern: &str, text: &str) -> BTreeSet<String> {
    let pattern = Regex::new(pattern).expect("a pattern");
    pattern
        .captures_iter(text)
        .map(|found| found[1].to_owned())
        .collect()
}
