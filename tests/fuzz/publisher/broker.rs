//! What the broker of that target says: answers, confirms, returns, closes.

use dlx_proxy::amqp::method::MethodId;

use super::{BRIDGE, EXCHANGES, Flying, PARKING, Scene, close, method};

impl Scene {
    /// Answers what is due on a channel.
    pub(super) fn answer(&mut self, number: u16) -> bool {
        let Some(channel) = self
            .channels
            .get_mut(&number)
            .filter(|channel| !channel.due.is_empty())
        else {
            return false;
        };
        let answer = match channel.due.remove(0) {
            MethodId::CHANNEL_OPEN => {
                method(number, MethodId::CHANNEL_OPEN_OK, |a| a.longstr(b"").end())
            }
            MethodId::CHANNEL_CLOSE => {
                self.channels.remove(&number);
                method(number, MethodId::CHANNEL_CLOSE_OK, |_| {})
            }
            id => method(number, MethodId(id.0, id.1 + 1), |_| {}),
        };
        self.link.broker(&answer);
        true
    }

    /// Confirms, or not, the oldest publishes of a channel.
    pub(super) fn confirm(&mut self, number: u16, how: u8) -> bool {
        let Some(channel) = self
            .channels
            .get_mut(&number)
            .filter(|channel| !channel.deaf && channel.due.is_empty())
        else {
            return false;
        };
        let tags: Vec<u64> = channel.unconfirmed.keys().copied().collect();
        let Some(tag) = tags.get(usize::from(how >> 5) % tags.len().max(1)) else {
            return false;
        };
        let (multiple, acked, returned) = (how & 1 != 0, how & 6 != 6, how & 24 == 24);
        let named: Vec<u64> = tags
            .iter()
            .copied()
            .filter(|t| t == tag || (multiple && t < tag))
            .collect();
        let mut said = Vec::new();
        for tag in named {
            let flying = channel.unconfirmed.remove(&tag).expect("it is there");
            let Some(ticket) = flying.ticket() else {
                continue;
            };
            // A return has no tag: of two attempts in flight nobody can tell which came back.
            let once = channel
                .unconfirmed
                .values()
                .all(|other| other.ticket() != Some(ticket));
            if returned && once {
                self.unroutable.insert(ticket);
                said.extend(flying.returned(number));
            } else if acked && flying.exchange == PARKING {
                self.parked.insert(ticket);
            } else if acked {
                self.acked.insert(ticket);
            }
        }
        let id = if acked {
            MethodId::BASIC_ACK
        } else {
            MethodId::BASIC_NACK
        };
        said.extend(method(number, id, |a| {
            a.longlong(*tag).octet(u8::from(multiple)).end()
        }));
        self.link.broker(&said);
        true
    }

    pub(super) fn close_channel(
        &mut self,
        number: u16,
        (code, text): (u16, &[u8]),
        failed: MethodId,
    ) {
        let Some(channel) = self
            .channels
            .get_mut(&number)
            .filter(|channel| !channel.deaf)
        else {
            return;
        };
        channel.deaf = true;
        channel.due.clear();
        let lost = std::mem::take(&mut channel.unconfirmed);
        if code == 404 {
            let all = channel.published == 0;
            let named = channel.to.iter().map(|exchange| &exchange[..]);
            for exchange in named.chain(EXCHANGES.iter().copied().filter(|_| all)) {
                let exchange = exchange.strip_prefix(BRIDGE).unwrap_or(exchange);
                self.missing.insert(exchange.to_vec());
            }
            let tickets = lost.values().filter_map(Flying::ticket);
            self.unroutable.extend(tickets);
        }
        self.link.broker(&close(number, code, text, failed));
    }
}
