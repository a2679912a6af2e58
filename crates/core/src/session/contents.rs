//! Contents as they pass: private headers are added or taken away, and deliveries of managed queues are copied.

use bytes::Bytes;

use crate::amqp::content::{PREFIX, body_size};
use crate::amqp::frame;
use crate::amqp::properties::has_headers;
use crate::dead_letter::private;
use crate::machine::{Event, Leg, Limit, Mono};

use super::channel::{Channel, Copying};
use super::facts::Facts;
use super::ledger::Ledger;
use super::redelivered;
use super::unacked::Retained;
use super::{Settings, Turn};

// === impl Facts ===

impl Facts<'_> {
    /// Adds or removes private headers.
    pub(super) fn edited(
        self,
        state: Option<&mut Box<Channel>>,
        from: Leg,
        properties: &[u8],
        turn: &mut Turn<'_>,
    ) -> Option<Bytes> {
        // Of most messages nothing else is read.
        let rules = |properties| has_headers(properties).then(|| self.rules()).flatten();
        match from {
            Leg::Client => {
                let rules = rules(properties)?;
                let routing_key = state.map_or(&[][..], |state| &state.published_with);
                let edited = private::on_publish(properties, routing_key, &rules)?;
                if frame::HEAD + PREFIX + edited.len() < self.peer.frame_max() {
                    return Some(edited);
                }
                turn.event(Event::EditDropped);
                private::stripped(properties, &rules)
            }
            Leg::Broker => {
                let came_back =
                    state.and_then(|state| redelivered::shown_again(state, self, properties));
                let shown = came_back.as_deref().unwrap_or(properties);
                let bridges = self.settings.names.bridges();
                let edited = rules(shown).and_then(|rules| {
                    bridges.on_delivery(shown, &self.settings.user, rules.dialect)
                });
                edited.or(came_back)
            }
        }
    }
}

// === impl Ledger ===

impl Ledger {
    /// From here on the content is copied, if the budget allows.
    pub(super) fn begin_copy(
        &mut self,
        state: &mut Channel,
        header: &[u8],
        facts: Facts<'_>,
        turn: &mut Turn<'_>,
    ) {
        let in_tx = state.tx.is_some();
        let Some(incoming) = &mut state.copying else {
            return;
        };
        let copying = &mut incoming.method;
        let properties = header.get(PREFIX..).unwrap_or_default();
        if facts.is_of_a_stream(&copying.of.queue, properties) {
            state.copying = None;
            return;
        }
        let most = facts.settings.limits.now().retained_bytes_per_connection;
        let body = usize::try_from(body_size(header).unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let content = body.saturating_add(properties.len());
        let bytes = Retained::cost(&copying.of.exchange, &copying.of.routing_key, content);
        let limit = match bytes <= most.saturating_sub(self.bytes) {
            true => Limit::Retained,
            false => Limit::RetainedPerConnection,
        };
        if !in_tx && self.take(bytes, most) {
            copying.bytes = bytes;
            // A header that cannot be read is the client's to judge: there will be no copy.
            let _kept = incoming.header(header, content);
            return;
        }
        copying.uncopied = facts.counts_uncopied(&copying.of.queue, properties);
        if !in_tx {
            let queue = copying.of.queue.clone();
            turn.event(Event::NotRetained { queue, limit });
        }
    }

    /// Keeps the copy after the last frame.
    pub(super) fn copied(&mut self, state: &mut Channel, settings: &Settings, now: Mono) {
        let ended = state.copying.take_if(|_| state.delivering.is_idle());
        let Some((copied, content)) = ended.map(|ended| ended.finish()) else {
            return;
        };
        let Copying {
            tag,
            mut of,
            bytes,
            uncopied,
            ack_timeout,
        } = copied;
        let mut unused = bytes;
        if let Some(content) = content {
            of.content = content;
            redelivered::before_retries(&mut of, &settings.names, &settings.user);
            let kept = of.bytes();
            // From here on: however long a large one takes, its client has it now.
            of.overdue_at = ack_timeout.map(|timeout| self.watch.begin(timeout, now));
            // What it was before its retries is never larger.
            if kept <= bytes && state.unacked.retain(tag, of) {
                unused -= kept;
            }
        } else if let Some(counts) = uncopied {
            state.unacked.lacks_copy(tag, &of.queue, counts);
        }
        self.give_back(unused);
    }
}
