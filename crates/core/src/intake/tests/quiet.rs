//! A channel on which nothing comes.

use super::*;

/// The time after which it is opened anew: shorter than what the link does in silence.
const QUIET: u64 = 1_000;
const NOBODY: MethodId = MethodId(0, 0);

fn rig() -> IntakeRig {
    let settings = settings();
    settings.limits.set(Limits {
        intake_quiet: Duration::from_millis(QUIET),
        ..Limits::of_tests()
    });
    rig_of(settings)
}

impl IntakeRig {
    fn sends(&mut self, id: MethodId) -> bool {
        self.methods().contains(&(2, id))
    }

    fn closes(&mut self) -> bool {
        self.sends(MethodId::CHANNEL_CLOSE)
    }

    fn close_ok(&mut self) {
        self.broker(&method(2, MethodId::CHANNEL_CLOSE_OK, |_| {}));
    }
}

#[test]
fn it_is_opened_anew_and_nobody_hears_of_that() {
    let mut rig = rig();
    rig.pass(QUIET - 1);
    assert!(!rig.closes());
    rig.pass(1);
    assert!(rig.closes());
    // What had been on its way is put back by the broker.
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    assert_eq!(rig.dead(), []);
    rig.close_ok();
    assert_eq!(rig.consuming(), 1000, "it has not failed");
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    assert_eq!(rig.dead().len(), 1);
    assert_eq!(rig.events(), []);
}

#[test]
fn what_the_broker_had_held_for_it_counts() {
    let mut rig = rig();
    rig.pass(QUIET);
    assert!(rig.closes());
    rig.close_ok();
    rig.consuming();
    for tag in [1, 2] {
        rig.deliver_as(true, tag, "dlx-proxy/x", &died_in("work", "hi"));
    }
    let met = Event::LimitMet(Limit::IntakeQuiet);
    assert_eq!(rig.events(), [met]);
}

#[test]
fn it_is_not_quiet_while_something_is_unsettled_or_comes() {
    let mut rig = rig();
    rig.pass(QUIET - 1);
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    rig.pass(3 * QUIET);
    assert!(!rig.closes());
    let ticket = rig.dead()[0].0;
    rig.settle(&[(ticket, Outcome::Confirmed)]);
    rig.pass(QUIET - 1);
    assert!(!rig.closes());
    rig.pass(1);
    assert!(rig.closes());
    // The answer may take its time.
    rig.pass(3 * QUIET);
    assert!(!rig.closes());
}

#[test]
fn an_end_in_the_middle_counts() {
    let mut rig = rig();
    rig.pass(QUIET);
    rig.input(Input::Publisher(false));
    rig.close_ok();
    assert!(!rig.sends(MethodId::CHANNEL_OPEN));
    rig.input(Input::Publisher(true));
    rig.consuming();
    rig.pass(QUIET);
    assert!(rig.closes());
    // The broker closes it, too.
    let close = close(2, 541, "INTERNAL_ERROR", NOBODY);
    rig.broker(&close);
    assert!(rig.sends(MethodId::CHANNEL_CLOSE_OK));
    rig.close_ok();
    rig.pass(10_000);
    assert_eq!(rig.methods(), OBJECTS);
    rig.objects_ok();
    rig.consuming();
}

/// The process stood still, and all is due at once.
#[test]
fn a_link_that_is_lost_is_not_quiet() {
    let mut rig = rig();
    rig.now.mono = rig.now.mono.after(Duration::from_secs(600));
    rig.machine.timeout(rig.now, &mut rig.fx);
    assert!(matches!(rig.machine.flow(), Flow::Reconnect(_)));
    assert!(!rig.closes());
    rig.up("4.3.6");
    rig.objects();
    rig.consuming();
}
