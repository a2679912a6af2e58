//! The pulse against a scripted broker.

use bytes::Bytes;

use super::*;
use crate::amqp::ids::name;
use crate::amqp::table::{Table, Value};
use crate::link::peer::{Rig, close, method};
use crate::machine::{Flow, Leg, Machine};

const DECLARE: MethodId = MethodId::QUEUE_DECLARE;
const NOBODY: MethodId = MethodId(0, 0);
const INTAKE: &str = "dlx-proxy.intake";
const PARKED: &str = "dlx-proxy.parked";
const DELAYED: &str = "dlx-proxy.delay.1000";

type PulseRig = Rig<Pulse>;

fn fresh() -> PulseRig {
    let delays = ExistingDelays::default();
    delays.used(1000);
    Rig::new(Pulse::new(Settings {
        login: Login {
            vhost: name("/"),
            user: name("proxy"),
            password: Bytes::from_static(b"secret"),
            seed: 1,
        },
        names: Names::default(),
        delays,
    }))
}

fn rig() -> PulseRig {
    let mut rig = fresh();
    rig.up("4.3.6");
    assert_eq!(rig.marks(), Some("proxy".to_owned()));
    rig.counts(1, 0, 0);
    assert_eq!(rig.events().pop(), Some(Event::OtherUser(None)));
    rig.lasts(10);
    rig
}

impl PulseRig {
    fn lasts(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.pass(1000);
            self.broker(&[8, 0, 0, 0, 0, 0, 0, 0xce]);
        }
    }

    /// The user in the declared mark, which must be the only question.
    fn marks(&mut self) -> Option<String> {
        let sent = self.sent();
        let mut declares = sent.iter().filter(|sent| sent.method() == Some(DECLARE));
        let asked = declares.next()?;
        assert_eq!((asked.channel, declares.count()), (1, 0));
        let declare = QueueDeclare::parse(&asked.payload).unwrap();
        assert_eq!(
            (declare.queue, declare.bits),
            (&b"dlx-proxy.user"[..], QueueDeclare::DURABLE)
        );
        let user = Table(declare.arguments).get(mark::ARGUMENT.as_bytes());
        let user = user.unwrap().and_then(Value::as_longstr).unwrap();
        Some(String::from_utf8(user.to_vec()).unwrap())
    }

    /// The queue that is asked, and its channel. Handles a mark that is due.
    fn asks(&mut self) -> Option<(u16, String)> {
        let sent = self.sent();
        let asked = sent.iter().find(|sent| sent.method() == Some(DECLARE))?;
        let declare = QueueDeclare::parse(&asked.payload).unwrap();
        if !declare.has(QueueDeclare::PASSIVE) {
            self.counts(asked.channel, 0, 0);
            return self.asks();
        }
        let queue = String::from_utf8(declare.queue.to_vec()).unwrap();
        Some((asked.channel, queue))
    }

    fn counts(&mut self, channel: u16, messages: u32, consumers: u32) {
        self.broker(&method(channel, MethodId::QUEUE_DECLARE_OK, |a| {
            a.shortstr(b"q").long(messages).long(consumers).end();
        }));
    }

    fn says(&mut self, channel: u16, id: MethodId) {
        self.broker(&method(channel, id, |a| a.shortstr(b"").end()));
    }

    fn is_well(&mut self, queue: &str) {
        let (channel, asked) = self.asks().unwrap();
        assert_eq!(asked, queue);
        if queue == INTAKE {
            self.counts(channel, 0, 1);
            let methods = self.methods();
            assert_eq!(methods.last(), Some(&(channel, MethodId::BASIC_CONSUME)));
            self.says(channel, MethodId::BASIC_CONSUME_OK);
            assert_eq!(self.methods(), [(channel, MethodId::CHANNEL_CLOSE)]);
            self.says(channel, MethodId::CHANNEL_CLOSE_OK);
        } else {
            self.counts(channel, 0, 0);
            assert_eq!(self.methods(), [(channel, MethodId::BASIC_GET)]);
            self.says(channel, MethodId::BASIC_GET_EMPTY);
        }
    }

    fn all_well(&mut self) {
        for queue in [INTAKE, PARKED, DELAYED] {
            self.is_well(queue);
        }
        assert_eq!(self.asks(), None);
    }

    fn told(&mut self) -> Vec<(String, Option<Trouble>)> {
        let events = self.events().into_iter();
        let told = events.filter_map(|event| match event {
            Event::OwnQueue { queue, trouble, .. } => Some((queue.to_string(), trouble)),
            Event::OwnQueueGone { queue } => Some((format!("{queue} is gone"), None)),
            _ => None,
        });
        told.collect()
    }

    fn dies(&mut self) {
        self.broker(&close(0, 541, "INTERNAL_ERROR", MethodId::BASIC_GET));
        self.sent();
        self.up("4.3.6");
    }
}

