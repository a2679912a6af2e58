//! What is written of a message's deaths (x-death, x-first-death-*, x-last-death-*, the private history) is what `deaths/reference.rs` says, whatever
//! the message brings along.

use dlx_proxy::amqp::content::Content;
use dlx_proxy::amqp::ids::ShortStr;
use dlx_proxy::amqp::properties::{Change, Edit, Properties, Property};
use dlx_proxy::dead_letter::{Death, Dialect, Disposal, Rules, Target, plan, private, signal};
use dlx_proxy::machine::Reason;

use super::input::Input;
use super::reference::{self as tables, Member, get, raw};

#[path = "deaths/reference.rs"]
mod reference;

const WORDS: &[&[u8]] = &[
    b"q",
    b"r",
    b"x",
    b"",
    b"rejected",
    b"expired",
    b"maxlen",
    b"delivery_limit",
];
const FIELDS: &[&[u8]] = &[
    b"queue",
    b"reason",
    b"count",
    b"time",
    b"exchange",
    b"routing-keys",
    b"original-expiration",
    b"own",
];
const FIRST: [&[u8]; 3] = [
    b"x-first-death-reason",
    b"x-first-death-queue",
    b"x-first-death-exchange",
];

fn word<'a>(input: &mut Input<'a>) -> &'a [u8] {
    match input.byte() {
        255 => input.text(),
        other => WORDS[usize::from(other) % WORDS.len()],
    }
}

