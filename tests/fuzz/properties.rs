//! Content headers and properties: an edit changes what it names and nothing else; a content goes through frames whole.

use dlx_proxy::amqp::content::{Assembly, Content, body_size};
use dlx_proxy::amqp::frame::{self, Front, HEAD};
use dlx_proxy::amqp::ids::ChannelId;
use dlx_proxy::amqp::properties::{Change, Edit, Properties, Property, has_headers};

use super::input::Input;

/// From content-type to cluster-id, each as it is on the wire, with its length, or absent.
type Values = [Option<Vec<u8>>; 14];

const HEADERS: usize = 2;
const PRIORITY: usize = 4;
const EXPIRATION: usize = 7;
const USER_ID: usize = 11;

/// Slow and obvious: from the specification (4.2.6.1, class `basic`).
fn decoded(raw: &[u8]) -> Option<Values> {
    let flags = u16::from_be_bytes([*raw.first()?, *raw.get(1)?]);
    let mut values = Values::default();
    let mut at = 2;
    for (slot, value) in values.iter_mut().enumerate() {
        if flags & (0x8000 >> slot) == 0 {
            continue;
        }
        let rest = raw.get(at..)?;
        let length = match slot {
            HEADERS => {
                4 + rest
                    .get(..4)?
                    .iter()
                    .fold(0, |n, octet| n * 256 + usize::from(*octet))
            }
            3 | 4 => 1,
            9 => 8,
            _ => 1 + usize::from(*rest.first()?),
        };
        *value = Some(rest.get(..length)?.to_vec());
        at += length;
    }
    (at == raw.len()).then_some(values)
}

fn encoded(values: &Values) -> Vec<u8> {
    let flags = (0..14).fold(0u16, |flags, slot| {
        flags | u16::from(values[slot].is_some()) << (15 - slot)
    });
    let present = values.iter().flatten().flatten().copied();
    flags.to_be_bytes().into_iter().chain(present).collect()
}

fn drawn(input: &mut Input<'_>) -> Vec<u8> {
    let flags = input.short();
    let value = |slot: usize| {
        (flags & 1 << slot != 0).then(|| match slot {
            HEADERS => {
                let table = input.text();
                [&(table.len() as u32).to_be_bytes()[..], table].concat()
            }
            3 | 4 => vec![input.byte()],
            9 => input.longlong().to_be_bytes().to_vec(),
            _ => {
                let text = input.text();
                [&[text.len() as u8], text].concat()
            }
        })
    };
    encoded(&std::array::from_fn(value))
}

fn change(input: &mut Input<'_>) -> Change {
    match input.below(4) {
        0 | 1 => Change::Keep,
        2 => Change::Remove,
        _ => Change::Set(input.text().to_vec()),
    }
}

fn changed(value: &mut Option<Vec<u8>>, change: &Change, length_octets: usize) {
    match change {
        Change::Keep => {}
        Change::Remove => *value = None,
        Change::Set(text) => {
            let length = (text.len() as u32).to_be_bytes();
            *value = Some([&length[4 - length_octets..], text].concat());
        }
    }
}

