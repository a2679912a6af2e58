//! Messages that go: away, or back to where they came from.

use std::num::NonZeroU32;

use super::*;
use crate::amqp::ids::{DeliveryTag, name};
use crate::amqp::method::Settle;
use crate::dead_letter::redrive::{Destination, Redrive};
use crate::letter::Filter;
use crate::machine::{Cause, Outcome, Ticket};
use crate::objects::Names;

/// It takes as long as it takes.
pub(super) const ENDLESS: Bounds = Bounds {
    messages: u64::MAX,
    held: 10_000,
    octets: u64::MAX,
    time: Duration::MAX,
};

/// All messages, to a queue by its name.
pub(super) fn redrive() -> Move {
    Move {
        filter: Filter::default(),
        most: u64::MAX,
        per_second: None,
        to: Some(Redrive {
            to: Destination::Queue(name("orders")),
            keep_history: true,
            by: name("operator"),
        }),
        rejects: false,
        own_user: name("proxy"),
        names: Names::default(),
    }
}

/// All messages, nowhere.
pub(super) fn purge() -> Move {
    Move {
        to: None,
        ..redrive()
    }
}

/// On a classic queue with so many messages: deliveries are awaited.
pub(super) fn moving(wanted: Move, ready: u32) -> WalkRig {
    moving_in("classic", wanted, ready, ENDLESS)
}

/// The same on a queue of that type, within bounds.
pub(super) fn moving_in(queue_type: &str, wanted: Move, ready: u32, bounds: Bounds) -> WalkRig {
    moving_at("4.3.6", queue_type, wanted, ready, bounds)
}

/// The same at a broker of that version.
pub(super) fn moving_at(
    version: &str,
    queue_type: &str,
    wanted: Move,
    ready: u32,
    bounds: Bounds,
) -> WalkRig {
    let asks = wanted.to.is_some();
    let mut rig = rig_of(Task::Move(Box::new(wanted)), bounds);
    rig.up(version);
    rig.counted(1, ready);
    if asks {
        rig.asks(true, 1);
        rig.rolled_back();
    }
    rig.is_of_type(queue_type);
    rig
}

impl WalkRig {
    /// Its questions since the last call, on their channel.
    pub(super) fn asks(&mut self, opens: bool, questions: usize) {
        let mut expected = match opens {
            true => vec![MethodId::CHANNEL_OPEN, MethodId::TX_SELECT],
            false => vec![],
        };
        for _ in 0..questions {
            expected.extend([MethodId::BASIC_PUBLISH, MethodId::TX_ROLLBACK]);
        }
        let expected: Vec<_> = expected.into_iter().map(|id| (2, id)).collect();
        assert_eq!(self.methods(), expected);
    }

    /// The user may publish that.
    pub(super) fn rolled_back(&mut self) {
        self.broker(&method(2, MethodId::TX_ROLLBACK_OK, |_| {}));
    }

    /// What it acked since the last call.
    pub(super) fn acked(&mut self) -> Vec<u64> {
        let sent = self.sent();
        let acks = sent.iter().map(|sent| {
            assert_eq!(sent.method(), Some(MethodId::BASIC_ACK), "{sent:?}");
            let ack = Settle::parse(&sent.payload).expect("an ack");
            assert!(!ack.multiple);
            let DeliveryTag(tag) = ack.delivery_tag;
            tag
        });
        acks.collect::<Vec<u64>>()
    }

    /// The tickets of what it handed to the publisher since the last call.
    pub(super) fn handed(&mut self) -> Vec<u64> {
        let handed = self.fx.out.publish.drain(..);
        handed.map(|(Ticket(ticket), _)| ticket).collect()
    }

    pub(super) fn settles(&mut self, ticket: u64, outcome: Outcome) {
        self.input(Input::Settled(vec![(Ticket(ticket), outcome)]));
    }

    /// It is told of messages, as far as it reads.
    pub(super) fn offered(&mut self, messages: u64) -> u64 {
        let mut taken = 0;
        while taken < messages && self.machine.wants_read(Leg::Broker, 0) {
            self.comes("a", "");
            taken += 1;
        }
        taken
    }

    pub(super) fn moved(&mut self) -> (Stopped, u64, Vec<(String, u64)>) {
        let summary = self.summary();
        let stay = summary.moved.stay.into_iter().collect();
        (summary.stopped, summary.moved.gone, stay)
    }
}

