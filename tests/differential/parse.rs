//! Text → scripts. The language is described in `script`.

use std::time::Duration;

use super::methods::{Arg, Args, Kind, Method};
use super::notation::Cursor;
use super::script::{Action, Call, Counts, Operation, Script, Step, Until};
use super::value::Fallible;

/// The methods whose fields `open` may set.
pub(crate) const HANDSHAKE: [&str; 3] = [
    "connection.start-ok",
    "connection.tune-ok",
    "connection.open",
];

/// What may be expected and is no method.
const OTHER_EVENTS: [&str; 5] = [
    "closed",
    "heartbeat",
    "confirm",
    "protocol-header",
    "amqp-1.0-frame",
];

/// What management does: verb, and whether a name follows.
const OPERATIONS: &[(&str, bool)] = &[
    ("user", true),
    ("topic-permission", true),
    ("user-limit", true),
    ("vhost-limit", false),
    ("policy", true),
    ("operator-policy", true),
    ("delete", true),
    ("close", true),
    ("describe", true),
];

/// All scenarios of a file; mistakes say where: `file:line: …`.
pub(crate) fn scripts(file: &str, text: &str) -> Fallible<Vec<Script>> {
    let mut scripts: Vec<Script> = Vec::new();
    let mut twins = Vec::new();
    for (number, line) in joined(text) {
        let wrong = |problem: String| format!("{file}:{number}: {problem}\n  {line}");
        if let Some(name) = line.strip_prefix("=== ") {
            let name = name.trim().to_owned();
            scripts.push(Script {
                name,
                ..Script::default()
            });
        } else if let Some(script) = scripts.last_mut() {
            match line.strip_prefix("also ") {
                Some(settings) => {
                    let settings = self::settings(settings).map_err(wrong)?;
                    twins.push((scripts.len() - 1, settings));
                }
                None => script.line(&line).map_err(wrong)?,
            }
        } else if !line.is_empty() && !line.starts_with('#') {
            return Err(wrong("`=== NAME` comes first".to_owned()));
        }
    }
    for (of, settings) in twins {
        let mut twin = scripts[of].clone();
        for (name, value) in settings {
            twin.name += &format!("-{name}-{value}");
            twin.proxy.push((name, value));
        }
        scripts.push(twin);
    }
    Ok(scripts)
}

/// `mode=rejects-only …`
fn settings(text: &str) -> Fallible<Vec<(String, String)>> {
    let mut cursor = Cursor { text };
    let settings = options(&mut cursor)?;
    if !ended(&mut cursor) {
        return Err(format!("not understood from here: `{}`", cursor.here()));
    }
    settings
        .into_iter()
        .map(|(name, value)| Ok((name, text_of(value.text())?)))
        .collect()
}

/// Lines with their numbers; those that end with a backslash go on in the next.
fn joined(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (at, line) in text.lines().enumerate() {
        let (number, begun) = open.take().unwrap_or((at + 1, String::new()));
        let line = format!("{begun}{}", line.trim());
        match line.strip_suffix('\\') {
            Some(begun) => open = Some((number, begun.to_owned())),
            None => lines.push((number, line)),
        }
    }
    lines.extend(open);
    lines
}

