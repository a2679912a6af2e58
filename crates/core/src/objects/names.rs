//! Own objects ⇄ their names. The encoding is one to one: a name that we would not write ourselves is not ours to read.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::amqp::ids::ShortStr;
use crate::dead_letter::Bridges;

use super::OwnObject;
use super::kind::Kind;

/// Leaves most of a name's 255 bytes to the exchange and the key. Other objects also append to it.
const LONGEST_PREFIX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadPrefix {
    #[error(
        "write 1 to {LONGEST_PREFIX} printable ASCII characters other than space, `'`, `/`, `%` and `+`"
    )]
    Characters,
    #[error("RabbitMQ keeps names with `amq.` for itself; take another")]
    Reserved,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    prefix: ShortStr,
    /// Name beginnings in the order of the kinds. For most kinds that is the whole name.
    starts: Arc<[ShortStr]>,
    bridges: Bridges,
}

// === impl Names ===

impl Names {
    /// Names with that prefix.
    ///
    /// # Errors
    /// When names would be ambiguous or could not be declared.
    pub fn new(prefix: &str) -> Result<Names, BadPrefix> {
        let fits = |byte: u8| byte.is_ascii_graphic() && !b"/%+'".contains(&byte);
        if !(1..=LONGEST_PREFIX).contains(&prefix.len()) || !prefix.bytes().all(fits) {
            return Err(BadPrefix::Characters);
        }
        if prefix.starts_with("amq.") {
            return Err(BadPrefix::Reserved);
        }
        let start = |kind: &Kind| ShortStr::new([prefix.as_bytes(), kind.start()].concat());
        let starts: Option<Arc<[ShortStr]>> = Kind::ALL.iter().map(start).collect();
        let bridges = start(&Kind::Bridge).map(Bridges::new);
        Ok(Names {
            prefix: ShortStr::copy(prefix.as_bytes()).ok_or(BadPrefix::Characters)?,
            starts: starts.ok_or(BadPrefix::Characters)?,
            bridges: bridges.ok_or(BadPrefix::Characters)?,
        })
    }

    /// `None` when it would exceed 255 bytes.
    pub fn name(&self, object: &OwnObject<'_>) -> Option<ShortStr> {
        let (kind, rest) = object.spelled();
        ShortStr::new([self.start(kind).as_bytes(), &rest].concat())
    }

    /// `None` for a name that [`Names::name`] never writes.
    pub fn parse<'a>(&self, name: &'a [u8]) -> Option<OwnObject<'a>> {
        let (kind, rest) = Kind::of(name.strip_prefix(&*self.prefix)?)?;
        let object = kind.read(rest)?;
        // One comparison instead of a rule for each way in which a name can be written otherwise.
        (self.name(&object)?.as_bytes() == name).then_some(object)
    }

    pub fn is_intake_exchange(&self, name: &[u8]) -> bool {
        matches!(self.parse(name), Some(OwnObject::IntakeExchange(..)))
    }

    /// Whether the name is, or could become, one of the proxy's: clients may not use it.
    ///
    /// RabbitMQ removes carriage returns and line feeds from the names of a declare
    /// (`strip_cr_lf`), so they must not hide a name.
    pub fn is_ours(&self, name: &[u8]) -> bool {
        let mut bytes = name.iter().filter(|byte| !b"\r\n".contains(byte));
        // Most names of clients end here.
        if !self.prefix.iter().all(|byte| bytes.next() == Some(byte)) {
            return false;
        }
        Kind::of(&bytes.copied().collect::<Vec<_>>()).is_some()
    }

    pub fn intake_queue(&self) -> &ShortStr {
        self.start(Kind::IntakeQueue)
    }

    pub fn parking(&self) -> &ShortStr {
        self.start(Kind::Parking)
    }

    pub fn lock(&self) -> &ShortStr {
        self.start(Kind::Lock)
    }

    pub fn redeclared(&self) -> &ShortStr {
        self.start(Kind::Redeclared)
    }

    pub fn user_mark(&self) -> &ShortStr {
        self.start(Kind::UserMark)
    }

    pub fn delay(&self) -> &ShortStr {
        self.start(Kind::DelayExchange)
    }

    pub fn due(&self) -> &ShortStr {
        self.start(Kind::DueExchange)
    }

    pub fn delay_queue(&self, millis: u64) -> ShortStr {
        let name = self.name(&OwnObject::DelayQueue(millis));
        name.expect("a prefix is short")
    }

    pub fn bridges(&self) -> &Bridges {
        &self.bridges
    }

    pub fn prefix(&self) -> &ShortStr {
        &self.prefix
    }

    fn start(&self, kind: Kind) -> &ShortStr {
        &self.starts[kind as usize]
    }
}

impl Default for Names {
    fn default() -> Self {
        Names::new("dlx-proxy").expect("a good prefix")
    }
}

impl Serialize for Names {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.prefix.serialize(serializer)
    }
}
