//! All methods of AMQP 0-9-1 with RabbitMQ's extensions as one table, and decoding and encoding that follow it. Deliberately nothing of
//! `crates/amqp`: the judge must not share the defects of the judged.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use super::notation::{Cursor, Quoted, Word};
use super::value::{Bytes, Fallible, Table, number, put, take};

/// `class` lines, and under each its methods: number, name, fields with their types; `+` for methods that carry a content.
const TABLE: &str = include_str!("methods.txt");

/// The class of all contents.
const CLASS_BASIC: u64 = 60;

/// The pseudo field of a content: what its body frames carry.
pub(crate) const BODY: &str = "body";

/// Type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bit,
    /// Big-endian, of so many bytes.
    Number(usize),
    ShortStr,
    LongStr,
    Table,
}

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Method {
    /// `queue.declare`
    pub name: String,
    pub class: u16,
    pub id: u16,
    pub fields: Vec<(&'static str, Kind)>,
    /// Is it followed by a header and bodies?
    pub content: bool,
}

/// A field of a method, a property, or a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arg {
    Bit(bool),
    Number(u64),
    Text(Bytes),
    Table(Table),
}

/// Names and values, in the order of the table.
pub(crate) type Args = Vec<(&'static str, Arg)>;

/// All methods.
static METHODS: LazyLock<Vec<Method>> = LazyLock::new(|| {
    let (mut class, mut of) = (0, "");
    let mut methods = Vec::new();
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split_whitespace();
        match [words.next(), words.next()] {
            [Some("class"), Some(id)] => {
                class = id.parse().expect("a number");
                of = words.next().expect("a name");
            }
            [Some(id), Some(name)] => methods.push(Method {
                name: format!("{of}.{}", name.trim_end_matches('+')),
                class,
                id: id.parse().expect("a number"),
                fields: words.map(field).collect(),
                content: name.ends_with('+'),
            }),
            _ => unreachable!("two words at least: {line}"),
        }
    }
    methods
});

fn field(word: &'static str) -> (&'static str, Kind) {
    let (name, kind) = word.split_once(':').expect("name:type");
    let kind = match kind {
        "bit" => Kind::Bit,
        "octet" => Kind::Number(1),
        "short" => Kind::Number(2),
        "long" => Kind::Number(4),
        "longlong" => Kind::Number(8),
        "shortstr" => Kind::ShortStr,
        "longstr" => Kind::LongStr,
        _ => Kind::Table,
    };
    (name, kind)
}

static BY_NAME: LazyLock<HashMap<&'static str, &'static Method>> = LazyLock::new(|| {
    METHODS
        .iter()
        .map(|method| (&*method.name, method))
        .collect()
});

/// The properties of a content, as if they were a method.
pub(crate) fn properties() -> &'static Method {
    BY_NAME["properties.basic"]
}

// === impl Method ===

impl Method {
    pub(crate) fn named(name: &str) -> Option<&'static Method> {
        BY_NAME.get(name).copied()
    }

    /// The one whose numbers a payload begins with.
    pub(crate) fn of(mut payload: &[u8]) -> Option<&'static Method> {
        let (class, id) = (number(&mut payload, 2)?, number(&mut payload, 2)?);
        let fits =
            |method: &&Method| u64::from(method.class) == class && u64::from(method.id) == id;
        METHODS.iter().find(fits)
    }

    /// What answers it: none if it is not synchronous.
    pub(crate) fn replies(&self) -> Vec<&'static str> {
        let ok = Method::named(&format!("{}-ok", self.name));
        let mut replies: Vec<&str> = ok.iter().map(|method| &*method.name).collect();
        if self.name == "basic.get" {
            replies.push("basic.get-empty");
        }
        replies
    }

    /// The type of a field, a property or the body that a script may give to it.
    pub(crate) fn kind(&self, name: &str) -> Option<(&'static str, Kind)> {
        let more = if self.content {
            &properties().fields[..]
        } else {
            &[]
        };
        let mut all = self.fields.iter().chain(more).copied();
        let found = all.find(|(of, _)| *of == name);
        found.or((self.content && name == BODY).then_some((BODY, Kind::LongStr)))
    }

    /// The payload of its method frame; fields that are not given are zero, false or empty.
    pub(crate) fn encode(&self, args: &Args) -> Bytes {
        let mut out = Bytes::new();
        put(&mut out, 2, u64::from(self.class));
        put(&mut out, 2, u64::from(self.id));
        let (mut bits, mut used) = (0, 0);
        for (name, kind) in &self.fields {
            let arg = args.iter().find(|(of, _)| of == name).map(|(_, arg)| arg);
            if *kind == Kind::Bit {
                bits |= u64::from(arg == Some(&Arg::Bit(true))) << used;
                used += 1;
                continue;
            }
            if used > 0 {
                put(&mut out, 1, bits);
                (bits, used) = (0, 0);
            }
            kind.encode(arg, &mut out);
        }
        if used > 0 {
            put(&mut out, 1, bits);
        }
        out
    }

    /// The payload of a content header frame.
    pub(crate) fn encode_header(args: &Args) -> Bytes {
        let properties = properties();
        let body = args.iter().find(|(name, _)| *name == BODY);
        let length = body.map_or(0, |(_, body)| body.text().len());
        let (mut flags, mut values) = (0, Bytes::new());
        for (at, (name, kind)) in properties.fields.iter().enumerate() {
            if let Some((_, arg)) = args.iter().find(|(of, _)| of == name) {
                flags |= 1 << (15 - at);
                kind.encode(Some(arg), &mut values);
            }
        }
        let mut out = Bytes::new();
        put(&mut out, 4, CLASS_BASIC << 16);
        put(&mut out, 8, length as u64);
        put(&mut out, 2, flags);
        out.extend(values);
        out
    }

    /// A method frame's payload. Nothing: it is none that we know, or has another length than its fields.
    pub(crate) fn decode(mut payload: &[u8]) -> Option<(&'static Method, Args)> {
        let method = Method::of(payload)?;
        let bytes = &mut payload;
        take(bytes, 4)?;
        let mut args = Args::new();
        let (mut bits, mut left) = (0, 0);
        for (name, kind) in &method.fields {
            if *kind == Kind::Bit {
                if left == 0 {
                    (bits, left) = (number(bytes, 1)?, 8);
                }
                args.push((name, Arg::Bit(bits & 1 == 1)));
                (bits, left) = (bits >> 1, left - 1);
                continue;
            }
            left = 0;
            args.push((name, kind.decode(bytes)?));
        }
        bytes.is_empty().then_some((method, args))
    }

    /// A content header frame's payload: the length of the body, and those properties that are there.
    pub(crate) fn decode_header(mut payload: &[u8]) -> Option<(u64, Args)> {
        let bytes = &mut payload;
        take(bytes, 4)?;
        let (length, flags) = (number(bytes, 8)?, number(bytes, 2)?);
        let mut args = Args::new();
        for (at, (name, kind)) in properties().fields.iter().enumerate() {
            if flags & 1 << (15 - at) != 0 {
                args.push((name, kind.decode(bytes)?));
            }
        }
        (bytes.is_empty() && flags & 0b11 == 0).then_some((length, args))
    }
}

