//! What does not fit, and what can never fit again.

use std::task::Waker;

use bytes::Bytes;

use super::*;
use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::machine::{Purpose, Reason};

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
