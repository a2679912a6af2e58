//! Bytes on their way out: what merely passes is written straight from the buffer that it was read into.

use std::ops::Range;

/// In bytes. A spare buffer is no larger.
const MOST_SPARE: usize = 256 * 1024;

/// The larger one of two empty buffers.
pub(super) fn keep<T>(spare: &mut Vec<T>, empty: Vec<T>) {
    let bytes = empty.capacity().saturating_mul(size_of::<T>());
    if bytes <= MOST_SPARE && empty.capacity() > spare.capacity() {
        *spare = empty;
    }
}

/// Outgoing bytes of one leg: a buffer, then one run of the bytes being read.
///
/// The run is written straight from the read buffer, so that transit traffic is never copied.
#[derive(Debug, Default)]
pub struct Wire {
    out: Vec<u8>,
    run: Range<usize>,
}

impl Wire {
    /// Passes `src[range]` unchanged. All calls between two [`Wire::finish`] must have the same
    /// `src`.
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

    /// Sends the proxy's own bytes, after those passed before.
    pub fn put(&mut self, src: &[u8], bytes: &[u8]) {
        self.flush_run(src);
        self.out.extend_from_slice(bytes);
    }

    /// The buffer to build frames in, after the bytes passed before.
    pub fn build(&mut self, src: &[u8]) -> &mut Vec<u8> {
        self.flush_run(src);
        &mut self.out
    }

    /// For the driver: the buffer, and the run of `src` that follows it. Forgets the run.
    pub fn finish(&mut self) -> (&mut Vec<u8>, Range<usize>) {
        let run = std::mem::take(&mut self.run);
        (&mut self.out, run)
    }

    pub fn is_empty(&self) -> bool {
        self.out.is_empty() && self.run.is_empty()
    }

    pub fn buffered(&self) -> usize {
        self.out.len()
    }

    pub fn borrow(&mut self, spare: &mut Vec<u8>) {
        if self.out.capacity() == 0 {
            self.out = std::mem::take(spare);
        }
    }

    pub fn release(&mut self, spare: &mut Vec<u8>) {
        if self.out.is_empty() {
            keep(spare, std::mem::take(&mut self.out));
        }
    }

    fn flush_run(&mut self, src: &[u8]) {
        let run = std::mem::take(&mut self.run);
        if let Some(bytes) = src.get(run) {
            self.out.extend_from_slice(bytes);
        }
    }
}
