//! What is recorded: methods with their contents, and a few things that are none, like the end of the socket.

use std::fmt;
use std::ops::RangeInclusive;

use super::methods::{Arg, Args, BODY, write_args};
use super::value::{Table, Value};

/// A method with the properties and the body of its content, or something else that was observed, under a name without a dot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    pub name: String,
    pub args: Args,
}

impl Frame {
    pub(crate) fn new(name: &str, args: Args) -> Frame {
        Frame {
            name: name.to_owned(),
            args,
        }
    }

    /// Something that is not to be decoded.
    pub(crate) fn raw(name: &str, payload: &[u8]) -> Frame {
        Frame::new(name, vec![("payload", Arg::Text(payload.to_vec()))])
    }

    pub(crate) fn arg(&self, name: &str) -> Option<&Arg> {
        self.args
            .iter()
            .find(|(of, _)| *of == name)
            .map(|(_, arg)| arg)
    }

    pub(crate) fn arg_mut(&mut self, name: &str) -> Option<&mut Arg> {
        let mut args = self.args.iter_mut();
        args.find(|(of, _)| *of == name).map(|(_, arg)| arg)
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        match self.arg(name) {
            Some(Arg::Number(number)) => *number,
            _ => 0,
        }
    }

    /// The tags that it settles, if it is a confirm.
    pub(crate) fn confirms(&self) -> Option<RangeInclusive<u64>> {
        if !matches!(&*self.name, "basic.ack" | "basic.nack") {
            return None;
        }
        let (tag, multiple) = (
            self.number("delivery-tag"),
            self.arg("multiple") == Some(&Arg::Bit(true)),
        );
        Some(if multiple { 1 } else { tag }..=tag)
    }

    pub(crate) fn headers(&self) -> Option<&Table> {
        match self.arg("headers") {
            Some(Arg::Table(table)) => Some(table),
            _ => None,
        }
    }

    pub(crate) fn headers_mut(&mut self) -> Option<&mut Table> {
        match self.arg_mut("headers") {
            Some(Arg::Table(table)) => Some(table),
            _ => None,
        }
    }

    /// The newest entry of `x-death`, if it is a list as brokers make it.
    pub(crate) fn newest_death(&self) -> Option<&Table> {
        match self.headers()?.get("x-death")? {
            Value::Array(deaths) => match deaths.items.first()? {
                Value::Table(death) => Some(death),
                _ => None,
            },
            _ => None,
        }
    }

    /// One line for the name, and one for each field, each header and each member: to be read beside those of another frame.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.name.clone()];
        for (name, arg) in &self.args {
            match arg {
                Arg::Table(table) if !table.fields.is_empty() => {
                    lines.push(format!("    {name}"));
                    table_lines(table, 2, &mut lines);
                }
                arg => {
                    let quoted = Frame {
                        name: String::new(),
                        args: vec![(name, arg.clone())],
                    };
                    lines.push(format!("   {quoted}"));
                }
            }
        }
        lines
    }
}

fn table_lines(table: &Table, depth: usize, lines: &mut Vec<String>) {
    for (name, value) in &table.fields {
        let name = super::notation::Word(name);
        value_lines(&format!("{name}: "), value, depth, lines);
    }
    if !table.rest.is_empty() {
        lines.push(format!(
            "{}raw{}",
            "    ".repeat(depth),
            super::notation::Quoted(&table.rest)
        ));
    }
}

fn value_lines(label: &str, value: &Value, depth: usize, lines: &mut Vec<String>) {
    let indent = "    ".repeat(depth);
    match value {
        Value::Table(table) if !table.fields.is_empty() => {
            lines.push(format!("{indent}{label}F"));
            table_lines(table, depth + 1, lines);
        }
        Value::Array(array)
            if array
                .items
                .iter()
                .any(|item| matches!(item, Value::Table(_)))
                && array.rest.is_empty() =>
        {
            lines.push(format!("{indent}{label}A"));
            for (at, item) in array.items.iter().enumerate() {
                value_lines(&format!("[{at}] "), item, depth + 1, lines);
            }
        }
        value => lines.push(format!("{indent}{label}{value}")),
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        let shown = self
            .args
            .iter()
            .filter(|(name, arg)| !name.starts_with("reserved") || *name == BODY || !is_zero(arg));
        write_args(f, shown.map(|(name, arg)| (*name, arg)))
    }
}

fn is_zero(arg: &Arg) -> bool {
    matches!(arg, Arg::Number(0) | Arg::Bit(false)) || arg == &Arg::Text(Vec::new())
}
