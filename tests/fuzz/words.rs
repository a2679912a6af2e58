//! The broker's words about a declare, and patterns of policies: whatever is said is read in bounded time, and a refusal of
//! the rewritten form becomes the one that the client's own words would have got.

use dlx_proxy::amqp::ids::ShortStr;
use dlx_proxy::dead_letter::Target;
use dlx_proxy::objects::{DeclaredTarget, Names, OwnObject, QueueType};
use dlx_proxy::registry::arguments::DeclareArguments;
use dlx_proxy::registry::policy::pattern;
use dlx_proxy::registry::refusal::{self, Fit, Permission, Presence};
use dlx_proxy::registry::wording::Wording;

use super::input::Input;
use super::reference::{Member, raw};

const BEGIN: &str = "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-";

fn short(text: &[u8]) -> ShortStr {
    ShortStr::copy(text).expect("short")
}

/// A name of printable characters, so that every generation of brokers writes it as it is.
fn word(input: &mut Input<'_>) -> String {
    let text = input.text();
    let letters = text
        .iter()
        .take(30)
        .map(|octet| char::from(b'a' + octet % 26));
    letters.collect()
}

fn said(exchange: &str, key: Option<&String>) -> DeclaredTarget {
    DeclaredTarget::Target(Target {
        exchange: short(exchange.as_bytes()),
        routing_key: key.map(|key| short(key.as_bytes())),
        at_least_once: false,
    })
}

/// The queue has one target, the client wants another: the broker compares the names of intake exchanges, the client reads of its own.
fn compared(input: &mut Input<'_>) {
    let names = Names::default();
    let (queue, current, wanted) = (word(input), word(input), word(input));
    let current_key = input.flag().then(|| word(input));
    let wanted_key = input.flag().then(|| word(input));
    let mut members = vec![Member::longstr(
        b"x-dead-letter-exchange",
        wanted.as_bytes(),
    )];
    if let Some(key) = &wanted_key {
        members.push(Member::longstr(
            b"x-dead-letter-routing-key",
            key.as_bytes(),
        ));
    }
    let table = raw(&members);
    let name = |exchange: &str, key: Option<&String>| {
        let name = names
            .name(&OwnObject::intake_exchange(
                &said(exchange, key),
                QueueType::Default,
            ))
            .expect("it fits");
        String::from_utf8(name.to_vec()).expect("readable")
    };
    let ours = name(&wanted, wanted_key.as_ref());
    let theirs = name(&current, current_key.as_ref());
    let about = format!("' for queue '{queue}' in vhost '/': received ");
    let heard = format!("{BEGIN}exchange{about}'{ours}' but current is '{theirs}'");
    let arguments = DeclareArguments::read(&table);
    let typed = |key: &Option<String>| match key {
        None => "none".to_owned(),
        Some(key) => format!("the value '{key}' of type 'longstr'"),
    };
    // S7.3
    let expected = if wanted != current {
        Some(format!(
            "{BEGIN}exchange{about}'{wanted}' but current is '{current}'"
        ))
    } else {
        match (&wanted_key, &current_key) {
            (wanted, current) if wanted == current => None,
            (Some(wanted), Some(current)) => Some(format!(
                "{BEGIN}routing-key{about}'{wanted}' but current is '{current}'"
            )),
            (wanted, current) => Some(format!(
                "{BEGIN}routing-key{about}{} but current is {}",
                typed(wanted),
                typed(current)
            )),
        }
    };
    let read = refusal::fit(406, heard.as_bytes(), &arguments, &names, Wording::Octets);
    match (expected, read) {
        (Some(expected), Fit::Answer(text)) if expected.len() <= 255 => {
            assert_eq!(String::from_utf8_lossy(&text), expected);
        }
        (Some(_), Fit::Answer(text)) => assert!(text.len() == 255 && text.ends_with(b"...")),
        (None, Fit::Original) => {}
        (expected, read) => assert_eq!((expected, read), (None, Fit::Original)),
    }
    assert_eq!(
        refusal::seen_with(406, heard.as_bytes(), queue.as_bytes(), &names)
            .map(|intake| intake.is_some()),
        Some(true)
    );
}

/// Any words.
fn heard(code: u16, text: &[u8], arguments: &[u8], wording: Wording) {
    let names = Names::default();
    let arguments = DeclareArguments::read(arguments);
    match refusal::fit(code, text, &arguments, &names, wording) {
        Fit::Answer(text) => assert!(text.len() <= 255),
        Fit::RewrittenAs(exchange) => assert!(names.is_intake_exchange(&exchange)),
        Fit::Original | Fit::Rewritten => {}
    }
    let permission = refusal::permission(code, text);
    assert!(code == 406 || permission != Permission::Granted);
    if let Some(told) = refusal::decode_names_in(text, &names, wording) {
        assert_ne!(told, text, "nothing is told anew");
    }
    let presence = refusal::presence(code, text);
    assert!(code == 406 || presence == Presence::Other);
    let _ = refusal::seen_with(code, text, b"q", &names);
    let _ = refusal::difference(code, text, b"q");
    let _ = refusal::is_channel_limit(code, text);
}

/// Any pattern, on any name: an error, or an answer, soon.
fn matched(input: &mut Input<'_>) {
    let text = String::from_utf8_lossy(input.bytes(40)).into_owned();
    if let Ok(pattern) = pattern(&text) {
        let _ = pattern.is_match(input.rest());
    }
}

pub(crate) fn target(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(5) {
        0 => compared(&mut input),
        3 => matched(&mut input),
        _ => {
            let code = input.pick(&[406, 403, 530, 404]);
            let wording = input.pick(&[Wording::Octets, Wording::Latin1, Wording::Characters]);
            let arguments = input.text();
            let prefix = if input.flag() {
                &b"PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost '/': received '"[..]
            } else {
                b""
            };
            heard(code, &[prefix, input.rest()].concat(), arguments, wording);
        }
    }
}
