//! Back in its queue a message has its own key, wherever the broker may kill it again.

use super::moving::{moving, redrive};
use super::*;
use crate::amqp::ids::name;
use crate::amqp::table::{ArrayBuilder, TableBuilder};
use crate::dead_letter::redrive::{Destination, Redrive};
use crate::machine::{Cause, Outcome, Ticket};

/// Properties of a message that died in `orders`, to which it had come with the key `new`.
fn died() -> Bytes {
    died_of(b"shop")
}

/// The same, by another exchange.
fn died_of(exchange: &[u8]) -> Bytes {
    let (mut keys, mut death, mut deaths) = <(ArrayBuilder, TableBuilder, ArrayBuilder)>::default();
    keys.longstr(b"new");
    death
        .long(b"count", 1)
        .longstr(b"reason", b"rejected")
        .longstr(b"queue", b"orders")
        .longstr(b"exchange", exchange)
        .array(b"routing-keys", &keys);
    deaths.table(&death);
    let mut headers = TableBuilder::default();
    headers.array(b"x-death", &deaths);
    let headers = headers.finish();
    let size = (headers.len() as u32).to_be_bytes();
    [&[0x20, 0][..], &size, &headers].concat().into()
}

/// A message has come, and the user may publish as it says that it was published.
fn back(to: Destination) -> WalkRig {
    let asks = to != Destination::Queue(name("other"));
    let mut rig = coming(to);
    if asks {
        rig.asks(false, 1);
        rig.rolled_back();
    }
    rig
}

fn coming(to: Destination) -> WalkRig {
    let wanted = Move {
        to: Some(Redrive {
            to,
            keep_history: true,
            by: name("operator"),
        }),
        ..redrive()
    };
    let mut rig = moving(wanted, 3);
    rig.comes_with("dead", died());
    rig
}

impl WalkRig {
    /// Where the only message goes that it handed to the publisher: exchange and key.
    fn goes(&mut self) -> (u64, String, String) {
        let [(Ticket(ticket), publication)] = &self.fx.out.publish[..] else {
            panic!("not one: {:?}", self.fx.out.publish);
        };
        let (exchange, key) = (&publication.exchange, &publication.routing_key);
        let goes = (*ticket, exchange.to_string(), key.to_string());
        self.fx.out.publish.clear();
        goes
    }
}

fn way(ticket: u64, exchange: &str, key: &str) -> (u64, String, String) {
    (ticket, exchange.to_owned(), key.to_owned())
}

#[test]
fn a_message_goes_back_with_its_own_key_by_an_exchange_that_leads_to_its_queue_alone() {
    for to in [Destination::Source, Destination::Queue(name("orders"))] {
        let mut rig = back(to);
        assert_eq!(rig.goes(), way(1, "dlx-proxy.return/orders", "new"));
    }
    let mut elsewhere = back(Destination::Queue(name("other")));
    assert_eq!(
        elsewhere.goes(),
        way(1, "", "other"),
        "it begins anew there"
    );
}

/// It is another connection's alone, or gone.
#[test]
fn where_nothing_can_be_bound_to_the_queue_it_goes_by_the_default_exchange() {
    let mut rig = back(Destination::Source);
    rig.goes();
    rig.settles(1, Outcome::Refused(Cause::NoExchange));
    assert!(!rig.machine.progress().summary.moved.waits);
    rig.pass(0);
    assert_eq!(rig.goes(), way(1, "", "orders"));
    rig.settles(1, Outcome::Refused(Cause::NoExchange));
    let stay = &rig.machine.progress().summary.moved.stay;
    assert_eq!(stay["no_exchange"], 1, "not for ever");

    let mut forbidden = back(Destination::Source);
    forbidden.goes();
    forbidden.settles(1, Outcome::Refused(Cause::Forbidden));
    let stay = &forbidden.machine.progress().summary.moved.stay;
    assert_eq!(stay["forbidden"], 1, "it could be lost there");

    let mut cancelled = back(Destination::Source);
    cancelled.input(Input::Enough);
    cancelled.goes();
    cancelled.settles(1, Outcome::Refused(Cause::NoExchange));
    cancelled.pass(0);
    assert!(cancelled.handed().is_empty());
}

/// Whoever may write into the queue may have written anything into `x-death`.
#[test]
fn what_a_message_says_of_its_past_takes_the_right_to_publish_so() {
    const REFUSED: &str =
        "ACCESS_REFUSED - write access to exchange 'shop' in vhost '/' refused for user 'o'";
    let mut rig = coming(Destination::Source);
    let sent = rig.sent();
    let asked = sent.iter().find(|sent| sent.is(2, MethodId::BASIC_PUBLISH));
    let asked = &asked.expect("a question").payload[6..];
    assert!(asked.starts_with(b"\x04shop\x03new"), "{sent:?}");
    assert!(rig.handed().is_empty());
    rig.broker(&close(2, 403, REFUSED, MethodId::BASIC_PUBLISH));
    assert!(rig.handed().is_empty());
    rig.comes_with("dead", died());
    let stay = &rig.machine.progress().summary.moved.stay;
    assert_eq!((stay.len(), stay[REFUSED]), (1, 2));

    for (code, text) in [
        (404, "NOT_FOUND - no exchange 'shop' in vhost '/'"),
        (
            403,
            "ACCESS_REFUSED - cannot publish to internal exchange 'shop' in vhost '/'",
        ),
    ] {
        let mut rig = coming(Destination::Source);
        rig.broker(&close(2, code, text, MethodId::BASIC_PUBLISH));
        assert_eq!(
            rig.goes(),
            way(1, "dlx-proxy.return/orders", "new"),
            "{text}"
        );
    }
}

#[test]
fn what_came_by_the_default_exchange_is_not_asked_for_but_overtakes_nothing() {
    let mut rig = coming(Destination::Source);
    rig.comes_with("dead", died_of(b""));
    rig.asks(false, 1);
    assert!(rig.handed().is_empty());
    rig.rolled_back();
    assert_eq!(rig.handed(), [1, 2]);
    rig.comes_with("dead", died_of(b""));
    assert_eq!(rig.handed(), [3]);
}
