//! What waits for a retry is out of the broker's reach.

use crate::amqp::ids::ShortStr;
use crate::dead_letter::retries::Retries;
use crate::machine::Event;

use super::line::Line;

impl Line<'_, '_> {
    /// A queue was purged or deleted by the broker, which cannot reach messages waiting for a
    /// retry.
    pub(super) fn tell_of_waiting(&mut self, queue: ShortStr, deleted: bool) {
        if self.registry.get(&queue).is_none() {
            self.adopt_if_meant(&queue);
        }
        if let Some(Retries {
            back_off: Some(_), ..
        }) = self.facts().retries(&queue)
        {
            self.turn.event(Event::StillWaiting { queue, deleted });
        }
    }
}
