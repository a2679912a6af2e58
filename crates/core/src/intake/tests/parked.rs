//! Parked messages: a lap round their queue, and what never happens in it.

use std::time::Duration;

use super::*;
use crate::amqp::ids::name;
use crate::amqp::method::Get;
use crate::dead_letter::proof::{self, Parked};
use crate::machine::Purpose;

mod target;

const MINUTE: u64 = 60_000;

/// A message as the publisher of that user parks it.
fn parked_by(user: &str, exchange: &str, cause: &str, body: &str) -> Content {
    let said = Parked {
        exchange: exchange.as_bytes(),
        cause: cause.as_bytes(),
    };
    Content {
        properties: proof::prove(&[0, 0], user.as_bytes(), Some(said)).unwrap(),
        body: body.as_bytes().to_vec().into(),
    }
}

fn parked(exchange: &str, body: &str) -> Content {
    parked_by("proxy", exchange, "no_exchange", body)
}

fn retrying() -> IntakeRig {
    let settings = settings();
    settings.limits.set(Limits {
        parked_retry: Duration::from_millis(MINUTE),
        ..Limits::of_tests()
    });
    rig_of(settings)
}

impl IntakeRig {
    /// Parks that many messages.
    fn counted(&mut self, count: u32) {
        self.broker(&method(3, MethodId::QUEUE_DECLARE_OK, |a| {
            a.shortstr(b"dlx-proxy.parked").long(count).long(0).end();
        }));
    }

    /// A lap begins; the lock is had.
    fn lap(&mut self, count: u32) {
        self.pass_alive(MINUTE);
        let methods = self.methods();
        assert_eq!(methods.last(), Some(&(3, MethodId::QUEUE_DECLARE)));
        self.counted(count);
        let lock = self.sent();
        let declare = QueueDeclare::parse(&lock[0].payload).unwrap();
        assert_eq!(declare.queue, b"dlx-proxy.parked.lock");
        assert!(declare.has(QueueDeclare::EXCLUSIVE));
        self.counted(0);
    }

    /// The only request is for the next one; this is it.
    fn fetch(&mut self, tag: u64, content_: &Content) {
        self.got_asked();
        let ok = method(3, MethodId::BASIC_GET_OK, |a| {
            a.longlong(tag).octet(0);
            a.shortstr(b"dlx-proxy.parked").shortstr(b"k").long(9).end();
        });
        self.broker(&content(ok, 3, content_));
    }

    fn got_asked(&mut self) {
        let sent = self.sent();
        let gets: Vec<_> = sent
            .iter()
            .filter(|s| s.is(3, MethodId::BASIC_GET))
            .collect();
        assert_eq!(gets.len(), 1, "{sent:?}");
        assert_eq!(
            Get::parse(&gets[0].payload).unwrap().queue,
            b"dlx-proxy.parked"
        );
    }

    /// The only publication.
    fn published(&mut self) -> (Ticket, Publication) {
        let mut dead = self.dead();
        assert_eq!(dead.len(), 1, "{dead:?}");
        dead.remove(0)
    }

    fn tried(&mut self) -> Vec<(usize, usize, usize)> {
        let events = self.events();
        let tried = events.iter().filter_map(|event| match event {
            Event::ParkedTried {
                moved,
                waiting,
                staying,
                causes,
            } => {
                let left = causes.iter().map(|(_, number)| number).sum::<usize>();
                assert_eq!(left, waiting + staying, "{causes:?}");
                Some((*moved, *waiting, *staying))
            }
            _ => None,
        });
        tried.collect()
    }
}

#[test]
fn what_was_parked_goes_to_its_target_as_it_was_before() {
    let mut rig = retrying();
    rig.lap(1);
    rig.fetch(1, &parked("dlx", "a"));
    let (ticket, publication) = rig.published();
    assert_eq!(publication.purpose, Purpose::Unpark);
    assert_eq!(publication.exchange, name("dlx"));
    assert_eq!(publication.routing_key, name("k"));
    assert_eq!(&publication.content.properties[..], [0, 0]);
    assert!(
        rig.methods().is_empty(),
        "nothing is acked before it is confirmed"
    );
    rig.settle(&[(ticket, Outcome::Confirmed)]);
    let ended = [(3, MethodId::BASIC_ACK), (3, MethodId::QUEUE_DELETE)];
    assert_eq!(rig.methods(), ended);
    assert_eq!(rig.tried(), [(1, 0, 0)]);
}

