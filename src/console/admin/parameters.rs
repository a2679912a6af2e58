//! What a request names: the vhost and the queue in its path, and the parameters behind it. Names are bytes, which need not be UTF-8.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use axum::http::{StatusCode, Uri};
use percent_encoding::percent_decode_str;
use regex::bytes::Regex;

use super::problem::Problem;
use crate::amqp::ids::{ShortStr, Vhost};

const VHOSTS: [&str; 2] = ["/vhosts/", "/api/v1/vhosts/"];
const API: &str = "/api/";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) vhost: Vhost,
    /// The segment after `queues` or `redrives`.
    pub(super) queue: ShortStr,
    pub(super) last: Vec<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parameters(Vec<(String, Vec<u8>)>);

// === impl Place ===

impl Place {
    pub(super) fn new(vhost: Vhost, queue: ShortStr) -> Place {
        Place {
            vhost,
            queue,
            last: Vec::new(),
        }
    }

    /// From a path like `/api/v1/vhosts/%2F/queues/dead/dead-letters/…`.
    ///
    /// # Errors
    /// When a name exceeds 255 bytes.
    pub(super) fn of(uri: &Uri) -> Result<Place, Problem> {
        let mut next = segments(uri);
        let (vhost, _queues, queue) = (next(), next(), next());
        let (_dead_letters, last) = (next(), next());
        Ok(Place {
            vhost: short("the vhost", vhost)?,
            queue: short("the queue", queue)?,
            last,
        })
    }
}

/// Decoded segments from the vhost on; empty ones after the last.
fn segments(uri: &Uri) -> impl FnMut() -> Vec<u8> {
    let path = VHOSTS.iter().find_map(|it| uri.path().strip_prefix(it));
    let path = path.unwrap_or_default();
    let mut segments = path.split('/');
    move || percent_decode_str(segments.next().unwrap_or_default()).collect()
}

fn short(what: &str, bytes: Vec<u8>) -> Result<ShortStr, Problem> {
    let name = ShortStr::new(bytes);
    name.ok_or_else(|| bad(format_args!("{what}: a name has up to 255 bytes")))
}

// === impl Parameters ===

impl Parameters {
    /// On pages an empty value means not given: browsers send all fields of a form. In the API it
    /// is an error: ignoring `id=` would select every message.
    pub(super) fn of(uri: &Uri) -> Parameters {
        let is_form = !uri.path().starts_with(API);
        let pairs = uri.query().unwrap_or_default().split('&');
        let pairs = pairs.filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let pairs = pairs.map(|(name, value)| (decoded(name), decoded(value)));
        let given = pairs.filter(|(_, value)| !(is_form && value.is_empty()));
        let named = |(name, value): (Vec<u8>, _)| (text(name), value);
        Parameters(given.map(named).collect())
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// Those of this name, for people.
    pub(super) fn texts(&self, name: &str) -> impl Iterator<Item = String> {
        let values = self.pairs().filter(move |(other, _)| *other == name);
        values.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    }

    pub(super) fn all(&mut self, name: &str) -> Vec<Vec<u8>> {
        let taken = self.0.extract_if(.., |(other, _)| other == name);
        taken.map(|(_, value)| value).collect()
    }

    /// Takes the only one of this name.
    ///
    /// # Errors
    /// When there are several.
    pub(super) fn one(&mut self, name: &str) -> Result<Option<Vec<u8>>, Problem> {
        let mut all = self.all(name);
        match all.len() {
            0 | 1 => Ok(all.pop()),
            _ => Err(bad(format_args!("{name}: write it once"))),
        }
    }

    /// Takes a name of AMQP that must not be empty.
    ///
    /// # Errors
    /// When it is empty or too long.
    pub(super) fn name(&mut self, name: &str) -> Result<Option<ShortStr>, Problem> {
        match self.key(name)? {
            Some(empty) if empty.is_empty() => Err(is_empty(name)),
            given => Ok(given),
        }
    }

    /// Takes a routing key or exchange name, which may be empty.
    ///
    /// # Errors
    /// When it is too long.
    pub(super) fn key(&mut self, name: &str) -> Result<Option<ShortStr>, Problem> {
        self.one(name)?.map(|bytes| short(name, bytes)).transpose()
    }

    /// Takes a search text that must not be empty.
    ///
    /// # Errors
    /// When it is empty.
    pub(super) fn bytes(&mut self, name: &str) -> Result<Option<Vec<u8>>, Problem> {
        match self.one(name)? {
            Some(empty) if empty.is_empty() => Err(is_empty(name)),
            given => Ok(given),
        }
    }

    /// Takes a pattern of names: `*` is any text, `?` one character. Without it, all match.
    ///
    /// # Errors
    /// When it is empty.
    pub(super) fn pattern(
        &mut self,
        name: &str,
    ) -> Result<impl Fn(&ShortStr) -> bool + use<>, Problem> {
        let pattern = self.bytes(name)?.unwrap_or_else(|| b"*".to_vec());
        let escape = |byte: &u8| match byte {
            b'*' => ".*".to_owned(),
            b'?' => ".".to_owned(),
            byte => format!("\\x{byte:02x}"),
        };
        let pattern: String = pattern.iter().map(escape).collect();
        let pattern = Regex::new(&format!("(?s-u)^{pattern}$"));
        let pattern = pattern.map_err(|_| bad(format_args!("{name}: it is too long")))?;
        Ok(move |name: &ShortStr| pattern.is_match(name))
    }

    /// Takes a text and parses it with `read`.
    ///
    /// # Errors
    /// The error of `read`, or when it is no text.
    pub(super) fn read<T, E: Display>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Problem> {
        let one = self.one(name)?;
        one.map(|bytes| as_text(name, bytes, read)).transpose()
    }

    /// Takes all of this name.
    ///
    /// # Errors
    /// The same.
    pub(super) fn read_all<T, E: Display>(
        &mut self,
        name: &str,
        mut read: impl FnMut(&str) -> Result<T, E>,
    ) -> Result<Vec<T>, Problem> {
        let all = self.all(name).into_iter();
        all.map(|bytes| as_text(name, bytes, &mut read)).collect()
    }

    pub(super) fn is_true(&mut self, name: &str) -> Result<bool, Problem> {
        let parsed = |text: &str| text.parse().map_err(|_| "write true or false");
        Ok(self.read(name, parsed)?.unwrap_or(false))
    }

    pub(super) fn number<T>(
        &mut self,
        name: &str,
        range: RangeInclusive<T>,
    ) -> Result<Option<T>, Problem>
    where
        T: FromStr + PartialOrd + Display,
    {
        self.read(name, |text| match text.parse() {
            Ok(number) if range.contains(&number) => Ok(number),
            _ => Err(format!(
                "write a number from {} to {}",
                range.start(),
                range.end()
            )),
        })
    }

    /// # Errors
    /// When a parameter is left, which is unknown.
    pub(super) fn end(self) -> Result<(), Problem> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(bad(format_args!("{name}: there is no such parameter"))),
        }
    }
}

