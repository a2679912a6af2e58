//! The fuzz targets as ordinary tests, over the inputs that are kept. `make fuzz` looks for new ones.
//!
//! - `fuzz/seeds/TARGET/` has real frames and findings, a file for each, by name.
//! - `fuzz/corpus/TARGET.base64` has what fuzzing found worth keeping: one input a line, in base64, the lines sorted. `fuzz/run.sh` unpacks
//!   it for the fuzzer, and `fuzz/run.sh --keep` packs it again.

// A broken promise is told by a panic.
#![allow(clippy::panic)]

#[path = "codec.rs"]
mod codec;
#[path = "stream.rs"]
mod stream;

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

#[test]
fn codec_of_all_that_is_kept() {
    run_all("codec", codec::target);
}

#[test]
fn stream_of_all_that_is_kept() {
    run_all("stream", stream::target);
}

fn run_all(name: &str, target: fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    target(b"");
    for seed in fs::read_dir(fuzz.join("seeds").join(name)).expect("a folder") {
        let file = seed.expect("an entry").path();
        // The input at fault is in front of the panic's words.
        println!("{}", file.display());
        target(&fs::read(file).expect("an input"));
    }
    let corpus = format!("corpus/{name}.base64");
    let lines = fs::read_to_string(fuzz.join(&corpus)).expect("a corpus");
    for (index, line) in lines.lines().enumerate() {
        println!("{corpus}:{}", index + 1);
        target(&BASE64_STANDARD.decode(line).expect("base64"));
    }
}
