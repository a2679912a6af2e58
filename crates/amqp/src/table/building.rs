//! Writes tables and arrays.

use super::{Array, Field, Table, Value};

#[derive(Debug, Default)]
pub struct TableBuilder {
    out: Vec<u8>,
}

#[derive(Debug, Default)]
pub struct ArrayBuilder {
    out: Vec<u8>,
}

/// Initial room in octets, enough for an entry of x-death. Growing with each member would cost most
/// of the time.
const ROOM: usize = 128;

fn put_long_bytes(out: &mut Vec<u8>, tag: u8, data: &[u8]) {
    make_room(out, 5 + data.len());
    out.push(tag);
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}

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
    pub fn with_capacity(octets: usize) -> Self {
        TableBuilder {
            out: Vec::with_capacity(octets),
        }
    }

    pub fn onto(table: Vec<u8>) -> Self {
        TableBuilder { out: table }
    }

    pub fn raw(&mut self, field: &Field<'_>) -> &mut Self {
        self.out.extend_from_slice(field.raw);
        self
    }

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

    pub fn longstr(&mut self, name: &[u8], value: &[u8]) -> &mut Self {
        self.name(name);
        put_long_bytes(&mut self.out, b'S', value);
        self
    }

    pub fn long(&mut self, name: &[u8], value: i64) -> &mut Self {
        self.name(name);
        self.out.push(b'l');
        self.out.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn boolean(&mut self, name: &[u8], value: bool) -> &mut Self {
        self.name(name);
        self.out.extend_from_slice(&[b't', u8::from(value)]);
        self
    }

    pub fn value(&mut self, name: &[u8], value: &Value<'_>) -> &mut Self {
        self.name(name);
        put_value(&mut self.out, value);
        self
    }

    pub fn void(&mut self, name: &[u8]) -> &mut Self {
        self.name(name);
        self.out.push(b'V');
        self
    }

    pub fn timestamp(&mut self, name: &[u8], seconds: u64) -> &mut Self {
        self.name(name);
        self.out.push(b'T');
        self.out.extend_from_slice(&seconds.to_be_bytes());
        self
    }

    pub fn array(&mut self, name: &[u8], members: &ArrayBuilder) -> &mut Self {
        self.name(name);
        put_long_bytes(&mut self.out, b'A', &members.out);
        self
    }

    pub fn table(&mut self, name: &[u8], members: &TableBuilder) -> &mut Self {
        self.name(name);
        put_long_bytes(&mut self.out, b'F', &members.out);
        self
    }

    pub fn as_table(&self) -> Table<'_> {
        Table(&self.out)
    }

    pub fn finish(self) -> Vec<u8> {
        self.out
    }
}

// === impl ArrayBuilder ===

impl ArrayBuilder {
    pub fn as_array(&self) -> Array<'_> {
        Array(&self.out)
    }

    pub fn longstr(&mut self, value: &[u8]) -> &mut Self {
        put_long_bytes(&mut self.out, b'S', value);
        self
    }

    pub fn table(&mut self, members: &TableBuilder) -> &mut Self {
        put_long_bytes(&mut self.out, b'F', &members.out);
        self
    }

    pub fn value(&mut self, value: &Value<'_>) -> &mut Self {
        put_value(&mut self.out, value);
        self
    }

    pub fn raw_table(&mut self, table: Table<'_>) -> &mut Self {
        put_long_bytes(&mut self.out, b'F', table.0);
        self
    }

    pub fn finish(self) -> Vec<u8> {
        self.out
    }
}