impl Script {
    fn line(&mut self, line: &str) -> Fallible<()> {
        if let Some(comment) = line.strip_prefix('#') {
            // Those before the first step describe the scenario.
            if self.steps.is_empty() {
                self.comments.push(comment.to_owned());
            }
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix("repeat ") {
            let (count, line) = rest.split_once(' ').ok_or("repeat N STEP")?;
            let count: usize = count
                .parse()
                .map_err(|_| format!("not a number: {count}"))?;
            return (1..=count).try_for_each(|i| self.line(&line.replace("$i", &i.to_string())));
        }
        if let Some(rest) = line.strip_prefix("for ") {
            let (connections, line) = rest.split_once(": ").ok_or("for A B …: STEP")?;
            let mut connections = connections.split_whitespace();
            return connections.try_for_each(|of| self.line(&line.replace("$c", of)));
        }
        let mut cursor = Cursor { text: line };
        let verb = cursor.word();
        cursor.skip_spaces();
        match verb {
            "" if line.is_empty() => return Ok(()),
            "only" => {
                while !ended(&mut cursor) {
                    let end = cursor.text.find(' ').unwrap_or(cursor.text.len());
                    let (word, rest) = cursor.text.split_at(end);
                    self.only.push(word.to_owned());
                    cursor.text = rest;
                }
            }
            "proxy" => {
                for (name, value) in options(&mut cursor)? {
                    self.proxy.push((name, text_of(value.text())?));
                }
            }
            "proxy-policy" => self.policies.push(operation(verb, true, &mut cursor)?),
            "names" => {
                while !ended(&mut cursor) {
                    self.names.push(text_of(&cursor.string()?)?);
                }
            }
            "shows" => self.shows = Some(cursor.word().to_owned()),
            "as" => {
                let user = cursor.word();
                cursor.need(":")?;
                while !ended(&mut cursor) {
                    self.logins
                        .push((text_of(&cursor.string()?)?, user.to_owned()));
                }
            }
            _ => self.steps.push(step(verb, &mut cursor)?),
        }
        match ended(&mut cursor) {
            true => Ok(()),
            false => Err(format!("not understood from here: `{}`", cursor.here())),
        }
    }
}

/// Is nothing left but a comment?
fn ended(cursor: &mut Cursor<'_>) -> bool {
    cursor.skip_spaces();
    cursor.text.is_empty() || cursor.text == "#" || cursor.text.starts_with("# ")
}

fn text_of(bytes: &[u8]) -> Fallible<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "this must be UTF-8".to_owned())
}

/// One policy of the proxy.
pub(crate) fn policy_of(line: &str) -> Fallible<Operation> {
    let mut cursor = Cursor { text: line };
    let verb = cursor.word();
    cursor.skip_spaces();
    operation(verb, true, &mut cursor)
}

/// One step.
pub(crate) fn step_of(line: &str) -> Fallible<Step> {
    let mut cursor = Cursor { text: line };
    let verb = cursor.word();
    cursor.skip_spaces();
    step(verb, &mut cursor)
}

fn step(verb: &str, cursor: &mut Cursor<'_>) -> Fallible<Step> {
    if let Some((_, named)) = OPERATIONS.iter().find(|(of, _)| *of == verb) {
        return operation(verb, *named, cursor).map(Step::Operator);
    }
    match verb {
        "stop" | "start" | "restart" => {
            cursor.need("proxy")?;
            Ok(Step::Proxy(verb.to_owned()))
        }
        "wait" => {
            let time = cursor
                .word()
                .strip_suffix("ms")
                .and_then(|ms| ms.parse().ok());
            Ok(Step::Wait(Duration::from_millis(time.ok_or("wait Nms")?)))
        }
        "until" => until(cursor).map(Step::Until),
        "rest" => Ok(Step::Rest),
        place => {
            let (connection, channel) = match place.split_once('.') {
                Some((connection, channel)) => (
                    connection,
                    Some(
                        channel
                            .parse()
                            .map_err(|_| format!("not a channel: {place}"))?,
                    ),
                ),
                None => (place, None),
            };
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            if !connection.starts_with(|c: char| c.is_ascii_lowercase())
                || !connection.chars().all(plain)
            {
                return Err(format!("neither a verb nor a connection: `{place}`"));
            }
            Ok(Step::Client(
                connection.to_owned(),
                action(channel, cursor)?,
            ))
        }
    }
}

fn until(cursor: &mut Cursor<'_>) -> Fallible<Until> {
    let queue = text_of(&cursor.string()?)?;
    cursor.skip_spaces();
    let mut counts = Counts::default();
    while !ended(cursor) {
        let what = match cursor.word() {
            "gone" => {
                return Ok(Until {
                    queue,
                    counts: None,
                });
            }
            "ready" => &mut counts.ready,
            "consumers" => &mut counts.consumers,
            word => return Err(format!("gone, ready=N or consumers=N, not {word}")),
        };
        cursor.need("=")?;
        let count = cursor.word();
        *what = Some(
            count
                .parse()
                .map_err(|_| format!("not a number: {count}"))?,
        );
    }
    Ok(Until {
        queue,
        counts: Some(counts),
    })
}

