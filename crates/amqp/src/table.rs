//! Walks and builds field tables on their raw bytes: order, duplicates, type codes and names that are not UTF-8 stay as they are.
//!
//! A nested table or array is skipped by its length, never entered, so depth costs nothing and cannot overflow a stack.
//! Type codes are RabbitMQ's (`rabbit_binary_parser`), which differ from the specification's: `s` is int16 there, `l` and `L` int64.

use super::cursor::{Cursor, Malformed};

mod building;

pub use building::{ArrayBuilder, TableBuilder};

/// A field table, or an array, without its length octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table<'a>(pub &'a [u8]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    pub name: &'a [u8],
    pub value: Value<'a>,
    pub raw: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'a> {
    pub tag: u8,
    /// The value without its type octet. Strings, tables and arrays also without their length.
    pub data: &'a [u8],
}

/// An array, without its length octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array<'a>(pub &'a [u8]);

/// Reads one value.
///
/// # Errors
/// When it is cut, or has a type that RabbitMQ does not know.
fn value<'a>(cursor: &mut Cursor<'a>) -> Result<Value<'a>, Malformed> {
    let tag = cursor.octet()?;
    let data = match tag {
        b'S' | b'x' | b'F' | b'A' => cursor.longstr()?,
        b't' | b'b' | b'B' => cursor.take(1)?,
        b's' | b'u' => cursor.take(2)?,
        b'I' | b'i' | b'f' => cursor.take(4)?,
        b'l' | b'L' | b'd' | b'T' => cursor.take(8)?,
        b'D' => cursor.take(5)?,
        b'V' => cursor.take(0)?,
        _ => return Err(Malformed),
    };
    Ok(Value { tag, data })
}

// === impl Table ===

impl<'a> Table<'a> {
    /// The members in order. Ends after an error.
    pub fn fields(self) -> impl Iterator<Item = Result<Field<'a>, Malformed>> + 'a {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let mut cursor = Cursor::new(rest);
            let field = cursor.shortstr().and_then(|name| {
                let value = value(&mut cursor)?;
                let (raw, _) = rest
                    .split_at_checked(rest.len() - cursor.rest().len())
                    .ok_or(Malformed)?;
                Ok(Field { name, value, raw })
            });
            rest = if field.is_ok() { cursor.rest() } else { &[] };
            Some(field)
        })
    }

    /// The first member of that name, like RabbitMQ's `table_lookup` (S7.1).
    ///
    /// # Errors
    /// When the table is malformed up to there.
    pub fn get(self, name: &[u8]) -> Result<Option<Value<'a>>, Malformed> {
        for field in self.fields() {
            let field = field?;
            if field.name == name {
                return Ok(Some(field.value));
            }
        }
        Ok(None)
    }

    /// The first member of each of these names, in one pass. Fastest in the order of the table.
    ///
    /// # Errors
    /// When the table is malformed.
    pub fn find<const N: usize>(
        self,
        names: [&[u8]; N],
    ) -> Result<[Option<Value<'a>>; N], Malformed> {
        let (mut found, mut next) = ([None; N], 0);
        for field in self.fields() {
            let field = field?;
            let mut places = (next..N).chain(0..next);
            if let Some(at) = places.find(|at| names[*at] == field.name) {
                found[at] = found[at].or(Some(field.value));
                next = at + 1;
            }
        }
        Ok(found)
    }

    /// Checks each member, without nested ones.
    ///
    /// # Errors
    /// When a member is cut or has an unknown type.
    pub fn check(self) -> Result<(), Malformed> {
        self.fields().try_for_each(|field| field.map(drop))
    }

    /// The table without the members of these names. `None`: it has none of them, or is malformed.
    pub fn without(self, dropped: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        self.check().ok()?;
        let mut out = TableBuilder::with_capacity(self.0.len());
        for field in self.fields().map_while(Result::ok) {
            if !dropped(field.name) {
                out.raw(&field);
            }
        }
        let out = out.finish();
        (out.len() < self.0.len()).then_some(out)
    }
}

// === impl Array ===

impl<'a> Array<'a> {
    pub fn values(self) -> impl Iterator<Item = Result<Value<'a>, Malformed>> + 'a {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let mut cursor = Cursor::new(rest);
            let value = value(&mut cursor);
            rest = if value.is_ok() { cursor.rest() } else { &[] };
            Some(value)
        })
    }
}

// === impl Value ===

impl<'a> Value<'a> {
    pub fn longstr(data: &'a [u8]) -> Value<'a> {
        Value { tag: b'S', data }
    }

    /// The type name in RabbitMQ (`rabbit_binary_parser`).
    pub fn kind(self) -> &'static str {
        match self.tag {
            b'S' => "longstr",
            b'x' => "binary",
            b'F' => "table",
            b'A' => "array",
            b't' => "bool",
            b'b' => "byte",
            b'B' => "unsignedbyte",
            b's' => "short",
            b'u' => "unsignedshort",
            b'I' => "signedint",
            b'i' => "unsignedint",
            b'l' | b'L' => "long",
            b'f' => "float",
            b'd' => "double",
            b'T' => "timestamp",
            b'D' => "decimal",
            b'V' => "void",
            _ => "unknown",
        }
    }

    pub fn as_longstr(self) -> Option<&'a [u8]> {
        (self.tag == b'S').then_some(self.data)
    }

    /// A longstr or a byte array (`x`): RabbitMQ often accepts either.
    pub fn as_text(self) -> Option<&'a [u8]> {
        matches!(self.tag, b'S' | b'x').then_some(self.data)
    }

    pub fn as_table(self) -> Option<Table<'a>> {
        (self.tag == b'F').then_some(Table(self.data))
    }

    pub fn as_array(self) -> Option<Array<'a>> {
        (self.tag == b'A').then_some(Array(self.data))
    }

    /// A timestamp (`T`): seconds since 1970.
    pub fn as_timestamp(self) -> Option<u64> {
        if self.tag != b'T' {
            return None;
        }
        self.data
            .first_chunk()
            .map(|bytes| u64::from_be_bytes(*bytes))
    }

    /// An integer of any width and sign (`b` `B` `s` `u` `I` `i` `l` `L`).
    pub fn as_integer(self) -> Option<i64> {
        let mut cursor = Cursor::new(self.data);
        let integer = match self.tag {
            b'b' => i64::from(cursor.octet().ok()? as i8),
            b'B' => i64::from(cursor.octet().ok()?),
            b's' => i64::from(cursor.short().ok()? as i16),
            b'u' => i64::from(cursor.short().ok()?),
            b'I' => i64::from(cursor.long().ok()? as i32),
            b'i' => i64::from(cursor.long().ok()?),
            b'l' | b'L' => cursor.longlong().ok()? as i64,
            _ => return None,
        };
        Some(integer)
    }
}