fn array(members: &[Member<'_>]) -> Vec<u8> {
    raw(members)
}

fn keys(input: &mut Input<'_>) -> Vec<u8> {
    let keys: Vec<_> = (0..input.below(4))
        .map(|_| Member::nameless(b'S', word(input)))
        .collect();
    array(&keys)
}

/// A field of an entry: mostly of the type that it should have.
fn field(name: &[u8], input: &mut Input<'_>) -> Member<'static> {
    match (input.byte(), name) {
        (250.., _) => Member::new(name, b'V', b""),
        (240.., _) => Member::new(name, b'I', &[255, 255, 255, input.byte()]),
        (230.., _) => Member::new(name, b'x', word(input)),
        (220.., _) => Member::new(name, b'l', &input.longlong().to_be_bytes()),
        (_, b"count") => Member::long(name, i64::from(input.byte())),
        (_, b"time") => Member::new(name, b'T', &u64::from(input.byte()).to_be_bytes()),
        (_, b"routing-keys") => Member::new(name, b'A', &keys(input)),
        _ => Member::longstr(name, word(input)),
    }
}

/// One entry of x-death: all six fields, or any.
fn entry(input: &mut Input<'_>) -> Member<'static> {
    let fields: Vec<_> = match input.byte() {
        255 => return Member::nameless(b'S', word(input)),
        kind if kind < 128 => FIELDS[..6].iter().map(|name| field(name, input)).collect(),
        kind => (0..kind % 8)
            .map(|_| {
                let name = input.pick(FIELDS);
                field(name, input)
            })
            .collect(),
    };
    let mut fields = raw(&fields);
    if input.byte() == 255 {
        fields.truncate(fields.len() - 1.min(fields.len()));
    }
    Member::nameless(b'F', &fields)
}

fn entries(input: &mut Input<'_>) -> Vec<u8> {
    let entries: Vec<_> = (0..input.below(5)).map(|_| entry(input)).collect();
    array(&entries)
}

/// The headers of a message that died, or not, before.
fn headers(input: &mut Input<'_>) -> Vec<Member<'static>> {
    let mut headers = Vec::new();
    let deaths = entries(input);
    for _ in 0..input.below(7) {
        headers.push(match input.below(8) {
            0 => Member::new(b"x-death", b'A', &entries(input)),
            1 => Member::new(b"x-death", b'A', &deaths),
            2 => Member::longstr(input.pick(&FIRST), word(input)),
            3 => history(&deaths, input),
            4 => Member::new(b"CC", b'A', &keys(input)),
            5 => Member::longstr(b"x-last-death-queue", word(input)),
            6 => Member::longstr(b"x-death", word(input)),
            _ => Member::longstr(word(input), word(input)),
        });
    }
    headers
}

fn history(deaths: &[u8], input: &mut Input<'_>) -> Member<'static> {
    let mut copy = Vec::new();
    for _ in 0..input.below(5) {
        copy.push(match input.below(5) {
            0 => Member::new(b"x-death", b'A', &entries(input)),
            1 => Member::new(b"x-death", b'A', deaths),
            2 => Member::long(b"forget", i64::from(input.byte() % 4)),
            _ => Member::longstr(input.pick(&FIRST), word(input)),
        });
    }
    Member::new(private::HISTORY, b'F', &raw(&copy))
}

fn content(headers: &[u8], expiration: Option<&[u8]>) -> Content {
    let empty = Properties::parse(&[0, 0]).expect("no properties");
    let properties = empty.edit(&Edit {
        headers: Change::Set(headers.to_vec()),
        expiration: expiration.map_or(Change::Keep, |text| Change::Set(text.to_vec())),
        user_id: Change::Set(b"user".to_vec()),
        ..Edit::default()
    });
    Content {
        properties,
        body: (&b"body"[..]).into(),
    }
}

fn dies(headers: &[Member<'_>], input: &mut Input<'_>) {
    let name = |text: &[u8]| ShortStr::copy(text).expect("short");
    let rules = Rules {
        dialect: input.pick(&[Dialect::V3, Dialect::V3_13, Dialect::V4]),
        max_history: input.pick(&[256, 0, 1, 2, 4]),
        continue_history: input.flag(),
        carry_bcc: input.flag(),
        stamp: Default::default(),
    };
    let recorded = input.flag();
    let reason = input.pick(&[
        Reason::Rejected,
        Reason::Expired,
        Reason::Maxlen,
        Reason::DeliveryLimit,
    ]);
    let (queue, exchange, key) = (name(word(input)), word(input), word(input));
    let expiration = input
        .flag()
        .then(|| input.pick::<&[u8]>(&[b"20", b"0020", b"0", b"+7", b"-0", b"", b"x1", b"+"]));
    let target = Target {
        // Named, so that nothing is a cycle: that is another rule.
        exchange: name(b"dlx"),
        routing_key: input.flag().then(|| name(word(input))),
        at_least_once: input.flag(),
    };
    let content = content(&raw(headers), expiration);
    let death = Death {
        queue: &queue,
        reason,
        exchange,
        routing_key: key,
        content: &content,
        recorded,
        failed: false,
        by: None,
    };
    let now = u64::from(input.byte());
    let planned = plan(&death, &target, &rules, now);
    assert_eq!(
        planned,
        plan(&death, &target, &rules, now),
        "the same input, another plan"
    );
    let happened = reference::Happened {
        rules,
        recorded,
        reason: reason.as_str().as_bytes(),
        queue: &queue,
        exchange,
        key,
        keyed: target.routing_key.is_some(),
        expiration,
        now,
    };
    let expected = reference::after(headers, &happened);
    let Ok(Disposal::Publish(publication)) = planned else {
        return assert_eq!(expected, None, "{planned:?}");
    };
    let properties = Properties::parse(&publication.content.properties).expect("sound");
    assert_eq!(properties.get(Property::Expiration), None);
    assert_eq!(properties.get(Property::UserId), Some(&b"user"[..]));
    assert_eq!(publication.content.body, content.body);
    assert_eq!(
        publication.routing_key,
        target.routing_key.unwrap_or_else(|| name(key))
    );
    let (written, sound) = tables::table(properties.headers().expect("headers"));
    assert!(sound);
    // The lap is of the rule of cycles.
    let written: Vec<_> = written
        .into_iter()
        .filter(|member| *member.name != *private::LAP)
        .collect();
    assert_eq!(shown(&written), shown(&expected.expect("it is sound")));
    let deaths = get(&written, b"x-death").expect("it died");
    assert!(tables::array(&deaths.data).0.len() <= rules.max_history.max(1));
}

/// For a failure that can be read.
fn shown(members: &[Member<'_>]) -> Vec<String> {
    let shown = members
        .iter()
        .map(|member| member.raw.escape_ascii().to_string());
    shown.collect()
}

fn is_shown(headers: &[Member<'_>]) {
    let content = content(&raw(headers), None);
    let seen = private::on_delivery(&content.properties, b"");
    let Some(expected) = reference::shown(headers) else {
        return assert_eq!(seen, None, "not sound: as it came");
    };
    let seen = seen.unwrap_or(content.properties);
    let seen = Properties::parse(&seen).expect("sound");
    let (seen, _) = tables::table(seen.headers().expect("headers"));
    assert_eq!(shown(&seen), shown(&expected));
}

fn is_a_signal(headers: &[Member<'_>], key: &[u8]) {
    let content = content(&raw(headers), None);
    let newest = get(headers, b"x-death").filter(|deaths| deaths.tag == b'A');
    let newest = newest.and_then(|deaths| tables::array(&deaths.data).0.into_iter().next());
    let Ok(signal) = signal(key, &content) else {
        return;
    };
    let newest = newest.expect("a signal has a death");
    let (fields, sound) = tables::table(&newest.data);
    assert!(sound && newest.tag == b'F');
    let text = |name: &[u8]| get(&fields, name).map(|field| field.data.to_vec());
    assert_eq!(text(b"queue").as_deref(), Some(&*signal.queue));
    assert_eq!(
        text(b"reason").as_deref(),
        Some(signal.reason.as_str().as_bytes())
    );
    let count = get(&fields, b"count").and_then(Member::integer);
    assert_eq!(count, Some(i128::from(signal.count)));
}

pub(crate) fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let what = input.below(4);
    let settings = input.bytes(16);
    let headers = headers(&mut input);
    let settings = &mut Input::new(settings);
    match what {
        0 => is_shown(&headers),
        1 => is_a_signal(&headers, settings.text()),
        _ => dies(&headers, settings),
    }
}
