//! Contents as they pass: private headers are added or taken away, and deliveries of managed queues are copied.

use crate::amqp::content::{PREFIX, body_size};
use crate::amqp::frame;
use crate::amqp::ids::ChannelId;
use crate::amqp::incoming::Incoming;
use crate::amqp::properties::has_headers;
use crate::dead_letter::private;
use crate::machine::{Event, Leg, Limit};

use super::channel::Transfer;
use super::frames::Header;
use super::redelivered::{self, Before};
use super::retries::Retried;
use super::unacked::Retained;
use super::{Session, Turn};

impl Session {
    /// A content header, whole.
    pub(super) fn header(&mut self, header: Header<'_>, turn: &mut Turn<'_>) {
        let Header {
            from,
            channel,
            payload,
            ..
        } = header;
        let octets = body_size(payload).unwrap_or(0);
        let discard = match self.transfer(from, channel) {
            None => false,
            Some(transfer) => {
                let discard = transfer.discards();
                transfer.header(octets);
                discard
            }
        };
        if from == Leg::Broker {
            self.begin_copy(channel, payload, turn);
        }
        if !discard {
            self.pass_header(header, turn);
        }
        if octets == 0 {
            if from == Leg::Broker {
                self.copied(channel);
            }
            self.boundary(turn);
        }
    }

    /// The content that passes on a channel.
    pub(super) fn transfer(&mut self, from: Leg, channel: ChannelId) -> Option<&mut Transfer> {
        let channel = self.channels.get_mut(&channel)?;
        Some(match from {
            Leg::Client => &mut channel.publishing,
            Leg::Broker => &mut channel.delivering,
        })
    }

    /// Passes a content header on, with the private headers added or taken away where there are any.
    fn pass_header(&mut self, header: Header<'_>, turn: &mut Turn<'_>) {
        let Header {
            from,
            channel,
            payload,
            ..
        } = header;
        let (prefix, properties) = payload.split_at_checked(PREFIX).unwrap_or((payload, &[]));
        let came_back = match from {
            Leg::Client => None,
            Leg::Broker => self.shown_again(channel, properties),
        };
        let shown = came_back.as_deref().unwrap_or(properties);
        let edited = match (self.rules(), from) {
            (Some(rules), Leg::Client) if has_headers(properties) => {
                let channel = self.channels.get(&channel);
                let routing_key = channel.map_or(&[][..], |state| &state.published_with);
                private::on_publish(properties, routing_key, &rules)
            }
            (Some(rules), Leg::Broker) if has_headers(shown) => {
                let bridges = self.settings.names.bridges();
                let edited = bridges.on_delivery(shown, &self.settings.user, rules.dialect);
                edited.or(came_back)
            }
            _ => came_back,
        };
        let fits = |edited: &[u8]| {
            from == Leg::Broker || frame::HEAD + PREFIX + edited.len() < self.peer.frame_max()
        };
        let edited = match edited {
            Some(edited) if !fits(&edited) => {
                turn.event(Event::EditDropped);
                private::stripped(properties)
            }
            edited => edited,
        };
        match edited {
            Some(edited) => turn.replace(from, |out| {
                frame::put(out, 2, channel, |out| {
                    out.extend_from_slice(prefix);
                    out.extend_from_slice(&edited);
                })
            }),
            None => turn.pass(from, header.range()),
        }
    }

    /// The header of a delivery: from here on its content is copied, if the budget allows.
    fn begin_copy(&mut self, channel: ChannelId, header: &[u8], turn: &mut Turn<'_>) {
        let state = self.channels.get(&channel);
        let Some(copying) = state.and_then(|state| state.copying.as_ref()) else {
            return;
        };
        let copying = &copying.method;
        if self.is_of_a_stream(&copying.queue, header.get(PREFIX..).unwrap_or_default()) {
            return self.copy_nothing(channel);
        }
        let left = self
            .settings
            .limits
            .now()
            .retained_bytes_per_connection
            .saturating_sub(self.octets);
        let body = usize::try_from(body_size(header).unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let content = body.saturating_add(header.len().saturating_sub(PREFIX));
        let octets = Retained::cost(&copying.exchange, &copying.routing_key, content);
        let limit = match octets <= left {
            true => Limit::Retained,
            false => Limit::RetainedPerConnection,
        };
        let in_tx = state.is_some_and(|state| state.tx.is_some());
        let fits = !in_tx && octets <= left && self.settings.retained.take(octets);
        let mut uncopied = None;
        if !fits {
            let queue = copying.queue.clone();
            uncopied = self.counts_uncopied(&queue, header.get(PREFIX..).unwrap_or_default());
            if !in_tx {
                turn.event(Event::NotRetained { queue, limit });
            }
        }
        let Some(copying) = self
            .channels
            .get_mut(&channel)
            .and_then(|state| state.copying.as_mut())
        else {
            return;
        };
        copying.method.uncopied = uncopied;
        if fits {
            // A header that cannot be read is the client's to judge: there will be no copy.
            let _kept = copying.header(header, content);
            copying.method.octets = octets;
            self.octets += octets;
        }
    }

    fn copy_nothing(&mut self, channel: ChannelId) {
        if let Some(state) = self.channels.get_mut(&channel) {
            state.copying = None;
        }
    }

    /// A piece of a delivery's body.
    pub(super) fn copy(&mut self, channel: ChannelId, piece: &[u8]) {
        let state = self.channels.get_mut(&channel);
        if let Some(copying) = state.and_then(|state| state.copying.as_mut()) {
            copying.body(piece);
        }
    }

    /// A frame of a delivery has ended: with the last one its copy is kept.
    pub(super) fn copied(&mut self, channel: ChannelId) {
        let Some(state) = self
            .channels
            .get_mut(&channel)
            .filter(|state| state.delivering.is_idle())
        else {
            return;
        };
        let Some((mut copied, mut content)) = state.copying.take().map(Incoming::finish) else {
            return;
        };
        let (names, own_user) = (&self.settings.names, &self.settings.user);
        let retried = match &mut content {
            Some(content) => redelivered::before_retries(&mut copied, content, names, own_user),
            None => Retried::default(),
        };
        let mut unused = copied.octets;
        match content {
            Some(content) => {
                let retained = Retained {
                    queue: copied.queue,
                    exchange: copied.exchange,
                    routing_key: copied.routing_key,
                    content,
                    before: Before {
                        redelivered: copied.redelivered,
                        nacked: false,
                    },
                    consumer: copied.consumer,
                    delivered: copied.at,
                    retried,
                };
                let octets = retained.octets();
                // What it was before its retries is never larger.
                if octets <= copied.octets && state.unacked.retain(copied.tag, retained) {
                    unused -= octets;
                }
            }
            None => {
                if let Some(counts) = copied.uncopied {
                    state.unacked.lacks_copy(copied.tag, &copied.queue, counts);
                }
            }
        }
        self.give_back(unused);
    }
}
