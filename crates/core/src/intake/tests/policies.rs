//! What a policy of the broker's does to the signals of a queue that was taken over.

use super::*;
use crate::amqp::ids::name;
use crate::registry::broker_policy::{BrokerPolicies, BrokerPolicy};

/// Died with the keys `k` and, by `CC`, `copy`; the intake delivers all with the key `k`.
fn signal() -> Content {
    let mut keys = ArrayBuilder::default();
    keys.longstr(b"k").longstr(b"copy");
    let mut entry = TableBuilder::default();
    entry
        .long(b"count", 1)
        .longstr(b"reason", b"expired")
        .longstr(b"queue", b"work")
        .timestamp(b"time", 1_700_000_000)
        .longstr(b"exchange", b"")
        .array(b"routing-keys", &keys);
    let mut deaths = ArrayBuilder::default();
    deaths.table(&entry);
    let mut cc = ArrayBuilder::default();
    cc.longstr(b"copy");
    let mut headers = TableBuilder::default();
    headers.array(b"CC", &cc).array(b"x-death", &deaths);
    with_headers(headers, "hi")
}

/// Whether `CC` counts for the next hop of this delivery.
fn counts_cc(rig: &mut IntakeRig, tag: u64) -> bool {
    rig.deliver(tag, "dlx-proxy/target", &signal());
    let dead = rig.dead();
    assert_eq!(dead[0].1.routing_key, name("k"));
    let properties = &dead[0].1.content.properties;
    let headers = crate::amqp::properties::Properties::parse(properties).expect("properties");
    Table(headers.headers().expect("headers"))
        .get(b"CC")
        .expect("a table")
        .is_some()
}

#[test]
fn a_key_that_the_broker_s_policy_set_counts_alone() {
    let mut rig = rig();
    assert!(counts_cc(&mut rig, 1));
    let told = |key| BrokerPolicy {
        vhost: "/",
        pattern: "^work",
        apply_to: "queues",
        routing_key: Some(key),
        ..BrokerPolicy::default()
    };
    let policies = rig.machine.settings.policies.clone();
    policies.set_brokers(BrokerPolicies::new([told("k")]).0);
    assert!(!counts_cc(&mut rig, 2));
    // It died before that policy was there: `k` is its own key.
    policies.set_brokers(BrokerPolicies::new([told("new")]).0);
    assert!(counts_cc(&mut rig, 3));
}