/// Anybody may write into the queue.
#[test]
fn what_others_parked_goes_to_the_end_of_the_queue_as_it_is() {
    for forged in [
        parked_by("mallory", "secret", "no_exchange", "a"),
        parked_by("proxy", "dlx", "cycle", "a"),
        parked_by("proxy", "dlx", "poison", "a"),
        parked_by("proxy", "dlx", "delayed", "a"),
        parked_by("proxy", "dlx", "implausible", "a"),
        with_headers(TableBuilder::default(), "a"),
    ] {
        let mut rig = retrying();
        rig.lap(1);
        rig.fetch(1, &forged);
        let (ticket, publication) = rig.published();
        assert_eq!(publication.purpose, Purpose::Tail);
        assert_eq!(publication.exchange, name("dlx-proxy.parked"));
        assert_eq!(publication.content, forged);
        rig.settle(&[(ticket, Outcome::Parked(Cause::Poison))]);
        assert_eq!(rig.methods()[0], (3, MethodId::BASIC_ACK));
        assert_eq!(rig.tried(), [(0, 0, 1)]);
    }
}

#[test]
fn a_lap_ends_with_as_many_as_there_were() {
    let mut rig = retrying();
    rig.lap(2);
    for tag in 1..=2 {
        rig.fetch(tag, &parked("dlx", "a"));
        let (ticket, _) = rig.published();
        rig.settle(&[(ticket, Outcome::Parked(Cause::Unroutable))]);
    }
    let ended = [(3, MethodId::BASIC_ACK), (3, MethodId::QUEUE_DELETE)];
    assert_eq!(rig.methods(), ended);
    assert_eq!(rig.tried(), [(0, 2, 0)]);
    rig.pass_alive(MINUTE - 1000);
    assert_eq!(rig.methods(), [], "no sooner than after the setting's time");
}

#[test]
fn one_without_an_exchange_is_asked_about_once_a_lap() {
    let mut rig = retrying();
    rig.lap(3);
    rig.fetch(1, &parked("gone", "a"));
    let (ticket, _) = rig.published();
    rig.settle(&[(ticket, Outcome::Parked(Cause::NoExchange))]);
    rig.fetch(2, &parked("gone", "b"));
    let (second, publication) = rig.published();
    assert_eq!(publication.purpose, Purpose::Tail);
    // Nor is it in the way of others.
    rig.fetch(3, &parked("there", "c"));
    let (third, publication) = rig.published();
    assert_eq!(publication.purpose, Purpose::Unpark);
    let parked = Outcome::Parked(Cause::Poison);
    rig.settle(&[(second, parked), (third, Outcome::Confirmed)]);
    assert_eq!(rig.tried(), [(1, 2, 0)]);
}

/// One of several queues behind the exchange is full: the others get a copy of all that is tried.
#[test]
fn what_was_refused_is_tried_by_one_message_in_the_next_lap() {
    let mut rig = retrying();
    rig.lap(1);
    rig.fetch(1, &parked("fan", "a"));
    let (ticket, _) = rig.published();
    rig.settle(&[(ticket, Outcome::Parked(Cause::Nacked))]);
    assert_eq!(rig.tried(), [(0, 1, 0)]);
    rig.lap(2);
    rig.fetch(2, &parked("fan", "b"));
    let (ticket, publication) = rig.published();
    assert_eq!(publication.purpose, Purpose::Unpark);
    rig.settle(&[(ticket, Outcome::Parked(Cause::Nacked))]);
    rig.fetch(3, &parked("fan", "a"));
    let (ticket, publication) = rig.published();
    assert_eq!(publication.purpose, Purpose::Tail);
    rig.settle(&[(ticket, Outcome::Parked(Cause::Nacked))]);
    assert_eq!(rig.tried(), [(0, 2, 0)]);
}

#[test]
fn another_proxy_has_the_lock() {
    let mut rig = retrying();
    rig.pass_alive(MINUTE);
    rig.counted(5);
    rig.sent();
    let text = "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'dlx-proxy.parked.lock' in vhost '/'";
    rig.broker(&close(3, 405, text, MethodId::QUEUE_DECLARE));
    assert_eq!(rig.methods(), [(3, MethodId::CHANNEL_CLOSE_OK)]);
    assert_eq!(rig.events(), [], "that is as it should be");
    rig.pass_alive(MINUTE);
    let again = [(3, MethodId::CHANNEL_OPEN), (3, MethodId::QUEUE_DECLARE)];
    assert_eq!(rig.methods(), again);
}

