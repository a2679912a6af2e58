//! Verdicts: before it settles a delivery, a client says with `queue.unbind` what it wants of that ([`Verdict`]).
//!
//! The answer takes its place in the order of the channel. So the broker is asked for something else instead, `channel.flow`, which changes nothing
//! and cannot fail, and its answer becomes `queue.unbind-ok`. A verdict lies beside the copy of its delivery: it is bounded with that, and gone with
//! that. Without a copy nothing is published for the delivery, so there a verdict has no effect.

use crate::amqp::ids::{DeliveryTag, ShortStr};
use crate::amqp::method::{MethodId, QueueUnbind};
use crate::amqp::reply;
use crate::dead_letter::Disposal;
use crate::dead_letter::verdict::Verdict;
use crate::machine::{Event, Leg, Mono, Now, Unused};

use super::channel::Channel;
use super::facts::Facts;
use super::frames::{Handled, Method};
use super::ledger::{Ledger, Page};
use super::replies::Expected;
use super::unacked::Retained;
use super::{Session, Turn};

/// The same for each prefix of the proxy's names: it stands in the code of clients.
pub(super) const EXCHANGE: &[u8] = b"dlx-proxy.verdict";
/// Larger headers are not published, whatever the frames of the client may be.
const FRAME_MAX: usize = 128 * 1024;
/// For what the publisher may add: the proof, and where a parked message should have gone.
const ROOM: usize = 1024;

pub(super) fn is_verdict(method: Method<'_>) -> bool {
    let is_ours = |unbind: QueueUnbind<'_>| unbind.exchange == EXCHANGE;
    method.id == MethodId::QUEUE_UNBIND && QueueUnbind::parse(method.payload).is_ok_and(is_ours)
}

impl Session {
    pub(super) fn verdict(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> Handled {
        let facts = Facts::of(&self.settings, &self.peer, &self.registry);
        let unbind = QueueUnbind::parse(method.payload);
        if let (Some(state), Ok(unbind)) = (self.channels.get_mut(&method.channel), unbind) {
            let unused = match tag(unbind.routing_key) {
                Some(tag) => {
                    let now = turn.now.mono;
                    self.ledger.judge(state, tag, unbind.arguments, facts, now)
                }
                None => Some((ShortStr::EMPTY, Unused::Malformed)),
            };
            if let Some((queue, cause)) = unused {
                turn.event(Event::VerdictUnused { queue, cause });
            }
            state.expect(Expected::Verdict, false);
        }
        reply::channel_flow(turn.build(Leg::Broker), method.channel);
        Handled::Done
    }
}

fn tag(routing_key: &[u8]) -> Option<DeliveryTag> {
    let digits = routing_key.iter().all(u8::is_ascii_digit);
    let number = str::from_utf8(routing_key).ok().filter(|_| digits)?;
    number.parse().ok().map(DeliveryTag)
}

// === impl Ledger ===

impl Ledger {
    /// Keeps a verdict, in the place of an earlier one. Returns the queue, and why the verdict or a
    /// part of it has no effect.
    fn judge(
        &mut self,
        state: &mut Channel,
        tag: DeliveryTag,
        arguments: &[u8],
        facts: Facts<'_>,
        now: Mono,
    ) -> Option<(ShortStr, Unused)> {
        let unacked = &mut state.unacked;
        self.give_back(unacked.set_verdict(tag, None));
        let (verdict, unused) = Verdict::read(arguments);
        let bytes = verdict.bytes();
        let most = facts.settings.limits.now().retained_bytes_per_connection;
        let unused = if !unacked.may_settle(tag) {
            Some(Unused::UnknownTag)
        } else if state.tx.is_some() {
            Some(Unused::Transaction)
        } else if unacked.retained(tag).is_none() {
            Some(Unused::NotRetained)
        } else if !self.take(bytes, most) {
            Some(Unused::Budget)
        } else {
            if let Some(extension) = verdict.extension {
                unacked.extend(tag, now.after(extension));
            }
            unacked.set_verdict(tag, Some(Box::new(verdict)));
            unused
        };
        let queue = unacked.queue_of(tag).cloned().unwrap_or_default();
        unused.map(|cause| (queue, cause))
    }
}

// === impl Page ===

impl Page<'_, '_> {
    /// What becomes of a delivery. Headers of a verdict for which a frame has no room are left out.
    pub(super) fn decide(&mut self, tag: DeliveryTag, now: Now) -> Option<Disposal> {
        let (facts, unacked) = (self.facts, &mut self.state.unacked);
        let decide = |retained: &Retained| {
            let held = retained.delivered.until(now.wall);
            facts.decide((tag, retained), held, now)
        };
        let disposal = unacked.copy(tag).and_then(decide);
        let content = match &disposal {
            Some(Disposal::Publish(it) | Disposal::Park(it, _) | Disposal::Retry(it)) => {
                &it.content
            }
            Some(Disposal::Drop(_) | Disposal::LeaveToBroker(_)) | None => return disposal,
        };
        let most = facts.peer.frame_max().min(FRAME_MAX) - ROOM;
        if content.header_frame() <= most {
            return disposal;
        }
        let Some(freed) = unacked.drop_headers(tag) else {
            return disposal;
        };
        self.ledger.give_back(freed);
        self.turn.event(Event::EditDropped);
        unacked.copy(tag).and_then(decide)
    }

    /// The broker deals with the delivery: its verdict has no effect.
    pub(super) fn forget_verdict(&mut self, tag: DeliveryTag) {
        let unacked = &mut self.state.unacked;
        // That of an ack timeout is the proxy's own.
        if unacked.verdict(tag).is_some()
            && !unacked.is_taken_back(tag)
            && let Some(judged) = unacked.copy(tag)
        {
            let queue = judged.queue.clone();
            self.ledger.give_back(unacked.set_verdict(tag, None));
            let cause = Unused::LeftToBroker;
            self.turn.event(Event::VerdictUnused { queue, cause });
        }
    }
}
