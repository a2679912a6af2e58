//! Draws from the bytes of a fuzzer. When they are used up all that is drawn is zero or empty, so every draw ends.

/// What is left of the bytes.
pub(crate) struct Input<'a>(&'a [u8]);

// === impl Input ===

impl<'a> Input<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Input<'a> {
        Input(data)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// At most so many.
    pub(crate) fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (taken, left) = self.0.split_at(most.min(self.0.len()));
        self.0 = left;
        taken
    }

    /// As many as the next byte says.
    pub(crate) fn text(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte());
        self.bytes(length)
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}