#[test]
fn an_empty_queue_costs_a_question() {
    let mut rig = retrying();
    rig.pass_alive(MINUTE);
    let begun = [(3, MethodId::CHANNEL_OPEN), (3, MethodId::QUEUE_DECLARE)];
    assert_eq!(rig.methods(), begun);
    rig.counted(0);
    assert_eq!(rig.methods(), []);
    assert_eq!(rig.tried(), [(0, 0, 0)]);
}

/// What cannot even be parked again is neither acked nor returned, as each return may count against a limit.
#[test]
fn what_nobody_takes_is_tried_again_with_the_next_lap() {
    let mut rig = retrying();
    rig.lap(2);
    rig.fetch(1, &parked("dlx", "a"));
    let (ticket, _) = rig.published();
    rig.settle(&[(ticket, Outcome::Refused(Cause::Nacked))]);
    assert_eq!(
        rig.methods(),
        [(3, MethodId::QUEUE_DELETE)],
        "and the lap is over"
    );
    assert_eq!(rig.tried(), [(0, 1, 0)]);
    rig.lap(0);
    let (same, publication) = rig.published();
    assert_eq!((same, publication.purpose), (ticket, Purpose::Unpark));
    rig.settle(&[(ticket, Outcome::Confirmed)]);
    assert_eq!(rig.methods()[0], (3, MethodId::BASIC_ACK));
    assert_eq!(rig.tried(), [(1, 0, 0)]);
}

/// By the publisher, too.
#[test]
fn a_lap_that_was_cut_is_forgotten() {
    let mut rig = retrying();
    rig.lap(1);
    rig.fetch(1, &parked("dlx", "a"));
    let (ticket, _) = rig.published();
    rig.cut();
    assert!(rig.hands_over());
    rig.settle(&[(ticket, Outcome::Confirmed)]);
    assert_eq!(rig.machine.held(), 0);
    assert_eq!(rig.methods(), []);
}

/// The broker has those again that were held for too long (S9.5).
#[test]
fn a_lap_whose_channel_is_closed_is_forgotten_by_the_publisher() {
    let mut rig = retrying();
    rig.lap(2);
    rig.fetch(1, &parked("dlx", "a"));
    rig.published();
    let text = "PRECONDITION_FAILED - delivery acknowledgement on channel 3 timed out.";
    rig.broker(&close(3, 406, text, MethodId(0, 0)));
    assert!(rig.hands_over());
    rig.sent();
    rig.answered();
    rig.consuming_again();
    rig.pass_alive(MINUTE);
    let again = [(3, MethodId::CHANNEL_OPEN), (3, MethodId::QUEUE_DECLARE)];
    assert_eq!(rig.methods(), again);
}

#[test]
fn never_means_never() {
    let mut rig = rig();
    rig.pass_alive(10 * MINUTE);
    assert_eq!(rig.methods(), []);
}

#[test]
fn at_the_end_of_the_process_what_is_on_its_way_is_awaited() {
    let mut rig = retrying();
    rig.lap(2);
    rig.fetch(1, &parked("dlx", "a"));
    let (ticket, _) = rig.published();
    rig.drain();
    assert_eq!(rig.machine.held(), 1);
    rig.settle(&[(ticket, Outcome::Confirmed)]);
    let methods = rig.methods();
    assert!(methods.contains(&(3, MethodId::BASIC_ACK)), "{methods:?}");
    assert!(!methods.contains(&(3, MethodId::BASIC_GET)), "{methods:?}");
}

impl IntakeRig {
    /// A whole lap, in which so many messages only go to the end, for that cause.
    fn lap_in_vain(&mut self, count: u32, message: &Content, cause: Cause) {
        self.lap(count);
        for tag in 1..=count {
            self.fetch(tag.into(), message);
            let (ticket, _) = self.published();
            self.settle(&[(ticket, Outcome::Parked(cause))]);
        }
        assert_eq!(
            self.methods().last(),
            Some(&(3, MethodId::QUEUE_DELETE)),
            "over"
        );
    }

