//! Declares that differ from their queue in where its dead letters go, where `declares = "lenient"`.

use super::frames::{cancel, deliver, reject};
use super::order::{delete_ok, queue_delete};
use super::probes::*;
use super::script::*;
use crate::amqp::ids::{ShortStr, name};
use crate::amqp::method::MethodId;
use crate::amqp::table::TableBuilder;
use crate::machine::{DeadLettersTo, Event, Fallback, Limit, Limits};
use crate::registry::policy::{Declares, Mode};
use crate::session::Settings;

const NOT_BOUND: &str = "ACCESS_REFUSED - operation not permitted on the default exchange";
const OF_EXCHANGE: &str =
    "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost '/': ";
const OF_KEY: &str = "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-routing-key' for queue 'q' in vhost '/': ";

fn lenient(mode: Mode) -> Settings {
    Settings {
        declares: Declares::Lenient,
        ..settings(mode)
    }
}

fn arguments(exchange: Option<&str>, key: Option<&str>) -> Vec<u8> {
    let mut table = TableBuilder::default();
    for (argument, value) in [
        (&b"x-dead-letter-exchange"[..], exchange),
        (b"x-dead-letter-routing-key", key),
    ] {
        if let Some(value) = value {
            table.longstr(argument, value.as_bytes());
        }
    }
    table.finish()
}

/// May the user write to that exchange?
fn asks_for(exchange: &str) -> Vec<u8> {
    method(PROBE, MethodId::EXCHANGE_BIND, |a| {
        a.short(0)
            .shortstr(exchange.as_bytes())
            .shortstr(b"")
            .shortstr(b"")
            .octet(0)
            .longstr(b"")
            .end();
    })
}

fn to(exchange: Option<&str>, key: Option<&str>) -> DeadLettersTo {
    DeadLettersTo {
        exchange: exchange.map(name),
        routing_key: key.map(name),
    }
}

/// Of a queue that was taken over.
fn redeclared(before: DeadLettersTo, now: DeadLettersTo) -> Event {
    Event::Redeclared {
        queue: name("q"),
        before,
        now,
        own: None,
    }
}

/// Refused on the probe's channel; the broker is asked this next, on the channel that is opened anew.
fn corrects(s: &mut Script, said: &str, form: &[u8]) {
    s.broker(&close(PROBE, 406, said)).broker_gets(&[
        &close_ok(PROBE),
        &opened(),
        &declare_on(PROBE, "q", 0, &if_there(form)),
    ]);
    s.broker(&open_ok()).silent();
}

/// The queue was taken over with the target `old`. A declare says `dlx`, up to the point where the broker has compared all else.
fn matching() -> Script {
    let mut s = Script::open(lenient(Mode::Full));
    matches(&mut s);
    s
}

fn matches(s: &mut Script) {
    s.client(&declare_on(CH, "q", 0, &original()))
        .broker_gets(&[
            &opened(),
            &declare_on(PROBE, "q", 0, &if_there(&rewritten())),
        ]);
    s.broker(&open_ok()).silent();
    let said = format!("{OF_EXCHANGE}received 'dlx-proxy/dlx' but current is 'dlx-proxy/old'");
    corrects(s, &said, &arguments(Some("dlx-proxy/old"), None));
}

/// The same, accepted.
fn changed() -> Script {
    let mut s = matching();
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&asks_for("dlx")]);
    s.broker(&close(PROBE, 403, NOT_BOUND))
        .broker_gets(&[&close_ok(PROBE)]);
    assert_eq!(s.ensure, [], "first it is recorded");
    s.recorded(true).silent();
    s.ensured(true).broker_gets(&[&declare_on(
        CH,
        "q",
        0,
        &if_there(&arguments(Some("dlx-proxy/old"), None)),
    )]);
    s.broker(&declare_ok(CH, "q")).passes();
    s
}

/// Of a message that the client reads from the queue and rejects.
fn rejected(s: &mut Script) -> Said<'_> {
    s.consumes("q");
    s.session.registry.trust_all();
    s.broker(&deliver("q", 1, b"hi")).passes();
    s.client(&reject(1, false))
}

/// The exchange to which its dead letter goes.
fn dies(s: &mut Script) -> ShortStr {
    rejected(s).silent();
    s.dead[0].1.exchange.clone()
}

#[test]
fn another_target_counts_from_the_declare_on() {
    let mut s = changed();
    let event = redeclared(to(Some("old"), None), to(Some("dlx"), None));
    assert!(s.events.contains(&event), "{:?}", s.events);
    assert_eq!(dies(&mut s), name("dlx"));
}

/// It may be on its way to the record: who says it again is answered no sooner than the first.
#[test]
fn what_counts_already_is_waited_for_all_the_same() {
    let mut s = changed().another();
    matches(&mut s);
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&asks_for("dlx")]);
    s.broker(&close(PROBE, 403, NOT_BOUND))
        .broker_gets(&[&close_ok(PROBE)]);
    assert_eq!(s.ensure, []);
    s.recorded(true).silent();
}

