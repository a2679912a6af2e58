//! A message that a client returned, on its way out of a delay queue.

use super::*;
use crate::dead_letter::retries::{
    Attempts, BackOff, Counts, Delays, OnCrash, Retries, RetryType, Returned,
};
use crate::dead_letter::{Death, Dialect, Disposal, Lookup, Return, Target, give_back};
use crate::machine::Reason;

const SECOND: Duration = Duration::from_secs(1);

/// As a session hands it to the publisher, a second before it is due: a message of `work`, published to `in` with `key`. `over=exchange`: its TTL
/// ends before that, and then it goes there, `-`: nowhere. `by=user`: another's.
pub(super) fn away(now: Wall, words: &mut Words) -> Content {
    let over = words.option("over");
    let mut headers = TableBuilder::default();
    headers.longstr(b"a", b"1");
    let content = with_headers(headers, "hi");
    let queue = name("work");
    let of = Return {
        death: Death {
            queue: &queue,
            reason: Reason::DeliveryLimit,
            exchange: b"in",
            routing_key: b"key",
            content: &content,
            recorded: false,
            by: None,
        },
        returned: Returned::ByReject,
        attempts: Attempts::default(),
        deadline: over.is_some().then_some(now),
        queue_ttl: None,
        delivered: now,
        knows_all: true,
        dies_when_full: false,
        fits: true,
        by_exchange: None,
        draw: 0,
        verdict: None,
    };
    let retries = Retries {
        back_off: Some(BackOff {
            after: RetryType::All,
            delays: Delays::Growing {
                min: SECOND,
                max: SECOND,
                multiplier: None,
            },
            jitter: None,
        }),
        limit: None,
        counts: Counts::All,
        on_crash: OnCrash::Requeue,
    };
    let lookup = match over.as_deref() {
        Some("-") | None => Lookup::NoExchange,
        Some(exchange) => Lookup::Target(Target {
            exchange: name(exchange),
            routing_key: None,
            at_least_once: false,
        }),
    };
    let user = words.option("by").unwrap_or("proxy".to_owned());
    let rules = settings().rules.at(Dialect::V4, 256, Default::default());
    match give_back(&of, &retries, &lookup, &rules, user.as_bytes(), now) {
        Some(Disposal::Retry(publication)) => publication.content,
        other => panic!("{other:?}"),
    }
}