    /// After how many minutes of those the next lap begins, as so many messages are there.
    fn next_lap(&mut self, most: u64, count: u32) -> Option<u64> {
        (1..=most).find(|_| {
            self.pass_alive(MINUTE);
            assert_eq!(
                self.methods(),
                [(3, MethodId::QUEUE_DECLARE)],
                "how many are there?"
            );
            self.counted(count);
            self.methods() == [(3, MethodId::QUEUE_DECLARE)]
        })
    }
}

/// 100 ms for each.
#[test]
fn after_a_lap_in_vain_the_next_one_is_the_later_the_more_messages_there_are() {
    let waits = Cause::Unroutable;
    let mut rig = retrying();
    rig.lap_in_vain(1_500, &parked("dlx", "a"), waits);
    assert_eq!(rig.next_lap(9, 1_500), Some(3));

    let mut rig = retrying();
    rig.lap_in_vain(700, &parked("dlx", "a"), waits);
    assert_eq!(rig.next_lap(9, 2_900), Some(5), "as many as there are now");
    let mut rig = retrying();
    rig.lap_in_vain(700, &parked("dlx", "a"), waits);
    assert_eq!(rig.next_lap(9, 10), Some(1));
    let mut rig = retrying();
    rig.lap_in_vain(1, &parked("dlx", "a"), waits);
    assert_eq!(rig.next_lap(99, u32::MAX), Some(60), "an hour at most");
}

#[test]
fn a_lap_that_brought_one_to_its_target_is_followed_by_another_soon() {
    let mut rig = retrying();
    rig.lap(1);
    rig.fetch(1, &parked("dlx", "a"));
    let (ticket, _) = rig.published();
    rig.settle(&[(ticket, Outcome::Confirmed)]);
    rig.sent();
    assert_eq!(rig.next_lap(9, 3_000), Some(1));
}

/// Nobody but the count says that something has changed; in an hour one may have gone, and another one come.
#[test]
fn what_stays_is_not_moved_while_no_other_comes() {
    let stays = parked("", "a");
    let stays = Content {
        properties: Bytes::from_static(&[0, 0]),
        ..stays
    };
    for (count, minutes) in [(2, 60), (3, 1), (1, 1)] {
        let mut rig = retrying();
        rig.lap_in_vain(2, &stays, Cause::Poison);
        assert_eq!(rig.tried(), [(0, 0, 2)]);
        assert_eq!(rig.next_lap(99, count), Some(minutes));
        assert_eq!(
            rig.tried(),
            [],
            "what was told of them is as true as before"
        );
    }
}

/// A broker that comes back may not be the one that it was.
#[test]
fn with_a_new_link_a_lap_begins_soon() {
    let mut rig = retrying();
    rig.lap_in_vain(1_500, &parked("dlx", "a"), Cause::Unroutable);
    rig.cut();
    rig.up("4.3.6");
    rig.objects();
    rig.consuming();
    rig.lap(1_500);
}

/// Else its lap would never end, nor would another proxy ever have the lock.
#[test]
fn what_comes_when_the_publisher_has_left_waits_for_the_next_lap() {
    let mut rig = retrying();
    rig.lap(2);
    rig.input(Input::Publisher(false));
    rig.fetch(1, &parked("dlx", "a"));
    assert_eq!(rig.dead(), [], "it would be forgotten");
    assert_eq!(rig.methods(), [(3, MethodId::QUEUE_DELETE)]);
    assert_eq!(rig.tried(), [(0, 1, 0)]);
    rig.input(Input::Publisher(true));
    rig.sent();
    rig.lap(0);
    let (ticket, publication) = rig.published();
    assert_eq!(publication.purpose, Purpose::Unpark);
    rig.settle(&[(ticket, Outcome::Confirmed)]);
    assert_eq!(rig.methods()[0], (3, MethodId::BASIC_ACK));
}

#[test]
fn a_lap_that_has_the_lock_when_the_publisher_has_left_is_over() {
    let mut rig = retrying();
    rig.pass_alive(MINUTE);
    rig.counted(2);
    rig.input(Input::Publisher(false));
    rig.sent();
    rig.counted(0);
    assert_eq!(rig.methods(), [(3, MethodId::QUEUE_DELETE)]);
}
