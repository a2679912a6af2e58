//! The language of the tables: `verb name=value "quoted value" flag`, with arguments tables as `name=value`.

use crate::amqp::ids::ShortStr;
use crate::amqp::table::Table;
use crate::dead_letter::tests::script::split;

/// A line: its verb, then words.
pub(super) struct Line {
    pub(super) verb: String,
    words: Vec<Word>,
}

/// `name=value`, or a value alone. Escapes as in Rust (`\xff`, `\n`), within quotes and without.
struct Word {
    name: Option<String>,
    value: Vec<u8>,
    quoted: bool,
}

impl Line {
    pub(super) fn parse(line: &str) -> Line {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        Line {
            verb: verb.to_owned(),
            words: words(rest),
        }
    }

    /// The value of `name=…`.
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        let word = self
            .words
            .iter()
            .find(|word| word.name.as_deref() == Some(name));
        word.map(|word| &word.value[..])
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.get(name)
            .map(|value| String::from_utf8(value.to_vec()).unwrap())
    }

    pub(super) fn name(&self, name: &str) -> Option<ShortStr> {
        self.get(name).map(|value| ShortStr::copy(value).unwrap())
    }

    /// The value alone, if there is one.
    pub(super) fn alone(&self) -> &[u8] {
        let word = self.words.iter().find(|word| word.name.is_none()).unwrap();
        &word.value
    }

    pub(super) fn flag(&self, flag: &str) -> bool {
        let mut words = self.words.iter();
        words.any(|word| word.name.is_none() && word.value == flag.as_bytes())
    }

    /// All `name=value` as an arguments table: longstr, or `I(5)`, `x(bytes)` with any other type code; `A(5,10s)` is an array of `l` and longstr.
    pub(super) fn arguments(&self) -> Vec<u8> {
        let mut table = Vec::new();
        for word in &self.words {
            let name = word.name.as_deref().unwrap();
            table.push(name.len() as u8);
            table.extend_from_slice(name.as_bytes());
            match &word.value[..] {
                [tag, b'(', data @ .., b')'] if !word.quoted => put(&mut table, *tag, data),
                data => put(&mut table, b'S', data),
            }
        }
        table
    }
}

fn put(table: &mut Vec<u8>, tag: u8, data: &[u8]) {
    let number = || std::str::from_utf8(data).unwrap().parse::<i64>().unwrap();
    table.push(tag);
    match tag {
        b'S' | b'x' => {
            table.extend_from_slice(&(data.len() as u32).to_be_bytes());
            table.extend_from_slice(data);
        }
        b'I' => table.extend_from_slice(&(number() as i32).to_be_bytes()),
        b'l' => table.extend_from_slice(&number().to_be_bytes()),
        b't' => table.push(number() as u8),
        b'A' => {
            let mut items = Vec::new();
            for item in data
                .split(|byte| *byte == b',')
                .filter(|item| !item.is_empty())
            {
                let is_number = item.iter().all(u8::is_ascii_digit);
                put(&mut items, if is_number { b'l' } else { b'S' }, item);
            }
            table.extend_from_slice(&(items.len() as u32).to_be_bytes());
            table.extend(items);
        }
        _ => table.extend_from_slice(data), // not to be read
    }
}

/// An arguments table in the same form.
pub(super) fn show_arguments(table: &[u8]) -> String {
    let fields = Table(table).fields().map(|field| {
        let field = field.unwrap();
        let value = match field.value.tag {
            b'S' => quoted(field.value.data),
            b'I' | b'l' | b't' => {
                let number = field.value.as_integer();
                let number = number.unwrap_or_else(|| i64::from(field.value.data[0]));
                format!("{}({number})", char::from(field.value.tag))
            }
            tag => format!("{}({})", char::from(tag), field.value.data.escape_ascii()),
        };
        format!("{}={value}", field.name.escape_ascii())
    });
    fields.collect::<Vec<_>>().join(" ")
}

/// In quotes if it needs them.
pub(super) fn quoted(value: &[u8]) -> String {
    let text = match std::str::from_utf8(value) {
        Ok(text) if !text.contains(['\\', '\n', '\r', '"']) => text.to_owned(),
        Ok(_) | Err(_) => value.escape_ascii().to_string(),
    };
    match text.is_empty() || text.contains([' ', '=', '(']) {
        true => format!("\"{text}\""),
        false => text,
    }
}

fn words(text: &str) -> Vec<Word> {
    let words = split(text, ' ').into_iter().map(|word| {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) if !name.contains('"') => (Some(name.to_owned()), value),
            _ => (None, &*word),
        };
        Word {
            name,
            value: unescape(value.trim_matches('"')),
            quoted: value.starts_with('"'),
        }
    });
    words.collect()
}

/// Undoes `escape_ascii`; also `*N` behind a character repeats it, for names that are long.
fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(hex) = rest.strip_prefix("\\x") {
            out.push(u8::from_str_radix(&hex[..2], 16).unwrap());
            rest = &hex[2..];
        } else if let Some(escaped) = rest.strip_prefix('\\') {
            out.push(match escaped.as_bytes()[0] {
                b'n' => b'\n',
                b'r' => b'\r',
                other => other,
            });
            rest = &escaped[1..];
        } else if let Some(count) = rest[c.len_utf8()..].strip_prefix('*') {
            let digits = count.bytes().take_while(u8::is_ascii_digit).count();
            let count_of: usize = count[..digits].parse().unwrap();
            out.extend_from_slice(c.to_string().repeat(count_of).as_bytes());
            rest = &count[digits..];
        } else {
            out.extend_from_slice(c.to_string().as_bytes());
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}
