use crate::letter::{ErrorHeaders, Group, Groups};

use super::{TEN, died, letter, rejected};

fn groups(letters: impl IntoIterator<Item = crate::letter::Letter>) -> Vec<Group> {
    let mut groups = Groups::new(ErrorHeaders::default());
    for letter in letters {
        groups.add(&letter);
    }
    groups.finish()
}

#[test]
fn letters_with_one_source_reason_and_error_are_one_group() {
    let expired = |time| letter(died(&[("orders", "expired", 1, time)]), "");
    let found = groups([
        rejected("bang\nat line 1"),
        expired(TEN + 9),
        expired(TEN),
        rejected("bong"),
        expired(TEN + 3),
        rejected("\n bang \nat line 2"),
    ]);
    let rows: Vec<_> = found
        .iter()
        .map(|it| (it.reason.as_deref(), it.error.as_deref(), it.messages))
        .collect();
    let expected = [
        (Some("expired"), None, 3),
        (Some("rejected"), Some("bang"), 2),
        (Some("rejected"), Some("bong"), 1),
    ];
    assert_eq!(rows, expected);
    assert_eq!(found[0].oldest.as_deref(), Some("2026-11-23T10:00:00Z"));
    assert_eq!(found[0].newest.as_deref(), Some("2026-11-23T10:00:09Z"));
    assert_eq!(found[0].source.as_deref(), Some("orders"));
    assert!(!found[0].is_rest);
}

#[test]
fn what_is_beyond_a_thousand_groups_is_one_more() {
    let each = (0..1002).map(|n| rejected(&format!("error {n:04}")));
    let found = groups(each.chain([rejected("error 0000")]));
    assert_eq!(found.len(), 1001);
    assert_eq!(
        (found[0].error.as_deref(), found[0].messages),
        (Some("error 0000"), 2)
    );
    let rest = Group {
        messages: 2,
        oldest: Some("2026-11-23T10:00:00Z".to_owned()),
        newest: Some("2026-11-23T10:00:00Z".to_owned()),
        is_rest: true,
        ..Group::default()
    };
    assert_eq!(found.last(), Some(&rest));
}

#[test]
fn the_first_header_with_text_says_the_error() {
    let errors = ErrorHeaders(vec!["a".to_owned(), "b".to_owned()]);
    let long = "x".repeat(300);
    for (a, b, expected) in [
        ("one", "two", Some("one")),
        (" \n\r\n", "two\r\nthree", Some("two")),
        ("", "", None),
        ("\x1b[2Jtab\there", "", Some("[2Jtab here")),
        (&long, "", Some(&long[..200])),
    ] {
        let mut headers = died(&[]);
        headers
            .longstr(b"b", b.as_bytes())
            .longstr(b"a", a.as_bytes());
        let line = errors.first_line(&letter(headers, ""));
        assert_eq!(line.as_deref(), expected);
    }
}
