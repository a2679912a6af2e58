//! Which deliveries have come back to their queue, and which only carry what says so.

use bytes::Bytes;

use super::names;
use crate::amqp::content::Content;
use crate::amqp::ids::name;
use crate::dead_letter::proof::Original;
use crate::dead_letter::retries::Attempts;
use crate::dead_letter::retry::Retry;
use crate::dead_letter::{Dialect, HistoryForm, RuleSettings};
use crate::machine::Wall;
use crate::session::redelivered::before_retries;
use crate::session::unacked::Retained;

const OWN: &[u8] = b"proxy";

/// How often a message had come back, that a retry has put into `of`, when it is delivered from `from` on this way; and the way that the
/// rules of deaths know then.
fn delivered(of: &str, from: &str, (exchange, key): (&str, &str)) -> (u64, String, String) {
    let retry = Retry {
        delay: None,
        queue: name(of),
        exchange: name("in"),
        routing_key: name("key"),
        attempts: Attempts { all: 3, failed: 0 },
        cc_counts: false,
        dies_when_full: false,
        expiration: None,
        deadline: None,
        away: None,
    };
    let nothing = Content {
        properties: Bytes::from_static(&[0, 0]),
        body: Bytes::new(),
    };
    let rules = RuleSettings {
        continue_history: true,
        history_form: HistoryForm::WRITTEN,
    };
    let rules = rules.at(Dialect::V4, 256, false);
    let back = retry.back(&nothing, Original(None), &rules, OWN, Wall(0));
    let mut delivered = Retained {
        queue: name(from),
        exchange: name(exchange),
        routing_key: name(key),
        content: back.unwrap(),
        ..Retained::default()
    };
    before_retries(&mut delivered, &names(), OWN);
    (
        delivered.attempts.all,
        delivered.exchange.to_string(),
        delivered.routing_key.to_string(),
    )
}

#[test]
fn a_message_has_come_back_by_the_ways_that_the_proxy_uses() {
    let known = (3, "in".to_owned(), "key".to_owned());
    assert_eq!(delivered("q", "q", ("", "q")), known);
    assert_eq!(delivered("q", "q", ("dlx-proxy.return/q", "key")), known);
}

/// The broker keeps the headers of what it dead-letters by itself.
#[test]
fn what_came_on_another_way_has_not_come_back() {
    for (of, from, way) in [
        ("q", "q", ("dlx", "q")),
        ("q", "q", ("", "key")),
        ("q", "q", ("dlx-proxy.return/other", "key")),
        ("other", "q", ("", "q")),
    ] {
        let as_it_is = (0, way.0.to_owned(), way.1.to_owned());
        assert_eq!(delivered(of, from, way), as_it_is);
    }
}