fn well(queue: &str) -> (String, Option<Trouble>) {
    (queue.to_owned(), None)
}

fn ill(queue: &str, trouble: Trouble) -> (String, Option<Trouble>) {
    (queue.to_owned(), Some(trouble))
}

#[test]
fn those_that_are_well_are_told_once() {
    let mut rig = rig();
    rig.all_well();
    assert_eq!(rig.told(), [INTAKE, PARKED, DELAYED].map(well));
    rig.lasts(10);
    rig.all_well();
    assert_eq!(rig.told(), []);
}

/// Its leader counted them; fetching one would remove it for a moment.
#[test]
fn one_that_has_messages_is_not_touched() {
    let mut rig = rig();
    rig.is_well(INTAKE);
    let (channel, _) = rig.asks().unwrap();
    rig.counts(channel, 3, 0);
    assert_eq!(rig.told(), [INTAKE, PARKED].map(well));
    assert_eq!(rig.asks(), Some((channel, DELAYED.to_owned())));
}

#[test]
fn an_intake_queue_that_nobody_consumes_says_itself_that_it_is_for_one() {
    let mut rig = rig();
    let (channel, _) = rig.asks().unwrap();
    rig.counts(channel, 0, 0);
    assert_eq!(rig.methods(), [(channel, MethodId::BASIC_GET)]);
    rig.broker(&close(channel, 405, "RESOURCE_LOCKED", MethodId::BASIC_GET));
    assert_eq!(rig.told(), [well(INTAKE)]);
}

#[test]
fn a_message_that_came_meanwhile_goes_back() {
    let mut rig = rig();
    rig.is_well(INTAKE);
    let (channel, _) = rig.asks().unwrap();
    rig.counts(channel, 0, 0);
    rig.sent();
    rig.says(channel, MethodId::BASIC_GET_OK);
    assert_eq!(rig.methods(), [(channel, MethodId::CHANNEL_CLOSE)]);
    rig.says(channel, MethodId::CHANNEL_CLOSE_OK);
    assert_eq!(rig.told(), [INTAKE, PARKED].map(well));
    rig.is_well(DELAYED);
}

#[test]
fn one_is_silent_while_the_broker_answers_and_the_others_are_asked_on() {
    let mut rig = rig();
    rig.is_well(INTAKE);
    let (silent, _) = rig.asks().unwrap();
    rig.counts(silent, 0, 0);
    rig.lasts(2);
    rig.is_well(DELAYED);
    rig.told();
    rig.lasts(8);
    // It keeps its channel, and is not asked again.
    rig.is_well(INTAKE);
    rig.is_well(DELAYED);
    rig.lasts(4);
    assert_eq!(rig.told(), []);
    rig.lasts(1);
    assert_eq!(rig.told(), [ill(PARKED, Trouble::Silent)]);
    rig.says(silent, MethodId::BASIC_GET_EMPTY);
    assert_eq!(rig.told(), [well(PARKED)]);
    rig.lasts(5);
    rig.all_well();
}

#[test]
fn of_a_broker_that_stands_still_nothing_is_known() {
    let mut rig = rig();
    rig.all_well();
    rig.told();
    rig.pass(40_000);
    assert_eq!(rig.told(), []);
}

