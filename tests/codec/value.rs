//! Field values of tables and their bytes. Lossless both ways: order, duplicate names, types, NaNs, names and strings that are not UTF-8,
//! and what cannot be decoded at all. `notation` writes and reads them.

/// Octets: most strings of AMQP need not be UTF-8.
pub(crate) type Bytes = Vec<u8>;

/// What went wrong, for people.
pub(crate) type Fallible<T> = Result<T, String>;

/// A field value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// `S`
    Text(Bytes),
    /// Any of `INTEGERS`, by its type.
    Integer(u8, i128),
    /// `t`
    Bool(bool),
    /// `f`, by bits
    Float(u32),
    /// `d`, by bits
    Double(u64),
    /// `D`: scale, value
    Decimal(u8, u32),
    /// `x`
    Binary(Bytes),
    /// `V`
    Void,
    /// `A`
    Array(Array),
    /// `F`
    Table(Table),
}

/// Members in order, and what follows them that is no value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Array {
    pub items: Vec<Value>,
    pub rest: Bytes,
}

/// Fields in order, and what follows them that is no field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub fields: Vec<(Bytes, Value)>,
    pub rest: Bytes,
}

/// Type, width in bytes, signed?
const INTEGERS: &[(u8, usize, bool)] = &[
    (b'b', 1, true),
    (b'B', 1, false),
    (b's', 2, true),
    (b'u', 2, false),
    (b'I', 4, true),
    (b'i', 4, false),
    (b'l', 8, true),
    (b'L', 8, true),
    (b'T', 8, false),
];

/// Width in bytes of an integer type, and whether it is signed.
pub(crate) fn integer(tag: u8) -> Option<(usize, bool)> {
    let found = INTEGERS.iter().find(|(of, ..)| *of == tag);
    found.map(|(_, width, signed)| (*width, *signed))
}

// === bytes

/// Takes the first `n` bytes off.
pub(crate) fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (first, rest) = bytes.split_at_checked(n)?;
    *bytes = rest;
    Some(first)
}

/// Takes a big-endian number of `n` bytes off.
pub(crate) fn number(bytes: &mut &[u8], n: usize) -> Option<u64> {
    let octets = take(bytes, n)?.iter();
    Some(octets.fold(0, |number, octet| number << 8 | u64::from(*octet)))
}

/// Appends a big-endian number of `n` bytes.
pub(crate) fn put(out: &mut Bytes, n: usize, number: u64) {
    out.extend_from_slice(&number.to_be_bytes()[8 - n..]);
}

fn put_long(out: &mut Bytes, bytes: &[u8]) {
    put(out, 4, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

impl Value {
    fn decode(bytes: &mut &[u8]) -> Option<Value> {
        let tag = take(bytes, 1)?[0];
        if let Some((width, signed)) = integer(tag) {
            let number = number(bytes, width)?;
            let shift = 64 - 8 * width;
            let signed_number = ((number << shift) as i64) >> shift;
            let number = if signed {
                i128::from(signed_number)
            } else {
                i128::from(number)
            };
            return Some(Value::Integer(tag, number));
        }
        Some(match tag {
            b'S' | b'x' | b'A' | b'F' => {
                let length = number(bytes, 4)? as usize;
                let content = take(bytes, length)?;
                match tag {
                    b'S' => Value::Text(content.to_vec()),
                    b'x' => Value::Binary(content.to_vec()),
                    b'A' => Value::Array(Array::decode(content)),
                    _ => Value::Table(Table::decode(content)),
                }
            }
            b't' => match take(bytes, 1)?[0] {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                _ => return None,
            },
            b'f' => Value::Float(number(bytes, 4)? as u32),
            b'd' => Value::Double(number(bytes, 8)?),
            b'D' => Value::Decimal(number(bytes, 1)? as u8, number(bytes, 4)? as u32),
            b'V' => Value::Void,
            _ => return None,
        })
    }

    fn encode(&self, out: &mut Bytes) {
        match self {
            Value::Text(text) => {
                out.push(b'S');
                put_long(out, text);
            }
            Value::Integer(tag, number) => {
                out.push(*tag);
                put(
                    out,
                    integer(*tag).map_or(0, |(width, _)| width),
                    *number as u64,
                );
            }
            Value::Bool(yes) => out.extend([b't', u8::from(*yes)]),
            Value::Float(bits) => {
                out.push(b'f');
                put(out, 4, u64::from(*bits));
            }
            Value::Double(bits) => {
                out.push(b'd');
                put(out, 8, *bits);
            }
            Value::Decimal(scale, value) => {
                out.extend([b'D', *scale]);
                put(out, 4, u64::from(*value));
            }
            Value::Binary(bytes) => {
                out.push(b'x');
                put_long(out, bytes);
            }
            Value::Void => out.push(b'V'),
            Value::Array(array) => {
                out.push(b'A');
                let mut content = Bytes::new();
                array
                    .items
                    .iter()
                    .for_each(|item| item.encode(&mut content));
                content.extend_from_slice(&array.rest);
                put_long(out, &content);
            }
            Value::Table(table) => {
                out.push(b'F');
                put_long(out, &table.encode());
            }
        }
    }

    /// Changes every string in it, names of fields included if `names`.
    pub(crate) fn for_each_text(&mut self, names: bool, change: &mut dyn FnMut(&mut Bytes)) {
        match self {
            Value::Text(text) | Value::Binary(text) => change(text),
            Value::Array(array) => {
                let items = array.items.iter_mut();
                items.for_each(|item| item.for_each_text(names, change));
                change(&mut array.rest);
            }
            Value::Table(table) => table.for_each_text(names, change),
            _ => {}
        }
    }
}

impl Array {
    fn decode(mut bytes: &[u8]) -> Array {
        let mut array = Array::default();
        while !bytes.is_empty() {
            let mut after = bytes;
            let Some(item) = Value::decode(&mut after) else {
                break;
            };
            array.items.push(item);
            bytes = after;
        }
        array.rest = bytes.to_vec();
        array
    }
}

impl Table {
    /// From its content, without the length in front.
    pub(crate) fn decode(mut bytes: &[u8]) -> Table {
        let mut table = Table::default();
        let field = |bytes: &mut &[u8]| {
            let length = number(bytes, 1)? as usize;
            let name = take(bytes, length)?.to_vec();
            Some((name, Value::decode(bytes)?))
        };
        while !bytes.is_empty() {
            let mut after = bytes;
            let Some(field) = field(&mut after) else {
                break;
            };
            table.fields.push(field);
            bytes = after;
        }
        table.rest = bytes.to_vec();
        table
    }

    /// Its content, without the length in front.
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Bytes::new();
        for (name, value) in &self.fields {
            out.push(name.len() as u8);
            out.extend_from_slice(name);
            value.encode(&mut out);
        }
        out.extend_from_slice(&self.rest);
        out
    }

    /// The first field of that name.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        let mut fields = self.fields.iter();
        fields
            .find(|(of, _)| of == name.as_bytes())
            .map(|(_, value)| value)
    }

    pub(crate) fn for_each_text(&mut self, names: bool, change: &mut dyn FnMut(&mut Bytes)) {
        for (name, value) in &mut self.fields {
            if names {
                change(name);
            }
            value.for_each_text(names, change);
        }
        change(&mut self.rest);
    }
}

/// Replaces each `from` in a string.
pub(crate) fn replace(text: &mut Bytes, from: &[u8], to: &[u8]) {
    let mut at = 0;
    while let Some(found) = memchr::memmem::find(&text[at..], from) {
        at += found;
        text.splice(at..at + from.len(), to.iter().copied());
        at += to.len();
    }
}
