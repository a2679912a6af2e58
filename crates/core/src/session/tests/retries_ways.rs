//! Where a return goes that is not delayed: back at once by an exchange, to the broker, or to the target of what dies.

use super::message::{declared, of, published, said, table};
use super::script::*;
use crate::amqp::frame;
use crate::amqp::ids::{ShortStr, name};
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::version::Version;
use crate::dead_letter::retries::RetryType;
use crate::machine::*;
use crate::objects::QueueType;
use crate::registry::Declared;
use crate::registry::catalogue::Report;
use crate::registry::catalogue::fact::Source;
use crate::registry::policy::{Definition, Mode, Pattern, Policies, Policy};
use crate::registry::said_retries::SaidRetries;

#[test]
fn what_a_publisher_says_of_earlier_deliveries_counts_for_nothing() {
    let counts = table(|headers| {
        headers.long(b"x-acquired-count", 9);
        headers.long(b"x-delivery-count", 9);
    });
    let mut message = published();
    let edit = Edit {
        headers: Change::Set(counts),
        ..Edit::default()
    };
    let none = Properties::parse(&[0, 0]).expect("none");
    message.properties = none.edit(&edit).to_vec();
    use QueueType::{Classic, Default, Quorum};
    for (queue_type, default_type, redelivered, counts) in [
        (Classic, None, false, false),
        (Classic, None, true, false),
        (Quorum, None, false, false),
        // Only this queue writes what it counts over what it finds.
        (Quorum, None, true, true),
        // Simulation seed 17391: nobody knows the default type.
        (Default, None, true, true),
        (Default, None, false, false),
        (Default, Some(Classic), true, false),
        (Default, Some(Quorum), true, true),
    ] {
        let limited = Declared {
            queue_type,
            ..declared(said(Some(1000), Some(3)))
        };
        let settings = settings(Mode::RejectsOnly);
        let catalogue = settings.catalogue.clone();
        catalogue.learn_default_type(
            &ShortStr::ROOT,
            default_type,
            Source::Refusal,
            Mono::default(),
        );
        let mut s = of(settings, limited);
        let [mut method, header, body] = message.delivered(1);
        let behind_its_tag = frame::HEAD + 4 + 1 + "orders".len() + 8;
        method[behind_its_tag] = redelivered.into();
        let _delivered = s.broker(&[method, header, body].concat());
        let _ignored = s.sent_to_client();
        s.client(&reject(1, true)).silent();
        let dies = s.dead[0].1.reason == Reason::DeliveryLimit;
        assert_eq!(
            dies, counts,
            "{queue_type:?} {default_type:?} {redelivered}"
        );
    }
}

/// Published again, a message of a stream would come to each of its readers once more.
#[test]
fn what_is_returned_to_a_stream_is_the_brokers() {
    let offset = table(|headers| {
        headers.long(b"x-stream-offset", 7);
    });
    let mut message = published();
    let edit = Edit {
        headers: Change::Set(offset),
        ..Edit::default()
    };
    let none = Properties::parse(&[0, 0]).expect("none");
    message.properties = none.edit(&edit).to_vec();
    let policies = || {
        Policies::new(vec![Policy {
            pattern: Pattern::new(".*").expect("a good pattern"),
            definition: Definition {
                retries: said(Some(1000), None),
                ..Definition::default()
            },
            ..Policy::default()
        }])
    };
    for (seen, says_so, ours) in [
        (Some(QueueType::Other), false, false),
        (Some(QueueType::Other), true, false),
        (None, true, false),
        (None, false, true),
        // There the header is its publisher's.
        (Some(QueueType::Classic), true, true),
        (Some(QueueType::Quorum), true, true),
    ] {
        let settings = settings(Mode::RejectsOnly);
        settings.policies.set_ours(policies());
        let catalogue = settings.catalogue.clone();
        let s = Script::open(settings);
        if let Some(seen) = seen {
            let (vhost, told) = (&s.session.peer.vhost, Report::Type(seen));
            catalogue.learn(vhost, &name("orders"), &told, Source::Declare, s.now.mono);
        }
        let mut s = s.consume("orders");
        match says_so {
            true => s.broker(&message.delivered(1).concat()).passes(),
            false => s.broker(&deliver("orders", 1, b"hi")).passes(),
        }
        assert_eq!(s.session.retained() > 0, ours, "{seen:?} {says_so}");
        match ours {
            true => s.client(&nack(1, false, true)).silent(),
            false => s.client(&nack(1, false, true)).passes(),
        }
        assert_eq!(s.dead.len(), usize::from(ours), "{seen:?} {says_so}");
        assert_eq!(s.events, []);
    }
}

#[test]
fn a_quorum_queue_that_the_broker_delays_itself_is_left_to_it() {
    let quorum = QueueType::Quorum;
    for (version, queue_type, ours) in [
        (Version(4, 3, 6), quorum, false),
        (Version(4, 2, 9), quorum, true),
        // Declared without a type, and known to be a quorum queue.
        (Version(4, 3, 6), QueueType::Default, false),
    ] {
        let retries = SaidRetries {
            delayed_retry_type: Some(RetryType::All),
            ..said(Some(1000), None)
        };
        let declared = Declared {
            queue_type,
            ..declared(retries)
        };
        let settings = settings(Mode::RejectsOnly);
        let catalogue = settings.catalogue.clone();
        let mut s = of(settings, declared);
        let (vhost, told) = (&s.session.peer.vhost, Report::Type(quorum));
        catalogue.learn(vhost, &name("orders"), &told, Source::Declare, s.now.mono);
        s.session.peer.version = Some(version);
        s.broker(&deliver("orders", 1, b"hi")).passes();
        match ours {
            true => s.client(&nack(1, false, true)).silent(),
            false => s.client(&nack(1, false, true)).passes(),
        }
        assert_eq!(s.dead.len(), usize::from(ours));
    }
}