/// A declare of what the queue was made with. It is accepted.
fn declares_what_it_was_made_with(s: &mut Script) {
    let form = if_there(&arguments(Some("dlx-proxy/old"), None));
    s.client(&declare_on(CH, "q", 0, &arguments(Some("old"), None)))
        .broker_gets(&[&opened(), &declare_on(PROBE, "q", 0, &form)]);
    s.broker(&open_ok()).silent();
    s.broker(&declare_ok(PROBE, "q")).silent();
    s.ensured(true)
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &form)]);
    s.events.clear();
    s.broker(&declare_ok(CH, "q")).passes();
}

/// It counts from then on, and is recorded.
fn counts_again(s: &Script) {
    let event = redeclared(to(Some("dlx"), None), to(Some("old"), None));
    assert!(s.events.contains(&event), "{:?}", s.events);
    assert_eq!(s.policies.count_redeclared(), 0);
    assert_eq!(s.record, [(name("q"), false)], "nobody waits for that");
}

#[test]
fn the_last_declare_wins() {
    let mut s = changed().another();
    declares_what_it_was_made_with(&mut s);
    counts_again(&s);
}

/// The broker has cancelled the consumer: what it was given is the broker's.
#[test]
fn the_last_declare_wins_while_deliveries_of_an_earlier_queue_are_held() {
    let mut s = changed();
    s.consumes("q");
    s.broker(&deliver("q", 1, b"hi")).passes();
    s.broker(&cancel("q", 1)).passes();
    declares_what_it_was_made_with(&mut s);
    counts_again(&s);
    let managed = |event: &Event| matches!(event, Event::QueueManaged { .. });
    assert!(s.events.iter().any(managed), "{:?}", s.events);
    s.client(&reject(1, false)).passes();
}

/// The recorder is away, or the broker has an alarm: in this proxy it counts all the same.
#[test]
fn what_cannot_be_recorded_counts_here() {
    for in_time in [true, false] {
        let mut s = matching();
        s.broker(&declare_ok(PROBE, "q"))
            .broker_gets(&[&asks_for("dlx")]);
        s.broker(&close(PROBE, 403, NOT_BOUND))
            .broker_gets(&[&close_ok(PROBE)]);
        s.events.clear();
        match in_time {
            true => s.recorded(false).silent(),
            false => s.wait(Limits::of_tests().probe_timeout).silent(),
        }
        let not_recorded = Event::NotRecorded { queue: name("q") };
        assert!(s.events.contains(&not_recorded), "{:?}", s.events);
        assert_eq!(
            s.fx.out.gave_up, !in_time,
            "who was told waits no longer anyway"
        );
        s.ensured(true).broker_gets(&[&declare_on(
            CH,
            "q",
            0,
            &if_there(&arguments(Some("dlx-proxy/old"), None)),
        )]);
        s.broker(&declare_ok(CH, "q")).passes();
        assert_eq!(dies(&mut s), name("dlx"));
    }
}

#[test]
fn when_the_queue_is_deleted_nothing_counts_any_more() {
    let mut s = changed();
    s.record.clear();
    s.client(&queue_delete("q", 0)).passes();
    s.broker(&delete_ok()).passes();
    assert_eq!(s.policies.count_redeclared(), 0);
    assert_eq!(s.record, [(name("q"), false)]);
}

#[test]
fn who_may_not_write_to_the_exchange_is_refused() {
    let mut s = matching();
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&asks_for("dlx")]);
    let refused =
        "ACCESS_REFUSED - write access to exchange 'dlx' in vhost '/' refused for user 'lim'";
    s.broker(&close(PROBE, 403, refused))
        .broker_gets(&[&close_ok(PROBE), &declare_on(CH, "q", 0, &original())]);
    let left = Event::DeclareLeft {
        queue: name("q"),
        cause: Fallback::Forbidden,
    };
    assert!(s.events.contains(&left), "{:?}", s.events);
}

#[test]
fn what_else_differs_is_refused_in_the_broker_s_words() {
    let mut s = matching();
    let other = "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q' in vhost '/': received none but current is the value '5' of type 'long'";
    s.broker(&close(PROBE, 406, other)).broker_gets(&[
        &close_ok(PROBE),
        &declare_on(
            CH,
            "q",
            0,
            &if_there(&arguments(Some("dlx-proxy/old"), None)),
        ),
    ]);
    s.broker(&close(CH, 406, other))
        .client_gets(&[&close(CH, 406, other)]);
    assert_eq!(s.policies.count_redeclared(), 0);
}

