//! Walks and builds field tables on their raw bytes: order, duplicates, type codes and names that are not UTF-8 stay as they are.
//!
//! A nested table or array is skipped by its length, never entered, so depth costs nothing and cannot overflow a stack.
//! Type codes are RabbitMQ's (`rabbit_binary_parser`), which differ from the specification's: `s` is int16 there, `l` and `L` int64.

use super::cursor::{Cursor, Malformed};

/// A field table, or an array, without its length octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table<'a>(pub &'a [u8]);

/// One member of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Up to 255 octets, not always UTF-8.
    pub name: &'a [u8],
    /// Its value.
    pub value: Value<'a>,
    /// Name and value as they are on the wire.
    pub raw: &'a [u8],
}

/// A typed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'a> {
    /// The type code.
    pub tag: u8,
    /// What follows it; of strings, tables and arrays without their length.
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
    /// The members in order. After an error there are no more.
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

    /// The first member of that name. (RabbitMQ's `table_lookup` takes the first of duplicates, S7.1.)
    ///
    /// # Errors
    /// When the table cannot be walked up to there.
    pub fn get(self, name: &[u8]) -> Result<Option<Value<'a>>, Malformed> {
        for field in self.fields() {
            let field = field?;
            if field.name == name {
                return Ok(Some(field.value));
            }
        }
        Ok(None)
    }

    /// Walks to the end.
    ///
    /// # Errors
    /// When a member is cut or has an unknown type. What is nested is not looked into.
    pub fn check(self) -> Result<(), Malformed> {
        self.fields().try_for_each(|field| field.map(drop))
    }

    /// The table without the members of these names. `None`: it has none of them, or cannot be walked (a cut one could mean something else).
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
    /// The members in order. After an error there are no more.
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
    /// A longstr.
    pub fn longstr(data: &'a [u8]) -> Value<'a> {
        Value { tag: b'S', data }
    }

    /// A longstr (`S`).
    pub fn as_longstr(self) -> Option<&'a [u8]> {
        (self.tag == b'S').then_some(self.data)
    }

    /// A longstr or a byte array (`x`): RabbitMQ often takes one for the other.
    pub fn as_text(self) -> Option<&'a [u8]> {
        matches!(self.tag, b'S' | b'x').then_some(self.data)
    }

    /// A table (`F`).
    pub fn as_table(self) -> Option<Table<'a>> {
        (self.tag == b'F').then_some(Table(self.data))
    }

    /// An array (`A`).
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

// === building ===

/// Writes a table without its length octets.
#[derive(Debug, Default)]
pub struct TableBuilder {
    out: Vec<u8>,
}

/// Writes the members of an array.
#[derive(Debug, Default)]
pub struct ArrayBuilder {
    out: Vec<u8>,
}

/// What a table or an array has room for at first, in octets: an entry of x-death, say.
const ROOM: usize = 128;

fn put_long_bytes(out: &mut Vec<u8>, tag: u8, data: &[u8]) {
    make_room(out, 5 + data.len());
    out.push(tag);
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}

/// For so many octets; at first for more, as to grow with each member costs more than all else.
fn make_room(out: &mut Vec<u8>, octets: usize) {
    match out.capacity() {
        0 => out.reserve(octets.max(ROOM)),
        _ => out.reserve(octets),
    }
}

fn put_value(out: &mut Vec<u8>, value: &Value<'_>) {
    match value.tag {
        b'S' | b'x' | b'F' | b'A' => put_long_bytes(out, value.tag, value.data),
        tag => {
            out.push(tag);
            out.extend_from_slice(value.data);
        }
    }
}

// === impl TableBuilder ===

impl TableBuilder {
    /// An empty table with room.
    pub fn with_capacity(octets: usize) -> Self {
        TableBuilder {
            out: Vec::with_capacity(octets),
        }
    }

    /// More members for a table.
    pub fn onto(table: Vec<u8>) -> Self {
        TableBuilder { out: table }
    }

    /// A member as it is on the wire elsewhere.
    pub fn raw(&mut self, field: &Field<'_>) -> &mut Self {
        self.out.extend_from_slice(field.raw);
        self
    }

    /// Members as they are on the wire elsewhere.
    pub fn members(&mut self, raw: &[u8]) -> &mut Self {
        self.out.extend_from_slice(raw);
        self
    }

    fn name(&mut self, name: &[u8]) {
        let name = name.get(..255).unwrap_or(name);
        make_room(&mut self.out, 1 + name.len());
        self.out.push(name.len() as u8);
        self.out.extend_from_slice(name);
    }

    /// A longstr member.
    pub fn longstr(&mut self, name: &[u8], value: &[u8]) -> &mut Self {
        self.name(name);
        put_long_bytes(&mut self.out, b'S', value);
        self
    }

    /// An int64 member (`l`).
    pub fn long(&mut self, name: &[u8], value: i64) -> &mut Self {
        self.name(name);
        self.out.push(b'l');
        self.out.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// A boolean member.
    pub fn boolean(&mut self, name: &[u8], value: bool) -> &mut Self {
        self.name(name);
        self.out.extend_from_slice(&[b't', u8::from(value)]);
        self
    }

    /// A value as it is elsewhere.
    pub fn value(&mut self, name: &[u8], value: &Value<'_>) -> &mut Self {
        self.name(name);
        put_value(&mut self.out, value);
        self
    }

    /// A member without a value (`V`).
    pub fn void(&mut self, name: &[u8]) -> &mut Self {
        self.name(name);
        self.out.push(b'V');
        self
    }

    /// A timestamp member, in seconds.
    pub fn timestamp(&mut self, name: &[u8], seconds: u64) -> &mut Self {
        self.name(name);
        self.out.push(b'T');
        self.out.extend_from_slice(&seconds.to_be_bytes());
        self
    }

    /// An array member.
    pub fn array(&mut self, name: &[u8], members: &ArrayBuilder) -> &mut Self {
        self.name(name);
        put_long_bytes(&mut self.out, b'A', &members.out);
        self
    }

    /// A table member.
    pub fn table(&mut self, name: &[u8], members: &TableBuilder) -> &mut Self {
        self.name(name);
        put_long_bytes(&mut self.out, b'F', &members.out);
        self
    }

    /// What has been written.
    pub fn as_table(&self) -> Table<'_> {
        Table(&self.out)
    }

    /// The bytes, without length octets.
    pub fn finish(self) -> Vec<u8> {
        self.out
    }
}

// === impl ArrayBuilder ===

impl ArrayBuilder {
    /// A longstr.
    pub fn longstr(&mut self, value: &[u8]) -> &mut Self {
        put_long_bytes(&mut self.out, b'S', value);
        self
    }

    /// A table.
    pub fn table(&mut self, members: &TableBuilder) -> &mut Self {
        put_long_bytes(&mut self.out, b'F', &members.out);
        self
    }

    /// A value as it is elsewhere.
    pub fn value(&mut self, value: &Value<'_>) -> &mut Self {
        put_value(&mut self.out, value);
        self
    }

    /// A table as it is on the wire elsewhere, without its length.
    pub fn raw_table(&mut self, table: Table<'_>) -> &mut Self {
        put_long_bytes(&mut self.out, b'F', table.0);
        self
    }
}
