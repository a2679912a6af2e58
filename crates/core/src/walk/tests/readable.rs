//! May the user read these queues?

use super::*;

fn asked(queues: &[&str]) -> Rig<Readable> {
    let queues = queues.iter().map(|queue| name(queue)).collect();
    let now = Now {
        mono: Mono(1_000_000),
        ..Now::default()
    };
    Rig::new(Readable::new(login(), queues, Duration::from_secs(5), now))
}

const QUESTION: [(u16, MethodId); 2] = [(1, MethodId::CHANNEL_OPEN), (1, MethodId::BASIC_CONSUME)];

#[test]
fn one_connection_asks_for_all_and_takes_no_message() {
    let mut rig = asked(&["a", "b", "c"]);
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
fn a_broker_that_does_not_answer_or_goes_is_no_answer() {
    let mut rig = asked(&["a"]);
    rig.up("4.3.6");
    rig.pass(5_000);
    assert_eq!(rig.fx.out, Some(Err(Failure::Silent)));

    let mut rig = asked(&["a"]);
    rig.up("4.3.6");
    rig.broker(&close(0, 541, "INTERNAL_ERROR", MethodId(0, 0)));
    let lost = Failure::Connection("541 INTERNAL_ERROR".to_owned());
    assert_eq!(rig.fx.out, Some(Err(lost)));
}
