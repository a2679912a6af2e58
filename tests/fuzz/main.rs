//! The fuzz targets as ordinary tests, over the inputs that are kept: seeds and findings in `fuzz/seeds`, what fuzzing found worth keeping in
//! `fuzz/corpus`. `make fuzz` looks for new ones.

// A broken promise is told by a panic.
#![allow(clippy::panic)]

// As `fuzz/lib.rs` has it.
#[path = "targets.rs"]
mod targets;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn fuzz(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz")
        .join(path)
}

/// Files of a folder, in the order of their names; none if there is no such folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
}

/// Runs a target on nothing, and on all that is kept for it.
fn replay(target: &str) {
    targets::run(target, b"");
    let mut kept = 0;
    for folder in ["seeds", "corpus"] {
        for file in files(&fuzz(folder).join(target)) {
            // The name of the input at fault is in front of the panic's words.
            println!("{}", file.display());
            targets::run(target, &fs::read(&file).expect("an input"));
            kept += 1;
        }
    }
    assert!(kept > 0, "nothing is kept for {target}");
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
            for folder in ["seeds", "corpus"] {
                for folder in files(&fuzz(folder)) {
                    let name = folder.file_name().and_then(|name| name.to_str()).expect("a name");
                    assert!(here.contains(name), "nobody replays {}", folder.display());
                }
            }
        }
    };
}

replays! { frames methods properties tables edits deaths names words session stream publisher intake }
