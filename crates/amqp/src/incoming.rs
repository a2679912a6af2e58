//! A message that a peer sends: a method, a content header, and bodies until the announced size is there.

use super::content::{Assembly, Content, body_size};
use super::cursor::Malformed;
use super::frame::Kind;

#[derive(Debug)]
pub struct Incoming<M> {
    pub method: M,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Unknown,
    Kept(Assembly),
    /// Octets still to come. They are not kept.
    Skipped(u64),
}

impl<M> Incoming<M> {
    pub fn new(method: M) -> Incoming<M> {
        Incoming {
            method,
            body: Body::Unknown,
        }
    }

    /// Takes a frame of the channel. Returns the message with its last frame. Ignores methods.
    ///
    /// # Errors
    /// When this frame may not follow.
    pub fn frame(
        incoming: &mut Option<Incoming<M>>,
        kind: Kind,
        payload: &[u8],
        limit: usize,
    ) -> Result<Option<(M, Option<Content>)>, Malformed> {
        match (kind, incoming.as_mut()) {
            (Kind::Header, Some(message)) => {
                message.header(payload, limit)?;
            }
            (Kind::Body, Some(message)) if message.has_header() => message.body(payload),
            (Kind::Header | Kind::Body, _) => return Err(Malformed),
            (Kind::Method | Kind::Heartbeat | Kind::Other(_), _) => {}
        }
        let whole = incoming.take_if(|message| message.is_whole());
        Ok(whole.map(Incoming::finish))
    }

    /// Takes the payload of the content header. `false`: the message is larger than `limit`; its
    /// body is skipped.
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

    pub fn has_header(&self) -> bool {
        !matches!(self.body, Body::Unknown)
    }

    pub fn body(&mut self, piece: &[u8]) {
        match &mut self.body {
            Body::Unknown => {}
            Body::Kept(assembly) => assembly.push(piece),
            Body::Skipped(left) => *left = left.saturating_sub(piece.len() as u64),
        }
    }

    pub fn is_whole(&self) -> bool {
        match &self.body {
            Body::Unknown => false,
            Body::Kept(assembly) => assembly.is_complete(),
            Body::Skipped(left) => *left == 0,
        }
    }

    pub fn finish(self) -> (M, Option<Content>) {
        let content = match self.body {
            Body::Kept(assembly) if assembly.is_complete() => Some(assembly.finish()),
            Body::Kept(_) | Body::Unknown | Body::Skipped(_) => None,
        };
        (self.method, content)
    }
}