pub(super) fn is_empty(name: &str) -> Problem {
    bad(format_args!(
        "{name}: it is empty; write a value, or leave it out"
    ))
}

pub(super) fn bad(detail: impl Display) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail.to_string())
}

/// Form encoding: `+` is a space.
fn as_text<T, E: Display>(
    name: &str,
    bytes: Vec<u8>,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, Problem> {
    let Ok(typed) = String::from_utf8(bytes) else {
        return Err(bad(format_args!("{name}: write it as UTF-8")));
    };
    read(&typed).map_err(|problem| bad(format_args!("{name}={typed}: {problem}")))
}

fn decoded(text: &str) -> Vec<u8> {
    percent_decode_str(&text.replace('+', " ")).collect()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().expect("a URI")
    }

    #[test]
    fn names_in_the_path_are_bytes() {
        let place = Place::of(&uri(
            "/api/v1/vhosts/%2F/queues/a%2Fb%FF+/dead-letters/x%00",
        ));
        let place = place.expect("short names");
        assert_eq!(place.vhost, Vhost::ROOT);
        assert_eq!(&place.queue[..], b"a/b\xff+");
        assert_eq!(place.last, b"x\0");
        let page = Place::of(&uri("/vhosts/%2F/queues/a%2Fb%FF+/messages/x%00"));
        assert_eq!(page, Ok(place));
        let long = format!("/api/v1/vhosts/v/queues/{}/dead-letters", "q".repeat(256));
        let refused = bad("the queue: a name has up to 255 bytes");
        assert_eq!(Place::of(&uri(&long)), Err(refused));
    }

    /// How bad ones are refused is in `testdata/requests.txt`.
    #[test]
    fn parameters_are_taken_by_name() {
        let query = "/api/v1/x?source=a%FFb+c&header=x=1&header=y%3D2&&limit=7&key=";
        let mut query = Parameters::of(&uri(query));
        let source = query.name("source").expect("short").expect("given");
        assert_eq!(&source[..], b"a\xffb c");
        assert_eq!(query.all("header"), [b"x=1", b"y=2"]);
        assert_eq!(query.bytes("body"), Ok(None));
        assert_eq!(query.number("limit", 1..=10), Ok(Some(7)));
        assert_eq!(query.number("limit", 1..=10), Ok(None));
        assert_eq!(query.key("key"), Ok(Some(ShortStr::EMPTY)));
        assert_eq!(query.end(), Ok(()));
        let long = uri(&format!("/api/v1/x?source={}", "a".repeat(256)));
        let refused = bad("source: a name has up to 255 bytes");
        assert_eq!(Parameters::of(&long).name("source"), Err(refused));
    }

    #[test]
    fn patterns_match_bytes() {
        for (pattern, name, is_match) in [
            ("orders.*", &b"orders.dead"[..], true),
            ("orders.*", b"ordersXdead", false),
            ("*.dead", b"\xff\n.dead", true),
            ("a?c", b"abc", true),
            ("a?c", b"ac", false),
            ("%5Ba%5D", b"[a]", true),
            ("dead", b"dead.old", false),
        ] {
            let mut query = Parameters::of(&uri(&format!("/api/v1/x?name={pattern}")));
            let matches = query.pattern("name").expect("a pattern");
            let name = ShortStr::new(name).expect("short");
            assert_eq!(matches(&name), is_match, "{pattern} {name}");
        }
    }
}