fn action(channel: Option<u16>, cursor: &mut Cursor<'_>) -> Fallible<Action> {
    if cursor.eat(">") {
        cursor.skip_spaces();
        let name = cursor.word();
        return method(channel, name, true, cursor);
    }
    let verb = cursor.word();
    cursor.skip_spaces();
    match verb {
        "expect" => {
            let what = cursor.word().to_owned();
            if Method::named(&what).is_none() && !OTHER_EVENTS.contains(&&*what) {
                return Err(format!("no such method: {what}"));
            }
            let count = match ended(cursor) {
                true => 1,
                false => number(cursor)?,
            };
            Ok(Action::Expect(channel.unwrap_or(0), what, count))
        }
        "raw" => Ok(Action::Raw(cursor.string()?)),
        "frame" => {
            let kind = number(cursor)?;
            cursor.skip_spaces();
            Ok(Action::Frame(channel.unwrap_or(0), kind, cursor.string()?))
        }
        "open" if cursor.eat("raw") => Ok(Action::Open(None)),
        "open" => {
            let kind = |name: &str| {
                HANDSHAKE
                    .iter()
                    .find_map(|method| Method::named(method)?.kind(name))
            };
            args(cursor, kind).map(|args| Action::Open(Some(args)))
        }
        "read" => Ok(Action::Read(true)),
        "stop-reading" => Ok(Action::Read(false)),
        "hold" => Ok(Action::Hold(true)),
        "send" => Ok(Action::Hold(false)),
        "drop" => Ok(Action::Drop),
        name => method(channel, name, false, cursor),
    }
}

fn number<T: std::str::FromStr>(cursor: &mut Cursor<'_>) -> Fallible<T> {
    let word = cursor.word();
    word.parse()
        .map_err(|_| format!("not a number, or too large: {word}"))
}

fn method(
    channel: Option<u16>,
    name: &str,
    pipelined: bool,
    cursor: &mut Cursor<'_>,
) -> Fallible<Action> {
    let method = Method::named(name).ok_or_else(|| format!("no such method: {name}"))?;
    let channel = channel.ok_or("which channel? `a.1 METHOD`")?;
    let args = args(cursor, |name| method.kind(name))?;
    Ok(Action::Method(Call {
        channel,
        method,
        args,
        pipelined,
    }))
}

/// `name=value`, bits bare, as long as there are any.
fn args(
    cursor: &mut Cursor<'_>,
    kind: impl Fn(&str) -> Option<(&'static str, Kind)>,
) -> Fallible<Args> {
    let mut args = Args::new();
    while !ended(cursor) {
        let word = cursor.word();
        let (name, kind) = kind(word).ok_or_else(|| format!("no such field: `{word}`"))?;
        if kind == Kind::Bit && !cursor.text.starts_with('=') {
            args.push((name, Arg::Bit(true)));
            continue;
        }
        cursor.need("=")?;
        args.push((
            name,
            kind.parse(cursor)
                .map_err(|problem| format!("{name}: {problem}"))?,
        ));
    }
    Ok(args)
}

fn operation(verb: &str, named: bool, cursor: &mut Cursor<'_>) -> Fallible<Operation> {
    let (mut verb, mut name) = (verb.to_owned(), String::new());
    if verb == "delete" {
        verb = format!("delete {}", cursor.word());
        cursor.skip_spaces();
    }
    if named {
        name = text_of(&cursor.string()?)?;
    }
    let options = options(cursor)?;
    Ok(Operation {
        verb,
        name,
        options,
    })
}

/// `name=value`, where a value is a table or a string.
fn options(cursor: &mut Cursor<'_>) -> Fallible<Vec<(String, Arg)>> {
    let mut options = Vec::new();
    while !ended(cursor) {
        let name = cursor.word().to_owned();
        cursor.need("=")?;
        let value = match cursor.text.starts_with('{') {
            true => Arg::Table(cursor.table()?),
            false => Arg::Text(cursor.string()?),
        };
        options.push((name, value));
    }
    Ok(options)
}
