//! What is held for nearly as long as the broker lets a consumer hold a message, or for longer (S9.5).

use super::*;

const SECOND: u64 = 1_000;
/// Three quarters of half an hour.
const LONG: u64 = 1_350 * SECOND;
const TIMED_OUT: &str = "PRECONDITION_FAILED - delivery acknowledgement on channel 2 timed out. Timeout value used: 10000 ms. This timeout value can be configured, see consumers doc guide to learn more";
const OTHER_TYPE: &str = "PRECONDITION_FAILED - invalid arg 'x-consumer-timeout' for queue 'dlx-proxy.intake' in vhost '/' of queue type rabbit_classic_queue";

fn rig_at(version: &str, queue_type: QueueType) -> IntakeRig {
    let settings = Settings {
        queue_type,
        ..settings()
    };
    let mut rig = Rig::new(Intake::new(settings, Now::default()));
    rig.up(version);
    rig.objects();
    rig
}

/// At a broker that lets no consumer say how long.
fn older() -> IntakeRig {
    let mut rig = rig_at("4.2.5", QueueType::Quorum);
    rig.consuming();
    rig.events();
    rig
}

fn signal() -> Content {
    died_in("work", "hi")
}

impl IntakeRig {
    /// The tickets of so many signals.
    fn hold(&mut self, tags: std::ops::RangeInclusive<u64>) -> Vec<Ticket> {
        for tag in tags {
            self.deliver(tag, "dlx-proxy/x", &signal());
        }
        self.dead().into_iter().map(|(ticket, _)| ticket).collect()
    }

    fn times_out(&mut self) {
        self.broker(&close(2, 406, TIMED_OUT, MethodId(0, 0)));
    }

    /// Tags that went back, each perhaps with all before it.
    fn returned(&mut self) -> Vec<(u64, bool)> {
        let sent = self.sent();
        let nacks = sent.iter().filter(|sent| sent.is(2, MethodId::BASIC_NACK));
        let settles = nacks.map(|sent| Settle::parse(&sent.payload).unwrap());
        settles
            .inspect(|settle| assert!(settle.requeue))
            .map(|settle| (settle.delivery_tag.0, settle.multiple))
            .collect()
    }
}

#[test]
fn a_consumer_of_a_quorum_queue_says_how_long_from_4_3_on() {
    for (version, queue_type, says) in [
        ("4.3.0", QueueType::Quorum, true),
        ("4.3.6", QueueType::Classic, false),
        ("4.2.5", QueueType::Quorum, false),
        ("3.10.8", QueueType::Quorum, false),
    ] {
        let (_, _, arguments) = rig_at(version, queue_type).consumes();
        let value = Table(&arguments).get(b"x-consumer-timeout").unwrap();
        let millis = value.and_then(|value| value.as_integer());
        assert_eq!(millis, says.then_some(86_400_000), "{version}");
    }
}

#[test]
fn a_queue_of_another_type_than_the_setting_is_consumed_without() {
    let mut rig = rig_at("4.3.6", QueueType::Quorum);
    rig.sent();
    rig.events();
    rig.broker(&close(2, 406, OTHER_TYPE, MethodId::BASIC_CONSUME));
    assert_eq!(rig.events(), [], "nobody has to act");
    rig.sent();
    rig.pass(SECOND);
    assert_eq!(rig.methods(), OBJECTS);
    rig.objects_ok();
    let (prefetch, _, arguments) = rig.consumes();
    assert_eq!((prefetch, arguments), (1000, vec![]));
    // The next link knows it.
    rig.cut();
    rig.up("4.3.6");
    rig.objects();
    assert!(rig.consumes().2.is_empty());
}

#[test]
fn no_consumer_has_the_name_of_another() {
    let mut rig = rig_at("4.3.6", QueueType::Quorum);
    let mut names = vec![rig.consumes().1];
    rig.cancel();
    rig.pass(SECOND);
    rig.sent();
    rig.objects_ok();
    let again = rig.sent();
    let tag = again[1]
        .payload
        .windows(11)
        .find(|w| w.starts_with(b"dlx-proxy-"));
    names.push(String::from_utf8(tag.unwrap().to_vec()).unwrap());
    assert_eq!(names, ["dlx-proxy-1", "dlx-proxy-2"]);
}

