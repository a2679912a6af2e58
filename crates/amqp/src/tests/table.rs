use proptest::collection::vec;
use proptest::prelude::*;

use crate::cursor::{Cursor, Malformed};
use crate::table::{Array, ArrayBuilder, Field, Table, TableBuilder, Value};

/// Each type that RabbitMQ knows, with some data: the tag, the octets of it on the wire.
pub(super) fn value() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let fixed = |tag: &'static [u8], size: usize| {
        (prop::sample::select(tag), vec(any::<u8>(), size)).boxed()
    };
    let long =
        (prop::sample::select(&b"SxFA"[..]), vec(any::<u8>(), 0..20)).prop_map(|(tag, data)| {
            (
                tag,
                [&(data.len() as u32).to_be_bytes()[..], &data].concat(),
            )
        });
    prop_oneof![
        long,
        fixed(b"tbB", 1),
        fixed(b"su", 2),
        fixed(b"Iif", 4),
        fixed(b"lLdT", 8),
        fixed(b"D", 5),
        fixed(b"V", 0),
    ]
}

fn raw(name: &[u8], (tag, data): &(u8, Vec<u8>)) -> Vec<u8> {
    [&[name.len() as u8], name, &[*tag], data].concat()
}

proptest! {
    /// Order, duplicates, types and names that are not UTF-8 come out as they went in.
    #[test]
    fn a_table_copied_member_by_member_is_the_same(members in vec((vec(any::<u8>(), 0..9), value()), 0..9)) {
        let bytes: Vec<u8> = members.iter().flat_map(|(name, value)| raw(name, value)).collect();
        let mut copy = TableBuilder::default();
        let mut names = Vec::new();
        for field in Table(&bytes).fields() {
            let field = field.unwrap();
            names.push(field.name.to_vec());
            copy.raw(&field);
        }
        prop_assert_eq!(copy.finish(), bytes.clone());
        let expected: Vec<_> = members.iter().map(|(name, _)| name.clone()).collect();
        prop_assert_eq!(names, expected);
        prop_assert_eq!(Table(&bytes).check(), Ok(()));
        let names: [Vec<u8>; 3] = std::array::from_fn(|at| {
            members.get(3 - at).map_or(b"another".to_vec(), |(name, _)| name.clone())
        });
        let one_by_one = names.each_ref().map(|name| Table(&bytes).get(name).unwrap());
        if names[0] != names[1] && names[1] != names[2] && names[0] != names[2] {
            prop_assert_eq!(Table(&bytes).find(names.each_ref().map(|name| &name[..])), Ok(one_by_one));
        }
        for (name, _) in &members {
            let first = members.iter().find(|(n, _)| n == name).unwrap();
            let found = Table(&bytes).get(name).unwrap().unwrap();
            let data = if b"SxFA".contains(&first.1.0) { &first.1.1[4..] } else { &first.1.1[..] };
            prop_assert_eq!((found.tag, found.data), (first.1.0, data));
        }
    }

    /// A cut table is an error, once, wherever it is cut.
    #[test]
    fn a_cut_table_is_malformed(members in vec((vec(any::<u8>(), 0..9), value()), 1..5), at in any::<prop::sample::Index>()) {
        let mut ends = vec![0];
        let mut bytes = Vec::new();
        for (name, value) in &members {
            bytes.extend(raw(name, value));
            ends.push(bytes.len());
        }
        let at = at.index(bytes.len());
        let cut = Table(&bytes[..at]);
        prop_assert_eq!(cut.check().is_err(), !ends.contains(&at));
        prop_assert!(cut.fields().filter(Result::is_err).count() <= 1);
    }

    #[test]
    fn no_bytes_break_a_walk(bytes in vec(any::<u8>(), 0..60)) {
        let _ = Table(&bytes).check();
        for value in Array(&bytes).values().flatten() {
            let _ = (value.as_integer(), value.as_timestamp(), value.as_longstr());
            let _ = (value.as_table(), value.as_array());
        }
    }

    #[test]
    fn what_was_built_is_read(text in vec(any::<u8>(), 0..300), number: i64, flag: bool, seconds: u64) {
        let mut array = ArrayBuilder::default();
        array.longstr(&text).raw_table(Table(b"")).table(&TableBuilder::default());
        let mut inner = TableBuilder::default();
        inner.long(b"n", number);
        let mut table = TableBuilder::with_capacity(10);
        table
            .longstr(b"text", &text)
            .long(b"number", number)
            .boolean(b"flag", flag)
            .timestamp(b"time", seconds)
            .array(b"array", &array)
            .table(b"table", &inner)
            .members(&raw(b"raw", &(b'V', Vec::new())));
        let bytes = table.finish();
        let get = |name: &[u8]| Table(&bytes).get(name).unwrap().unwrap();
        prop_assert_eq!(get(b"text").as_longstr(), Some(&text[..]));
        prop_assert_eq!(get(b"number").as_integer(), Some(number));
        prop_assert_eq!(get(b"flag"), Value { tag: b't', data: &[u8::from(flag)] });
        prop_assert_eq!(get(b"time").as_timestamp(), Some(seconds));
        prop_assert_eq!(get(b"raw"), Value { tag: b'V', data: &[] });
        let inside = get(b"table").as_table().unwrap();
        prop_assert_eq!(inside.get(b"n").unwrap().unwrap().as_integer(), Some(number));
        let members: Vec<_> = get(b"array").as_array().unwrap().values().map(|value| value.unwrap().tag).collect();
        prop_assert_eq!(members, b"SFF".to_vec());
    }
}

