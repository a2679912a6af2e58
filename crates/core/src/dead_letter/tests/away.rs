//! The way of a returned message: into a delay queue, out of it into the intake queue, and back into its own queue.

use std::time::Duration;

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::dead_letter::retries::{
    Attempts, BackOff, Counts, Delays, OnCrash, Retries, RetryType, Returned,
};
use crate::dead_letter::{Death, Dialect, Disposal, Lookup, Return, Rules, come_back, give_back};
use crate::machine::{Publication, Purpose, Reason, Wall};

use super::broker::{Broker, Event};

/// The proxy's user.
pub(super) const OWN: &[u8] = b"dlx-proxy";
/// When a message of these tests is returned.
pub(super) const NOW: Wall = Wall(1_700_000_000_000);
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// One of each generation; of 3.13 also one without the feature flag that takes over deaths.
pub(crate) const BROKERS: [Broker; 4] = [
    Broker {
        dialect: Dialect::V3,
        takes_over: true,
    },
    Broker {
        dialect: Dialect::V3_13,
        takes_over: true,
    },
    Broker {
        dialect: Dialect::V3_13,
        takes_over: false,
    },
    Broker {
        dialect: Dialect::V4,
        takes_over: false,
    },
];

/// A second's delay after each return.
fn after_a_second() -> Retries {
    Retries {
        back_off: Some(BackOff {
            after: RetryType::All,
            delays: Delays::Growing {
                min: SECOND,
                max: SECOND,
                multiplier: Some(1),
            },
            jitter: None,
        }),
        limit: None,
        counts: Counts::All,
        on_crash: OnCrash::Requeue,
    }
}

/// The first return of a message that was delivered just now.
pub(super) fn returned<'a>(
    queue: &'a ShortStr,
    (exchange, routing_key): (&'a str, &'a str),
    content: &'a Content,
) -> Return<'a> {
    Return {
        death: Death {
            queue,
            reason: Reason::DeliveryLimit,
            exchange: exchange.as_bytes(),
            routing_key: routing_key.as_bytes(),
            content,
            recorded: false,
            by: None,
        },
        returned: Returned::ByNack,
        attempts: Attempts::default(),
        deadline: None,
        queue_ttl: None,
        delivered: NOW,
        knows_all: true,
        dies_when_full: false,
        fits: true,
        by_exchange: None,
        draw: 0,
        verdict: None,
    }
}

/// It goes away for a second.
pub(super) fn sent(of: &Return<'_>, rules: &Rules) -> Publication {
    let disposal = give_back(of, &after_a_second(), &Lookup::NoExchange, rules, OWN, NOW);
    match disposal {
        Some(Disposal::Retry(publication)) => {
            assert_eq!(publication.purpose, Purpose::Delay(SECOND));
            publication
        }
        other => panic!("{other:?}"),
    }
}

/// As it comes out of that queue, where it died of that.
pub(super) fn died(
    broker: Broker,
    away: &Content,
    (queue, reason): (&str, Reason),
    at: Wall,
) -> Content {
    let mut stored = broker.publish(away, "dlx-proxy.delay", "1000");
    let death = Event {
        queue: queue.to_owned(),
        reason,
        exchange: "dlx-proxy.delay".to_owned(),
        key: "1000".to_owned(),
        time: at.seconds(),
        expiration: None,
    };
    broker.kill(&mut stored, &death);
    broker.deliver(&stored)
}

/// It comes back a second after it was returned.
pub(super) fn back(broker: Broker, away: &Content, rules: &Rules) -> Publication {
    let now = NOW.after(SECOND);
    let died = died(broker, away, ("dlx-proxy.delay.1000", Reason::Expired), now);
    let by_exchange = |queue: &[u8]| ShortStr::new([b"dlx-proxy.return/", queue].concat());
    let nowhere = |_: &[u8]| Lookup::NoExchange;
    let came_back = come_back(&died, rules, OWN, |_| true, by_exchange, nowhere, now);
    match came_back.expect("it is ours").disposal {
        Disposal::Retry(publication) => publication,
        other => panic!("{other:?}"),
    }
}

/// All of that: what is in its queue then.
pub(super) fn round(broker: Broker, of: &Return<'_>, rules: &Rules) -> Publication {
    back(broker, &sent(of, rules).content, rules)
}