#[test]
fn what_is_held_for_nearly_half_an_hour_goes_back_when_the_publisher_has_forgotten_it() {
    let mut rig = older();
    let tickets = rig.hold(1..=2);
    rig.pass_alive(LONG - SECOND);
    assert!(!rig.hands_over());
    rig.pass_alive(SECOND);
    assert!(rig.hands_over());
    let met = Event::LimitMet(Limit::IntakeHeld);
    assert_eq!(rig.events(), [met, Event::Consuming(false)]);
    // What it confirms meanwhile is no matter of the queue's any more.
    rig.settle(&[(tickets[0], Outcome::Confirmed)]);
    // On its way when the consumer was cancelled.
    rig.deliver(3, "dlx-proxy/x", &signal());
    assert_eq!(rig.dead(), []);
    let methods = rig.methods();
    assert_eq!(
        methods[..2],
        [(2, MethodId::BASIC_CANCEL), (2, MethodId::BASIC_ACK)]
    );
    rig.input(Input::Publisher(false));
    assert_eq!(rig.returned(), [(2, true)]);
    assert_eq!(rig.machine.held(), 0);
    // The alarm goes on.
    rig.pass_alive(LONG);
    assert_eq!(
        (rig.methods(), rig.events(), rig.hands_over()),
        (vec![], vec![], false)
    );
    rig.input(Input::Publisher(true));
    rig.consuming_again();
}

#[test]
fn where_it_may_say_so_it_holds_for_longer() {
    let mut rig = rig_at("4.3.6", QueueType::Quorum);
    rig.consuming();
    rig.hold(1..=1);
    rig.pass_alive(2 * LONG);
    assert!(!rig.hands_over());
}

#[test]
fn how_long_it_may_be_the_first_refusal_tells() {
    let mut rig = older();
    rig.hold(1..=2);
    rig.events();
    rig.times_out();
    assert!(rig.hands_over());
    assert!(matches!(
        &rig.events()[..],
        [Event::ChannelClosed { .. }, Event::Consuming(false)]
    ));
    rig.sent();
    // Nobody can publish.
    rig.pass_alive(60 * SECOND);
    assert_eq!(rig.methods(), OBJECTS);
    rig.objects_ok();
    assert_eq!(rig.methods(), []);
    rig.answered();
    assert_eq!(rig.consuming(), 1000, "it has not failed");
    rig.hold(1..=1);
    rig.pass_alive(7 * SECOND);
    assert!(!rig.hands_over());
    rig.pass_alive(SECOND);
    assert!(rig.hands_over());
}

#[test]
fn the_publisher_forgets_nothing_of_a_channel_that_held_nothing() {
    let mut rig = older();
    let ticket = rig.hold(1..=1)[0];
    rig.settle(&[(ticket, Outcome::Confirmed)]);
    rig.cut();
    assert!(!rig.hands_over());
}

/// Else it would be with the publisher, and in its queue.
#[test]
fn nothing_is_handed_to_a_publisher_that_was_asked_to_forget() {
    let mut rig = older();
    let mut content = signal();
    let mut properties = content.properties.to_vec();
    properties[1] |= 0x10;
    properties.extend_from_slice(b"\x03bob");
    content.properties = properties.into();
    rig.deliver(1, "dlx-proxy/x", &content);
    let ticket = rig.dead()[0].0;
    rig.pass_alive(LONG);
    assert!(rig.hands_over());
    rig.settle(&[(ticket, Outcome::Refused(Cause::UserId))]);
    assert_eq!((rig.dead(), rig.returned()), (vec![], vec![]));
    rig.input(Input::Publisher(false));
    assert_eq!(rig.returned(), [(1, true)]);
}

#[test]
fn at_the_end_of_the_process_the_publisher_forgets_what_goes_back() {
    let mut rig = older();
    rig.hold(1..=1);
    rig.drain();
    rig.sent();
    rig.pass(5 * SECOND);
    assert_eq!(rig.returned(), [(1, true)]);
    assert!(rig.hands_over());
}