#[test]
fn integers_have_rabbitmqs_widths_and_signs() {
    let cases: [(u8, &[u8], i64); 8] = [
        (b'b', &[0xFF], -1),
        (b'B', &[0xFF], 255),
        (b's', &[0xFF, 0xFE], -2),
        (b'u', &[0xFF, 0xFE], 65534),
        (b'I', &[0xFF, 0xFF, 0xFF, 0xFD], -3),
        (b'i', &[0xFF, 0xFF, 0xFF, 0xFD], 4_294_967_293),
        (b'l', &[0xFF; 8], -1),
        (b'L', &[0xFF; 8], -1),
    ];
    for (tag, data, expected) in cases {
        assert_eq!(
            Value { tag, data }.as_integer(),
            Some(expected),
            "{}",
            char::from(tag)
        );
    }
    let eight = |tag| Value { tag, data: &[0; 8] };
    assert_eq!(eight(b'd').as_integer(), None);
    assert_eq!(eight(b'l').as_timestamp(), None);
}

#[test]
fn an_unknown_type_ends_the_walk() {
    let mut bytes = raw(b"a", &(b'V', Vec::new()));
    bytes.extend(raw(b"b", &(b'?', Vec::new())));
    bytes.extend(raw(b"c", &(b'V', Vec::new())));
    let walked: Vec<Result<Field<'_>, Malformed>> = Table(&bytes).fields().collect();
    assert_eq!(walked.len(), 2);
    assert!(walked[0].is_ok() && walked[1].is_err());
    assert!(Table(&bytes).get(b"a").unwrap().is_some());
    assert_eq!(Table(&bytes).get(b"c"), Err(Malformed));
}

#[test]
fn depth_costs_nothing() {
    let mut nested: Vec<u8> = Vec::new();
    for depth in 0..20_000 {
        let tag = if depth % 2 == 0 { b'F' } else { b'A' };
        let name: &[u8] = if tag == b'F' { b"" } else { b"n" };
        let mut outer = if tag == b'F' {
            vec![tag]
        } else {
            raw(name, &(tag, Vec::new()))
        };
        outer.extend((nested.len() as u32).to_be_bytes());
        outer.append(&mut nested);
        nested = outer;
    }
    assert_eq!(Table(&nested).check(), Ok(()));
    assert_eq!(Table(&nested).fields().count(), 1);
}

#[test]
fn a_cursor_reads_in_order_and_never_beyond() {
    let mut cursor = Cursor::new(&[
        1, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 2, b'h', b'i', 0, 0, 0, 1, b'x', 9,
    ]);
    assert_eq!(cursor.octet(), Ok(1));
    assert_eq!(cursor.short(), Ok(2));
    assert_eq!(cursor.long(), Ok(3));
    assert_eq!(cursor.longlong(), Ok(4));
    assert_eq!(cursor.shortstr(), Ok(&b"hi"[..]));
    assert_eq!(cursor.longstr(), Ok(&b"x"[..]));
    assert_eq!(cursor.short(), Err(Malformed));
    assert_eq!(cursor.take(2), Err(Malformed));
    assert!(!cursor.is_empty());
    assert_eq!(cursor.rest(), [9]);
    assert_eq!(Cursor::new(&[0xFF; 6]).longstr(), Err(Malformed));
    assert_eq!(Cursor::new(&[3, 1, 1]).shortstr(), Err(Malformed));
}
