//! Asks the management API what a queue is: where nobody knows it, and where the broker cannot be asked whether it is still the one that is known.
//!
//! The answer comes into the catalogue, whoever asked; the session is told that it has come, or that there is none. The client's command waits
//! meanwhile, no longer than for any probe, and no delivery does.

use crate::amqp::ids::ShortStr;
use crate::machine::Mono;

use super::pause::Hold;
use super::probe::Probe;
use super::verify::Why;
use super::{Session, Turn};

/// One question on its way.
#[derive(Debug)]
pub(super) struct Lookup {
    pub(super) queue: ShortStr,
    /// What was told before counts for nothing.
    pub(super) since: Mono,
    /// When it must have been answered.
    pub(super) until: Mono,
    pub(super) why: Why,
}

impl Session {
    /// Asks for a queue. False: nobody waits, as there is no management API, or it does not answer.
    pub(super) fn look_up(&mut self, queue: &ShortStr, why: Why, turn: &mut Turn<'_>) -> bool {
        if !self.settings.policies.hears_broker() {
            return false;
        }
        let since = turn.now.mono;
        self.probe = Probe::Lookup(Lookup {
            queue: queue.clone(),
            since,
            until: self.probe_deadline(since),
            why,
        });
        self.hold(Hold::Probe, turn);
        turn.fx.out.unknown.push(queue.clone());
        true
    }

    /// It has answered, or has not.
    pub(super) fn looked_up(&mut self, queue: &ShortStr, turn: &mut Turn<'_>) {
        let Some(Lookup { since, why, .. }) = self.probe.take_lookup(queue) else {
            return;
        };
        let now = turn.now.mono;
        let is_told = self.registry.is_told_since(queue, since);
        match why {
            Why::Unknown { is_first, .. } => {
                if !is_told && self.ask_what_it_is(queue, is_first, turn) {
                    return;
                }
                self.adopt_if_meant(queue);
                self.answered = Some(queue.clone());
            }
            _ if !is_told => return self.registry.unverified(queue, now),
            // The answer showed another one.
            _ if !self.registry.is_what_is_told(queue) => {
                self.registry.let_go(queue);
                self.adopt_if_meant(queue);
            }
            _ => {}
        }
        if is_told {
            self.registry.verified(queue, now);
        }
    }
}
