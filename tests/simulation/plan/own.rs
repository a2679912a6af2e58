//! The queue that each client has for itself: exclusive, so nobody else can bind it, and gone with its connection. Where it was not taken over, what
//! is returned to it stays with the broker (docs/reference/retries.md).

use fastrand::Rng;

use super::super::codec::methods::{Arg, Args};
use super::super::codec::value::{Bytes, Table, Value};
use super::super::retries::{Known, Retries, Words};
use super::super::rulings::Target;
use super::{number, string, text};

/// What all of them are declared with.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    arguments: Table,
    said: Words,
    /// What a policy of the proxy says of retries.
    pub policy: Words,
    /// A policy has the mode `rejects-only`.
    pub keep: bool,
}

/// Of the queue of that client.
pub(crate) fn name(client: usize) -> String {
    format!("own.{client}")
}

/// A pattern for all of them.
pub(crate) const PATTERN: &str = r"^own\.";

// === impl Own ===

impl Own {
    pub(super) fn draw(rng: &mut Rng, targets: &[String]) -> Own {
        let mut said = [Words::default(); 2];
        while Retries::of(said[0], said[1], false).is_none() {
            said = [(); 2].map(|()| Words::draw(rng, true));
            if rng.bool() {
                said[rng.usize(..2)] = Words::default();
            }
        }
        said[1] = said[1].of_policy(rng);
        let mut fields = vec![string("x-queue-type", "classic")];
        if rng.u8(..4) > 0 {
            let exchange = ["", "dlx"][rng.usize(..2)];
            fields.push(string("x-dead-letter-exchange", exchange));
            let target = &targets[rng.usize(..targets.len())];
            fields.push(string("x-dead-letter-routing-key", target));
        }
        if rng.u8(..3) == 0 {
            fields.push(number("x-message-ttl", rng.u8(1..250)));
        }
        fields.extend(said[0].arguments());
        Own {
            arguments: Table {
                fields,
                rest: Bytes::new(),
            },
            said: said[0],
            policy: said[1],
            keep: rng.bool(),
        }
    }

    pub(super) fn declare(&self, queue: &str) -> (&'static str, Args) {
        let args = vec![
            ("queue", text(queue)),
            ("exclusive", Arg::Bit(true)),
            ("arguments", Arg::Table(self.arguments.clone())),
        ];
        ("queue.declare", args)
    }

    /// What becomes of what is returned to it. `kept`: by the mode of its proxy.
    pub(crate) fn retries(&self, kept: bool) -> Known {
        let taken_over =
            !kept && !self.keep && self.arguments.get("x-dead-letter-exchange").is_some();
        let of = |said| {
            let retries = Retries::of(said, self.policy, false)?;
            Some(if taken_over {
                retries
            } else {
                retries.staying()
            })
        };
        Known {
            seen: of(self.said),
            unseen: of(Words::default()),
            timeouts: [
                self.said.ack_timeout.or(self.policy.ack_timeout),
                self.policy.ack_timeout,
            ],
        }
    }

    /// In milliseconds.
    pub(crate) fn ttl(&self) -> Option<u64> {
        match self.arguments.get("x-message-ttl")? {
            Value::Integer(_, ttl) => u64::try_from(*ttl).ok(),
            _ => None,
        }
    }

    /// Where its dead letters go.
    pub(crate) fn target(&self) -> Option<Target> {
        let text = |name| match self.arguments.get(name)? {
            Value::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        };
        Some(Target {
            exchange: text("x-dead-letter-exchange")?,
            key: text("x-dead-letter-routing-key"),
        })
    }
}
