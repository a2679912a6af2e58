//! Names as label values: the words of the core's enums, and a bounded set of vhosts and queues. Apart from `metrics` because each list
//! here must be exhaustive, and a name from a client must never become a series of its own without a bound.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

use crate::amqp::ids::{ShortStr, Vhost};
use crate::machine::{Cause, Fallback, Outcome};

/// Queues that have series of their own; the others share [`OTHER`].
pub(super) const MAX_QUEUES: usize = 200;
/// Vhosts that have series of their own.
const MAX_VHOSTS: usize = 200;
/// No queue is likely to be called so.
const OTHER: &str = "_other";

/// A label value that costs nothing to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name(Arc<str>);

/// The vhosts and queues seen so far, up to the bounds: first come, first named.
#[derive(Debug)]
pub(super) struct Names {
    other: Name,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    vhosts: HashMap<Vhost, (Name, HashMap<ShortStr, Name>)>,
    queues: usize,
}

/// `outcome` of a dead letter.
pub(super) fn outcome(outcome: Outcome) -> (&'static str, Option<Cause>) {
    match outcome {
        Outcome::Confirmed => ("confirmed", None),
        Outcome::Parked(cause) => ("parked", Some(cause)),
        Outcome::Dropped(cause) => ("dropped", Some(cause)),
        Outcome::Refused(cause) => ("refused", Some(cause)),
    }
}

/// `cause` of a fallback. What the publisher refused has the cause that the publisher gave.
pub(super) fn fallback(fallback: Fallback) -> &'static str {
    match fallback {
        Fallback::NoIntake => "no_intake",
        Fallback::NameTooLong => "name_too_long",
        Fallback::NotSupported => "not_supported",
        Fallback::GeneratedName => "generated_name",
        Fallback::FrameMax => "frame_max",
        Fallback::Forbidden => "forbidden",
        Fallback::NoPermission => "no_permission",
        Fallback::NativeQueue => "native_queue",
        Fallback::Undeclared => "undeclared",
        Fallback::NoChannel => "no_channel",
        Fallback::ChannelLimit => "channel_limit",
        Fallback::ProbeTimeout => "probe_timeout",
        Fallback::Budget => "budget",
        Fallback::Transaction => "transaction",
        Fallback::Unreadable => "unreadable",
        Fallback::Exclusive => "exclusive",
        Fallback::CloseWait => "close_wait",
        Fallback::Refused(by_publisher) => by_publisher.as_str(),
        Fallback::Stale => "stale",
        Fallback::InsideFrame => "inside_frame",
        Fallback::NoTicket => "no_ticket",
        Fallback::TargetUnknown => "target_unknown",
    }
}

/// A copy: a name may be a slice of the buffer that it was read in, which must not live as long as the process.
fn own(name: &ShortStr) -> ShortStr {
    ShortStr::copy(name.as_bytes()).unwrap_or_default()
}

// === impl Name ===

impl Name {
    pub(super) fn of(name: &ShortStr) -> Self {
        Self(name.to_string().into())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl EncodeLabelValue for Name {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), fmt::Error> {
        EncodeLabelValue::encode(&&*self.0, encoder)
    }
}

// === impl Names ===

impl Names {
    pub(super) fn new() -> Self {
        Self {
            other: Name(OTHER.into()),
            seen: Mutex::default(),
        }
    }

    pub(super) fn vhost(&self, vhost: &Vhost) -> Name {
        self.both(vhost, None).0
    }

    /// The labels of a vhost and of a queue in it.
    pub(super) fn queue(&self, vhost: &Vhost, queue: &ShortStr) -> (Name, Name) {
        self.both(vhost, Some(queue))
    }

    /// Two look-ups and no allocation for names that were seen before: this is on the way of every dead letter.
    fn both(&self, vhost: &Vhost, queue: Option<&ShortStr>) -> (Name, Name) {
        let other = || self.other.clone();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Seen { vhosts, queues } = &mut *seen;
        if !vhosts.contains_key(vhost) {
            if vhosts.len() >= MAX_VHOSTS {
                return (other(), other());
            }
            vhosts.insert(own(vhost), (Name::of(vhost), HashMap::new()));
        }
        let (vhost, named) = &mut vhosts.get_mut(vhost).expect("inserted above");
        let Some(queue) = queue else {
            return (vhost.clone(), other());
        };
        if let Some(name) = named.get(queue) {
            return (vhost.clone(), name.clone());
        }
        if *queues >= MAX_QUEUES {
            return (vhost.clone(), other());
        }
        *queues += 1;
        let name = Name::of(queue);
        named.insert(own(queue), name.clone());
        (vhost.clone(), name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_beyond_the_bound_share_one_name() {
        let names = Names::new();
        let name = |text: &str| ShortStr::copy(text.as_bytes()).expect("short");
        for number in 0..MAX_QUEUES {
            let (_, queue) = names.queue(&name("/"), &name(&format!("q{number}")));
            assert_eq!(queue.to_string(), format!("q{number}"));
        }
        let label = |vhost, queue| names.queue(&name(vhost), &name(queue)).1.to_string();
        assert_eq!(label("/", "one-more"), OTHER);
        assert_eq!(label("another-vhost", "q0"), OTHER);
        assert_eq!(label("/", "q0"), "q0", "a name that was given stays");
    }
}

/// Of dead letters that were sent back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, prometheus_client::encoding::EncodeLabelSet)]
pub(super) struct RedriveLabels {
    pub(super) vhost: Name,
    pub(super) outcome: &'static str,
}