#[test]
fn one_that_costs_the_connection_twice_is_dead() {
    let mut rig = rig();
    rig.is_well(INTAKE);
    let (channel, _) = rig.asks().unwrap();
    rig.counts(channel, 0, 0);
    rig.told();
    rig.dies();
    rig.is_well(DELAYED);
    assert_eq!(rig.told(), [well(DELAYED)], "a leader may have changed");
    rig.lasts(10);
    rig.is_well(INTAKE);
    let (channel, asked) = rig.asks().unwrap();
    assert_eq!(asked, PARKED);
    rig.counts(channel, 0, 0);
    rig.dies();
    assert_eq!(rig.told(), [ill(PARKED, Trouble::Dead)]);
    // Seldom from now on, as each answer costs the connection.
    rig.is_well(DELAYED);
    for _ in 0..2 {
        rig.lasts(10);
        rig.is_well(INTAKE);
        rig.is_well(DELAYED);
    }
    rig.lasts(10);
    rig.all_well();
    assert_eq!(rig.told(), [well(PARKED)]);
}

#[test]
fn one_that_is_deleted_is_asked_for_and_told_when_it_does_not_come() {
    let mut rig = rig();
    rig.all_well();
    rig.told();
    for round in 0..2 {
        rig.lasts(10);
        rig.is_well(INTAKE);
        let (channel, _) = rig.asks().unwrap();
        rig.broker(&close(channel, 404, "NOT_FOUND - no queue", DECLARE));
        assert!(std::mem::take(&mut rig.fx.out.missing));
        let told = match round {
            0 => well("dlx-proxy.parked is gone"),
            _ => ill(PARKED, Trouble::Deleted),
        };
        assert_eq!(rig.told(), [told]);
        rig.is_well(DELAYED);
    }
    rig.lasts(10);
    rig.all_well();
    assert_eq!(rig.told(), [well(PARKED)]);
}

#[test]
fn a_dead_one_does_not_make_the_silent_ones_wait() {
    let mut rig = rig();
    let (intake, _) = rig.asks().unwrap();
    rig.counts(intake, 0, 1);
    rig.lasts(2);
    let (channel, asked) = rig.asks().unwrap();
    assert_eq!(asked, PARKED);
    rig.counts(channel, 0, 0);
    rig.dies();
    rig.is_well(DELAYED);
    rig.lasts(8);
    let (intake, asked) = rig.asks().unwrap();
    assert_eq!(asked, INTAKE);
    rig.counts(intake, 0, 1);
    rig.told();
    rig.lasts(4);
    assert_eq!(rig.told(), []);
    rig.lasts(1);
    assert_eq!(rig.told(), [ill(INTAKE, Trouble::Silent)]);
}

/// The next message that needs the queue makes it again.
#[test]
fn a_delay_queue_that_is_deleted_is_asked_no_more() {
    let mut rig = rig();
    rig.all_well();
    rig.told();
    rig.lasts(10);
    rig.is_well(INTAKE);
    rig.is_well(PARKED);
    let (channel, _) = rig.asks().unwrap();
    rig.broker(&close(channel, 404, "NOT_FOUND - no queue", DECLARE));
    assert!(!rig.fx.out.missing);
    assert_eq!(rig.told(), [well("dlx-proxy.delay.1000 is gone")]);
    rig.lasts(10);
    rig.is_well(INTAKE);
    rig.is_well(PARKED);
    assert_eq!(rig.asks(), None);
}

/// A classic queue whose node is down; nobody could make it now.
#[test]
fn one_that_is_away_is_not_deleted() {
    let mut rig = rig();
    let words = "NOT_FOUND - queue 'q' in vhost '/' process is stopped by supervisor";
    for _ in 0..2 {
        let (channel, _) = rig.asks().unwrap();
        rig.broker(&close(channel, 404, words, DECLARE));
        assert!(!rig.fx.out.missing);
        rig.is_well(PARKED);
        rig.is_well(DELAYED);
        rig.lasts(10);
    }
    let away = Trouble::State(format!("is away: {words}"));
    let told = [well(PARKED), well(DELAYED), ill(INTAKE, away)];
    assert_eq!(rig.told(), told);
}

