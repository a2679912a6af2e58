//! Pages, filters and notes.

use super::*;
use crate::amqp::ids::ShortStr;
use crate::letter::BodyHash;
use crate::tests::lines_hold;
use crate::walk::{QueueType, Stopped};

pub(in crate::console::admin) fn letter(position: u64) -> Letter {
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
    let walked = Summary {
        stopped: Stopped::Messages,
        ..Summary::default()
    };
    let answer = page.answer(place(), walked);
    assert_eq!((answer.matched, answer.stopped), (3, "enough"));
    let letters = answer.found.dead_letters.iter();
    let positions: Vec<_> = letters.map(|it| it.position).collect();
    assert_eq!(positions, [2, 3]);
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
fn a_time_is_an_age_or_in_utc() {
    let now = Wall::of_seconds(1_700_000_000);
    for (text, seconds) in [
        ("2h", 1_700_000_000 - 7200),
        ("2023-11-14T02:00:01Z", 1_699_927_201),
        ("2023-11-14 02:00", 1_699_927_200),
        ("2023-11-14", 1_699_920_000),
    ] {
        assert_eq!(moment(text, now), Ok(Wall::of_seconds(seconds)), "{text}");
    }
    for wrong in ["", "2", "tonight", "2023-14-11", "1960-01-01"] {
        assert!(moment(wrong, now).is_err(), "{wrong}");
    }
}

/// `STOPPED SEEN READY CONSUMERS TYPE [full] [counted] [reordered] [taken=N]`
#[tokio::test]
async fn how_far_it_went_what_it_cost_and_who_else_is_there_is_said() {
    lines_hold("console/admin/testdata/listing.txt", async |line| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        let has = |flag| words.contains(&flag);
        let taken = words.iter().find_map(|word| word.strip_prefix("taken="));
        let walked = Summary {
            stopped: match words[0] {
                "end" => Stopped::End,
                "messages" => Stopped::Messages,
                "bytes" => Stopped::Bytes,
                "time" => Stopped::Time,
                "paused" => Stopped::Paused,
                _ => Stopped::Enough,
            },
            seen: number(1).unwrap_or_default(),
            ready: number(2),
            consumers: number(3),
            queue_type: match has("stream") {
                true => QueueType::Stream,
                false => QueueType::Classic,
            },
            counted: has("counted"),
            reordered: has("reordered"),
            taken: taken.map_or(0, |taken| taken.parse().expect("a number")),
            ..Summary::default()
        };
        let answer = Answer::new(place(), &walked, has("full"), 0, ());
        let queue_type = answer.queue_type.unwrap_or("unknown type");
        let all = [
            &[answer.stopped.to_owned(), queue_type.to_owned()],
            &answer.notes[..],
        ];
        all.concat().join(" | ")
    })
    .await;
}
