//! `x-opt-delivery-time`: it acts where a message goes, and in no queue of the proxy's own.

use std::time::Duration;

use super::*;
use crate::machine::Cause;

const ACTS: &str = "x-opt-delivery-time";
const ASIDE: &str = "x-dlx-proxy-deliver";
const SOON: i64 = 1_700_000_010_000;

fn timed(header: &str, millis: i64, purpose: Purpose) -> Publication {
    let mut headers = TableBuilder::default();
    headers.long(header.as_bytes(), millis);
    Publication {
        content: with_headers(headers, "1"),
        purpose,
        ..message("", "orders", "1")
    }
}

/// The headers of that kind in the only publish since the last call.
fn times(rig: &mut PublisherRig) -> Vec<(String, i64)> {
    let all = headers(&delays::sent(rig)).into_iter();
    let time = |value: Vec<u8>| i64::from_be_bytes(value.try_into().expect("a long"));
    all.filter(|(name, _)| [ACTS, ASIDE].contains(&&name[..]))
        .map(|(name, value)| (name, time(value)))
        .collect()
}

#[test]
fn in_a_queue_of_the_proxys_own_it_does_not_act() {
    let delay = Purpose::Delay(Duration::from_secs(1));
    for purpose in [delay, Purpose::Park(Cause::Cycle), Purpose::Tail] {
        for header in [ACTS, ASIDE] {
            for millis in [SOON, i64::MAX] {
                let mut rig = rig();
                rig.publish(1, timed(header, millis, purpose));
                assert_eq!(times(&mut rig), [(ASIDE.to_owned(), millis)], "{purpose:?}");
            }
        }
    }
}

#[test]
fn on_its_way_out_it_acts_again() {
    for purpose in [
        Purpose::Death,
        Purpose::Return,
        Purpose::Unpark,
        Purpose::Redrive,
    ] {
        for header in [ACTS, ASIDE] {
            let mut rig = rig();
            rig.publish(1, timed(header, SOON, purpose));
            assert_eq!(times(&mut rig), [(ACTS.to_owned(), SOON)], "{purpose:?}");
            assert_eq!(rig.events(), []);
        }
    }
}

#[test]
fn one_that_would_end_a_queue_goes_to_no_target() {
    for purpose in [Purpose::Death, Purpose::Return, Purpose::Redrive] {
        for header in [ACTS, ASIDE] {
            let mut rig = rig();
            rig.publish(1, timed(header, 32_503_680_000_000, purpose)); // the year 3000
            assert_eq!(times(&mut rig), [], "{purpose:?}");
            let queue = name("work");
            assert_eq!(rig.events(), [Event::DeliveryTimeDropped { queue }]);
        }
    }
}

#[test]
fn what_is_parked_in_the_end_is_parked_without_it() {
    let mut rig = rig();
    rig.publish(1, timed(ACTS, SOON, Purpose::Death));
    assert_eq!(times(&mut rig), [(ACTS.to_owned(), SOON)]);
    let sent = timed(ACTS, SOON, Purpose::Death).content;
    rig.give_back(1, "", "orders", &sent);
    rig.ack(1, 1, false);
    assert_eq!(times(&mut rig), [(ASIDE.to_owned(), SOON)]);
}
