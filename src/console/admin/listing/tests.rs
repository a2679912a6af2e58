//! Pages, filters and notes.

use super::*;
use crate::amqp::ids::ShortStr;
use crate::letter::BodyHash;
use crate::walk::Stopped;

fn walked(stopped: Stopped, seen: u64, ready: Option<u64>) -> Summary {
    Summary {
        ready,
        seen,
        stopped,
        ..Summary::default()
    }
}

fn letter(position: u64) -> Letter {
    Letter {
        position,
        exchange: ShortStr::EMPTY,
        routing_key: ShortStr::EMPTY,
        redelivered: false,
        properties: vec![0, 0].into(),
        body: Default::default(),
        size: 0,
        body_hash: BodyHash::of(b""),
    }
}

fn page(query: &str) -> Result<Page, Problem> {
    let uri = format!("/x?{query}").parse().expect("a URI");
    let mut parameters = Parameters::of(&uri);
    let wanted = Wanted {
        filter: filter(&mut parameters, Wall::of_seconds(1_700_000_000))?,
        errors: ErrorHeaders::default(),
    };
    let page = Page::new(wanted, &mut parameters)?;
    parameters.end().map(|()| page)
}

fn place() -> Place {
    let uri = "/api/v1/vhosts/v/queues/q/dead-letters".parse();
    Place::of(&uri.expect("a URI")).expect("short names")
}

#[test]
fn a_page_begins_behind_its_offset_and_ends_at_its_limit() {
    let mut page = page("offset=1&limit=2").expect("a page");
    assert_eq!(page.messages(), Some(3));
    let goes_on = [1, 2, 3, 4].map(|position| page.see(letter(position)));
    assert_eq!(goes_on, [true, true, false, false]);
    let answer = page.answer(place(), walked(Stopped::Messages, 4, Some(9)));
    assert_eq!((answer.matched, answer.stopped), (3, "enough"));
    let letters = answer.found.dead_letters.iter();
    let positions: Vec<_> = letters.map(|it| it.position).collect();
    assert_eq!(positions, [2, 3]);
    assert_eq!(answer.notes, ["the first 4 of 9 messages were looked at"]);
}

#[test]
fn a_filter_may_have_to_look_at_everything() {
    let page = page("routing-key=x&header=a=b=c&older-than=1h+5m&id=00000000000000ff");
    let page = page.expect("a page");
    assert_eq!(page.messages(), None);
    let filter = &page.wanted.filter;
    assert_eq!(filter.headers, [(b"a".to_vec(), b"b=c".to_vec())]);
    assert_eq!(filter.died_by, Some(Wall::of_seconds(1_700_000_000 - 3900)));
    assert_eq!(filter.ids.len(), 1);
}

#[test]
fn a_bad_filter_is_refused_in_its_own_words() {
    for (query, words) in [
        ("header=a", "header=a: write NAME=VALUE"),
        (
            "older-than=5",
            "older-than=5: write a time with its unit, like 90s, 15m, 2h or 7d",
        ),
        ("id=x", "id=x: an id has 16 hexadecimal digits"),
        ("limit=1001", "limit=1001: write a number from 1 to 1000"),
        ("offset=-1", "offset=-1: write a number from 0 to 65535"),
        ("reason=%FF", "reason: write it as UTF-8"),
        (
            "reason=foo",
            "reason=foo: write one of rejected, expired, maxlen, delivery_limit, or leave it out",
        ),
    ] {
        assert_eq!(page(query).err(), Some(bad(words)), "{query}");
    }
}

#[test]
fn what_others_may_hold_has_a_word_of_its_own() {
    let stopped = |consumers, seen, queue_type, is_full| {
        let walked = Summary {
            consumers,
            queue_type,
            ..walked(Stopped::End, seen, Some(5))
        };
        Answer::new(place(), &walked, is_full, 0, ()).stopped
    };
    use crate::walk::QueueType::{Classic, Stream};
    for (consumers, seen, queue_type, is_full, expected) in [
        (Some(0), 5, Classic, false, "end"),
        (Some(1), 5, Classic, false, "others"),
        (Some(1), 5, Classic, true, "end"),
        (Some(0), 4, Classic, false, "others"),
        (Some(1), 4, Stream, false, "end"),
        (None, 5, Classic, false, "end"),
    ] {
        let said = stopped(consumers, seen, queue_type, is_full);
        assert_eq!(said, expected, "{consumers:?} {seen} {queue_type:?}");
    }
}

#[test]
fn notes_say_how_far_it_went_what_it_cost_and_who_else_is_there() {
    let mut all = walked(Stopped::Time, 2, Some(5));
    all.counted = true;
    all.taken = 3;
    all.consumers = Some(1);
    assert_eq!(
        notes(&all),
        [
            "the first 2 of 5 messages were looked at",
            "3 messages were taken, and are back in their places",
            "each look counts as a failed delivery of each message that it takes (3): the queue's delivery limit may kill messages",
            "another consumer takes messages from this queue: what it holds is not shown",
        ]
    );
    assert_eq!(notes(&walked(Stopped::End, 5, Some(5))), [""; 0]);
    let none = notes(&walked(Stopped::Time, 0, Some(5)));
    assert!(none[0].starts_with("none of 5 messages came in time"));
    let unknown = notes(&walked(Stopped::Messages, 5, None));
    assert!(unknown[0].contains("the right to configure"), "{unknown:?}");
}
