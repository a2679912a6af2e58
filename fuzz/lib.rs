//! The targets of `tests/fuzz`, where a fuzzer can reach them.

#[path = "../tests/fuzz/codec.rs"]
mod codec;
#[path = "../tests/fuzz/stream.rs"]
mod stream;

/// Reads one input.
pub fn codec(data: &[u8]) {
    codec::target(data);
}

/// Plays one input.
pub fn stream(data: &[u8]) {
    stream::target(data);
}
