//! A method, or a content header, that is here as a whole.

use std::ops::Range;

use crate::amqp::ids::ChannelId;
use crate::amqp::method::MethodId;
use crate::machine::Leg;

/// A method that is here as a whole.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct Method<'a> {
    pub(in crate::session) from: Leg,
    pub(in crate::session) channel: ChannelId,
    pub(in crate::session) id: MethodId,
    /// Class, method and arguments.
    pub(in crate::session) payload: &'a [u8],
    /// Where its frame begins among the bytes that are being read.
    pub(in crate::session) at: usize,
    /// Octets of its frame.
    pub(in crate::session) len: usize,
}

/// A content header that is here as a whole.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct Header<'a> {
    pub(in crate::session) from: Leg,
    pub(in crate::session) channel: ChannelId,
    /// Class, weight, body size and properties.
    pub(in crate::session) payload: &'a [u8],
    /// Where its frame begins among the bytes that are being read.
    pub(in crate::session) at: usize,
    /// Octets of its frame.
    pub(in crate::session) len: usize,
}

// === impl Method ===

impl Method<'_> {
    /// Its frame, among the bytes that are being read.
    pub(in crate::session) fn range(&self) -> Range<usize> {
        self.at..self.at + self.len
    }
}

// === impl Header ===

impl Header<'_> {
    /// Its frame, among the bytes that are being read.
    pub(in crate::session) fn range(&self) -> Range<usize> {
        self.at..self.at + self.len
    }
}
