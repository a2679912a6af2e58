//! The wall between the pure core and the shell, by reading the source: what a pure module may name is on a list, wherever it names it. Beside
//! it, what keeps files readable.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use super::{repository, text_of};

/// The pure modules, each with those it may use besides itself. Who uses whom is one line: left of it, never right.
const PURE: &[(&str, &[&str])] = &[
    ("amqp", &[]),
    ("machine", &["amqp"]),
    ("dead_letter", &["amqp", "machine"]),
    ("routing", &["amqp", "machine"]),
    ("objects", &["amqp", "machine", "dead_letter"]),
    ("registry", &["amqp", "machine", "dead_letter", "objects"]),
    (
        "session",
        &["amqp", "machine", "dead_letter", "objects", "registry"],
    ),
    ("link", &["amqp", "machine", "dead_letter"]),
    (
        "publisher",
        &[
            "amqp",
            "machine",
            "dead_letter",
            "objects",
            "registry",
            "link",
        ],
    ),
    (
        "intake",
        &[
            "amqp",
            "machine",
            "dead_letter",
            "objects",
            "registry",
            "link",
            "publisher",
        ],
    ),
    (
        "recorder",
        &[
            "amqp",
            "machine",
            "dead_letter",
            "objects",
            "registry",
            "link",
        ],
    ),
    (
        "pulse",
        &[
            "amqp",
            "machine",
            "dead_letter",
            "objects",
            "registry",
            "link",
        ],
    ),
    ("letter", &["amqp", "machine", "dead_letter"]),
    (
        "walk",
        &[
            "amqp",
            "machine",
            "dead_letter",
            "link",
            "letter",
            "objects",
        ],
    ),
    (
        "import",
        &["amqp", "machine", "dead_letter", "link", "walk"],
    ),
];

/// What pure code may name outside the crate. Neither sockets, files, clocks, tasks, locks nor randomness are reachable from here.
const ALLOWED: &[&str] = &[
    "arc_swap", // a snapshot that all machines share is replaced as a whole: neither is it a lock
    "bytes",
    "memchr",
    "percent_encoding",
    "regex",
    "regex_automata",
    "ring::digest", // the hash of a body: a calculation
    "serde", // how a setting of the core is written and read; derived, with humantime_serde for times
    "serde_json", // a value in memory: what people see of a message's headers
    "thiserror",
    "utoipa", // how the API describes what people see of a message; derived
    "std::array",
    "std::borrow",
    "std::cmp",
    "std::collections::BTreeMap",
    "std::collections::BTreeSet",
    "std::collections::VecDeque",
    "std::collections::btree_map",
    "std::collections::btree_set",
    "std::collections::vec_deque",
    "std::convert",
    "std::error",
    "std::fmt",
    "std::iter",
    "std::marker",
    "std::mem",
    "std::num",
    "std::ops",
    "std::slice",
    "std::str",
    "std::string",
    "std::sync::Arc",
    "std::sync::atomic", // a budget that all sessions share is a number, not a lock
    "std::time::Duration",
    "std::vec",
];

const LONGEST_FILE: usize = 500;

/// What needs no path to leave the core.
static WORDS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\b(?:(?:print|println|eprint|eprintln|dbg)!|extern crate)"));
static USE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\buse\s+([^;]+);"));
static INLINE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?:\w+::)+\w+"));
static TEST_MODULE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod (\w+);"));
/// Comments, strings and characters; of block comments only the beginning, as they nest.
static TEXT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?s)//[^\n]*",
        r##"|b?r"[^"]*"|b?r#".*?"#"##, // raw strings, as far as this project has them
        r#"|b?"(?:[^"\\]|\\.)*""#,
        r"|b?'(?:[^'\\]|\\(?:u\{[^}]*\}|x..|.))'", // a lifetime has no second quote
        r"|/\*",
    ))
});

#[test]
fn the_pure_core_names_only_what_is_on_the_list() {
    let dependencies = dependencies();
    let mut found = Vec::new();
    for (module, _) in PURE {
        for file in files_of(module) {
            let source = std::fs::read_to_string(repository(&file)).expect(&file);
            found.extend(
                violations(&file, &source, &dependencies)
                    .into_iter()
                    .map(|what| format!("{file}: {what}")),
            );
        }
    }
    assert!(
        found.is_empty(),
        "the pure core may not name\n{}",
        found.join("\n")
    );
}