#[test]
fn what_is_purged_is_acked_up_to_the_number_that_was_there() {
    let mut rig = moving(purge(), 2);
    rig.comes("a", "");
    rig.comes("b", "");
    let channel = rig.channel();
    let sent = rig.cancelled();
    let expected = [
        MethodId::BASIC_ACK,
        MethodId::BASIC_ACK,
        MethodId::BASIC_CANCEL,
    ];
    assert_eq!(sent, expected.map(|id| (channel, id)));
    rig.goes_back();
    assert_eq!(rig.moved(), (Stopped::End, 2, vec![]));
}

/// So the broker dead-letters it: a release of retries.
#[test]
fn what_is_rejected_goes_like_what_is_removed() {
    let released = Move {
        rejects: true,
        filter: Filter {
            routing_key: Some(name("meant")),
            ..Filter::default()
        },
        ..purge()
    };
    let mut rig = moving(released, 2);
    rig.comes("other", "");
    assert_eq!(rig.methods(), []);
    rig.comes("meant", "");
    let (channel, sent) = (rig.channel(), rig.cancelled());
    let expected = [MethodId::BASIC_REJECT, MethodId::BASIC_CANCEL];
    assert_eq!(sent, expected.map(|id| (channel, id)));
    rig.goes_back();
    assert_eq!(rig.moved(), (Stopped::End, 1, vec![]));
}

#[test]
fn a_number_is_a_number() {
    let two = Move { most: 2, ..purge() };
    let mut rig = moving(two, 100);
    rig.comes("a", "");
    rig.comes("b", "");
    rig.comes("c", "");
    assert_eq!(rig.cancelled().len(), 3);
    rig.goes_back();
    assert_eq!(rig.moved(), (Stopped::Enough, 2, vec![]));
}

#[test]
fn a_message_is_acked_when_it_is_confirmed_elsewhere() {
    let mut rig = moving(redrive(), 3);
    rig.comes("a", "");
    rig.comes("b", "");
    rig.comes("c", "");
    assert_eq!(rig.handed(), [1, 2, 3]);
    assert_eq!(rig.methods(), [], "none has an outcome");
    rig.settles(2, Outcome::Confirmed);
    assert_eq!(rig.acked(), [2]);
    rig.settles(1, Outcome::Refused(Cause::Unroutable));
    assert_eq!(rig.methods(), [], "it stays");
    rig.settles(3, Outcome::Confirmed);
    let channel = rig.channel();
    let expected = [MethodId::BASIC_ACK, MethodId::BASIC_CANCEL];
    assert_eq!(rig.cancelled(), expected.map(|id| (channel, id)));
    rig.goes_back();
    let stays = vec![("unroutable".to_owned(), 1)];
    assert_eq!(rig.moved(), (Stopped::End, 2, stays));
}

#[test]
fn what_nobody_can_publish_now_is_handed_over_again() {
    let mut rig = moving(redrive(), 2);
    rig.comes("a", "");
    assert_eq!(rig.handed(), [1]);
    rig.settles(1, Outcome::Refused(Cause::PublisherAway));
    assert!(rig.machine.progress().summary.moved.waits);
    assert!(!rig.machine.wants_read(Leg::Broker, 0), "it waits");
    rig.pass(999);
    assert!(rig.handed().is_empty());
    rig.pass(1);
    assert_eq!(rig.handed(), [1]);
    assert!(rig.machine.wants_read(Leg::Broker, 0));
    rig.comes("b", "");
    rig.settles(1, Outcome::Confirmed);
    rig.settles(2, Outcome::Confirmed);
    assert_eq!(rig.handed(), [2]);
    rig.cancelled();
    rig.goes_back();
    assert_eq!(rig.moved(), (Stopped::End, 2, vec![]));
}

#[test]
fn what_waits_for_a_publisher_stays_when_it_is_cancelled() {
    let mut rig = moving(redrive(), 100);
    rig.comes("a", "");
    rig.comes("b", "");
    rig.settles(1, Outcome::Refused(Cause::PublisherAway));
    rig.input(Input::Enough);
    assert_eq!(rig.methods(), [], "the second one has no outcome");
    rig.settles(2, Outcome::Refused(Cause::PublisherAway));
    rig.puts_back();
    let stay = vec![("publisher_away".to_owned(), 2)];
    assert_eq!(rig.moved(), (Stopped::Enough, 0, stay));
}

