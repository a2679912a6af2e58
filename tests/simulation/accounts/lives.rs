//! Queues that come and go, and the channels that are closed for it: who did nothing wrong is not to suffer.

use super::super::client::CHANNELS;
use super::super::plan::Own;
use super::super::retries::{Asked, Life};
use super::{Accounts, Bytes, Conn, Micros, Tag, Whose};

/// What alterations change (`alterations.rs`).
const ALTERED: [&[u8]; 3] = [
    b"'x-max-length'",
    b"'x-expires'",
    b"'x-queue-leader-locator'",
];

impl Accounts {
    /// A client will declare a queue of its own. `kept`: by the mode of its proxy.
    pub(crate) fn has_own(&mut self, queue: Bytes, own: &Own, kept: bool) {
        let life = Life::Fixed(own.retries(kept));
        self.retries.insert(queue.clone(), vec![life]);
        self.ttls.extend(own.ttl().map(|ttl| (queue.clone(), ttl)));
        self.rules.argue(queue, own.target());
    }

    /// The queue is declared as another one from now on.
    pub(crate) fn changes(&mut self, queue: &str, asked: Asked, at: Micros) {
        let queue: Bytes = queue.into();
        let held = self.delivered.iter();
        let held = held.filter(|(_, delivery)| delivery.queue == queue);
        let held = held.map(|(tag, _)| (*tag, self.open_returns(*tag, at)));
        let held: Vec<(Tag, _)> = held.collect();
        let lives = self.retries.entry(queue.clone()).or_default();
        lives.push(Life::Asked(asked));
        for (tag, before) in held {
            self.queue_changed(tag, &before, at);
        }
        self.changed.insert(queue);
    }

    /// # Errors
    /// Nobody asked for that.
    pub(super) fn closed(
        &mut self,
        conn: Conn,
        channel: u16,
        code: u16,
        text: &[u8],
    ) -> Result<(), String> {
        let whose = self.whose.get(&conn).copied();
        let asked_for = self.wrong.contains(&(conn, channel));
        self.count.spoiled += usize::from(code == 406 && self.may_be_refused(conn, channel));
        // A shutdown or an operator; an exchange that an operator has deleted.
        let by_others = code == 320 || code == 404 && self.exchanges_go;
        let says = |part: &[u8]| text.windows(part.len()).any(|of| of == part);
        // The channel that declared it is closed, so what it would have declared next is missing.
        let left = self.declares_left
            && (code == 406 && says(b"dlx-proxy") || code == 404 && says(b"no queue '"));
        // Where it could not be asked, a declare is strict.
        let timed_out = code == 406 && says(b"delivery acknowledgement on channel");
        // What was not there yet, nobody declared here.
        let missing = code == 404 && self.is_stranger(conn);
        let refused = self.declares_refused && matches!(code, 403..=405) && says(b"'source");
        let strict = (self.declares_left || self.declares_refused)
            && code == 406
            && (says(b"'x-dead-letter-") || ALTERED.iter().any(|name| says(name)));
        // Nor is its type known then: without one it is taken for a classic queue, which is declared without retries.
        let retries = says(b"'x-delivery-limit'") || says(b"'x-delayed-retry-");
        let untyped = self.declares_refused && code == 406 && retries;
        // A queue was altered: past its proxy, or before what a client that is gone had sent.
        let late = matches!(code, 404 | 406) && self.may_be_strict(conn);
        if late || left || strict || untyped || timed_out || missing || refused {
            return Ok(());
        }
        let queue = text
            .split(|byte| *byte == b'\'')
            .find(|of| of.starts_with(b"source."));
        if let Some(queue) = queue.filter(|queue| self.gone_once.contains(*queue)) {
            // A form that makes no queue came when there was none any more (docs/guarantees.md, "What the proxy does not do").
            if code == 404 || code == 406 && says(b"'x-max-age'") {
                return Ok(());
            }
            if code == 406 && self.changed.contains(queue) {
                self.refused.push(queue.to_vec());
                return Ok(());
            }
        }
        match whose {
            // A probe's channel is the proxy's own.
            Some(Whose::Client(client)) if !asked_for && !by_others && channel <= CHANNELS => {
                Err(format!(
                    "the broker closed channel {channel} of client {client}, who did nothing wrong: {code} {}",
                    String::from_utf8_lossy(text)
                ))
            }
            _ => Ok(()),
        }
    }
}
