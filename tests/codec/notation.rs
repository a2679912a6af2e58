//! How scripts and records write strings and field values, and how they are read again.
//!
//! | written | type | written | type |
//! |---|---|---|---|
//! | `"text"`, `"\xff\n\"\\"`, `"a"*70000` | `S` long string | `true`, `false` | `t` |
//! | `5`, `-5` | `I` signed 32 | `void` | `V` |
//! | `b:` `B:` `s:` `u:` `i:` `l:` `L:` `T:` and a number | that type | `f:1.5` `d:1.5` `d:0x7ff8000000000000` | floats, by bits if need be |
//! | `D:2/1234` | decimal: scale/value | `x"\x00\x01"` | `x` byte array |
//! | `A[1, "x"]`, `A[F{q: "q$i"} times 200]` | `A` array; `$i` counts from 1 | `F{name: 1, "odd name": void}` | `F` table |
//! | `raw"…"` as last member | bytes as they are | | |

use std::fmt;

use super::value::{Array, Bytes, Fallible, Table, Value, integer, replace};

// === how it is written

/// A string in quotes: what is not UTF-8 or cannot be seen as `\xNN`, a long row of one octet as `"a"*70000`.
pub(crate) struct Quoted<'a>(pub &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, times) = match self.0 {
            [first, rest @ ..] if rest.len() >= 32 && rest.iter().all(|octet| octet == first) => {
                (&self.0[..1], self.0.len())
            }
            text => (text, 1),
        };
        f.write_str("\"")?;
        for chunk in text.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '"' | '\\' => write!(f, "\\{c}")?,
                    '\n' => f.write_str("\\n")?,
                    c if (c as u32) < 0x20 || c == '\x7f' => write!(f, "\\x{:02x}", c as u32)?,
                    c => write!(f, "{c}")?,
                }
            }
            chunk
                .invalid()
                .iter()
                .try_for_each(|octet| write!(f, "\\x{octet:02x}"))?;
        }
        f.write_str("\"")?;
        if times > 1 {
            write!(f, "*{times}")?;
        }
        Ok(())
    }
}

/// A string bare if it is a plain word, else in quotes.
pub(crate) struct Word<'a>(pub &'a [u8]);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self.0) {
            Ok(text) if !text.is_empty() && text.bytes().all(is_word) => f.write_str(text),
            _ => Quoted(self.0).fmt(f),
        }
    }
}

/// Octets of words that need no quotes.
fn is_word(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"_.-$^*#/+@%".contains(&octet)
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => Quoted(text).fmt(f),
            Value::Integer(b'I', number) => number.fmt(f),
            Value::Integer(tag, number) => write!(f, "{}:{number}", char::from(*tag)),
            Value::Bool(yes) => yes.fmt(f),
            Value::Float(bits) => match f32::from_bits(*bits) {
                x if x.is_nan() => write!(f, "f:{bits:#x}"),
                x => write!(f, "f:{x:?}"),
            },
            Value::Double(bits) => match f64::from_bits(*bits) {
                x if x.is_nan() => write!(f, "d:{bits:#x}"),
                x => write!(f, "d:{x:?}"),
            },
            Value::Decimal(scale, value) => write!(f, "D:{scale}/{value}"),
            Value::Binary(bytes) => write!(f, "x{}", Quoted(bytes)),
            Value::Void => f.write_str("void"),
            Value::Array(array) => {
                f.write_str("A[")?;
                let texts = array.items.iter().map(Value::to_string);
                list(f, texts, &array.rest)?;
                f.write_str("]")
            }
            Value::Table(table) => write!(f, "F{table}"),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        let fields = self.fields.iter();
        list(
            f,
            fields.map(|(name, value)| format!("{}: {value}", Word(name))),
            &self.rest,
        )?;
        f.write_str("}")
    }
}

fn list(
    f: &mut fmt::Formatter<'_>,
    mut texts: impl Iterator<Item = String>,
    rest: &[u8],
) -> fmt::Result {
    let raw = (!rest.is_empty()).then(|| format!("raw{}", Quoted(rest)));
    let joined: Vec<String> = texts.by_ref().chain(raw).collect();
    f.write_str(&joined.join(", "))
}

// === how it is read

/// A place in a text that is being read.
pub(crate) struct Cursor<'a> {
    pub text: &'a str,
}

impl<'a> Cursor<'a> {
    pub(crate) fn skip_spaces(&mut self) {
        self.text = self.text.trim_start_matches([' ', '\t']);
    }

    pub(crate) fn eat(&mut self, token: &str) -> bool {
        let rest = self.text.strip_prefix(token);
        self.text = rest.unwrap_or(self.text);
        rest.is_some()
    }

    pub(crate) fn need(&mut self, token: &str) -> Fallible<()> {
        let ate = self.eat(token);
        ate.then_some(())
            .ok_or_else(|| format!("`{token}` expected at `{}`", self.here()))
    }

    /// What comes, shortened for a message.
    pub(crate) fn here(&self) -> String {
        self.text.chars().take(40).collect()
    }

