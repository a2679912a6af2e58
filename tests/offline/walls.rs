//! What the crates do not say by themselves: what the pure ones may depend on, which room of the core uses which, and what keeps files readable.

use std::path::{Path, PathBuf};

use regex::Regex;

use super::{repository, text_of};

/// The rooms of the core, lowest first: each may use those before it.
const ROOMS: [&str; 15] = [
    "machine",
    "dead_letter",
    "objects",
    "registry",
    "session",
    "letter",
    "link",
    "mover",
    "publisher",
    "intake",
    "recorder",
    "pulse",
    "walk",
    "import",
    "alteration",
];

/// What the pure crates may depend on: none of it opens sockets or files, reads a clock, starts tasks, locks or draws numbers.
const PURE: [&str; 11] = [
    "arc-swap", // a snapshot that all machines share is replaced as a whole: that is no lock
    "bytes",
    "dlx-amqp",
    "humantime-serde", // how a limit is written
    "memchr",
    "percent-encoding",
    "regex",
    "ring", // the hash of a body: a calculation
    "serde",
    "serde_json", // a value in memory: what people see of a message's headers
    "thiserror",
];

const LONGEST_FILE: usize = 500;

#[test]
fn the_pure_crates_depend_on_nothing_that_acts() {
    for (name, besides) in [("amqp", &[][..]), ("core", &["utoipa"])] {
        let manifest = text_of(&format!("crates/{name}/Cargo.toml"));
        let manifest: toml::Table = manifest.parse().expect("TOML");
        let dependencies = manifest["dependencies"].as_table().expect("a table");
        for dependency in dependencies.keys().map(String::as_str) {
            let known = PURE.contains(&dependency) || besides.contains(&dependency);
            assert!(known, "{name} depends on {dependency}");
        }
    }
}

#[test]
fn each_room_of_the_core_uses_only_those_before_it() {
    let path = Regex::new(r"\bcrate::(\w+)").expect("a pattern");
    let mut wrong = Vec::new();
    for (at, room) in ROOMS.iter().enumerate() {
        let folder = repository("crates/core/src");
        let mut files = rust_files(&folder.join(room));
        files.push(folder.join(format!("{room}.rs")));
        for file in files.iter().filter(|file| !is_of_tests(file)) {
            let source = std::fs::read_to_string(file).expect("readable");
            let code = source
                .split("#[cfg(test)]\nmod ")
                .next()
                .unwrap_or_default();
            let code = code
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            for line in code {
                for used in path.captures_iter(line).map(|found| found[1].to_owned()) {
                    let at_most = ROOMS.iter().position(|room| *room == used);
                    if at_most.is_some_and(|used| used > at) {
                        wrong.push(format!("{}: {}", file.display(), line.trim()));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The proxy works without what operators use, so nothing but the wiring may know that.
#[test]
fn only_the_wiring_uses_the_console() {
    let above = ["console", "console.rs", "app", "app.rs", "main.rs"];
    let above = above.map(|path| repository("src").join(path));
    let below = rust_files(&repository("src")).into_iter();
    let below = below.filter(|file| !above.iter().any(|above| file.starts_with(above)));
    let uses = |file: &PathBuf| {
        let source = std::fs::read_to_string(file).expect("readable");
        source.contains("crate::console")
    };
    assert_eq!(
        below.filter(uses).collect::<Vec<_>>(),
        Vec::<PathBuf>::new()
    );
}

#[test]
fn every_room_of_the_core_has_its_place() {
    let lib = text_of("crates/core/src/lib.rs");
    let mut rooms: Vec<_> = lib
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        .collect();
    let mut placed = ROOMS.to_vec();
    rooms.sort_unstable();
    placed.sort_unstable();
    assert_eq!(rooms, placed);
}

#[test]
fn no_file_is_too_long() {
    let mut long = Vec::new();
    for folder in ["src", "crates", "tests", "benches", "fuzz"] {
        for file in rust_files(&repository(folder)) {
            let source = std::fs::read_to_string(&file).expect("readable");
            let lines = source.lines().count();
            if lines > LONGEST_FILE {
                let file = file.display();
                long.push(format!(
                    "{file} has {lines} lines: which second noun lives in it?"
                ));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// Whether only tests have this file.
fn is_of_tests(file: &Path) -> bool {
    let mut parts = file.iter().map(|part| part.to_string_lossy());
    parts.any(|part| part == "tests" || part == "tests.rs")
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