/// A publication that has left may be at its target, whatever becomes of it when it is handed over again.
#[test]
fn what_may_have_arrived_is_told_from_what_never_left() {
    let mut rig = moving(redrive(), 100);
    for key in ["a", "b", "c"] {
        rig.comes(key, "");
    }
    rig.settles(1, Outcome::Refused(Cause::Unconfirmed));
    rig.settles(2, Outcome::Refused(Cause::PublisherAway));
    assert!(rig.machine.progress().summary.moved.waits);
    rig.pass(1_000);
    rig.settles(1, Outcome::Refused(Cause::PublisherAway));
    rig.input(Input::Enough);
    rig.settles(2, Outcome::Refused(Cause::PublisherAway));
    rig.settles(3, Outcome::Refused(Cause::Unconfirmed));
    rig.puts_back();
    let stay = [("publisher_away", 1), ("unconfirmed", 2)].map(|(why, n)| (why.to_owned(), n));
    assert_eq!(rig.moved(), (Stopped::Enough, 0, stay.into()));
}

#[test]
fn not_more_is_under_way_than_fits() {
    let mut rig = moving(redrive(), 1_000);
    assert_eq!(rig.offered(1_000), 256);
    rig.settles(1, Outcome::Confirmed);
    assert_eq!(rig.offered(1_000), 1);
}

#[test]
fn a_rate_is_kept() {
    let wanted = Move {
        per_second: NonZeroU32::new(100),
        ..purge()
    };
    let mut rig = moving(wanted, 1_000);
    let mut taken = 0;
    for _ in 0..2_000 {
        taken += rig.offered(1_000);
        rig.pass(1);
    }
    assert!((198..=207).contains(&taken), "{taken} in two seconds");
}

#[test]
fn a_walk_that_rests_is_not_silent() {
    let mut rig = moving(redrive(), 1_000);
    rig.input(Input::Pause(true));
    assert!(!rig.machine.wants_read(Leg::Broker, 0));
    rig.pass(299_999);
    assert_eq!(rig.fx.out.ended, None);
    rig.input(Input::Pause(false));
    assert_eq!(rig.offered(1), 1);
}

#[test]
fn a_long_pause_puts_back_what_is_held_and_goes_on_afterwards() {
    let wanted = Move {
        per_second: NonZeroU32::new(1),
        ..redrive()
    };
    let mut rig = moving(wanted, 3);
    rig.comes("a", "");
    rig.settles(1, Outcome::Confirmed);
    rig.pass(1_000);
    rig.comes("b", "");
    rig.settles(2, Outcome::Refused(Cause::Unroutable));
    assert_eq!(rig.acked(), [1]);
    rig.input(Input::Pause(true));
    rig.pass(299_999);
    assert_eq!(rig.methods(), []);
    rig.pass(1);
    assert_eq!(rig.puts_back(), [MethodId::CHANNEL_CLOSE]);
    rig.pass(50_000);
    assert_eq!(
        (rig.methods(), &rig.fx.out.ended, rig.machine.channel.held()),
        (vec![], &None, 0),
        "it holds nothing"
    );
    let before = rig.channel();
    rig.input(Input::Pause(false));
    assert_eq!(consumed(&rig.sent()), Some(false));
    let channel = rig.channel();
    assert_eq!(channel, before + 1);
    rig.broker(&method(channel, MethodId::BASIC_CONSUME_OK, |a| {
        a.shortstr(b"dlx-proxy").end();
    }));
    rig.fx.out.publish.clear();
    for ticket in [3, 4] {
        rig.comes("b", "");
        assert_eq!(rig.handed(), [ticket]);
        rig.settles(ticket, Outcome::Confirmed);
        rig.pass(1_000);
    }
    rig.cancelled();
    rig.goes_back();
    assert_eq!(rig.moved(), (Stopped::End, 3, vec![]));
}

#[test]
fn who_cancels_a_walk_that_puts_down_what_it_holds_ends_it() {
    let mut rig = moving(redrive(), 3);
    rig.comes("a", "");
    rig.settles(1, Outcome::Refused(Cause::Unroutable));
    rig.input(Input::Pause(true));
    rig.pass(300_000);
    rig.input(Input::Enough);
    rig.puts_back();
    assert_eq!(rig.summary().stopped, Stopped::Enough);

    let mut rig = moving(redrive(), 3);
    rig.input(Input::Pause(true));
    rig.pass(300_000);
    rig.puts_back();
    rig.input(Input::Enough);
    assert_eq!(rig.summary().stopped, Stopped::Enough);
}

