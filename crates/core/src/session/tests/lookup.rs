//! With a management API that answers, a queue is asked for there.

use std::sync::Arc;

use super::inquiry::asked;
use super::names;
use super::probes::{declare_on, opened, original};
use super::script::*;
use super::verify::{PROBE, refused};
use crate::amqp::ids::name;
use crate::amqp::method::MethodId;
use crate::machine::Mono;
use crate::objects::QueueType;
use crate::registry::arguments::if_there;
use crate::registry::catalogue::fact::Source;
use crate::registry::catalogue::{Catalogue, Told};
use crate::registry::policy::Mode;
use crate::registry::{Declared, Form};
use crate::session::Input;

struct World {
    s: Script,
    catalogue: Catalogue,
}

impl World {
    fn new() -> World {
        let settings = settings(Mode::RejectsOnly);
        let catalogue = settings.catalogue.clone();
        settings.policies.set_hears_broker(true);
        let mut s = Script::open(settings);
        s.inquires = true;
        s.doubts = true;
        World { s, catalogue }
    }

    /// The client wants to get from `q`, and waits for an answer.
    fn asks(&mut self) {
        self.s.client(&get("q")).silent();
        assert_eq!(std::mem::take(&mut self.s.fx.out.unknown), [name("q")]);
    }

    /// The API shows a queue with these arguments.
    fn shows(&self, arguments: &[u8], at: Mono) {
        let form = Form::of(0, arguments);
        let shown = Declared::of_queue(form, QueueType::Classic, &names());
        let told = Told::Declared(Arc::new(shown));
        let (vhost, queue) = (name("/"), name("q"));
        self.catalogue
            .learn(&vhost, &queue, &told, Source::Management, at);
    }

    fn answered(&mut self) -> Said<'_> {
        self.s.input(Input::LookedUp(name("q")))
    }
}

fn to(exchange: &str) -> Vec<u8> {
    let mut table = crate::amqp::table::TableBuilder::default();
    table.longstr(b"x-dead-letter-exchange", exchange.as_bytes());
    table.finish()
}

/// The client rejects what it got, and its dead letter goes there.
fn dies_into(s: &mut Script, exchange: &str) {
    s.broker(&got(1)).passes();
    s.client(&reject(1, false)).silent();
    assert_eq!(s.dead[0].1.exchange, name(exchange));
}

#[test]
fn what_it_shows_counts_and_the_broker_is_not_asked() {
    let mut world = World::new();
    world.asks();
    world.shows(&to("dlx"), world.s.now.mono);
    world.answered().broker_gets(&[&get("q")]);
    dies_into(&mut world.s, "dlx");
}

#[test]
fn without_an_answer_the_broker_is_asked() {
    let [open, question] = asked();
    let mut world = World::new();
    world.asks();
    world.answered().broker_gets(&[&open, &question]);

    let mut world = World::new();
    world.asks();
    let timeout = world.s.session.settings.limits.now().probe_timeout;
    world.s.wait(timeout).broker_gets(&[&open, &question]);
}

/// `q` is managed, its user may not declare it any more, and the client wants to read from it.
fn refused_to_verify() -> World {
    let mut world = World::new();
    let form = Form::of(0, &original());
    world.s = world.s.managed_as("q", target("dlx"), false, form);
    world.s.wait(crate::registry::FRESH_FOR).silent();
    let question = declare_on(PROBE, "q", 0, &if_there(&original()));
    world
        .s
        .client(&get("q"))
        .broker_gets(&[&opened(), &question]);
    let close_ok = method(PROBE, MethodId::CHANNEL_CLOSE_OK, |_| {});
    let refusal = refused(PROBE, 403, "ACCESS_REFUSED");
    world.s.broker(&refusal).broker_gets(&[&close_ok]);
    assert_eq!(std::mem::take(&mut world.s.fx.out.unknown), [name("q")]);
    world
}

#[test]
fn who_may_not_ask_the_broker_is_told_that_it_is_the_same() {
    let mut world = refused_to_verify();
    world.shows(&original(), world.s.now.mono);
    world.answered().broker_gets(&[&get("q")]);
    dies_into(&mut world.s, "dlx");
}

#[test]
fn or_that_it_is_another() {
    let mut world = refused_to_verify();
    world.shows(&to("other"), world.s.now.mono);
    world.answered().broker_gets(&[&get("q")]);
    dies_into(&mut world.s, "other");
}

#[test]
fn an_answer_from_before_the_question_proves_nothing() {
    let mut world = refused_to_verify();
    world.shows(&to("other"), Mono(1));
    world.answered().broker_gets(&[&get("q")]);
    // It is the broker's, which has a target for it.
    world.s.broker(&got(1)).passes();
    world.s.client(&reject(1, false)).passes();
}
