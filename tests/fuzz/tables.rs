//! Field tables: the views see what a slow and obvious decoder sees, however deep it goes; nothing recurses.

use std::borrow::Cow;

use dlx_proxy::amqp::table::{Array, ArrayBuilder, Table, TableBuilder, Value};

use super::input::Input;
use super::reference::{Member, array, table};

/// What is larger is walked only, not also copied: deep tables would take long.
const COPIED: usize = 4096;

/// A table whose nesting the input says, down to 20,000 levels, around what is left of it.
fn drawn(input: &mut Input<'_>) -> Vec<u8> {
    let (depth, kinds, core) = (input.byte(), input.byte(), input.rest());
    let depth = match depth {
        // Seldom, as it takes long.
        255 if kinds == 85 && core.len() < 16 => 20_000,
        depth if depth & 1 == 1 => usize::from(depth >> 4),
        _ => 0,
    };
    // The heads, from the outermost on; each announces all that is behind it.
    let is_array = |level: usize| kinds >> (level % 8) & 1 == 1;
    let mut heads: Vec<Vec<u8>> = Vec::new();
    let mut inside = core.len();
    for level in (0..depth).rev() {
        let name: &[u8] = match level > 0 && is_array(level - 1) {
            true => b"",
            false => b"\x01n",
        };
        let tag = if is_array(level) { b'A' } else { b'F' };
        let head = [name, &[tag], &(inside as u32).to_be_bytes()].concat();
        inside += head.len();
        heads.push(head);
    }
    let heads = heads.into_iter().rev().flatten();
    heads.chain(core.iter().copied()).collect()
}

/// What the reference has of a table is what the view has: all members in order, then an error if it found one.
fn same_table(bytes: &[u8]) -> Vec<Member<'_>> {
    let (members, sound) = table(bytes);
    let mut walk = Table(bytes).fields();
    for member in &members {
        let field = walk.next().expect("a member").expect("a sound one");
        assert_eq!((field.name, field.raw), (&*member.name, &*member.raw));
        same_value(field.value, member);
    }
    assert_eq!(
        walk.next().map(|end| end.is_err()),
        (!sound).then_some(true)
    );
    assert!(walk.next().is_none(), "after an error there are no more");
    assert_eq!(Table(bytes).check().is_ok(), sound);
    for name in members
        .iter()
        .map(|member| &*member.name)
        .chain([&b"none"[..]])
        .take(20)
    {
        let first = members.iter().find(|member| *member.name == *name);
        match Table(bytes).get(name) {
            Ok(Some(value)) => same_value(value, first.expect("there is one")),
            Ok(None) => assert!(first.is_none() && sound),
            Err(_) => assert!(first.is_none() && !sound),
        }
    }
    if sound && bytes.len() < COPIED {
        let mut copy = TableBuilder::with_capacity(0);
        for field in Table(bytes).fields().flatten() {
            copy.raw(&field);
        }
        assert_eq!(copy.finish(), bytes);
    }
    members
}

fn same_array(bytes: &[u8]) -> Vec<Member<'_>> {
    let (members, sound) = array(bytes);
    let mut walk = Array(bytes).values();
    for member in &members {
        same_value(walk.next().expect("a member").expect("a sound one"), member);
    }
    assert_eq!(
        walk.next().map(|end| end.is_err()),
        (!sound).then_some(true)
    );
    assert!(walk.next().is_none());
    if sound && bytes.len() < COPIED {
        let mut copy = ArrayBuilder::default();
        for value in Array(bytes).values().flatten() {
            copy.value(&value);
        }
        let mut member = TableBuilder::default();
        member.array(b"", &copy);
        let length = (bytes.len() as u32).to_be_bytes();
        assert_eq!(member.finish(), [b"\0A", &length[..], bytes].concat());
    }
    members
}

fn same_value(value: Value<'_>, member: &Member<'_>) {
    assert_eq!((value.tag, value.data), (member.tag, &member.data[..]));
    assert_eq!(value.as_integer().map(i128::from), member.integer());
    assert_eq!(value.as_longstr().is_some(), member.tag == b'S');
    assert_eq!(value.as_text().is_some(), b"Sx".contains(&member.tag));
    assert_eq!(value.as_table().is_some(), member.tag == b'F');
    assert_eq!(value.as_array().is_some(), member.tag == b'A');
    assert_eq!(value.as_timestamp().is_some(), member.tag == b'T');
}

pub(crate) fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let bytes = drawn(&mut input);
    // What is nested is looked into one by one: nothing here may recurse either.
    let mut due = vec![(b'F', &bytes[..])];
    while let Some((tag, bytes)) = due.pop() {
        let members = match tag {
            b'F' => same_table(bytes),
            _ => same_array(bytes),
        };
        let nested = members
            .into_iter()
            .filter(|member| b"FA".contains(&member.tag));
        due.extend(nested.filter_map(|member| match member.data {
            Cow::Borrowed(data) => Some((member.tag, data)),
            Cow::Owned(_) => None,
        }));
    }
}
