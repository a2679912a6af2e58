//! The targets of `tests/fuzz`, where a fuzzer can reach them.

#[path = "../tests/fuzz/targets.rs"]
mod targets;

/// Runs one target on one input.
pub fn run(target: &str, data: &[u8]) {
    targets::run(target, data);
}
