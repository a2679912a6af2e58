//! The rule for what cannot be published: `testdata/instead.txt` against all cases, and what counts as near to a limit on deliveries.

use crate::amqp::table::TableBuilder;
use crate::amqp::version::Version;
use crate::machine::{Cause, Fallback};
use crate::objects::QueueType::{self, Classic, Default, Quorum};
use crate::session::instead::*;

const ASKED: [(&str, Asked); 3] = [
    ("reject", Asked::Reject),
    ("return", Asked::Return),
    ("too-large", Asked::TooLarge),
];
const REJECT: [(&str, Reject); 3] = [
    ("dead-letters", Reject::DeadLetters),
    ("discards", Reject::Discards),
    ("loses", Reject::Loses),
];
const COUNTS: [(&str, Counts); 3] = [
    ("never", Counts::Never),
    ("far", Counts::Far),
    ("near", Counts::Near),
];
const CAUSES: [(&str, Fallback); 13] = [
    ("budget", Fallback::Budget),
    ("transaction", Fallback::Transaction),
    ("unreadable", Fallback::Unreadable),
    ("exclusive", Fallback::Exclusive),
    ("name_too_long", Fallback::NameTooLong),
    ("close_wait", Fallback::CloseWait),
    ("stale", Fallback::Stale),
    ("no_ticket", Fallback::NoTicket),
    ("target_unknown", Fallback::TargetUnknown),
    ("publisher_away", Fallback::Refused(Cause::PublisherAway)),
    ("queue_full", Fallback::Refused(Cause::QueueFull)),
    ("too_big", Fallback::Refused(Cause::TooBig)),
    ("user_id", Fallback::Refused(Cause::UserId)),
];

#[test]
fn all_cases_are_as_the_table_says() {
    let table = include_str!("../testdata/instead.txt");
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    let rows: Vec<Vec<&str>> = rows.map(|line| line.split_whitespace().collect()).collect();
    for (asked, is_asked) in ASKED {
        for (reject, on_reject) in REJECT {
            for (count, counts) in COUNTS {
                for (why, cause) in CAUSES {
                    let case = [asked, reject, count, why];
                    let fits = |row: &&Vec<&str>| {
                        let columns = row.iter().zip(case);
                        row.len() == 5 && columns.clone().all(|(of, is)| *of == "any" || *of == is)
                    };
                    let row = rows.iter().find(fits).expect("a line for each case");
                    let found = match instead(Facts {
                        asked: is_asked,
                        reject: on_reject,
                        counts,
                        cause,
                    }) {
                        Instead::Forward => "forward",
                        Instead::Keep => "keep",
                        Instead::ReturnLater => "return-later",
                    };
                    assert_eq!(found, row[4], "{case:?}");
                }
            }
        }
    }
}

#[test]
fn the_limits_on_deliveries() {
    let deliveries = |count: Option<i64>| {
        let mut headers = TableBuilder::default();
        if let Some(count) = count {
            headers.long(b"x-delivery-count", count);
        }
        let headers = headers.finish();
        let mut properties = vec![0x20, 0];
        properties.extend_from_slice(&(headers.len() as u32).to_be_bytes());
        properties.extend_from_slice(&headers);
        properties
    };
    let version = |(major, minor, patch)| Some(Version(major, minor, patch));
    use Counts::{Far, Near, Never};
    let cases: [(_, QueueType, _, _, _); 15] = [
        ((3, 10, 8), Classic, None, None, Never),
        ((4, 0, 5), Classic, None, Some(19), Never), // a client's own header
        ((4, 3, 6), Quorum, Some(1), Some(19), Far), // a nack is not counted
        ((4, 4, 0), Quorum, None, None, Far),
        ((4, 2, 9), Quorum, None, None, Far),
        ((4, 2, 9), Quorum, None, Some(4), Far),
        ((4, 2, 9), Quorum, None, Some(5), Near),
        ((4, 2, 9), Default, None, Some(5), Near), // the vhost's default may be quorum
        ((4, 2, 9), Quorum, Some(100), Some(5), Near),
        ((4, 2, 9), Quorum, Some(-1), Some(4), Far), // a policy may set one
        ((4, 2, 9), Quorum, Some(3), None, Near),
        ((3, 10, 8), Quorum, None, Some(0), Far),
        ((3, 10, 8), Quorum, Some(-1), Some(0), Near), // kills
        ((3, 10, 8), Quorum, Some(8), Some(1), Far),
        ((3, 10, 8), Quorum, Some(8), Some(2), Near),
    ];
    for (of, queue_type, limit, count, expected) in cases {
        let found = counts(version(of), queue_type, [limit, None], &deliveries(count));
        assert_eq!(
            found, expected,
            "{of:?} {queue_type:?} limit {limit:?} count {count:?}"
        );
    }
    let unreadable = [0x20, 0, 0, 0, 0, 2, 9, b'x'];
    assert_eq!(
        counts(version((4, 0, 5)), Quorum, [None; 2], &unreadable),
        Near
    );
    assert_eq!(counts(None, Quorum, [None; 2], &deliveries(Some(5))), Near);
    // A policy of the broker's counts, too.
    for (limit, expected) in [(100, Far), (16, Far), (15, Near)] {
        let limits = [Some(100), Some(limit)];
        assert_eq!(
            counts(version((4, 2, 9)), Quorum, limits, &deliveries(Some(3))),
            expected
        );
    }
}
