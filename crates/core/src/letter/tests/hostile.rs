use proptest::collection::vec;
use proptest::prelude::*;

use crate::amqp::table::{ArrayBuilder, TableBuilder, Value};
use crate::letter::{Detail, ErrorHeaders, Filter, Groups, Letter};

use super::{TEN, died, entry, letter, short, with_properties};

/// Reads all that there is to read.
fn read(letter: &Letter) -> Detail {
    let errors = ErrorHeaders::default();
    let filter = Filter {
        source: short("orders"),
        headers: vec![(b"a".to_vec(), b"b".to_vec())],
        ids: vec![letter.id()],
        ..Filter::default()
    };
    filter.takes(letter);
    let mut groups = Groups::new(errors.clone());
    groups.add(letter);
    assert_eq!(groups.finish().len(), 1);
    let detail = Detail::of(letter, &errors);
    assert!(serde_json::to_string(&detail).is_ok());
    detail
}

/// A table in a table, so often.
fn nested(depth: usize) -> TableBuilder {
    (0..depth).fold(TableBuilder::default(), |inner, _| {
        let mut outer = TableBuilder::default();
        outer.table(b"x-death", &inner);
        outer
    })
}

#[test]
fn fields_of_other_types_are_not_there() {
    let mut odd = TableBuilder::default();
    odd.long(b"queue", 1)
        .void(b"reason")
        .longstr(b"count", b"many")
        .long(b"time", -1)
        .longstr(b"exchange", &[b'x'; 256])
        .longstr(b"routing-keys", b"k")
        .boolean(b"original-expiration", true);
    let mut array = ArrayBuilder::default();
    array
        .table(&odd)
        .table(&entry("orders", "rejected", 1, TEN));
    let mut headers = TableBuilder::default();
    headers.array(b"x-death", &array);
    let letter = letter(headers, "");
    assert_eq!(
        letter.last_death().deaths[0],
        crate::letter::Death::default()
    );
    assert_eq!(letter.last_death().deaths.len(), 2);
    read(&letter);
}

#[test]
fn of_ten_thousand_deaths_a_thousand_are_read() {
    let deaths: Vec<_> = (0..10_000)
        .map(|n| ("orders", "rejected", 1, TEN + n))
        .collect();
    let letter = letter(died(&deaths), "");
    assert_eq!(letter.last_death().deaths.len(), 1000);
    let detail = read(&letter);
    assert_eq!(detail.summary.deaths, 1000);
    assert!(detail.headers_cut);
}

#[test]
fn nesting_is_cut_long_before_the_stack_ends() {
    let detail = read(&letter(nested(1000), ""));
    let shown = detail.headers[0].value.to_string();
    assert_eq!(shown.matches("x-death").count(), 32);
    assert!(shown.contains('…'));
    assert!(detail.headers_cut);
    // 64 KiB of it, within what is an array.
    let mut array = ArrayBuilder::default();
    array.table(&nested(4000));
    let mut headers = TableBuilder::default();
    headers.array(b"x-death", &array).longstr(b"behind", b"it");
    let detail = read(&letter(headers, ""));
    let cut: Vec<_> = detail.headers.iter().map(|header| header.cut).collect();
    assert_eq!((cut, detail.headers_cut), (vec![true, false], true));
}

#[test]
fn what_is_shown_of_headers_is_bounded() {
    let mut long = TableBuilder::default();
    long.longstr(b"a", &vec![b'a'; 100_000]).longstr(b"b", b"");
    let mut many = TableBuilder::default();
    for _ in 0..100_000 {
        many.void(b"");
    }
    let mut array = ArrayBuilder::default();
    for _ in 0..100_000 {
        array.value(&Value {
            tag: b'V',
            data: b"",
        });
    }
    let mut in_array = TableBuilder::default();
    in_array.array(b"a", &array);
    for headers in [long, many, in_array] {
        let detail = read(&letter(headers, ""));
        assert!(detail.headers_cut);
        let shown = serde_json::to_string(&detail.headers).unwrap();
        assert!(shown.len() < 400_000, "{}", shown.len());
    }
}

#[test]
fn names_and_texts_that_are_no_text_are_shown_all_the_same() {
    let mut headers = died(&[]);
    headers.longstr(b"\xff", b"<script>alert(1)</script>\xfe");
    let mut detail = read(&letter(headers, ""));
    let header = detail.headers.pop().unwrap();
    assert_eq!(header.name, "\u{fffd}");
    assert_eq!(header.value, "<script>alert(1)</script>\u{fffd}");
}

#[test]
fn what_cannot_be_read_says_so() {
    let mut behind = died(&[("orders", "rejected", 1, TEN)]);
    behind.members(b"\x01aZ");
    let letter = letter(behind, "");
    let detail = read(&letter);
    assert!(detail.malformed);
    assert_eq!(letter.last_death().source, short("orders"));
    assert_eq!(detail.headers.len(), 1);
    for properties in [vec![], vec![0x20], vec![0x20, 0, 0, 0, 0, 9], vec![0, 0, 1]] {
        let letter = with_properties(properties);
        assert!(read(&letter).malformed);
        assert_eq!(letter.last_death().source, None);
    }
}

proptest! {
    #[test]
    fn no_properties_are_too_much(properties in vec(any::<u8>(), 0..200), body in vec(any::<u8>(), 0..50)) {
        let letter = Letter { body: body.into(), size: 40, ..with_properties(properties) };
        read(&letter);
    }

    /// The same behind a sound frame, so that more of it is looked at.
    #[test]
    fn no_headers_are_too_much(members in vec(any::<u8>(), 0..200), tag in 0..4_usize) {
        let mut headers = TableBuilder::default();
        let tag = b"SxFA"[tag];
        headers.value(b"x-death", &Value { tag, data: &members });
        headers.value(b"x-dlx-proxy-history", &Value { tag: b'F', data: &members });
        headers.members(&members);
        read(&letter(headers, ""));
    }
}