    /// Everything up to the next octet that is none of a word's.
    pub(crate) fn word(&mut self) -> &'a str {
        let end = self.text.bytes().position(|octet| !is_word(octet));
        let (word, rest) = self.text.split_at(end.unwrap_or(self.text.len()));
        self.text = rest;
        word
    }

    /// A string in quotes, repeated if `*N` follows; or a bare word.
    pub(crate) fn string(&mut self) -> Fallible<Bytes> {
        if !self.eat("\"") {
            return match self.word() {
                "" => Err(format!("a string expected at `{}`", self.here())),
                word => Ok(word.as_bytes().to_vec()),
            };
        }
        let mut out = Bytes::new();
        loop {
            let mut chars = self.text.chars();
            match chars.next().ok_or("a string without its end")? {
                '"' => break self.text = chars.as_str(),
                '\\' => {
                    let escaped = chars.next().ok_or("a string without its end")?;
                    self.text = chars.as_str();
                    out.push(match escaped {
                        'n' => b'\n',
                        'x' => {
                            let digits = self.text.get(..2).ok_or("\\xNN needs two digits")?;
                            self.text = &self.text[2..];
                            u8::from_str_radix(digits, 16)
                                .map_err(|_| format!("not hexadecimal: \\x{digits}"))?
                        }
                        '"' | '\\' => escaped as u8,
                        other => return Err(format!("no such escape: \\{other}")),
                    });
                }
                c => {
                    self.text = chars.as_str();
                    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
        }
        if self.eat("*") {
            out = out.repeat(self.decimal()?);
        }
        Ok(out)
    }

    fn decimal(&mut self) -> Fallible<usize> {
        let word = self.word();
        word.parse().map_err(|_| format!("not a number: {word}"))
    }

    /// `{name: value, …}`
    pub(crate) fn table(&mut self) -> Fallible<Table> {
        let mut table = Table::default();
        self.need("{")?;
        while self.another("}", table.fields.is_empty())? {
            if self.text.starts_with("raw\"") {
                self.need("raw")?;
                table.rest = self.string()?;
                self.skip_spaces();
                self.need("}")?;
                break;
            }
            let name = self.string()?;
            self.skip_spaces();
            self.need(":")?;
            self.skip_spaces();
            table.fields.push((name, self.value()?));
        }
        Ok(table)
    }

    fn array(&mut self) -> Fallible<Array> {
        let mut array = Array::default();
        self.need("[")?;
        while self.another("]", array.items.is_empty())? {
            if self.text.starts_with("raw\"") {
                self.need("raw")?;
                array.rest = self.string()?;
                self.skip_spaces();
                self.need("]")?;
                break;
            }
            let item = self.value()?;
            if !self.eat(" times ") {
                array.items.push(item);
                continue;
            }
            for i in 1..=self.decimal()? {
                let mut item = item.clone();
                item.for_each_text(true, &mut |text| {
                    replace(text, b"$i", i.to_string().as_bytes())
                });
                array.items.push(item);
            }
        }
        Ok(array)
    }

    /// Is there another member? Takes the comma before it, or the end.
    fn another(&mut self, end: &str, first: bool) -> Fallible<bool> {
        self.skip_spaces();
        if self.eat(end) {
            return Ok(false);
        }
        if !first {
            self.need(",")?;
            self.skip_spaces();
        }
        Ok(true)
    }

    /// A field value.
    pub(crate) fn value(&mut self) -> Fallible<Value> {
        if self.text.starts_with('"') {
            return Ok(Value::Text(self.string()?));
        }
        if self.text.starts_with("x\"") {
            self.need("x")?;
            return Ok(Value::Binary(self.string()?));
        }
        if self.text.starts_with("A[") {
            self.need("A")?;
            return Ok(Value::Array(self.array()?));
        }
        if self.text.starts_with("F{") {
            self.need("F")?;
            return Ok(Value::Table(self.table()?));
        }
        let here = self.here();
        let wrong = || format!("not a value: {here}");
        let word = self.word();
        if !self.eat(":") {
            return match word {
                "true" => Ok(Value::Bool(true)),
                "false" => Ok(Value::Bool(false)),
                "void" => Ok(Value::Void),
                _ => in_range(b'I', word).ok_or_else(wrong),
            };
        }
        let number = self.word();
        match word.as_bytes() {
            b"f" => {
                float(number, |x: f32| u64::from(x.to_bits())).map(|bits| Value::Float(bits as u32))
            }
            b"d" => float(number, f64::to_bits).map(Value::Double),
            b"D" => number.split_once('/').and_then(|(scale, value)| {
                Some(Value::Decimal(scale.parse().ok()?, value.parse().ok()?))
            }),
            [tag] => in_range(*tag, number),
            _ => None,
        }
        .ok_or_else(wrong)
    }
}

/// An integer of that type, if it fits.
fn in_range(tag: u8, digits: &str) -> Option<Value> {
    let (width, signed) = integer(tag)?;
    let number: i128 = digits.parse().ok()?;
    let bits = 8 * width as u32 - u32::from(signed);
    let low = if signed { -(1 << bits) } else { 0 };
    (low..1 << bits)
        .contains(&number)
        .then_some(Value::Integer(tag, number))
}

fn float<T: std::str::FromStr>(digits: &str, bits: impl Fn(T) -> u64) -> Option<u64> {
    match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok().map(bits),
    }
}
