//! Stated differences that would hide too much elsewhere: each counts only in the scenarios that `shows` it. Those scenarios are about
//! nothing else, and say by their steps what comes instead.

use memchr::memmem;

use super::compare::{How, Rule};
use super::frame::Frame;
use super::methods::Arg;
use super::reader::Received;
use super::run::LEFT_IN;
use super::value::{Array, Table, Value};

/// What all private headers begin with.
const PRIVATE: &[u8] = b"x-dlx-proxy-";

/// Until which a quorum queue of 4.4 holds a message.
const DELIVERY_TIME: &str = "x-opt-delivery-time";

/// Where 4.x forgets (S4.5).
const HISTORY: [&str; 4] = [
    "x-death",
    "x-first-death-reason",
    "x-first-death-queue",
    "x-first-death-exchange",
];

/// What `arrival` explains.
pub(crate) const ARRIVAL: &str = "arrival";

pub(crate) const WIDE: &[Rule] = &[
    Rule {
        name: ARRIVAL,
        reason: "a dead letter is in its target before its original has left the queue and made room",
        stated: true,
        how: How::Arrival,
    },
    Rule {
        name: "history",
        reason: "with `history = continue` an x-death that a client publishes counts on, which 4.x forgets (S4.5)",
        stated: true,
        how: How::Direct(|_, direct, proxied| {
            if counts_on(direct, proxied) {
                take_over(direct, proxied, &HISTORY);
            }
        }),
    },
    Rule {
        name: "max-history",
        reason: "x-death is kept within `max-history`, the oldest entries go",
        stated: true,
        how: How::Direct(|facts, direct, proxied| {
            let kept = deaths(proxied).len();
            // 3.x turns the older ones around at each death: its oldest are in the middle.
            let behind = if facts.is_4x { 0 } else { kept / 2 };
            if let Some(Value::Array(Array { items, .. })) = header_mut(direct, "x-death")
                && items.len() > kept
            {
                items.drain(kept - behind..items.len() - behind);
            }
        }),
    },
    Rule {
        name: "hostile-x-death",
        reason: "what makes 3.x lose the message, or count from the smallest number on, is cleaned (S4.4)",
        stated: true,
        how: How::Both(|_, name, direct, proxied| {
            if name.starts_with(LEFT_IN) && is_empty(direct) {
                *direct = proxied.clone();
            }
            for came in direct {
                let Some(Value::Array(Array { items, .. })) =
                    header_mut(&mut came.frame, "x-death")
                else {
                    continue;
                };
                for item in items {
                    if let Value::Table(death) = item {
                        let counts = death.fields.iter_mut().filter(|(name, _)| name == b"count");
                        for (_, count) in counts {
                            if *count == Value::Integer(b'l', i64::MIN.into()) {
                                *count = Value::Integer(b'l', i64::MAX.into());
                            }
                        }
                    }
                }
            }
        }),
    },
    Rule {
        name: "bcc",
        reason: "BCC keys that the proxy has not seen at the publish do not count at a death (S2.2)",
        stated: true,
        how: How::Both(|_, name, direct, proxied| missing(name, direct, proxied)),
    },
    Rule {
        name: "parked",
        reason: "what nobody takes, or nobody can publish, is parked",
        stated: true,
        how: How::Both(|_, name, direct, proxied| missing(name, direct, proxied)),
    },
    Rule {
        name: "keep-policy",
        reason: "with `rejects-only` the broker does not know a target that only a policy of the proxy names: what expires has none",
        stated: true,
        how: How::Both(|_, name, direct, proxied| missing(name, direct, proxied)),
    },
    Rule {
        name: "policy-key",
        reason: "the key of a broker's policy: for rejects known only by the management API, and beside the exchange of a policy of the proxy's it counts",
        stated: true,
        how: How::Direct(|_, direct, proxied| other_key(direct, proxied)),
    },
    Rule {
        name: "duplicates",
        reason: "a dead letter that one of several queues refuses is tried again, and the others have it more than once (S8.6)",
        stated: true,
        how: How::Both(|_, name, direct, proxied| {
            if name.starts_with(LEFT_IN) {
                for side in [direct, proxied] {
                    once_each(side);
                }
            }
        }),
    },
    Rule {
        name: "cycle-keys",
        reason: "of several keys at the default exchange some lead into a cycle: RabbitMQ leaves out queues, a publisher can only leave out keys (S6.1)",
        stated: true,
        how: How::Direct(|_, direct, proxied| {
            other_key(direct, proxied);
            if direct.newest_death().is_some() {
                take_over(direct, proxied, &["CC"]);
            }
        }),
    },
    Rule {
        name: "private-names",
        reason: "headers with names of the proxy's own are nobody else's: removed when a client publishes them",
        stated: true,
        how: How::Direct(|_, direct, _| without_private(direct)),
    },
    Rule {
        name: "delivery-time",
        reason: "a time that would end a quorum queue of 4.4 goes to no target (S13.2)",
        stated: true,
        how: How::Direct(|_, direct, proxied| {
            if direct.newest_death().is_some()
                && header_mut(&mut proxied.clone(), DELIVERY_TIME).is_none()
                && let Some(headers) = direct.headers_mut()
            {
                let named = |name: &[u8]| name == DELIVERY_TIME.as_bytes();
                headers.fields.retain(|(name, _)| !named(name));
            }
        }),
    },
    Rule {
        name: "taken-over",
        reason: "who declares a queue that was taken over beside the proxy is refused, and reads its intake exchange's name",
        stated: true,
        how: How::Both(|_, name, direct, proxied| {
            if name.starts_with("direct") {
                for (came, proxied) in direct.iter_mut().zip(proxied) {
                    if names_intake(&proxied.frame, b"'") {
                        came.frame = proxied.frame.clone();
                    }
                }
            }
        }),
    },
    Rule {
        name: "beside",
        reason: "a consumer beside the proxy sees private headers, and of x-death on 4.x what the broker knows",
        stated: true,
        how: How::Both(|facts, name, direct, proxied| {
            if name.starts_with("direct") {
                for (came, proxied) in direct.iter_mut().zip(proxied) {
                    without_private(&mut proxied.frame);
                    if facts.is_4x {
                        take_over(&mut came.frame, &proxied.frame, &HISTORY);
                    }
                }
            }
        }),
    },
];

