//! The probe: what the broker is asked on a channel that is opened for it beside the client's. There is one at a time.

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::machine::Mono;

use super::lookup::Lookup;
use super::takeover::Takeover;
use super::verify::Verification;

#[derive(Debug, Default)]
pub(super) enum Probe {
    #[default]
    None,
    /// Which form of a declare fits.
    Takeover(Box<Takeover>),
    /// Whether a queue is still the one that is known.
    Verification(Verification),
    /// What a queue is; not the broker, but its management API.
    Lookup(Lookup),
    /// Nothing more: its channel is being closed.
    Closing(ChannelId),
}

// === impl Probe ===

impl Probe {
    /// Whether something is asked, or the channel is still being closed.
    pub(super) fn is_on_its_way(&self) -> bool {
        !matches!(self, Probe::None)
    }

    /// Its channel, once there is one.
    pub(super) fn channel(&self) -> Option<ChannelId> {
        match self {
            Probe::None | Probe::Lookup(_) => None,
            Probe::Takeover(takeover) => takeover.probe,
            Probe::Verification(verification) => Some(verification.probe),
            Probe::Closing(probe) => Some(*probe),
        }
    }

    /// When it must have been decided, while it is not.
    pub(super) fn until(&self) -> Option<Mono> {
        match self {
            Probe::Takeover(takeover) => Some(takeover.until),
            Probe::Verification(verification) => Some(verification.until),
            Probe::Lookup(lookup) => Some(lookup.until),
            Probe::None | Probe::Closing(_) => None,
        }
    }

    /// The channel on which a declare of the client's is with us, undecided.
    pub(super) fn declaring(&self) -> Option<ChannelId> {
        self.takeover().map(|takeover| takeover.channel)
    }

    /// The declare that is undecided.
    pub(super) fn takeover(&self) -> Option<&Takeover> {
        match self {
            Probe::Takeover(takeover) => Some(takeover),
            Probe::None | Probe::Verification(_) | Probe::Lookup(_) | Probe::Closing(_) => None,
        }
    }

    /// The declare that is undecided.
    pub(super) fn takeover_mut(&mut self) -> Option<&mut Takeover> {
        match self {
            Probe::Takeover(takeover) => Some(takeover),
            Probe::None | Probe::Verification(_) | Probe::Lookup(_) | Probe::Closing(_) => None,
        }
    }

    /// The declare is decided.
    pub(super) fn take_takeover(&mut self) -> Option<Box<Takeover>> {
        match std::mem::take(self) {
            Probe::Takeover(takeover) => Some(takeover),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Takes out the question for that queue.
    pub(super) fn take_lookup(&mut self, queue: &ShortStr) -> Option<Lookup> {
        match std::mem::take(self) {
            Probe::Lookup(lookup) if lookup.queue == *queue => Some(lookup),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Takes out a verification.
    pub(super) fn take_verification(&mut self) -> Option<Verification> {
        match std::mem::take(self) {
            Probe::Verification(verification) => Some(verification),
            other => {
                *self = other;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::verify::Why;

    fn verification() -> Probe {
        Probe::Verification(Verification {
            queue: ShortStr::EMPTY,
            probe: ChannelId(9),
            until: Mono::default(),
            why: Why::Dies,
            form: Default::default(),
        })
    }

    #[test]
    fn a_probe_that_is_being_closed_has_a_channel_and_no_deadline() {
        let closing = Probe::Closing(ChannelId(9));
        assert!(closing.is_on_its_way());
        assert_eq!(closing.channel(), Some(ChannelId(9)));
        assert_eq!((closing.until(), closing.declaring()), (None, None));
        assert!(!Probe::None.is_on_its_way());
    }

    #[test]
    fn only_what_is_asked_is_taken_out() {
        let mut probe = verification();
        assert!(probe.take_takeover().is_none());
        assert_eq!(probe.channel(), Some(ChannelId(9)));
        assert!(probe.take_verification().is_some());
        assert!(!probe.is_on_its_way());
        assert!(probe.take_verification().is_none());
    }
}