#[test]
fn what_is_paused_for_an_hour_ends() {
    let mut rig = moving(redrive(), 3);
    rig.input(Input::Pause(true));
    rig.pass(300_000);
    rig.puts_back();
    for _ in 0..3_299 {
        rig.pass(1_000);
        rig.broker(&[8, 0, 0, 0, 0, 0, 0, 0xce]);
    }
    assert_eq!(rig.fx.out.ended, None);
    rig.pass(1_000);
    assert_eq!(rig.summary().stopped, Stopped::Paused);
}

/// RabbitMQ cuts a channel that holds a message for half an hour.
#[test]
fn what_stays_is_put_back_in_time_and_met_again() {
    let mut rig = moving(redrive(), 3);
    rig.comes("a", "");
    rig.settles(1, Outcome::Refused(Cause::Unroutable));
    for _ in 0..1_199 {
        rig.pass(1_000);
        let sent = rig.methods();
        assert!(!sent.iter().any(|(_, id)| *id == MethodId::BASIC_CANCEL));
        if !sent.is_empty() {
            rig.counts(2);
        }
    }
    rig.pass(1_000);
    rig.methods();
    rig.puts_back();
    assert_eq!(consumed(&rig.sent()), Some(false), "at once");
    assert_eq!(rig.machine.progress().summary.seen, 0);
}

/// Its bounds have no end, but the beginning has one.
#[test]
fn a_redrive_that_cannot_begin_says_so() {
    let begun = || {
        let mut rig = rig_of(Task::Move(Box::new(redrive())), ENDLESS);
        rig.up("4.3.6");
        rig
    };
    let mut silent = begun();
    silent.pass(29_999);
    assert_eq!(silent.fx.out.ended, None);
    silent.pass(1);
    assert_eq!(silent.ended(), Err(Failure::Silent));

    let mut blocked = begun();
    blocked.counted(1, 1);
    blocked.broker(&method(0, MethodId::CONNECTION_BLOCKED, |a| {
        a.shortstr(b"low on disk").end();
    }));
    blocked.pass(30_000);
    assert_eq!(blocked.ended(), Err(Failure::Blocked));

    let mut begins = moving(redrive(), 1_000);
    for _ in 0..100 {
        begins.pass(300);
        if !begins.methods().is_empty() {
            begins.counts(5);
        }
    }
    assert_eq!(begins.fx.out.ended, None, "it has begun");
    assert!(begins.machine.progress().summary.starves);
    begins.comes("a", "");
    assert!(!begins.machine.progress().summary.starves);
}

#[test]
fn too_many_that_stay_end_it() {
    let few = Bounds { held: 2, ..ENDLESS };
    let mut rig = moving_in("classic", redrive(), 1_000, few);
    rig.comes("a", "");
    rig.comes("b", "");
    rig.comes("c", "");
    for ticket in [1, 2] {
        rig.settles(ticket, Outcome::Refused(Cause::NoExchange));
    }
    rig.settles(3, Outcome::Confirmed);
    rig.cancelled();
    rig.goes_back();
    let stay = vec![("no_exchange".to_owned(), 2)];
    assert_eq!(rig.moved(), (Stopped::Messages, 1, stay));
}

#[test]
fn nobody_sends_back_what_he_may_not_publish() {
    let text = "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'operator'";
    let mut rig = rig_of(Task::Move(Box::new(redrive())), FAR);
    rig.up("4.3.6");
    rig.counted(1, 1);
    rig.sent();
    rig.broker(&close(2, 403, text, MethodId::BASIC_PUBLISH));
    let refused = Failure::Refused {
        code: 403,
        text: text.to_owned(),
    };
    assert_eq!(rig.ended(), Err(refused));
}

#[test]
fn nothing_moves_where_it_is_not_known_how_much_there_is() {
    let text = "ACCESS_REFUSED - configure access to queue 'dead' in vhost '/' refused for user 'operator'";
    let mut rig = rig_of(Task::Move(Box::new(purge())), FAR);
    rig.up("4.3.6");
    rig.broker(&close(1, 403, text, MethodId::QUEUE_DECLARE));
    assert!(matches!(
        rig.ended(),
        Err(Failure::Refused { code: 403, .. })
    ));
}

#[test]
fn nothing_moves_out_of_a_stream() {
    let mut rig = rig_of(Task::Move(Box::new(purge())), ENDLESS);
    rig.up("4.3.6");
    rig.counted(1, 5);
    rig.is_of_type("stream");
    rig.comes("a", "");
    assert_eq!(rig.methods(), [(0, MethodId::CONNECTION_CLOSE)]);
    assert_eq!(rig.ended(), Err(Failure::Stream));
}
