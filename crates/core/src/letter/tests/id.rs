use crate::amqp::ids::name;
use crate::amqp::table::TableBuilder;
use crate::letter::{BodyHash, Filter, Id, Letter};

use super::{letter, rejected, with_properties};

/// `testdata/ids.txt` has what the broker changes from look to look.
#[test]
fn everything_else_counts() {
    let one = rejected("bang");
    let of_body = |body: &[u8]| Letter {
        body_hash: BodyHash::of(body),
        ..one.clone()
    };
    let others = [
        rejected("bong"),
        Letter {
            exchange: name("dlxd"),
            routing_key: name("ead"),
            ..one.clone()
        },
        Letter {
            routing_key: name("key"),
            ..one.clone()
        },
        of_body(b"BODY"),
        of_body(b""),
        // Priority instead of delivery mode.
        with_properties(vec![0x10, 0, 1]),
        with_properties(vec![0x08, 0, 1]),
    ];
    let again = Letter {
        position: 7,
        redelivered: true,
        ..one.clone()
    };
    assert_eq!(again.id(), one.id());
    let mut ids: Vec<_> = others.iter().map(Letter::id).collect();
    ids.push(one.id());
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), others.len() + 1);
}

/// A list keeps the beginning of a body, a purge keeps all of it.
#[test]
fn all_of_a_body_counts_however_little_of_it_is_kept() {
    let body = |last: &str| "a".repeat(Filter::SEARCHED + 5_000) + last;
    let [one, other] = ["1", "2"].map(|last| letter(TableBuilder::default(), &body(last)));
    assert_ne!(one.id(), other.id());
    let cut = Letter {
        body: one.body.slice(..4_096),
        ..one.clone()
    };
    assert_eq!(cut.id(), one.id());
}

#[test]
fn an_id_is_read_as_it_is_written_and_nothing_else_is() {
    let id = rejected("bang").id();
    assert_eq!(id.to_string().parse(), Ok(id));
    assert_eq!(serde_json::to_string(&id).unwrap(), format!("\"{id}\""));
    for text in [
        "",
        "12",
        "+123456789abcdef",
        "0123456789abcdefg",
        "0123456789abcdeg",
    ] {
        assert!(text.parse::<Id>().is_err(), "{text}");
    }
}