#[test]
fn the_lints_of_the_wall_are_denied_on_every_pure_module() {
    let lib = text_of("src/lib.rs");
    for (module, _) in PURE
        .iter()
        .filter(|(module, _)| repository(&format!("src/{module}.rs")).exists())
    {
        let (above, _) = lib.split_once(&format!("pub mod {module};")).expect(module);
        let attribute = above.rsplit("pub mod ").next().unwrap_or_default();
        for lint in [
            "disallowed_methods",
            "disallowed_types",
            "disallowed_macros",
        ] {
            assert!(
                attribute.contains(&format!("clippy::{lint}")),
                "lib.rs does not deny clippy::{lint} on {module}"
            );
        }
    }
}

#[test]
fn no_file_is_too_long() {
    let mut long = Vec::new();
    for folder in ["src", "tests", "benches", "fuzz"] {
        for file in rust_files(&repository(folder)) {
            let lines = std::fs::read_to_string(&file)
                .expect("readable")
                .lines()
                .count();
            if lines > LONGEST_FILE {
                long.push(format!(
                    "{} has {lines} lines: which second noun lives in it?",
                    file.display()
                ));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn the_wall_sees_what_is_forbidden() {
    let dependencies = dependencies();
    let found = |source: &str| violations("src/session/withheld.rs", source, &dependencies);
    for (source, path) in [
        ("use std::time::{Duration, Instant};", "std::time::Instant"),
        ("use std::{fmt, net::TcpStream};", "std::net::TcpStream"),
        ("use std::time;", "std::time"),
        ("use std::collections::*;", "std::collections::*"),
        ("use ::tokio::sync::mpsc;", "tokio::sync::mpsc"),
        (
            "fn f() { let t = std::time::SystemTime::now(); }",
            "std::time::SystemTime::now",
        ),
        ("fn f() { tracing::info!(\"x\") }", "tracing::info"),
        ("use crate::net::drive;", "crate::net::drive"),
        (
            "use crate::{amqp::frame, publisher::Publisher};",
            "crate::publisher::Publisher",
        ),
        (
            "fn f() { crate::config::Config::default() }",
            "crate::config::Config::default",
        ),
        ("use super::super::net::drive;", "crate::net::drive"),
        ("fn f() { println!(\"x\") }", "println!"),
        ("extern crate rand;", "extern crate"),
    ] {
        assert_eq!(found(source), [path], "{source}");
    }
}

#[test]
fn the_wall_lets_the_rest_through() {
    let dependencies = dependencies();
    let source = r##"
        //! std::time::Instant in a comment
        use std::collections::{BTreeMap, btree_map::Entry};
        use crate::{amqp::frame, dead_letter::{self, plan}};
        use super::channel::Channel;
        /* std::net /* nested */ tokio::spawn */
        fn f<'a>(text: &'a str) -> char { let _ = "std::net::TcpStream"; let _ = r#"tokio::"spawn""#; '"' }
        #[cfg(test)]
        mod tests {
            use std::collections::HashMap;
            fn g() { println!("{}", '}') }
        }
        #[cfg(test)]
        use std::time::Instant;
    "##;
    assert_eq!(
        violations("src/session/withheld.rs", source, &dependencies),
        [""; 0]
    );
}

/// Every path in `source` that leaves what its module may use.
fn violations(file: &str, source: &str, dependencies: &BTreeSet<String>) -> Vec<String> {
    let code = without_tests(&without_text(source));
    let module: Vec<&str> = file
        .trim_start_matches("src/")
        .trim_end_matches(".rs")
        .split('/')
        .collect();
    let (_, left) = PURE
        .iter()
        .find(|(name, _)| *name == module[0])
        .expect("a pure module");
    let allowed = |path: &str| {
        let below = |prefix: &str| {
            path.strip_prefix(prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        match path.split("::").collect::<Vec<_>>()[..] {
            ["crate", first, ..] => first == module[0] || left.contains(&first),
            ["crate"] => false,
            ["std" | "core" | "alloc", ..] => ALLOWED.iter().any(|prefix| below(prefix)),
            [first, ..] if dependencies.contains(first) => {
                ALLOWED.iter().any(|prefix| below(prefix))
            }
            _ => true,
        }
    };
    let mut found: Vec<String> = paths(&code)
        .iter()
        .map(|path| absolute(path, &module))
        .filter(|path| !allowed(path))
        .collect();
    found.extend(WORDS.find_iter(&code).map(|word| word.as_str().to_owned()));
    found
}

/// All paths of the code: those of `use`, one for each leaf of the tree, and those in the middle of an expression.
fn paths(code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for tree in USE.captures_iter(code) {
        leaves(
            "",
            &tree[1].split_whitespace().collect::<Vec<_>>().join(" "),
            &mut paths,
        );
    }
    let rest = USE.replace_all(code, "");
    paths.extend(INLINE.find_iter(&rest).map(|path| path.as_str().to_owned()));
    paths
}

/// `a::{b, c::{self, d as e}}` is `a::b`, `a::c` and `a::c::d`.
fn leaves(before: &str, tree: &str, found: &mut Vec<String>) {
    let tree = tree.trim().trim_start_matches("::");
    let Some((root, branches)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap_or_default().trim();
        let path = format!("{before}{name}");
        found.push(path.trim_end_matches("::self").to_owned());
        return;
    };
    let branches = branches.trim_end().trim_end_matches('}');
    let (mut depth, mut from) = (0, 0);
    for (at, character) in branches.char_indices().chain([(branches.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !branches[from..at].trim().is_empty() {
                    leaves(
                        &format!("{before}{}", root.trim()),
                        &branches[from..at],
                        found,
                    );
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

/// `super::x` as seen from the root of the crate.
fn absolute(path: &str, module: &[&str]) -> String {
    let ups = path
        .split("::")
        .take_while(|segment| *segment == "super")
        .count();
    if ups == 0 {
        return path.to_owned();
    }
    let mut full = vec!["crate"];
    full.extend(&module[..module.len().saturating_sub(ups)]);
    full.extend(path.split("::").skip(ups));
    full.join("::")
}

/// The code without comments and without what stands in quotes.
fn without_text(source: &str) -> String {
    let (mut code, mut rest) = (String::new(), source);
    while let Some(found) = TEXT.find(rest) {
        code.push_str(&rest[..found.start()]);
        code.push(' ');
        rest = match found.as_str() {
            "/*" => after_comment(&rest[found.end()..]),
            _ => &rest[found.end()..],
        };
    }
    code + rest
}

/// Block comments nest.
fn after_comment(mut rest: &str) -> &str {
    let mut depth = 1;
    while depth > 0 {
        let Some(at) = rest.find("/*").into_iter().chain(rest.find("*/")).min() else {
            return "";
        };
        depth += if rest[at..].starts_with("/*") { 1 } else { -1 };
        rest = &rest[at + 2..];
    }
    rest
}

/// The code without items that only tests have.
fn without_tests(code: &str) -> String {
    let (mut kept, mut rest) = (String::new(), code);
    while let Some((before, item)) = rest.split_once("#[cfg(test)]") {
        kept.push_str(before);
        rest = after_item(item);
    }
    kept + rest
}

/// What follows an item: after its `;`, or after the brace that closes it.
fn after_item(item: &str) -> &str {
    let mut depth = 0;
    for (at, character) in item.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 && (character == ';' || character == '}') {
            // `use a::{b};` ends with the semicolon behind its brace.
            return item[at + 1..].trim_start_matches(';');
        }
    }
    ""
}

/// The files of a pure module, without those that only tests have.
fn files_of(module: &str) -> Vec<String> {
    let root = repository("src");
    let mut files: Vec<PathBuf> = rust_files(&root.join(module));
    files.extend(
        [root.join(format!("{module}.rs"))]
            .into_iter()
            .filter(|file| file.exists()),
    );
    let only_tests: Vec<PathBuf> = files.iter().flat_map(|file| test_modules(file)).collect();
    let ordinary = |file: &&PathBuf| {
        !only_tests
            .iter()
            .any(|test| file.with_extension("").starts_with(test))
    };
    let name = |file: &PathBuf| {
        file.strip_prefix(repository(""))
            .expect("inside")
            .display()
            .to_string()
    };
    files.iter().filter(ordinary).map(name).collect()
}

/// Where `#[cfg(test)] mod name;` of this file has its source, without `.rs`.
fn test_modules(file: &Path) -> Vec<PathBuf> {
    let source = std::fs::read_to_string(file).expect("readable");
    TEST_MODULE
        .captures_iter(&source)
        .map(|found| file.with_extension("").join(&found[1]))
        .collect()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for path in entries.map(|entry| entry.expect("readable").path()) {
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Every crate that Cargo.toml names, as code spells it.
fn dependencies() -> BTreeSet<String> {
    let manifest: toml::Table = text_of("Cargo.toml").parse().expect("TOML");
    let names = ["dependencies", "dev-dependencies"]
        .into_iter()
        .filter_map(|table| manifest.get(table)?.as_table());
    names
        .flat_map(|table| table.keys())
        .map(|name| name.replace('-', "_"))
        .collect()
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern")
}
