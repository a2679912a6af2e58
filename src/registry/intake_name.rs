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
use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::amqp::ids::ShortStr;
use crate::dead_letter::{Bridges, Target};

use super::declared_target::DeclaredTarget;
use super::policy::QueueType;

/// What is written as `%XX`: the separator, the escape itself, and what cannot be read in a tool or a log line. Also the quote, as the
/// broker's texts put names in quotes ([`super::refusal`]). All octets over 127 are escaped by `percent_encode` anyway.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'/').add(b'%').add(b'\'');

/// The longest prefix: it leaves most of a name's 255 octets to the exchange and the key, and other objects of ours append to it.
const LONGEST_PREFIX: usize = 64;

/// A prefix that names cannot begin with.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadPrefix {
    /// Names could not be told apart, or not be read by people.
    #[error(
        "write 1 to {LONGEST_PREFIX} printable ASCII characters other than space, `'`, `/`, `%` and `+`"
    )]
    Characters,
    /// A declare would be refused.
    #[error("RabbitMQ keeps names with `amq.` for itself; take another")]
    Reserved,
}

/// The names of the proxy's own exchanges and queues at the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    prefix: ShortStr,
    prefix_quorum: ShortStr,
    prefix_at_least_once: ShortStr,
    intake_queue: ShortStr,
    parking: ShortStr,
    lock: ShortStr,
    redeclared: ShortStr,
    delay: ShortStr,
    due: ShortStr,
    delay_queues: ShortStr,
    return_exchanges: ShortStr,
    bridges: Bridges,
}

// === impl Names ===

impl Names {
    /// Names that begin with `prefix`.
    ///
    /// # Errors
    /// When they could not be told apart, or not be declared.
    pub fn new(prefix: &str) -> Result<Names, BadPrefix> {
        let fits = |byte: u8| byte.is_ascii_graphic() && !b"/%+'".contains(&byte);
        if !(1..=LONGEST_PREFIX).contains(&prefix.len()) || !prefix.bytes().all(fits) {
            return Err(BadPrefix::Characters);
        }
        if prefix.starts_with("amq.") {
            return Err(BadPrefix::Reserved);
        }
        let name = |end: &str| ShortStr::new(format!("{prefix}{end}")).ok_or(BadPrefix::Characters);
        Ok(Names {
            prefix: name("")?,
            prefix_quorum: name("+")?,
            prefix_at_least_once: name("++")?,
            intake_queue: name(".intake")?,
            parking: name(".parked")?,
            lock: name(".parked.lock")?,
            redeclared: name(".redeclared")?,
            delay: name(".delay")?,
            due: name(".due")?,
            delay_queues: name(".delay.")?,
            return_exchanges: name(".return/")?,
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

    /// The queue that a proxy has to itself while it tries what is parked.
    pub fn lock(&self) -> &ShortStr {
        &self.lock
    }

    /// The stream in which proxies record what the last declares of queues said.
    pub fn redeclared(&self) -> &ShortStr {
        &self.redeclared
    }

    /// The exchange that leads to the delay queues, by their milliseconds.
    pub fn delay(&self) -> &ShortStr {
        &self.delay
    }

    /// The exchange into which delay queues let go what they hold, and which leads to the intake queue.
    pub fn due(&self) -> &ShortStr {
        &self.due
    }

    /// The queue in which messages wait for so many milliseconds.
    pub fn delay_queue(&self, millis: u64) -> ShortStr {
        let name = [&*self.delay_queues, millis.to_string().as_bytes()].concat();
        ShortStr::new(name).expect("a prefix is short")
    }

    /// The milliseconds for which messages wait in that queue; `None` for every name that [`Names::delay_queue`] never writes.
    pub fn delay_of(&self, queue: &[u8]) -> Option<u64> {
        let millis = queue.strip_prefix(&*self.delay_queues)?;
        let millis = std::str::from_utf8(millis).ok()?.parse().ok()?;
        (self.delay_queue(millis).as_bytes() == queue).then_some(millis)
    }

    /// The exchange that leads to one queue alone; `None` when its name would be over 255 octets.
    pub fn return_exchange(&self, queue: &[u8]) -> Option<ShortStr> {
        ShortStr::new([&*self.return_exchanges, queue].concat())
    }

    /// The queue that such an exchange leads to; `None` for every other name.
    pub fn returns_to<'a>(&self, exchange: &'a [u8]) -> Option<&'a [u8]> {
        exchange.strip_prefix(&*self.return_exchanges)
    }

    /// The exchanges by which internal ones are reached.
    pub fn bridges(&self) -> &Bridges {
        &self.bridges
    }

    /// The name of the intake exchange of a queue of that type; `None` when it would be over 255 octets.
    pub fn encode(&self, intake: &DeclaredTarget, queue_type: QueueType) -> Option<ShortStr> {
        let start = match (intake.at_least_once(), queue_type) {
            (true, _) => &self.prefix_at_least_once,
            (false, QueueType::Quorum) => &self.prefix_quorum,
            (false, _) => &self.prefix,
        };
        let target = match intake {
            DeclaredTarget::Policy { .. } => return Some(start.clone()),
            DeclaredTarget::Target(target) => target,
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
    pub fn decode(&self, name: &[u8]) -> Option<(DeclaredTarget, QueueType)> {
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
            return Some((DeclaredTarget::Policy { at_least_once }, queue_type));
        }
        let mut parts = rest.strip_prefix(b"/")?.split(|octet| *octet == b'/');
        let mut part = || match parts.next() {
            None => Some(None),
            Some(part) => ShortStr::new(percent_decode(part).collect::<Vec<_>>()).map(Some),
        };
        let intake = DeclaredTarget::Target(Target {
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
        let octets = || {
            name.iter()
                .copied()
                .filter(|octet| !b"\r\n".contains(octet))
        };
        // Most names of clients end here.
        if !octets()
            .take(self.prefix.len())
            .eq(self.prefix.iter().copied())
        {
            return false;
        }
        let name: Vec<u8> = octets().collect();
        let of_its_own = [
            &self.intake_queue,
            &self.parking,
            &self.lock,
            &self.redeclared,
            &self.delay,
            &self.due,
        ];
        let of_intakes = [
            &self.prefix,
            &self.prefix_quorum,
            &self.prefix_at_least_once,
        ];
        let is_intake = |start: &&ShortStr| match name.strip_prefix(start.as_bytes()) {
            Some(rest) => matches!(rest.first(), None | Some(b'/')),
            None => false,
        };
        of_its_own.iter().any(|own| own.as_bytes() == name)
            || of_intakes.iter().any(is_intake)
            || [&self.delay_queues, &self.return_exchanges]
                .iter()
                .any(|start| name.starts_with(start))
            || name.starts_with(self.bridges.prefix())
    }

    /// What all of them begin with.
    pub fn prefix(&self) -> &ShortStr {
        &self.prefix
    }
}

impl Default for Names {
    /// With the default prefix.
    fn default() -> Self {
        Names::new("dlx-proxy").expect("a good prefix")
    }
}

/// As the setting `prefix`, from which the rest follows.
impl Serialize for Names {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.prefix.serialize(serializer)
    }
}
