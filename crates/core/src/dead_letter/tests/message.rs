//! Messages as text and as bytes.
//!
//! `message exchange=x key=k expiration=5 user=u cc=[a] bcc=[b] deaths=[q/reason*1 t=9 x=x k=[k, a] oe=5] first=q/reason@x
//! private=same` and more; a header with another name is `h:name=value`. `deaths` are written in the order of fields that RabbitMQ 4.x has,
//! `own-deaths` in ours; `private=same` is a private history as the proxy writes it beside these headers, `private=[…]` an older one.
//! `private-user=bob` is the user-id that the proxy hides, `-` that there was none.
//! `time=l:5` is `x-opt-delivery-time` with that type code and value, `own-time=l:5` the same under its private name.
//! `mark=l:7` is the count of a redriven message, as that type. `odd` is a header of no type, and what is `torn` lacks its last byte.
//! `lap=[b, a] lap-of=(x, k, 2)` is a lap of these queues, published to x with k after two deaths; `lap-set=[b, k2]`: a policy of the
//! broker's set the key k2 in b.

use bytes::Bytes;

use crate::amqp::content::Content;
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::table::{ArrayBuilder, Table, TableBuilder};
use crate::dead_letter::cycle::Lap;
use crate::dead_letter::headers::{BCC, CC, X_DEATH, X_FIRST_DEATH, X_LAST_DEATH, longstrs};
use crate::dead_letter::{HistoryForm, delivery_time, private, remembered};

use super::script::{Words, entries, list, parts, spelled};

pub(super) struct Message {
    pub(super) exchange: String,
    pub(super) key: String,
    pub(super) content: Content,
}

/// What a name looks like in a table.
pub(super) fn quoted(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "\"\"".to_owned();
    }
    bytes.escape_ascii().to_string()
}

pub(super) fn content(edit: &Edit) -> Content {
    let none = Properties::parse(&[0, 0]).unwrap();
    Content {
        properties: none.edit(edit),
        body: Bytes::from_static(b"body"),
    }
}

pub(super) fn build(line: &str, form: HistoryForm) -> Message {
    let mut words = Words::of(line);
    assert_eq!(words.verb, "message");
    let mut headers = TableBuilder::default();
    let mut any = words.flag("headers");
    // In the order of the line's words where it matters: what stands beside the known ones comes first.
    while let Some((name, value)) = words.take_header() {
        headers.longstr(name.as_bytes(), spelled(&value).as_bytes());
        any = true;
    }
    for (word, name) in [
        ("own-time", private::DELIVERY_TIME),
        ("time", delivery_time::NAME),
    ] {
        while let Some(value) = words.take(word) {
            headers.members(&typed(name, &value));
            any = true;
        }
    }
    for (word, name) in [
        ("cc", CC),
        ("bcc", BCC),
        ("private-bcc", private::BCC),
        ("private-cc", private::CC),
    ] {
        if let Some(text) = words.take(word) {
            headers.array(name, &keys(&text));
            any = true;
        }
    }
    for (word, own) in [("deaths", false), ("own-deaths", true)] {
        if let Some(text) = words.take(word) {
            headers.array(X_DEATH, &deaths(&text, own));
            any = true;
        }
    }
    for (word, names) in [("first", X_FIRST_DEATH), ("last", X_LAST_DEATH)] {
        if let Some(event) = words.take(word) {
            event_headers(&mut headers, names, &event);
        }
    }
    if let Some(count) = words.take("mark") {
        let mut mark = TableBuilder::default();
        if !count.is_empty() {
            mark.members(&typed(b"count", &count));
        }
        if let Some(time) = words.take("mark-time") {
            mark.timestamp(b"time", time.parse().unwrap());
        }
        headers.table(private::REDRIVEN, &mark);
        any = true;
    }
    let mut headers = headers.finish();
    if words.flag("odd") {
        headers.extend(b"\x01aZ");
    }
    if let Some(history) = words.take("private") {
        let forget = words.flag("forget");
        let mut older = TableBuilder::default();
        let of = if history == "same" {
            Table(&headers)
        } else {
            older.array(X_DEATH, &deaths(&history, false));
            if let Some(event) = words.take("private-first") {
                event_headers(&mut older, X_FIRST_DEATH, &event);
            }
            older.as_table()
        };
        let member = remembered::copy(of, forget, form).unwrap().unwrap();
        headers.extend(member.finish());
    }
    if let Some(queues) = words.take("lap") {
        let queues = list(&queues);
        let of = words
            .take("lap-of")
            .expect("lap-of=(exchange, key, deaths)");
        let of = parts(of.trim_start_matches('(').trim_end_matches(')'));
        let set = words.take("lap-set").unwrap_or_default();
        let set = list(&set);
        let lap = Lap {
            queues: queues.iter().map(|queue| queue.as_bytes()).collect(),
            exchange: of[0].as_bytes(),
            routing_key: of[1].as_bytes(),
            deaths: of[2].parse().unwrap(),
            at_least_once: words.flag("lap-at-least-once"),
            set: set.iter().map(|part| part.as_bytes()).collect(),
        };
        let mut member = TableBuilder::default();
        member.table(private::LAP, &lap.write());
        headers.extend(member.finish());
    }
    if let Some(user) = words.take("private-user") {
        headers.extend(match user.as_str() {
            "-" => typed(private::USER_ID, "V:"),
            user => typed(private::USER_ID, &format!("S:{user}")),
        });
    }
    let set = |value: Option<String>| value.map_or(Change::Keep, |text| Change::Set(text.into()));
    let edit = Edit {
        headers: if any || !headers.is_empty() {
            Change::Set(headers)
        } else {
            Change::Keep
        },
        expiration: set(words.take("expiration")),
        user_id: set(words.take("user")),
        ..Edit::default()
    };
    let mut content = content(&edit);
    if words.flag("torn") {
        content.properties.truncate(content.properties.len() - 1);
    }
    let message = Message {
        exchange: words.take("exchange").unwrap_or_default(),
        key: words.take("key").unwrap_or_default(),
        content,
    };
    words.done();
    message
}

