//! One connection of a driver, and what was read from it but not consumed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Stream;
use crate::machine::Mono;

pub(super) struct Pipe<S> {
    pub(super) stream: S,
    pub(super) rest: Vec<u8>,
    /// The rest is an incomplete unit: offered again only with more bytes.
    pub(super) starved: bool,
    pub(super) read_to_end: bool,
    ended: bool,
    /// Writing failed; received bytes may be read until then.
    broken: Option<Mono>,
    /// The stream may hold written bytes.
    unflushed: bool,
}

impl<S: Stream> Pipe<S> {
    pub(super) fn new(stream: S) -> Pipe<S> {
        Pipe {
            stream,
            rest: Vec::new(),
            starved: false,
            read_to_end: false,
            ended: false,
            broken: None,
            unflushed: false,
        }
    }

    /// Stops writing, and reads until the peer's end or this time.
    pub(super) fn break_off(&mut self, until: Mono) {
        self.broken.get_or_insert(until);
        self.unflushed = false;
    }

    pub(super) fn broken(&self) -> Option<Mono> {
        self.broken
    }

    pub(super) fn has_held_back(&self) -> bool {
        !self.rest.is_empty() && !self.starved
    }

    pub(super) fn is_flushed(&self) -> bool {
        !self.unflushed
    }

    pub(super) fn write(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> io::Result<usize> {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(n)) => written += n,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        self.unflushed |= written > 0;
        Ok(written)
    }

    pub(super) fn flush(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.unflushed
            && let Poll::Ready(flushed) = Pin::new(&mut self.stream).poll_flush(cx)
        {
            self.unflushed = false;
            return flushed;
        }
        Ok(())
    }

    /// Errors show at the next read.
    pub(super) fn end(&mut self, cx: &mut Context<'_>) {
        if !self.ended {
            self.ended = Pin::new(&mut self.stream).poll_shutdown(cx).is_ready();
        }
    }
}
