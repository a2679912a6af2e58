//! The fuzz targets as ordinary tests, over the inputs that are kept. `make fuzz` looks for new ones.
//!
//! - `fuzz/seeds/<target>/` has real frames and findings, a file for each, by name.
//! - `fuzz/corpus/<target>.base64` has what fuzzing found worth keeping: one input a line, in base64, the lines sorted. `fuzz/run.sh` unpacks
//!   it for the fuzzer, and `fuzz/run.sh --keep` packs it again.

// A broken promise is told by a panic.
#![allow(clippy::panic)]

// As `fuzz/lib.rs` has it.
#[path = "targets.rs"]
mod targets;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

fn fuzz(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz")
        .join(path)
}

/// The names in a folder; none if there is no such folder.
fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string());
    names.map(|name| name.expect("UTF-8")).collect()
}

/// An input, and where it is kept.
type Kept = (String, Vec<u8>);

fn seeds(target: &str) -> Vec<Kept> {
    let folder = fuzz("seeds").join(target);
    let files = names_in(&folder).into_iter().map(|name| folder.join(name));
    let kept = files.map(|file| {
        (
            file.display().to_string(),
            fs::read(file).expect("an input"),
        )
    });
    kept.collect()
}

fn corpus(target: &str) -> Vec<Kept> {
    let file = fuzz("corpus").join(format!("{target}.base64"));
    let file = file.display().to_string();
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
    unpacked(&file, &text).unwrap_or_else(|why| panic!("{why}"))
}

/// The inputs of a packed file.
fn unpacked(file: &str, text: &str) -> Result<Vec<Kept>, String> {
    let lines: Vec<_> = text.lines().collect();
    if lines.is_empty() || !lines.is_sorted_by(|one, next| one < next) {
        return Err(format!(
            "{file}: not lines in the order of `LC_ALL=C sort -u`"
        ));
    }
    let kept = |(index, line)| {
        let place = format!("{file}:{}", index + 1);
        match BASE64_STANDARD.decode(line) {
            Ok(input) => Ok((place, input)),
            Err(error) => Err(format!("{place}: {error}")),
        }
    };
    lines.into_iter().enumerate().map(kept).collect()
}

/// Runs a target on nothing, and on all that is kept for it.
fn replay(target: &str) {
    targets::run(target, b"");
    for (place, input) in seeds(target).into_iter().chain(corpus(target)) {
        // The place of the input at fault is in front of the panic's words.
        println!("{place}");
        targets::run(target, &input);
    }
}

#[test]
fn what_cannot_be_unpacked_is_an_error() {
    let unpacked = |text| unpacked("x", text);
    let kept = vec![("x:1".to_owned(), vec![0]), ("x:2".to_owned(), vec![1])];
    assert_eq!(unpacked("AA==\nAQ==\n"), Ok(kept));
    assert!(unpacked("AA==\nAQ=\n").is_err_and(|why| why.starts_with("x:2: ")));
    assert!(unpacked("AA==\n<<<<\n").is_err(), "no base64");
    assert!(unpacked("AQ==\nAA==\n").is_err(), "not sorted");
    assert!(unpacked("AA==\nAA==\n").is_err(), "twice");
    assert!(unpacked("").is_err(), "nothing");
}

macro_rules! replays {
    ($($target:ident)*) => {
        $(#[test]
        fn $target() {
            replay(stringify!($target));
        })*

        /// Here, in the table of targets, in `fuzz/Cargo.toml`, and by a file: nobody is forgotten.
        #[test]
        fn each_target_is_everywhere() {
            let here = BTreeSet::from([$(stringify!($target).to_owned()),*]);
            let table: BTreeSet<_> = targets::ALL.iter().map(|(name, _)| name.to_string()).collect();
            assert_eq!(here, table);
            let manifest = fs::read_to_string(fuzz("Cargo.toml")).expect("a manifest");
            for name in &here {
                let bin = format!("[[bin]]\nname = \"{name}\"\npath = \"targets/{name}.rs\"\n");
                assert!(manifest.contains(&bin), "{name} in fuzz/Cargo.toml");
                let source = fs::read_to_string(fuzz("targets").join(format!("{name}.rs")));
                assert!(source.is_ok_and(|text| text.contains(&format!("\"{name}\""))), "{name}.rs");
            }
            let packed: BTreeSet<_> = here.iter().map(|name| format!("{name}.base64")).collect();
            assert_eq!(names_in(&fuzz("corpus")), packed);
            assert!(names_in(&fuzz("seeds")).is_subset(&here), "nobody replays a folder of fuzz/seeds");
        }
    };
}

replays! { frames methods properties tables edits names words stream }