// === impl Kind ===

impl Kind {
    fn encode(self, arg: Option<&Arg>, out: &mut Bytes) {
        match (self, arg) {
            (Kind::Number(width), Some(Arg::Number(number))) => put(out, width, *number),
            (Kind::Number(width), _) => put(out, width, 0),
            (Kind::Bit, _) => {}
            (Kind::ShortStr, arg) => {
                let text = arg.map_or(&[][..], Arg::text);
                out.push(text.len() as u8);
                out.extend_from_slice(text);
            }
            (Kind::LongStr, arg) => {
                let text = arg.map_or(&[][..], Arg::text);
                put(out, 4, text.len() as u64);
                out.extend_from_slice(text);
            }
            (Kind::Table, arg) => {
                let content = match arg {
                    Some(Arg::Table(table)) => table.encode(),
                    _ => Bytes::new(),
                };
                put(out, 4, content.len() as u64);
                out.extend(content);
            }
        }
    }

    fn decode(self, bytes: &mut &[u8]) -> Option<Arg> {
        Some(match self {
            Kind::Bit => return None,
            Kind::Number(width) => Arg::Number(number(bytes, width)?),
            Kind::ShortStr => {
                let length = number(bytes, 1)? as usize;
                Arg::Text(take(bytes, length)?.to_vec())
            }
            Kind::LongStr => {
                let length = number(bytes, 4)? as usize;
                Arg::Text(take(bytes, length)?.to_vec())
            }
            Kind::Table => {
                let length = number(bytes, 4)? as usize;
                Arg::Table(Table::decode(take(bytes, length)?))
            }
        })
    }

    /// What follows `name=` in a script.
    pub(crate) fn parse(self, cursor: &mut Cursor<'_>) -> Fallible<Arg> {
        let too_long = |text: &Bytes| self == Kind::ShortStr && text.len() > 255;
        match self {
            Kind::Table => Ok(Arg::Table(cursor.table()?)),
            Kind::ShortStr | Kind::LongStr => match cursor.string()? {
                text if too_long(&text) => Err("over 255 bytes: not a short string".to_owned()),
                text => Ok(Arg::Text(text)),
            },
            Kind::Bit => match cursor.word() {
                "true" => Ok(Arg::Bit(true)),
                "false" => Ok(Arg::Bit(false)),
                word => Err(format!("true or false, not {word}")),
            },
            Kind::Number(width) => {
                let word = cursor.word();
                let number = word
                    .parse()
                    .ok()
                    .filter(|n: &u64| width == 8 || *n < 1 << (8 * width));
                number
                    .map(Arg::Number)
                    .ok_or_else(|| format!("not a number of {width} bytes: {word}"))
            }
        }
    }
}

// === impl Arg ===

impl Arg {
    /// A string's octets; nothing for others.
    pub(crate) fn text(&self) -> &[u8] {
        match self {
            Arg::Text(text) => text,
            _ => &[],
        }
    }

    pub(crate) fn for_each_text(&mut self, names: bool, change: &mut dyn FnMut(&mut Bytes)) {
        match self {
            Arg::Text(text) => change(text),
            Arg::Table(table) => table.for_each_text(names, change),
            Arg::Bit(_) | Arg::Number(_) => {}
        }
    }
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arg::Bit(yes) => yes.fmt(f),
            Arg::Number(number) => number.fmt(f),
            Arg::Text(text) => Word(text).fmt(f),
            Arg::Table(table) => table.fmt(f),
        }
    }
}

/// As scripts write them: `name=value`, a set bit as its bare name, bodies always in quotes.
pub(crate) fn write_args<'a>(
    f: &mut fmt::Formatter<'_>,
    args: impl IntoIterator<Item = (&'a str, &'a Arg)>,
) -> fmt::Result {
    for (name, arg) in args {
        match arg {
            Arg::Bit(true) => write!(f, " {name}")?,
            Arg::Text(text) if name == BODY => write!(f, " {name}={}", Quoted(text))?,
            arg => write!(f, " {name}={arg}")?,
        }
    }
    Ok(())
}
