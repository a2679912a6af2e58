//! Bytes on their way out: what merely passes is written straight from the buffer that it was read into.

use std::ops::Range;

/// Bytes on their way out of one leg: what was put together here, then one run of the bytes that are just being read.
///
/// The run is written straight from the read buffer, so that traffic which merely passes is never copied.
#[derive(Debug, Default)]
pub struct Wire {
    out: Vec<u8>,
    run: Range<usize>,
}

impl Wire {
    /// Passes `src[range]` on unchanged. `src` must be the same buffer for all calls between two [`Wire::finish`].
    pub fn pass(&mut self, src: &[u8], range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        if self.run.end == range.start && !self.run.is_empty() {
            self.run.end = range.end;
            return;
        }
        self.flush_run(src);
        self.run = range;
    }

    /// Sends bytes of our own, behind all that was passed before.
    pub fn put(&mut self, src: &[u8], bytes: &[u8]) {
        self.flush_run(src);
        self.out.extend_from_slice(bytes);
    }

    /// The buffer to build frames in, behind all that was passed before.
    pub fn build(&mut self, src: &[u8]) -> &mut Vec<u8> {
        self.flush_run(src);
        &mut self.out
    }

    /// For the driver: what is buffered, and the run of `src` that follows it. The run is forgotten.
    pub fn finish(&mut self) -> (&mut Vec<u8>, Range<usize>) {
        let run = std::mem::take(&mut self.run);
        (&mut self.out, run)
    }

    /// True when nothing waits to be written.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty() && self.run.is_empty()
    }

    /// How many bytes are buffered, without the run.
    pub fn buffered(&self) -> usize {
        self.out.len()
    }

    /// Gives back the memory of an empty buffer.
    pub fn release(&mut self) {
        if self.out.is_empty() {
            self.out = Vec::new();
        }
    }

    fn flush_run(&mut self, src: &[u8]) {
        let run = std::mem::take(&mut self.run);
        if let Some(bytes) = src.get(run) {
            self.out.extend_from_slice(bytes);
        }
    }
}
