//! A message that a peer sends: a method, a content header, and bodies until the announced size is there.

use super::content::{Assembly, Content, body_size};
use super::cursor::Malformed;

/// A message whose frames are still coming.
#[derive(Debug)]
pub struct Incoming<M> {
    pub method: M,
    body: Body,
}

#[derive(Debug)]
enum Body {
    /// Its header has not come.
    Unknown,
    Kept(Assembly),
    /// How many octets are still to come. They are not kept.
    Skipped(u64),
}

impl<M> Incoming<M> {
    pub fn new(method: M) -> Incoming<M> {
        Incoming {
            method,
            body: Body::Unknown,
        }
    }

    /// The payload of its header. False: it is larger than `limit`, so that only its end is awaited.
    ///
    /// # Errors
    /// When the header is shorter than its fixed part.
    pub fn header(&mut self, payload: &[u8], limit: usize) -> Result<bool, Malformed> {
        let octets = body_size(payload)?;
        let assembly = Assembly::begin(payload, limit);
        let kept = assembly.is_some();
        self.body = assembly.map_or(Body::Skipped(octets), Body::Kept);
        Ok(kept)
    }

    /// A body frame, or a piece of one.
    pub fn body(&mut self, piece: &[u8]) {
        match &mut self.body {
            Body::Unknown => {}
            Body::Kept(assembly) => assembly.push(piece),
            Body::Skipped(left) => *left = left.saturating_sub(piece.len() as u64),
        }
    }

    /// True when its last octet has come.
    pub fn is_whole(&self) -> bool {
        match &self.body {
            Body::Unknown => false,
            Body::Kept(assembly) => assembly.is_complete(),
            Body::Skipped(left) => *left == 0,
        }
    }

    /// What its method said, and its content, if that is whole and was kept.
    pub fn finish(self) -> (M, Option<Content>) {
        let content = match self.body {
            Body::Kept(assembly) if assembly.is_complete() => Some(assembly.finish()),
            Body::Kept(_) | Body::Unknown | Body::Skipped(_) => None,
        };
        (self.method, content)
    }
}