/// Is the newest death the same, and counted at least as often?
fn counts_on(direct: &Frame, proxied: &Frame) -> bool {
    let (Some(direct), Some(proxied)) = (direct.newest_death(), proxied.newest_death()) else {
        return false;
    };
    let same = |name| direct.get(name) == proxied.get(name);
    let count = |death: &Table| match death.get("count") {
        Some(Value::Integer(_, count)) => *count,
        _ => 0,
    };
    same("queue") && same("reason") && count(direct) <= count(proxied)
}

/// A dead letter with the key that the other has.
fn other_key(direct: &mut Frame, proxied: &Frame) {
    if direct.newest_death().is_some()
        && let (Some(key), Some(other)) =
            (direct.arg_mut("routing-key"), proxied.arg("routing-key"))
    {
        *key = other.clone();
    }
}

/// Is a declare refused as the queue's exchange is one of the proxy's, in a text that ends so?
fn names_intake(frame: &Frame, end: &[u8]) -> bool {
    let text = frame.arg("reply-text").map_or(&[][..], Arg::text);
    frame.name == "channel.close"
        && frame.number("reply-code") == 406
        && text.starts_with(
            b"PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue '",
        )
        && memmem::find(text, b" 'dlx-prox").is_some()
        && text.ends_with(end)
}

fn deaths(frame: &Frame) -> &[Value] {
    match frame.headers().and_then(|headers| headers.get("x-death")) {
        Some(Value::Array(deaths)) => &deaths.items,
        _ => &[],
    }
}

fn header_mut<'a>(frame: &'a mut Frame, name: &str) -> Option<&'a mut Value> {
    let mut fields = frame.headers_mut()?.fields.iter_mut();
    let found = fields.find(|(of, _)| of == name.as_bytes());
    found.map(|(_, value)| value)
}

/// These headers as the other frame has them.
fn take_over(frame: &mut Frame, other: &Frame, names: &[&str]) {
    let (Some(headers), Some(other)) = (frame.headers_mut(), other.headers()) else {
        return;
    };
    let named = |name: &[u8]| names.iter().any(|of| of.as_bytes() == name);
    headers.fields.retain(|(name, _)| !named(name));
    let theirs = other.fields.iter().filter(|(name, _)| named(name));
    headers.fields.extend(theirs.cloned());
    headers.fields.sort_by(|(a, _), (b, _)| a.cmp(b));
}

fn without_private(frame: &mut Frame) {
    if let Some(headers) = frame.headers_mut() {
        headers
            .fields
            .retain(|(name, _)| !name.starts_with(PRIVATE));
    }
}

/// Is a queue empty in the end?
fn is_empty(left: &[Received]) -> bool {
    left.iter().all(|came| came.frame.number("count") == 0) && left.len() == 1
}

/// What a queue had directly, and has not.
fn missing(name: &str, direct: &mut Vec<Received>, proxied: &[Received]) {
    if name.starts_with(LEFT_IN) && is_empty(proxied) {
        *direct = proxied.to_vec();
    }
}

/// Messages of a queue without their copies.
fn once_each(left: &mut Vec<Received>) {
    let mut seen: Vec<Frame> = Vec::new();
    left.retain_mut(|came| {
        for name in ["delivery-tag", "message-count", "count"] {
            if let Some(number) = came.frame.arg_mut(name) {
                *number = Arg::Number(0);
            }
        }
        let new = !seen.contains(&came.frame);
        if new {
            seen.push(came.frame.clone());
        }
        new
    });
}
