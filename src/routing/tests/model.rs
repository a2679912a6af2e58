//! Exchanges and bindings of tests.

use crate::amqp::ids::name;
use crate::machine::{Binding, Destination, Exchange};

pub(crate) fn queue(text: &str) -> Destination {
    Destination::Queue(name(text))
}

pub(crate) fn exchange(text: &str, kind: &str, alternate: Option<&str>) -> Exchange {
    Exchange {
        name: name(text),
        kind: name(kind),
        alternate: alternate.map(name),
        is_odd: false,
    }
}

pub(crate) fn binding(source: &str, destination: Destination, key: &str) -> Binding {
    Binding {
        source: name(source),
        destination,
        routing_key: name(key),
    }
}
