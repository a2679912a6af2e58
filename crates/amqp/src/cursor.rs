//! Reads AMQP's primitive types off a slice, in order; every read is checked.

use thiserror::Error;

/// The bytes end before the value does, or a length does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("truncated or malformed AMQP data")]
pub struct Malformed;

/// A position in a slice. Numbers are big-endian (specification 4.2.5).
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

// === impl Cursor ===

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Cursor { rest: bytes }
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.rest.split_at_checked(n).ok_or(Malformed)?;
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(Malformed)?;
        self.rest = tail;
        Ok(*head)
    }

    /// An octet; also a group of bits.
    pub fn octet(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[octet]| octet)
    }

    pub fn short(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn long(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn longlong(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    pub fn shortstr(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.octet()?;
        self.take(usize::from(len))
    }

    /// A longstr: four octets of length. A field table has the same outer form.
    pub fn longstr(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.long()?;
        self.take(usize::try_from(len).map_err(|_| Malformed)?)
    }
}