#[test]
fn without_a_target_what_is_rejected_is_left_to_the_broker() {
    let mut s = Script::open(lenient(Mode::Full));
    s.client(&declare_on(CH, "q", 0, &[]))
        .broker_gets(&[&opened(), &declare_on(PROBE, "q", 0, &[])]);
    s.broker(&open_ok()).silent();
    let said = format!(
        "{OF_EXCHANGE}received none but current is the value 'dlx-proxy/old' of type 'longstr'"
    );
    let fits = arguments(Some("dlx-proxy/old"), None);
    corrects(&mut s, &said, &fits);
    s.broker(&declare_ok(PROBE, "q")).silent();
    s.recorded(true).silent();
    s.ensured(true)
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &if_there(&fits))]);
    s.broker(&close_ok(PROBE)).silent();
    s.broker(&declare_ok(CH, "q")).passes();
    let event = redeclared(to(Some("old"), None), to(None, None));
    assert!(s.events.contains(&event), "{:?}", s.events);
    rejected(&mut s).passes();
    assert_eq!(s.dead, []);
}

/// In mode `rejects-only`, or where a queue was made without the proxy.
#[test]
fn a_native_queue_is_told_by_both_of_its_arguments() {
    for mode in [Mode::RejectsOnly, Mode::Full] {
        let mut s = Script::open(lenient(mode));
        let first = match mode {
            Mode::RejectsOnly => original(),
            _ => if_there(&rewritten()),
        };
        s.client(&declare_on(CH, "q", 0, &original()))
            .broker_gets(&[&opened(), &declare_on(PROBE, "q", 0, &first)]);
        s.broker(&open_ok()).silent();
        let said = format!("{OF_EXCHANGE}received 'x' but current is 'old'");
        corrects(&mut s, &said, &arguments(Some("old"), None));
        let said = format!("{OF_KEY}received none but current is the value 'k' of type 'longstr'");
        let fits = arguments(Some("old"), Some("k"));
        corrects(&mut s, &said, &fits);
        s.broker(&declare_ok(PROBE, "q"))
            .broker_gets(&[&asks_for("dlx")]);
        s.broker(&close(PROBE, 403, NOT_BOUND))
            .broker_gets(&[&close_ok(PROBE)]);
        s.recorded(true)
            .broker_gets(&[&declare_on(CH, "q", 0, &if_there(&fits))]);
        s.broker(&declare_ok(CH, "q")).passes();
        // What expires or overflows goes on as before.
        let event = Event::Redeclared {
            queue: name("q"),
            before: to(Some("old"), Some("k")),
            now: to(Some("dlx"), None),
            own: Some(to(Some("old"), Some("k"))),
        };
        assert!(s.events.contains(&event), "{:?}", s.events);
        assert_eq!(dies(&mut s), name("dlx"));
    }
}

#[test]
fn a_declare_that_fits_goes_on_as_it_is() {
    let mut s = Script::open(lenient(Mode::RejectsOnly));
    s.client(&declare_on(CH, "q", 0, &original()))
        .broker_gets(&[&opened(), &declare_on(PROBE, "q", 0, &original())]);
    s.broker(&open_ok()).silent();
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &original())]);
    s.broker(&close_ok(PROBE)).silent();
    s.broker(&declare_ok(CH, "q")).passes();
    let managed = Event::QueueManaged {
        queue: name("q"),
        taken_over: false,
    };
    assert_eq!(s.events, [managed]);
}

#[test]
fn beyond_max_redeclared_queues_declares_are_strict() {
    let settings = Settings {
        declares: Declares::Lenient,
        ..limited(Mode::RejectsOnly, |limits| {
            limits.fixed.redeclared_queues = 0
        })
    };
    let mut s = Script::open(settings);
    s.client(&declare_on(CH, "q", 0, &original()))
        .broker_gets(&[&opened(), &declare_on(PROBE, "q", 0, &original())]);
    s.broker(&open_ok()).silent();
    let said = format!("{OF_EXCHANGE}received 'dlx' but current is 'old'");
    s.broker(&close(PROBE, 406, &said))
        .broker_gets(&[&close_ok(PROBE), &declare_on(CH, "q", 0, &original())]);
    assert_eq!(s.events, [Event::LimitMet(Limit::RedeclaredQueues)]);
}

/// A name that never ends corrections: the queue is another one each time.
#[test]
fn a_queue_that_is_another_one_each_time_is_given_up() {
    let mut s = Script::open(lenient(Mode::RejectsOnly));
    s.client(&declare_on(CH, "q", 0, &original()))
        .broker_gets(&[&opened(), &declare_on(PROBE, "q", 0, &original())]);
    s.broker(&open_ok()).silent();
    for turn in 0..4 {
        let said = format!("{OF_EXCHANGE}received 'dlx' but current is 'a{turn}'");
        corrects(&mut s, &said, &arguments(Some(&format!("a{turn}")), None));
    }
    let said = format!("{OF_EXCHANGE}received 'dlx' but current is 'b'");
    let last = if_there(&arguments(Some("a3"), None));
    s.broker(&close(PROBE, 406, &said))
        .broker_gets(&[&close_ok(PROBE), &declare_on(CH, "q", 0, &last)]);
}
