//! Whether the intake works, said when that changes: all objects are there and are consumed, or the broker refuses one of these. Apart, since
//! neither the topology nor the consumer knows it alone. What stops for a moment, as where a leader changes, changes nothing.

use crate::intake::Effects;
use crate::machine::Event;

use super::consumer::Consumer;
use super::topology::Topology;

/// What was said last in this life of the link: that it works, or the broker's words.
#[derive(Debug, Default)]
pub(super) struct Said(Option<Result<(), String>>);

// === impl Said ===

impl Said {
    pub(super) fn say(&mut self, topology: &mut Topology, consumer: &Consumer, fx: &mut Effects) {
        let (now, event) = if let Some((code, cause)) = topology.refusal().cloned() {
            (Err(cause.clone()), Event::IntakeRefused { code, cause })
        } else if topology.is_ready() && consumer.is_consuming() {
            topology.works();
            (Ok(()), Event::IntakeWorks)
        } else {
            return;
        };
        if self.0.replace(now.clone()) != Some(now) {
            fx.events.push(event);
        }
    }
}
