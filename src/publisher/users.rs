//! What the broker says of user-ids: it refuses one that is not the publisher's own (S8.1), mostly.

use crate::amqp::content::Content;
use crate::dead_letter::proof;
use crate::machine::{Cause, Outcome, Publication, Purpose};
use crate::publisher::Effects;

use super::item::Key;
use super::{Publisher, parked};

impl Publisher {
    /// The broker refused a user-id. If it was our own, the proof, the broker knows our user by another name (OAuth 2): until the link is up again
    /// messages are parked without, and none is published that would be nothing without. True: it is parked so. Else it was a foreign one.
    pub(super) fn cannot_prove(&mut self, key: Key) -> bool {
        if let Some(item) = self.items.get(key)
            && item.publication.purpose != Purpose::Tail
            && parked::is_proven(&item.publication.content, self.link.user())
        {
            let stage = item.stage;
            self.provable = false;
            if stage.is_parking() {
                self.describe(key, stage.cause());
                self.restage(key, stage);
                return true;
            }
        }
        self.foreign_refused = true;
        false
    }

    /// The broker does not take its user-id. What an operator sends back goes without, with the proof that it had another one; else it is back with its
    /// owner.
    pub(super) fn refuse_user(&mut self, key: Key, fx: &mut Effects) {
        let own_user = self.link.user();
        let hidden = self.items.get(key).and_then(|item| {
            let Publication {
                purpose, content, ..
            } = &item.publication;
            let goes_on = *purpose == Purpose::Redrive && !parked::is_proven(content, own_user);
            let properties = proof::prove(&content.properties, own_user, None);
            properties.filter(|_| goes_on).map(|properties| Content {
                properties,
                body: content.body.clone(),
            })
        });
        let Some(content) = hidden else {
            return self.finish(key, Outcome::Refused(Cause::UserId), fx);
        };
        self.items.replace(key, content);
        if let Some(item) = self.items.get_mut(key) {
            item.foreign = false;
            item.suspect = false;
        }
        self.enqueue(key);
    }
}