/// A member of this name whose value is written as `code:value`.
pub(super) fn typed(name: &[u8], value: &str) -> Vec<u8> {
    let (code, value) = value.split_once(':').expect("a type and a value");
    let number = || value.parse::<i128>().expect("a number");
    let bytes = match code {
        "V" => Vec::new(),
        "S" | "x" => [&(value.len() as u32).to_be_bytes(), value.as_bytes()].concat(),
        "d" => value.parse::<f64>().unwrap().to_be_bytes().into(),
        "b" | "B" => vec![number() as u8],
        "s" | "u" => (number() as u16).to_be_bytes().into(),
        "I" | "i" => (number() as u32).to_be_bytes().into(),
        "l" | "L" | "T" => (number() as u64).to_be_bytes().into(),
        other => panic!("no type {other}"),
    };
    [&[name.len() as u8], name, code.as_bytes(), &bytes].concat()
}

fn event_headers(headers: &mut TableBuilder, names: [&[u8]; 3], event: &str) {
    let (queue, rest) = event.split_once('/').unwrap();
    let (reason, exchange) = rest.split_once('@').unwrap();
    for (name, value) in names.into_iter().zip([reason, queue, exchange]) {
        headers.longstr(name, value.as_bytes());
    }
}

pub(super) fn deaths(text: &str, own: bool) -> ArrayBuilder {
    let mut array = ArrayBuilder::default();
    for entry in entries(text) {
        match Words::of(&entry) {
            words if words.verb == "junk" => drop(array.longstr(b"junk")),
            words => drop(array.table(&entry_table(words, own))),
        }
    }
    array
}

/// `queue/reason*count t=… x=… k=[…] oe=… n=text`, in the order of 4.x or sorted by name; `n` is a count that is no number, `#queue` a
/// queue that is a byte array, `-` none.
fn entry_table(mut words: Words, own: bool) -> TableBuilder {
    let (queue, rest) = words.verb.split_once('/').unwrap();
    let (reason, count) = rest
        .split_once('*')
        .map_or((rest, None), |(r, n)| (r, Some(n.to_owned())));
    let (queue, reason) = (spelled(queue), reason.to_owned());
    let queue = match queue.strip_prefix('#') {
        Some(bytes) => format!("x:{bytes}"),
        None => format!("S:{queue}"),
    };
    let is = |text: &String| !text.ends_with(":-");
    let typed_as = |of: &str, text: Option<String>| text.map(|text| format!("{of}:{text}"));
    let count = typed_as("l", count).or(typed_as("S", words.take("n")));
    let fields = [
        ("original-expiration", typed_as("S", words.take("oe"))),
        ("count", count),
        ("reason", Some(format!("S:{reason}")).filter(is)),
        ("queue", Some(queue).filter(is)),
        ("time", typed_as("T", words.take("t"))),
        ("exchange", typed_as("S", words.take("x"))),
        ("routing-keys", words.take("k")),
        ("extra", typed_as("S", words.take("extra"))),
    ];
    words.done();
    let fields = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    let mut fields: Vec<_> = fields.collect();
    if own {
        fields.sort();
    }
    let mut table = TableBuilder::default();
    for (name, value) in fields {
        match name {
            "routing-keys" => table.array(name.as_bytes(), &keys(&value)),
            _ => table.members(&typed(name.as_bytes(), &value)),
        };
    }
    table
}

/// `[a, b]`
fn keys(text: &str) -> ArrayBuilder {
    let keys: Vec<_> = list(text).iter().map(|key| spelled(key)).collect();
    longstrs(&keys.iter().map(|key| key.as_bytes()).collect::<Vec<_>>())
}
