//! What does not fit, and what can never fit again.

use std::task::Waker;

use bytes::Bytes;

use super::*;
use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::link::Login;
use crate::machine::{LiveLimits, Purpose, Reason};
use crate::objects::Names;

fn dead_letter(ticket: u64) -> (Ticket, Publication) {
    let publication = Publication {
        exchange: ShortStr::EMPTY,
        routing_key: ShortStr::EMPTY,
        content: Content {
            properties: Bytes::new(),
            body: Bytes::new(),
        },
        queue: ShortStr::EMPTY,
        reason: Reason::Rejected,
        at_least_once: false,
        history_cut: false,
        purpose: Purpose::Death,
        by: None,
    };
    (Ticket(ticket), publication)
}

#[test]
fn what_waits_for_a_publisher_whose_task_has_ended_waits_on() {
    let (publisher, inbox) = mpsc::channel(1);
    let mut outbox = Outbox::new(Owner(7), publisher);
    let mut cx = Context::from_waker(Waker::noop());
    let mut dead = vec![dead_letter(1)];
    outbox.hand_over(&mut dead, &mut cx);
    assert!(dead.is_empty());
    dead.push(dead_letter(2));
    outbox.hand_over(&mut dead, &mut cx);
    assert_eq!(dead.len(), 1, "there is room for one");
    drop(inbox);
    for _ in 0..3 {
        outbox.hand_over(&mut dead, &mut cx);
        assert_eq!(dead.len(), 1);
    }
}

struct Unheard;

impl Observer for Unheard {
    fn event(&mut self, _: &Event) {}
}

#[test]
fn a_careful_publisher_is_opened_when_it_is_told_something_and_ends_when_it_has_nothing() {
    let settings = publisher::Settings {
        login: Login {
            vhost: ShortStr::EMPTY,
            user: ShortStr::EMPTY,
            password: Bytes::new(),
            seed: 1,
        },
        names: Names::default(),
        on_unroutable: publisher::OnUnroutable::Park,
        limits: LiveLimits::new(crate::config::Config::default().reloadable.limits),
        intake: None,
        existing_delays: Default::default(),
        prefetch: 1,
        careful: false,
    };
    let publisher = Publisher::new(settings, Now::default());
    let opened = Arc::new(std::sync::Mutex::new(Vec::new()));
    let careful = opened.clone();
    let open = Box::new(move |inbox, ends| careful.lock().unwrap().push((inbox, ends)));
    let hub = Hub::new(Box::new(|_, _, _| {}));
    let mut outlet = PublisherOutlet::new(&hub, Box::new(Unheard), open);
    let (mut fx, mut cx) = (
        publisher::Effects::default(),
        Context::from_waker(Waker::noop()),
    );
    outlet.dispatch(&publisher, &mut fx, Now::default(), &mut cx);
    assert!(opened.lock().unwrap().is_empty());
    fx.out.careful.push(publisher::Input::HandOver);
    fx.out.careful.push(publisher::Input::HandOver);
    outlet.dispatch(&publisher, &mut fx, Now::default(), &mut cx);
    let mut opened = opened.lock().unwrap();
    let [(inbox, ends)] = &mut opened[..] else {
        panic!("one is opened");
    };
    assert_eq!(inbox.len(), 2);
    assert!(
        ends.is_cancelled(),
        "the publisher has handed nothing to it"
    );
}
