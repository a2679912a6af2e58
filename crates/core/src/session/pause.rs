//! The pause of a client: why it is not read, and when the broker is to hear a heartbeat of the proxy's in its stead.

use std::time::Duration;

use crate::amqp::ids::ChannelId;
use crate::machine::Mono;

use super::tx;

/// Why the client is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// The next command must wait for withheld rejects of this channel, or of all.
    Withheld(Option<ChannelId>),
    /// The next command depends on pending answers of this channel.
    Answers(ChannelId),
    /// A commit on this channel returns messages, after a pause.
    Commit(ChannelId),
    /// Too many dead letters are in flight.
    Tickets,
    /// Too many replies are pending.
    Replies,
    /// Too many confirms of the broker are pending on this channel, between delayed publishes.
    Confirms(ChannelId),
    /// The exchange of the next publish, which may delay it, is being declared on this channel.
    Exchange(ChannelId),
    /// A declare is being probed, or a probe's channel is closing.
    Probe,
    /// A queue is being made anew.
    Swap,
}

#[derive(Debug, Default)]
pub(super) struct Pause {
    hold: Option<Hold>,
    /// Deadline of the awaited event.
    until: Option<Mono>,
    heartbeat_at: Option<Mono>,
}

// === impl Pause ===

impl Pause {
    /// `patience`: the limit for rejects and answers; `heartbeat`: interval of the proxy's
    /// heartbeats to the broker.
    pub(super) fn begin(
        &mut self,
        hold: Hold,
        patience: Duration,
        heartbeat: Option<Duration>,
        now: Mono,
    ) {
        if self.hold.is_none() {
            self.keep_alive(heartbeat, now);
        }
        self.until = match hold {
            Hold::Withheld(_) | Hold::Answers(_) => Some(now.after(patience)),
            Hold::Commit(_) => Some(now.after(tx::PAUSE)),
            Hold::Tickets
            | Hold::Replies
            | Hold::Confirms(_)
            | Hold::Exchange(_)
            | Hold::Probe
            | Hold::Swap => None,
        };
        self.hold = Some(hold);
    }

    pub(super) fn end(&mut self) {
        *self = Pause::default();
    }

    /// The client is gone: ends the pause, but not the heartbeats.
    pub(super) fn forget_hold(&mut self) {
        (self.hold, self.until) = (None, None);
    }

    /// From now on the proxy sends heartbeats to the broker.
    pub(super) fn keep_alive(&mut self, heartbeat: Option<Duration>, now: Mono) {
        self.heartbeat_at = heartbeat.map(|often| now.after(often));
    }

    pub(super) fn hold(&self) -> Option<Hold> {
        self.hold
    }

    pub(super) fn until(&self) -> Option<Mono> {
        self.until
    }

    pub(super) fn heartbeat_at(&self) -> Option<Mono> {
        self.heartbeat_at
    }

    /// Whether the pause may end by bytes of the broker, which must then be read even if the client
    /// reads nothing.
    pub(super) fn needs_the_broker(&self) -> bool {
        match self.hold {
            Some(
                Hold::Probe
                | Hold::Replies
                | Hold::Confirms(..)
                | Hold::Exchange(..)
                | Hold::Answers(..)
                | Hold::Swap,
            ) => true,
            Some(Hold::Withheld(..) | Hold::Commit(..) | Hold::Tickets) | None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFTEN: Option<Duration> = Some(Duration::from_secs(30));
    const PATIENCE: Duration = Duration::from_secs(5);

    fn at(seconds: u64) -> Mono {
        Mono::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn heartbeats_go_on_when_one_reason_follows_another() {
        let mut pause = Pause::default();
        pause.begin(Hold::Tickets, PATIENCE, OFTEN, at(10));
        pause.begin(Hold::Probe, PATIENCE, OFTEN, at(20));
        assert_eq!(pause.hold(), Some(Hold::Probe));
        assert_eq!(pause.heartbeat_at(), Some(at(40)));
        pause.keep_alive(OFTEN, at(40));
        assert_eq!(pause.heartbeat_at(), Some(at(70)));
    }

    #[test]
    fn a_pause_that_ends_has_no_deadline() {
        let mut pause = Pause::default();
        pause.begin(Hold::Withheld(None), PATIENCE, OFTEN, at(10));
        assert_eq!(pause.until(), Some(at(15)));
        pause.end();
        assert_eq!((pause.hold(), pause.until()), (None, None));
        assert_eq!(pause.heartbeat_at(), None);
    }

    #[test]
    fn the_broker_hears_heartbeats_of_a_client_that_is_gone() {
        let mut pause = Pause::default();
        pause.begin(Hold::Answers(ChannelId(1)), PATIENCE, OFTEN, at(10));
        pause.forget_hold();
        assert_eq!((pause.hold(), pause.until()), (None, None));
        assert_eq!(pause.heartbeat_at(), Some(at(40)));
    }

    #[test]
    fn without_heartbeats_none_is_due() {
        let mut pause = Pause::default();
        pause.begin(Hold::Replies, PATIENCE, None, at(10));
        assert_eq!(pause.heartbeat_at(), None);
        assert!(pause.needs_the_broker());
    }
}
