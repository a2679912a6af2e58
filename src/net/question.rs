//! What a session asks of who reads the management API.

use crate::amqp::ids::ShortStr;
use crate::machine::Owner;
use crate::session::Input;

use super::vhosts::Hub;

/// A session's question about a queue. Dropping it reports that any answer is in the catalogue.
pub struct Question {
    pub queue: ShortStr,
    owner: Owner,
    hub: Hub,
}

impl Question {
    pub(super) fn new(queue: ShortStr, owner: Owner, hub: &Hub) -> Question {
        let hub = hub.clone();
        Question { queue, owner, hub }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let queue = std::mem::take(&mut self.queue);
        self.hub.to_session(self.owner, Input::LookedUp(queue));
    }
}
