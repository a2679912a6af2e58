//! What was parked as nobody knew a target.

use std::sync::Arc;

use super::*;
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::table::{ArrayBuilder, Table, TableBuilder};
use crate::machine::Mono;
use crate::objects;
use crate::registry::broker_policy::{BrokerPolicies, BrokerPolicy};
use crate::registry::catalogue::Told;
use crate::registry::catalogue::fact::Source;
use crate::registry::{Declared, Form};

/// It died in `jobs`, when nobody knew a target.
fn without_target(cause: &str) -> Content {
    let mut death = TableBuilder::default();
    death.longstr(b"queue", b"jobs");
    let mut headers = TableBuilder::default();
    let mut deaths = ArrayBuilder::default();
    deaths.table(&death);
    headers.array(b"x-death", &deaths).longstr(b"CC", b"copy");
    let properties = Properties::parse(&[0, 0]).unwrap().edit(&Edit {
        headers: Change::Set(headers.finish()),
        ..Edit::default()
    });
    let said = Parked {
        exchange: b"",
        cause: cause.as_bytes(),
    };
    Content {
        properties: proof::prove(&properties, b"proxy", Some(said)).unwrap(),
        body: Bytes::from_static(b"a"),
    }
}

#[test]
fn what_had_no_target_goes_to_the_one_that_its_queue_has_by_now() {
    let mut rig = retrying();
    let settings = rig.machine.settings.clone();
    let stays = |rig: &mut IntakeRig, tag, content: &Content| {
        rig.lap(1);
        rig.fetch(tag, content);
        let (ticket, publication) = rig.published();
        assert_eq!(publication.purpose, Purpose::Tail);
        rig.settle(&[(ticket, Outcome::Parked(Cause::NoTarget))]);
        assert_eq!(rig.tried(), [(0, 0, 1)]);
    };
    let parked = without_target("no_target");
    stays(&mut rig, 1, &parked); // nobody knows the queue
    let form = Form::of(0, b"");
    let declared = Declared::of_queue(form, objects::QueueType::Classic, &settings.names);
    let told = Told::Declared(Arc::new(declared));
    let (source, vhost) = (Source::Management, &settings.login.vhost);
    settings
        .catalogue
        .learn(vhost, &name("jobs"), &told, source, Mono(1));
    settings.policies.set_ours(Policies::default());
    stays(&mut rig, 2, &without_target("target_unknown")); // a policy may name one
    rig.pass_alive(MINUTE);
    rig.sent();
    rig.counted(1);
    assert_eq!(rig.methods(), [], "nothing has changed: no lap");
    let policy = BrokerPolicy {
        vhost: "/",
        pattern: "^jobs",
        apply_to: "queues",
        exchange: Some("theirs"),
        routing_key: Some("dead"),
        ..BrokerPolicy::default()
    };
    settings
        .policies
        .set_brokers(BrokerPolicies::new([policy]).0);
    rig.lap(1);
    rig.fetch(3, &parked);
    let (ticket, publication) = rig.published();
    assert_eq!(publication.purpose, Purpose::Unpark);
    let to = (publication.exchange, publication.routing_key);
    assert_eq!(to, (name("theirs"), name("dead")));
    let properties = Properties::parse(&publication.content.properties).unwrap();
    let headers = Table(properties.headers().unwrap());
    let names: Vec<_> = headers.fields().map(|field| field.unwrap().name).collect();
    assert_eq!(names, [b"x-death"], "a set key counts alone");
    rig.settle(&[(ticket, Outcome::Confirmed)]);
    assert_eq!(rig.tried(), [(1, 0, 0)]);
}