fn edits(raw: &[u8], input: &mut Input<'_>) {
    let edit = Edit {
        headers: change(input),
        expiration: change(input),
        user_id: change(input),
        priority: match input.below(4) {
            0 | 1 => Change::Keep,
            2 => Change::Remove,
            _ => Change::Set(vec![input.byte()]),
        },
    };
    let parsed = Properties::parse(raw);
    let Some(mut values) = decoded(raw) else {
        assert!(parsed.is_err(), "more lenient than the specification");
        return;
    };
    let parsed = parsed.expect("as strict as the specification");
    assert_eq!(has_headers(raw), values[HEADERS].is_some());
    let text = |slot: usize, length: usize| values[slot].as_ref().map(|value| &value[length..]);
    assert_eq!(parsed.headers(), text(HEADERS, 4));
    assert_eq!(parsed.get(Property::Expiration), text(EXPIRATION, 1));
    assert_eq!(parsed.get(Property::UserId), text(USER_ID, 1));
    assert_eq!(parsed.get(Property::Priority), text(PRIORITY, 0));
    assert_eq!(&parsed.edit(&Edit::default())[..], raw);
    let edited = parsed.edit(&edit);
    changed(&mut values[HEADERS], &edit.headers, 4);
    changed(&mut values[PRIORITY], &edit.priority, 0);
    changed(&mut values[EXPIRATION], &edit.expiration, 1);
    changed(&mut values[USER_ID], &edit.user_id, 1);
    let mut expected = encoded(&values);
    // Flags of no property: as they were, but for headers that are written anew.
    if !matches!(edit.headers, Change::Set(_)) {
        expected[1] |= raw[1] & 0b11;
    }
    assert_eq!(edited, expected, "more, or less, than it names");
    assert_eq!(decoded(&edited), Some(values));
}

/// Out in frames, and in again in pieces.
fn through_frames(content: &Content, frame_max: usize, piece: usize) {
    let mut out = Vec::new();
    content.put(&mut out, ChannelId(3), frame_max);
    let mut payloads = Vec::new();
    let mut rest = &out[..];
    while let Front::Whole(head, payload, length) = frame::front(rest) {
        assert!(payloads.is_empty() || frame_max == 0 || length <= frame_max.max(HEAD + 2));
        assert_eq!(head.channel, ChannelId(3));
        payloads.push(payload);
        rest = &rest[length..];
    }
    assert!(rest.is_empty());
    let (header, bodies) = payloads.split_first().expect("a header");
    assert_eq!(HEAD + header.len() + 1, content.header_frame());
    assert_eq!(body_size(header), Ok(content.body.len() as u64));
    assert!(content.is_empty() || Assembly::begin(header, content.len() - 1).is_none());
    let mut assembly = Assembly::begin(header, content.len()).expect("it fits");
    assert_eq!(assembly.whole(), content.len());
    for piece in bodies.concat().chunks(piece) {
        assert!(!assembly.is_complete());
        assembly.push(piece);
    }
    assembly.push(b"beyond");
    assert!(assembly.is_complete());
    assert_eq!(&assembly.finish(), content);
}

/// Any payload of a header: the memory is bounded before anything is kept.
fn any_header(header: &[u8], limit: usize) {
    if let Some(mut assembly) = Assembly::begin(header, limit) {
        assert!(assembly.whole() <= limit);
        let body = body_size(header).expect("it was read") as usize;
        assembly.push(&vec![7; body.min(1 << 16)]);
        if assembly.is_complete() {
            let content = assembly.finish();
            assert_eq!(content.properties, header[12..]);
            assert_eq!(content.body.len(), body);
        }
    } else {
        let fits = body_size(header).is_ok_and(|body| {
            let properties = header.get(12..).map(|properties| properties.len() as u64);
            properties
                .and_then(|octets| octets.checked_add(body))
                .is_some_and(|all| all <= limit as u64)
        });
        assert!(!fits, "refused though it fits");
    }
}

pub(crate) fn target(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(4) {
        0 => {
            let changes = input.bytes(12);
            let raw = input.rest();
            edits(raw, &mut Input::new(changes));
        }
        1 => {
            let mut raw = drawn(&mut input);
            edits(&raw, &mut input);
            raw.truncate(input.below(raw.len()));
            edits(&raw, &mut input);
        }
        2 => {
            let (frame_max, piece) = (input.below(100), 1 + input.below(40));
            let content = Content {
                properties: input.text().to_vec().into(),
                body: input.rest().to_vec().into(),
            };
            through_frames(&content, frame_max, piece);
        }
        _ => {
            let limit = usize::from(input.short());
            any_header(input.rest(), limit);
        }
    }
}