#[test]
fn of_one_that_may_not_be_asked_nothing_is_known() {
    let mut rig = rig();
    for _ in 0..3 {
        let (channel, _) = rig.asks().unwrap();
        rig.broker(&close(channel, 403, "ACCESS_REFUSED", NOBODY));
        rig.is_well(PARKED);
        rig.is_well(DELAYED);
        rig.lasts(10);
    }
    assert_eq!(rig.told(), [PARKED, DELAYED].map(well));
}

#[test]
fn a_connection_that_is_cut_without_a_word_counts_for_the_queue_itself_that_was_asked_last() {
    let mut rig = rig();
    for _ in 0..2 {
        let (intake, _) = rig.asks().unwrap();
        rig.counts(intake, 0, 1);
        rig.lasts(2);
        let (parked, _) = rig.asks().unwrap();
        rig.counts(parked, 0, 0);
        rig.lasts(2);
        assert_eq!(rig.asks().unwrap().1, DELAYED);
        rig.lasts(2);
        rig.told();
        rig.machine.closed(Leg::Broker, rig.now, &mut rig.fx);
        rig.fx.broker.finish().0.clear();
        assert!(matches!(rig.machine.flow(), Flow::Reconnect(_)));
        rig.up("4.3.6");
        rig.marks();
        rig.counts(1, 0, 0);
        rig.lasts(4);
    }
    assert!(rig.told().contains(&ill(PARKED, Trouble::Dead)));
}

/// After a broker start, a queue may take its time.
#[test]
fn how_long_was_waited_before_the_link_was_away_does_not_count() {
    let mut rig = rig();
    let (intake, _) = rig.asks().unwrap();
    rig.counts(intake, 0, 1);
    rig.lasts(14);
    rig.machine.closed(Leg::Broker, rig.now, &mut rig.fx);
    rig.fx.broker.finish().0.clear();
    assert!(matches!(rig.machine.flow(), Flow::Reconnect(_)));
    rig.pass(5000);
    rig.up("4.3.6");
    rig.told();
    rig.lasts(14);
    assert_eq!(rig.told(), []);
}

#[test]
fn another_user_is_told_of_until_its_mark_is_gone() {
    let mut rig = fresh();
    let refused = |rig: &mut PulseRig, text: &str| {
        rig.up("4.3.6");
        assert_eq!(rig.marks(), Some("proxy".to_owned()));
        rig.events();
        rig.broker(&close(1, 406, text, DECLARE));
        let said = rig.events();
        rig.sent();
        rig.machine.closed(Leg::Broker, rig.now, &mut rig.fx);
        rig.events();
        said
    };
    let text = "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-routing-key' for queue 'dlx-proxy.user' in vhost '/': received 'proxy' but current is 'eve'";
    let eve = Event::OtherUser(Some(name("eve")));
    assert_eq!(refused(&mut rig, text), [eve]);
    assert_eq!(refused(&mut rig, text), []);
    let full = "PRECONDITION_FAILED - cannot declare queue 'dlx-proxy.user': queue limit in vhost '/' (1) is reached";
    assert_eq!(refused(&mut rig, full), [], "who is there is not known now");
    rig.up("4.3.6");
    rig.marks();
    rig.events();
    rig.counts(1, 0, 0);
    assert_eq!(rig.events(), [Event::OtherUser(None)]);
}

#[test]
fn the_mark_is_kept_alive() {
    let mut rig = fresh();
    rig.up("4.3.6");
    rig.marks();
    rig.counts(1, 0, 0);
    let renewed = |rig: &mut PulseRig, seconds| {
        rig.lasts(seconds);
        let sent = rig.sent();
        let declares = sent.iter().filter(|sent| sent.method() == Some(DECLARE));
        let declares = declares.map(|sent| QueueDeclare::parse(&sent.payload).unwrap());
        declares
            .filter(|declare| !declare.has(QueueDeclare::PASSIVE))
            .count()
    };
    assert_eq!(renewed(&mut rig, 29), 0);
    assert_eq!(renewed(&mut rig, 1), 1);
    // Without an answer it is not asked on another channel.
    assert_eq!(renewed(&mut rig, 100), 0);
}
