//! The broker's words about a declare, and patterns of policies: whatever is said is read in bounded time, and a refusal of
//! the rewritten form has no name of the proxy's when a client reads it.

use dlx_proxy::amqp::ids::ShortStr;
use dlx_proxy::dead_letter::Target;
use dlx_proxy::objects::{DeclaredTarget, Names, OwnObject, QueueType};
use dlx_proxy::registry::arguments::DeclareArguments;
use dlx_proxy::registry::policy::pattern;
use dlx_proxy::registry::refusal::{self, There};

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
    let read = refusal::there(406, heard.as_bytes(), &arguments, &names);
    let same = wanted == current && wanted_key == current_key;
    // The type and the strategy are the same.
    let expected = if same {
        There::OtherExchange
    } else {
        There::OursOtherwise
    };
    assert_eq!(read, expected);
    let told = refusal::decode_names_in(heard.as_bytes(), &names).expect("names of ours");
    let told = String::from_utf8_lossy(&told);
    assert!(told.len() <= 255 && !told.contains("dlx-proxy"), "{told}");
    if heard.len() < 200 {
        let begins = format!("{BEGIN}exchange{about}'{wanted}'");
        assert!(told.starts_with(&begins), "{told}");
        // S7.3: what differs is there to see.
        let (received, is) = told[begins.len() - wanted.len() - 2..]
            .split_once(" but current is ")
            .expect("both");
        let is = is.trim_end_matches(", taken over by the proxy");
        assert_eq!(received == is, same, "{told}");
    }
    assert_eq!(
        refusal::seen_with(406, heard.as_bytes(), queue.as_bytes(), &names)
            .map(|intake| intake.is_some()),
        Some(true)
    );
}

/// Any words.
fn heard(code: u16, text: &[u8], arguments: &[u8]) {
    let names = Names::default();
    let arguments = DeclareArguments::read(arguments);
    match refusal::there(code, text, &arguments, &names) {
        There::Ours(exchange) => assert!(names.is_intake_exchange(&exchange)),
        There::Forbidden { .. } | There::MayWrite => assert_eq!(code, 403),
        There::Else => {}
        _ => assert_eq!(code, 406),
    }
    if let Some(told) = refusal::decode_names_in(text, &names) {
        assert_ne!(told, text, "nothing is told anew");
    }
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
            let arguments = input.text();
            let prefix = if input.flag() {
                &b"PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost '/': received '"[..]
            } else {
                b""
            };
            heard(code, &[prefix, input.rest()].concat(), arguments);
        }
    }
}
