//! A method that came, and its fields.

use crate::codec::methods::{Arg, Args, Method};
use crate::codec::value::{Bytes, Table, Value};

/// A method, complete with its content.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub method: &'static Method,
    pub args: Args,
    pub content: Option<Content>,
}

/// Properties and body.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub properties: Args,
    pub body: Bytes,
}

impl Call {
    fn arg(&self, name: &str) -> Option<&Arg> {
        find(&self.args, name)
    }

    pub(super) fn text(&self, name: &str) -> Bytes {
        self.arg(name)
            .map_or(Bytes::new(), |arg| arg.text().to_vec())
    }

    /// Of a queue or exchange: RabbitMQ takes the ends of lines out.
    pub(super) fn name(&self, name: &str) -> Bytes {
        let mut text = self.text(name);
        text.retain(|octet| !b"\r\n".contains(octet));
        text
    }

    pub(super) fn bit(&self, name: &str) -> bool {
        self.arg(name) == Some(&Arg::Bit(true))
    }

    pub(super) fn number(&self, name: &str) -> u64 {
        match self.arg(name) {
            Some(Arg::Number(number)) => *number,
            _ => 0,
        }
    }

    pub(super) fn arguments(&self) -> Table {
        match self.arg("arguments") {
            Some(Arg::Table(table)) => table.clone(),
            _ => Table::default(),
        }
    }
}

pub(super) fn find<'a>(args: &'a Args, name: &str) -> Option<&'a Arg> {
    let found = args.iter().find(|(of, _)| *of == name);
    found.map(|(_, arg)| arg)
}

pub(super) fn text(bytes: &[u8]) -> Arg {
    Arg::Text(bytes.to_vec())
}

/// A long string, if there is one of that name.
pub(super) fn string(table: &Table, name: &str) -> Option<Bytes> {
    match table.get(name)? {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}

pub(super) fn integer(table: &Table, name: &str) -> Option<i128> {
    match table.get(name)? {
        Value::Integer(_, number) => Some(*number),
        _ => None,
    }
}
