//! One connection of a driver, and what was read from it but not consumed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Stream;
use crate::machine::Mono;

pub(super) struct Pipe<S> {
    pub(super) stream: S,
    pub(super) rest: Vec<u8>,
    /// The rest is the beginning of something: it is offered again only with more behind it.
    pub(super) starved: bool,
    /// The peer has ended its stream.
    pub(super) read_to_end: bool,
    ended: bool,
    /// Nothing can be written any more; what the peer said before that may be read until then.
    broken: Option<Mono>,
    /// The stream may keep some of what was written.
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

    /// Nothing is written any more, and what comes is read until the peer's end, or until then.
    pub(super) fn break_off(&mut self, until: Mono) {
        self.broken.get_or_insert(until);
        self.unflushed = false;
    }

    /// Until when it may be read, if it is broken.
    pub(super) fn broken(&self) -> Option<Mono> {
        self.broken
    }

    /// There are bytes that the machine did not take because it paused.
    pub(super) fn has_held_back(&self) -> bool {
        !self.rest.is_empty() && !self.starved
    }

    pub(super) fn is_flushed(&self) -> bool {
        !self.unflushed
    }

    /// Writes until the stream takes no more.
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

    /// Ends our stream. A connection that is gone already shows itself at the next read.
    pub(super) fn end(&mut self, cx: &mut Context<'_>) {
        if !self.ended {
            self.ended = Pin::new(&mut self.stream).poll_shutdown(cx).is_ready();
        }
    }
}
