//! May the user read these queues?

use super::*;

fn asked(at_once: u16, queues: &[&str]) -> Rig<Readable> {
    let queues = queues.iter().map(|queue| name(queue)).collect();
    let now = Now {
        mono: Mono(1_000_000),
        ..Now::default()
    };
    Rig::new(Readable::new(
        login(),
        queues,
        (at_once, Duration::from_secs(5)),
        now,
    ))
}

const QUESTION: [(u16, MethodId); 2] = [(1, MethodId::CHANNEL_OPEN), (1, MethodId::BASIC_CONSUME)];

#[test]
fn one_connection_asks_for_all_and_takes_no_message() {
    let mut rig = asked(1, &["a", "b", "c"]);
    rig.up("4.3.6");
    assert_eq!(rig.methods(), QUESTION);
    let next = [&[(1, MethodId::CHANNEL_CLOSE_OK)], &QUESTION[..]].concat();
    rig.broker(&close(1, 406, "no", MethodId::BASIC_CONSUME));
    assert_eq!(rig.methods(), next);
    rig.broker(&close(1, 403, "ACCESS_REFUSED", MethodId::BASIC_CONSUME));
    assert_eq!(rig.methods(), next);
    rig.broker(&method(1, MethodId::BASIC_CONSUME_OK, |a| {
        a.shortstr(b"tag").end();
    }));
    assert_eq!(rig.methods(), [(1, MethodId::CHANNEL_CLOSE)]);
    assert_eq!(rig.fx.out, None);
    rig.broker(&method(1, MethodId::CHANNEL_CLOSE_OK, |_| {}));
    assert_eq!(rig.methods(), [(0, MethodId::CONNECTION_CLOSE)]);
    let refused = Failure::Refused {
        code: 403,
        text: "ACCESS_REFUSED".to_owned(),
    };
    assert_eq!(rig.fx.out, Some(Ok(vec![None, Some(refused), None])));
}

#[test]
fn some_are_asked_for_at_a_time_and_answers_have_the_order_of_the_queues() {
    let mut rig = asked(2, &["a", "b", "c"]);
    rig.up("4.3.6");
    let second = QUESTION.map(|(_, method)| (2, method));
    assert_eq!(rig.methods(), [QUESTION, second].concat());
    rig.broker(&close(2, 404, "NOT_FOUND", MethodId::BASIC_CONSUME));
    let next = [&[(2, MethodId::CHANNEL_CLOSE_OK)], &second[..]].concat();
    assert_eq!(rig.methods(), next);
    rig.broker(&close(2, 406, "no", MethodId::BASIC_CONSUME));
    assert_eq!(rig.methods(), [(2, MethodId::CHANNEL_CLOSE_OK)]);
    assert_eq!(rig.fx.out, None, "that of the first is not there yet");
    rig.broker(&close(1, 406, "no", MethodId::BASIC_CONSUME));
    let text = "NOT_FOUND".to_owned();
    let refused = Failure::Refused { code: 404, text };
    assert_eq!(rig.fx.out, Some(Ok(vec![None, Some(refused), None])));
}

#[test]
fn a_broker_that_does_not_answer_or_goes_is_no_answer() {
    let mut rig = asked(16, &["a"]);
    rig.up("4.3.6");
    rig.pass(5_000);
    assert_eq!(rig.fx.out, Some(Err(Failure::Silent)));

    let mut rig = asked(16, &["a"]);
    rig.up("4.3.6");
    rig.broker(&close(0, 541, "INTERNAL_ERROR", MethodId(0, 0)));
    let lost = Failure::Connection("541 INTERNAL_ERROR".to_owned());
    assert_eq!(rig.fx.out, Some(Err(lost)));
}
