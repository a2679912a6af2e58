//! Whether a consumer gets on: it sees what it is sent, and what it says of that is heard.

use super::{Accounts, Bytes, Delivery, Micros, Tag, Verb};

impl Accounts {
    /// A proxy said that it keeps what clients returned to that queue.
    pub(crate) fn keeps(&mut self, queue: &[u8]) {
        self.kept.insert(queue.to_vec());
    }

    /// What has stood still since then, of that which should not. Of more dead letters on a connection than there are `tickets`, one waits for
    /// another; then it is enough that any of them moves.
    pub(crate) fn stands_still(
        &self,
        since: Micros,
        tickets: usize,
        should_move: impl Fn(Tag) -> bool,
    ) -> Option<String> {
        let stands = |tag: &Tag, at: Micros| at <= since && should_move(*tag);
        // What only the proxy can bring to its target waits for the end of the alarm.
        let waits = |tag: &Tag, verb: Verb| {
            let delivery = self.delivered.get(tag);
            let may_keep = |queue: &Bytes| match verb {
                Verb::Dead => self.rules.may_keep(queue) || self.declares.are_lenient(queue),
                Verb::Returned(_) => self.kept.contains(queue),
                _ => false,
            };
            delivery.is_some_and(|of| may_keep(&of.queue))
        };
        let in_turn = |tag: &Tag| {
            let dead = self
                .verbs
                .range((tag.0, 0, 0)..)
                .take_while(|(of, _)| of.0 == tag.0);
            let dead = dead.filter(|(_, (verb, _))| *verb == Verb::Dead);
            dead.count() > tickets && self.heard.get(&tag.0).is_some_and(|heard| *heard > since)
        };
        let unheard = |(tag, (verb, at)): &(&Tag, &(Verb, Micros))| {
            stands(tag, *at) && !waits(tag, *verb) && !in_turn(tag)
        };
        if let Some((tag, (verb, _))) = self.verbs.iter().find(unheard) {
            return Some(format!("{tag:?}: its client said {verb:?}"));
        }
        // On a channel that its client is closing it does not look any more; the close may wait for its turn, too.
        let unseen = |(tag, of): &(&Tag, &Delivery)| {
            of.seen.is_none() && stands(tag, of.at) && !in_turn(tag)
        };
        let (tag, delivery) = self.delivered.iter().find(unseen)?;
        let body = String::from_utf8_lossy(&delivery.copy.body);
        Some(format!("{tag:?}: its client has not seen {body}"))
    }
}
