//! What a queue's arguments say of dead letters ⇄ the name of the intake exchange that says it to the broker.
//!
//! ```text
//! dlx-proxy/<exchange>          no routing key        dlx-proxy     only a policy of ours gives it a target
//! dlx-proxy/<exchange>/<key>    key set, maybe empty  dlx-proxy+…   the same of a quorum queue
//!                                                     dlx-proxy++…  the same with the strategy at-least-once
//! ```
//! A name stands for the *arguments* alone: what a policy adds is looked up when a message dies, so that a changed policy acts at once
//! and never makes the broker refuse a redeclare. For that it tells the type, on which it may depend which policies fit. The encoding is one to one: a name that we would not write ourselves is not ours to read.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};
use thiserror::Error;

use crate::amqp::ids::ShortStr;
use crate::dead_letter::{Bridges, Target};

use super::policy::QueueType;

/// What is written as `%XX`: the separator, the escape itself, and what cannot be read in a tool or a log line. Also the quote, as the
/// broker's texts put names in quotes ([`super::refusal`]). All octets over 127 are escaped by `percent_encode` anyway.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'/').add(b'%').add(b'\'');

/// The longest prefix: it leaves room for names, and other objects of ours append to it.
const LONGEST_PREFIX: usize = 100;

/// A prefix that names cannot begin with.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "prefix {0:?} is not 1 to 100 printable ASCII characters without space, quote, `/`, `%`, `+`, or begins with `amq.`"
)]
pub struct BadPrefix(pub String);

/// The names of the proxy's own exchanges and queues at the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    prefix: ShortStr,
    prefix_quorum: ShortStr,
    prefix_at_least_once: ShortStr,
    intake_queue: ShortStr,
    parking: ShortStr,
    bridges: Bridges,
}

/// What the arguments of a queue say of its dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intake {
    /// An exchange, and maybe a routing key.
    Target(Target),
    /// Nothing: a policy of ours does.
    Policy {
        /// The strategy `at-least-once`.
        at_least_once: bool,
    },
}

// === impl Names ===

impl Names {
    /// Names that begin with `prefix`.
    ///
    /// # Errors
    /// When they could not be told apart, or not be declared.
    pub fn new(prefix: &str) -> Result<Names, BadPrefix> {
        let fits = |byte: u8| byte.is_ascii_graphic() && !b"/%+'".contains(&byte);
        let good = (1..=LONGEST_PREFIX).contains(&prefix.len())
            && prefix.bytes().all(fits)
            && !prefix.starts_with("amq.");
        let name = |end: &str| {
            ShortStr::new(format!("{prefix}{end}"))
                .filter(|_| good)
                .ok_or_else(|| BadPrefix(prefix.to_owned()))
        };
        Ok(Names {
            prefix: name("")?,
            prefix_quorum: name("+")?,
            prefix_at_least_once: name("++")?,
            intake_queue: name(".intake")?,
            parking: name(".parked")?,
            bridges: Bridges::new(name(".bridge/")?),
        })
    }

    /// The queue that collects all signals of a vhost.
    pub fn intake_queue(&self) -> &ShortStr {
        &self.intake_queue
    }

    /// The exchange, and the queue, of dead letters that nothing else takes.
    pub fn parking(&self) -> &ShortStr {
        &self.parking
    }

    /// The exchanges by which internal ones are reached.
    pub fn bridges(&self) -> &Bridges {
        &self.bridges
    }

    /// The name of the intake exchange of a queue of that type; `None` when it would be over 255 octets.
    pub fn encode(&self, intake: &Intake, queue_type: QueueType) -> Option<ShortStr> {
        let start = match (intake.at_least_once(), queue_type) {
            (true, _) => &self.prefix_at_least_once,
            (false, QueueType::Quorum) => &self.prefix_quorum,
            (false, _) => &self.prefix,
        };
        let target = match intake {
            Intake::Policy { .. } => return Some(start.clone()),
            Intake::Target(target) => target,
        };
        let mut name = Vec::with_capacity(start.len() + target.exchange.len() + 2);
        name.extend_from_slice(start);
        for part in [Some(&target.exchange), target.routing_key.as_ref()]
            .into_iter()
            .flatten()
        {
            name.push(b'/');
            for piece in percent_encode(part, ESCAPED) {
                name.extend_from_slice(piece.as_bytes());
            }
        }
        ShortStr::new(name)
    }

    /// What the name of an intake exchange says, and the type of its queues; `None` for every other name, and for one that
    /// [`Names::encode`] never writes.
    pub fn decode(&self, name: &[u8]) -> Option<(Intake, QueueType)> {
        let rest = name.strip_prefix(self.prefix.as_bytes())?;
        let pluses = rest.iter().take_while(|octet| **octet == b'+').count();
        let (queue_type, at_least_once) = match pluses {
            0 => (QueueType::Default, false),
            1 => (QueueType::Quorum, false),
            2 => (QueueType::Quorum, true), // no other type has the strategy
            _ => return None,
        };
        let rest = rest.get(pluses..)?;
        if rest.is_empty() {
            return Some((Intake::Policy { at_least_once }, queue_type));
        }
        let mut parts = rest.strip_prefix(b"/")?.split(|octet| *octet == b'/');
        let mut part = || match parts.next() {
            None => Some(None),
            Some(part) => ShortStr::new(percent_decode(part).collect::<Vec<_>>()).map(Some),
        };
        let intake = Intake::Target(Target {
            exchange: part()??,
            routing_key: part()?,
            at_least_once,
        });
        // One comparison instead of many rules: more parts, lower-case digits, needless escapes.
        (self.encode(&intake, queue_type)?.as_bytes() == name).then_some((intake, queue_type))
    }

    /// Whether the name is, or might become, one of the proxy's own: a client may not use it.
    ///
    /// RabbitMQ ignores carriage returns and line feeds in the names of a declare (`strip_cr_lf`), so they do not hide a name.
    pub fn is_ours(&self, name: &[u8]) -> bool {
        let octets = || name.iter().filter(|octet| !b"\r\n".contains(octet));
        let begins_with = |start: &[u8]| octets().take(start.len()).eq(start);
        if !begins_with(&self.prefix) {
            return false;
        }
        let mut rest = octets().skip(self.prefix.len());
        match rest.next() {
            None | Some(b'/') => true,
            Some(b'+') => match rest.next() {
                Some(b'+') => matches!(rest.next(), None | Some(b'/')),
                other => matches!(other, None | Some(b'/')),
            },
            Some(_) => {
                octets().eq(&*self.intake_queue)
                    || octets().eq(&*self.parking)
                    || begins_with(self.bridges.prefix())
            }
        }
    }

    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }
}

impl Default for Names {
    /// With the default prefix, `dlx-proxy`.
    fn default() -> Self {
        let name = |name: &'static str| ShortStr::new(name).unwrap_or_default();
        Names {
            prefix: name("dlx-proxy"),
            prefix_quorum: name("dlx-proxy+"),
            prefix_at_least_once: name("dlx-proxy++"),
            intake_queue: name("dlx-proxy.intake"),
            parking: name("dlx-proxy.parked"),
            bridges: Bridges::new(name("dlx-proxy.bridge/")),
        }
    }
}

// === impl Intake ===

impl Intake {
    /// The strategy `at-least-once`.
    pub fn at_least_once(&self) -> bool {
        match self {
            Intake::Target(target) => target.at_least_once,
            Intake::Policy { at_least_once } => *at_least_once,
        }
    }
}
