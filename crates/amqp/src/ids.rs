//! The names and numbers of AMQP, each once, in a type.

use std::fmt;

use bytes::Bytes;
use serde::{Serialize, Serializer};

/// A channel of a connection, or [the connection itself](ChannelId::CONNECTION).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u16);

/// Counts from 1 on each channel; 0 with `multiple` means all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryTag(pub u64);

/// A name or key: at most 255 bytes, not always UTF-8 (S7.9). Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortStr(Bytes);

pub type Vhost = ShortStr;

/// A name written in the code.
///
/// # Panics
///
/// When it has more than 255 bytes.
pub fn name(text: &str) -> ShortStr {
    ShortStr::copy(text.as_bytes()).expect("a short name")
}

// === impl ChannelId ===

impl ChannelId {
    pub const CONNECTION: ChannelId = ChannelId(0);
}

// === impl ShortStr ===

impl ShortStr {
    pub const EMPTY: ShortStr = ShortStr(Bytes::new());
    pub const ROOT: Vhost = ShortStr(Bytes::from_static(b"/"));

    pub fn new(bytes: impl Into<Bytes>) -> Option<ShortStr> {
        let bytes = bytes.into();
        (bytes.len() <= 255).then_some(ShortStr(bytes))
    }

    pub fn copy(bytes: &[u8]) -> Option<ShortStr> {
        (bytes.len() <= 255).then(|| ShortStr(Bytes::copy_from_slice(bytes)))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::ops::Deref for ShortStr {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::borrow::Borrow<[u8]> for ShortStr {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

/// For logs: escapes whatever is not UTF-8 or not printable.
impl fmt::Display for ShortStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.contains(char::is_control) => f.write_str(text),
            _ => write!(f, "{}", self.0.escape_ascii()),
        }
    }
}

impl Serialize for ShortStr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for ShortStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl fmt::Display for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for DeliveryTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
