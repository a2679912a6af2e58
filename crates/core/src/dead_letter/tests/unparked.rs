//! A message that was parked on its way back to its queue, and goes on.

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Properties, Property};
use crate::dead_letter::proof::{self, Parked};
use crate::dead_letter::retries::Attempts;
use crate::dead_letter::retry;
use crate::dead_letter::unparked::{unparked, without_user_id};
use crate::dead_letter::{Dialect, Lookup};
use crate::machine::Wall;

use super::away::{BROKERS, OWN, returned, round};
use super::message::build;
use super::property::rules;
use super::rendered::render;

const PARKED: Parked<'static> = Parked {
    exchange: b"",
    cause: b"unroutable",
};

/// On its way back to `q`.
fn came_back() -> Content {
    let queue = ShortStr::copy(b"q").unwrap();
    let message = build("message exchange=x key=k expiration=60000 user=bob cc=[copy] h:a=1");
    let of = returned(&queue, ("x", "k"), &message.content);
    round(BROKERS[3], &of, &rules(Dialect::V4)).content
}

fn expiration(properties: &[u8]) -> Option<Vec<u8>> {
    let properties = Properties::parse(properties).unwrap();
    properties.get(Property::Expiration).map(<[u8]>::to_vec)
}

/// It waits as long as it has to: nothing takes what expires in the parking queue.
#[test]
fn a_message_that_is_parked_has_no_ttl() {
    let came_back = came_back().properties;
    assert!(expiration(&came_back).is_some());
    let proven = proof::prove(&came_back, OWN, Some(PARKED)).unwrap();
    assert_eq!(expiration(&proven), None);
    let unproven = proof::unproven(&came_back, OWN, PARKED).unwrap();
    assert_eq!(expiration(&unproven), None);
}

#[test]
fn it_comes_back_as_it_was_and_as_often_as_it_did() {
    let came_back = came_back();
    let parked = proof::prove(&came_back.properties, OWN, Some(PARKED)).unwrap();
    let (target, properties) =
        unparked(&parked, OWN, Wall::default(), |_| Lookup::Unknown).unwrap();
    assert!(target.exchange.is_empty());
    let again = Content {
        properties,
        ..came_back
    };
    let parsed = Properties::parse(&again.properties).unwrap();
    let (retry, original) = retry::read(&parsed, OWN).unwrap();
    assert_eq!(retry.attempts, Attempts { all: 1, failed: 0 });
    assert_eq!(
        (&retry.exchange[..], &retry.routing_key[..]),
        (&b"x"[..], &b"k"[..])
    );
    let before = retry.before(&again, original).unwrap();
    let looks = "expiration=60000 user=bob\na  1\nCC  [copy]";
    assert_eq!(render(&before.properties), looks);
}

/// The user-id of the proxy that parked it, which another one may not publish.
#[test]
fn without_its_user_id_it_stays_as_it_is_and_proves_nothing() {
    let parked = proof::prove(&came_back().properties, OWN, Some(PARKED)).unwrap();
    let hidden = without_user_id(&parked).unwrap();
    let expected = render(&parked)
        .replace(" user=dlx-proxy", "")
        .replace("x-dlx-proxy-user-id  bob", "x-dlx-proxy-user-id  dlx-proxy");
    assert_eq!(render(&hidden), expected);
    assert!(unparked(&hidden, OWN, Wall::default(), |_| Lookup::Unknown).is_none());
    assert_eq!(without_user_id(&hidden), None);
}

#[test]
fn without_the_proof_it_stays() {
    let parked = proof::unproven(&came_back().properties, OWN, PARKED).unwrap();
    assert!(unparked(&parked, OWN, Wall::default(), |_| Lookup::Unknown).is_none());
}
